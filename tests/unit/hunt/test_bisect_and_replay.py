"""A case on the steps of a history, and on the kernels of the corpus."""

import xml.etree.ElementTree as ET

import pytest

from numalab.bisect.history import History, Step
from numalab.errors import BuildError, LabError, UserError
from numalab.hunt.case import Case
from numalab.hunt.finding import BootResult, Finding
from numalab.hunt.property import SPLAT
from numalab.hunt.replay import (
    JudgedStep,
    Replayed,
    bisect_case,
    render_replay_junit,
    replay,
    verdict,
)
from numalab.kernel.kernel_specs import KernelSpec
from numalab.kernel.patched_kernel import find_kernel
from numalab.study.model import CaseTable

TABLE = CaseTable(property="affinity", value=2.0, most=0.0, sentence="ran elsewhere")


def history(count: int) -> History:
    spec: KernelSpec = find_kernel("debian-6.12")
    steps = [
        Step(f"patch-{n}", f"title {n}", spec, (n - 2,) * (n > 1)) for n in range(1, count + 1)
    ]
    return History("key", Step("patch-0", "before", spec), tuple(steps))


def judged(bad_from: int, unknown: frozenset[int] = frozenset()) -> tuple[list[str], object]:
    rows: list[str] = []

    def judge(step: Step) -> tuple[bool | None, str]:
        number = int(step.name.partition("-")[2])
        return (None if number in unknown else number >= bad_from), ""

    bisection = bisect_case(history(8), judge, lambda row: rows.append(row.step))
    return rows, bisection


def test_finds_the_first_that_violates() -> None:
    for first in range(1, 9):
        rows, bisection = judged(first)
        assert bisection.first == (f"patch-{first}: title {first}",)  # type: ignore[attr-defined]
        assert len(rows) <= 5


def test_what_cannot_be_judged_stays_a_suspect() -> None:
    _, bisection = judged(4, frozenset({4, 3}))
    names = {title.partition(":")[0] for title in bisection.first}  # type: ignore[attr-defined]
    assert names == {"patch-3", "patch-4", "patch-5"}


@pytest.mark.parametrize("kind", [BuildError, UserError])
def test_a_step_that_cannot_be_built_stays_a_suspect(kind: type[LabError]) -> None:
    def judge(step: Step) -> tuple[bool | None, str]:
        if step.name == unbuilt[-1]:
            raise kind("it has no such option\nfair.c:1: error")
        return step.name != "patch-0", ""

    rows: list[JudgedStep] = []
    unbuilt = ["patch-1"]
    assert len(bisect_case(history(2), judge, rows.append).first) == 2
    assert (rows[2].violates, rows[2].seen) == (None, "it has no such option")
    for name in ("patch-0", "patch-2"):
        unbuilt.append(name)
        with pytest.raises(kind, match="error"):  # an end: with all that the compiler said
            bisect_case(history(2), judge, rows.append)


def test_ends_that_do_not_differ() -> None:
    def always(answer: bool | None) -> str:
        steps: list[JudgedStep] = []
        bisection = bisect_case(history(3), lambda _: (answer, ""), steps.append)
        assert not bisection.first
        assert len(steps) == 2
        return bisection.ended

    assert always(True).endswith("do not differ: patch-0 violates it")
    assert "patch-3 does not violate it" in always(False)
    assert "patch-0 is not judged" in always(None)


def test_ends_that_differ_the_other_way_round() -> None:
    bisection = bisect_case(history(3), lambda step: (step.name == "patch-0", ""), lambda _: None)
    assert bisection.ended.startswith("patch-0 violates it, and patch-3 does not")


def test_a_replay_says_what_is_not_as_the_file_says(drawn_case: Case) -> None:
    boots = {
        "bad": BootResult((Finding("affinity", 0, 2.0, 0.0, "ran elsewhere"),), 1.0),
        "good": BootResult((Finding("affinity", 0, 0.0, 0.0, "kept"),), 1.0),
        "lost": BootResult((), 1.0, "no QEMU\nat all"),
    }
    kernels = [("bad", True), ("bad", False), ("good", False), ("good", True), ("lost", True)]
    rows = replay("one", drawn_case, TABLE, kernels, lambda _, kernel: [boots[kernel]])
    assert [row.passes for row in rows] == [True, False, True, False, False]
    suites = ET.fromstring(render_replay_junit(rows))
    assert {key: suites.get(key) for key in ("tests", "failures", "errors")} == {
        "tests": "5",
        "failures": "2",
        "errors": "1",
    }


def test_a_guest_that_is_lost_is_not_a_verdict_about_something_else() -> None:
    lost = BootResult((Finding("guest-lost", None, 1.0, 0.0, "panicked"),), 1.0)
    assert verdict([lost], "affinity", 0.0) == (None, "panicked")
    assert verdict([lost], "guest-lost", 0.0) == (True, "panicked")


def test_without_a_recording_the_kernel_log_is_judged() -> None:
    splat = Finding(SPLAT, None, 1.0, 0.0, "a warning")
    damaged = BootResult((splat,), 1.0, "no load can be judged: why")
    assert verdict([damaged], "affinity", 0.0) == (None, "no load can be judged: why")
    assert verdict([damaged], SPLAT, 0.0) == (True, "a warning")


def test_no_control_characters_in_xml() -> None:
    row = Replayed("case", "kernel", "affinity", False, True, "a\x1bb", 0.5)
    assert "a?b" in render_replay_junit([row])


def test_a_violation_in_some_boots_is_neither() -> None:
    bad = BootResult((Finding("affinity", 0, 2.0, 0.0, "ran elsewhere"),), 1.0)
    good = BootResult((Finding("affinity", 0, 0.0, 0.0, "kept"),), 1.0)
    assert verdict([bad, bad], "affinity", 0.0) == (True, "ran elsewhere")
    assert verdict([good, good], "affinity", 0.0, every=False) == (False, "kept")
    assert verdict([good, bad], "affinity", 0.0) == (False, "in 1 of 2 boots: ran elsewhere")
    half = verdict([good, bad], "affinity", 0.0, every=False)
    assert half == (True, "in 1 of 2 boots: ran elsewhere")


def test_the_limit_of_the_file_decides() -> None:
    near = BootResult((Finding("lost-time", 0, 0.2, 0.6, "waited"),), 1.0)
    assert verdict([near], "lost-time", 0.6) == (False, "waited")
    assert verdict([near], "lost-time", 0.1) == (True, "waited")
