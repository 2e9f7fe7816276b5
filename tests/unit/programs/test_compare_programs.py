"""Comparisons of programs: seeds, error rate, order and verdicts, with made-up machines."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from numalab.cli.guest import compare_programs as command_line
from numalab.errors import UserError
from numalab.measure import Direction, Measure, MeasureInfo, MeasureKind, MeasureSource, SourceKind
from numalab.programs.compare_programs import (
    ProgramComparison,
    ProgramVariant,
    compare_on_machines,
    compare_programs,
    compare_variants,
    parse_variant,
)
from support.one_command import invoke

TIME = MeasureInfo(
    "elapsed_time", "s", Direction.LOWER, MeasureKind.TIMING, "time",
    (MeasureSource(SourceKind.GUEST, "clock"),),
)  # fmt: skip
SHARE = MeasureInfo(
    "memory_local_share", "%", Direction.HIGHER, MeasureKind.MODELLED, "share",
    (MeasureSource(SourceKind.MODEL, ""),),
)  # fmt: skip


class MadeUpMachine:
    """Takes a time by its command and seed; counts its boots."""

    def __init__(
        self, times: Mapping[str, float], share: float | None = 50.0, name: str = "made-up"
    ) -> None:
        self.times, self.share = times, share
        self.topology, self.mode = SimpleNamespace(name=name), "timed"
        self.boots: list[tuple[str, int]] = []

    def measure(self, words: list[str], *, seed: int, **_: object) -> dict[str, Measure]:
        self.boots.append((words[0], seed))
        return {
            "elapsed_time": Measure(TIME, self.times[words[0]] + 0.01 * (seed % 3)),
            "memory_local_share": Measure(SHARE, self.share),
        }


def compared(machine: MadeUpMachine, **options: Any) -> ProgramComparison:
    return compare_programs(machine, ["old"], ["new"], **options)  # type: ignore[arg-type]


def test_a_slower_program_is_worse() -> None:
    machine = MadeUpMachine({"old": 1.0, "new": 2.0})
    result = compared(machine, seeds=3)
    assert machine.boots == [(name, seed) for seed in (1, 2, 3) for name in ("old", "new")]
    assert [row.info.name for row in result.worse] == ["elapsed_time"]
    assert not result.better
    assert str(result).splitlines()[0].endswith("3 runs of each command: 1 worse, 0 better")
    assert "elapsed_time: 1.01 to 2.01 s (+99.0 %): worse" in str(result).splitlines()[1]
    assert result["memory_local_share"].outcome == "no difference shown"


def test_a_faster_program_is_better() -> None:
    result = compared(MadeUpMachine({"old": 2.0, "new": 1.0}))
    assert [row.info.name for row in result.better] == ["elapsed_time"]


def test_equal_programs_do_not_differ() -> None:
    result = compared(MadeUpMachine({"old": 1.0, "new": 1.0}))
    assert not result.better
    assert not result.worse


def test_what_no_run_could_measure_is_left_out() -> None:
    result = compared(MadeUpMachine({"old": 1.0, "new": 1.0}, share=None))
    assert [row.info.name for row in result.rows] == ["elapsed_time"]
    assert "memory_local_share" in result.left_out
    assert str(result).splitlines()[-1].startswith("no run measured user_time, system_time")
    with pytest.raises(UserError, match=r"no measure 'memory_local_share' \(valid: elapsed_time\)"):
        result["memory_local_share"]


def test_each_measure_that_is_left_out_has_its_own_reason() -> None:
    machine = MadeUpMachine({"old": 1.0, "new": 1.0}, share=None)
    machine.mode = "icount"
    assert str(compared(machine)).splitlines()[-3:] == [
        "no run measured task_node_migrations, vmstat_numa_pages_migrated, queue_imbalance",
        "no run measured user_time, system_time (mode icount cannot separate user from "
        "system time)",
        "no run measured memory_local_share, memory_stall_share (mode timed counts accesses)",
    ]


def test_wrong_questions_are_refused() -> None:
    machine = MadeUpMachine({"old": 1.0, "new": 1.0})
    with pytest.raises(UserError, match="seeds: 2 seeds show nothing; use 3 or more"):
        compared(machine, seeds=2)
    assert not machine.boots
    with pytest.raises(UserError, match="no measure 'elapsed'; did you mean elapsed_time"):
        compared(machine, measures=("elapsed",))


def test_variants_share_the_runs_before_and_one_error_rate() -> None:
    machine = MadeUpMachine({"old": 1.0, "same": 1.0, "new": 2.0})
    same, new = compare_variants(machine, ["old"], [["same"], ["new"]], seeds=4)  # type: ignore[arg-type]
    assert machine.boots.count(("old", 1)) == 1
    assert len(machine.boots) == 12
    assert (same.before, same.after, len(same.worse)) == ("old", "same", 0)
    assert (new.before, new.after, len(new.worse)) == ("old", "new", 1)
    assert new["elapsed_time"].family == 2  # of both variants; the share never varies


def test_machines_share_one_error_rate() -> None:
    machines = [
        MadeUpMachine({"old": 1.0, "same": 1.0, "new": 1.1}, name=f"m{number}")
        for number in range(8)
    ]
    taken: list[str] = []

    def in_turn() -> Iterator[MadeUpMachine]:
        for machine in machines:
            assert all(len(other.boots) in (0, 9) for other in machines)
            taken.append(machine.topology.name)
            yield machine

    results = compare_on_machines(in_turn(), ["old"], [["same"], ["new"]], seeds=3)  # type: ignore[arg-type]
    pairs = [(result.machine, result.after) for result in results]
    assert pairs == [(name, after) for name in taken for after in ("same", "new")]
    assert {result["elapsed_time"].family for result in results} == {16}
    assert [len(result.worse) for result in results] == [0, 1] * 8


def test_a_measure_that_is_named_twice_is_one() -> None:
    machine = MadeUpMachine({"old": 1.0, "new": 2.0})
    result = compared(machine, measures=("elapsed_time", "user_time") * 4)
    assert [row.info.name for row in result.rows] == ["elapsed_time"]
    assert result.left_out == ("user_time",)
    assert result == compared(machine, measures=("elapsed_time", "user_time"))


def test_the_first_run_may_lack_a_usual_measure() -> None:
    class Late(MadeUpMachine):
        def measure(self, words: list[str], *, seed: int, **_: object) -> dict[str, Measure]:
            run = super().measure(words, seed=seed)
            return {"elapsed_time": run["elapsed_time"]} if seed == 1 else run

    share = compared(Late({"old": 1.0, "new": 1.0}))["memory_local_share"]
    assert share.before is not None and share.before.n == 4


def test_a_variant_is_a_command_with_settings_before_it() -> None:
    text = "LD_PRELOAD=/lib/a.so /proc/sys/kernel/numa_balancing=0 A='b c' ./prog 'x y' C=D"
    variant = parse_variant(text)
    assert variant.words == ("./prog", "x y", "C=D")
    assert variant.env == {"LD_PRELOAD": "/lib/a.so", "A": "b c"}
    assert variant.tunables == {"/proc/sys/kernel/numa_balancing": "0"}
    assert parse_variant(str(variant)) == variant
    assert parse_variant("/proc/self/exe=1") == ProgramVariant(("/proc/self/exe=1",))


@pytest.mark.parametrize("text", ["", "A=b", "'", "A=b /sys/x=1"])
def test_a_variant_without_a_command_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"no command|No closing quotation"):
        parse_variant(text)


@pytest.mark.parametrize("sign", ["|", "&", ";", "<", ">", "`", "$"])
def test_what_only_a_shell_does_is_refused_unless_it_is_quoted(sign: str) -> None:
    for text in (f"./prog {sign}x 4", f"./prog 'a'{sign}(b)", f"A={sign}'x' ./prog"):
        match = f"not run by a shell: quote the {sign}, or use sh -c 'COMMAND', with --add FILE"
        with pytest.raises(UserError, match=re.escape(match)):
            parse_variant(text)
    for text in (f"sh -c './prog {sign} 4'", f'./prog "\\"{sign}"', f"./prog \\{sign}"):
        variant = parse_variant(text)
        assert sign in str(variant.words[-1])
        assert parse_variant(str(variant)) == variant


def test_a_dollar_before_no_name_stands_for_itself() -> None:
    assert parse_variant("./prog --re=^a$ $ x=$/").words == ("./prog", "--re=^a$", "$", "x=$/")


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("./omp *.c", "*"),
        ("./omp http://x/y?a=b", "?"),
        ("./omp data[0-9].txt", "[0-9]"),
        ("./omp 'x'.{a,b}", "{a,b}"),
        ("./omp {1..4}", "{1..4}"),
        ('./omp --json={"a":1,"b":2}', '{"a":1,"b":2}'),
        ("./omp \\{ ['a b']", "['a b']"),
        ("~/omp 4", "~"),
        ("./omp ~ann/x", "~"),
        ("A=~/x ./omp", "A=~"),
        ("./omp 4 # twice", "#"),
    ],
)
def test_patterns_and_comments_of_a_shell_are_refused(text: str, sign: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"not run by a shell: quote the {sign}, or")):
        parse_variant(text)


@pytest.mark.parametrize(
    "text", ["a=[1] {} {a} [] a#b a~b =~ x[", "'*.c' 'http://x/?a' \\* \"{a,b}\" '~' '#'"]
)
def test_words_that_a_shell_leaves_alone_stay(text: str) -> None:
    variant = parse_variant(f"./omp {text}")
    assert list(variant.words) == ["./omp", *shlex.split(text)]
    assert parse_variant(str(variant)) == variant


def test_the_command_prints_each_variant_and_exits_with_1_for_worse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_up = MadeUpMachine({"old": 1.0, "same": 1.0, "new": 2.0})
    monkeypatch.setattr(command_line, "machine", lambda *_, **__: made_up)
    words = ("ring-4", "--before", "old", "--after", "same")
    equal = invoke(command_line.command, *words)
    assert (equal.exit_code, equal.stdout.startswith("made-up, mode timed")) == (0, True)
    both = invoke(command_line.command, *words, "--after", "A=b new")
    assert both.exit_code == 1
    assert [line for line in both.stdout.splitlines() if line.startswith("after: ")] == [
        "after: same",
        "after: A=b new",
    ]
    document = json.loads(invoke(command_line.command, *words, "--json").stdout)
    assert [(entry["before"], entry["after"]) for entry in document] == [("old", "same")]
    time = document[0]["measures"][0]
    assert [time[key] for key in ("name", "unit", "direction", "kind")] == [
        "elapsed_time", "s", "lower", "timing",
    ]  # fmt: skip


def test_the_command_corrects_for_all_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(name: str, **_: object) -> MadeUpMachine:
        return MadeUpMachine({"old": 1.0, "new": 2.0}, name=name)

    monkeypatch.setattr(command_line, "machine", made)
    words = ("ring-2", "ring-4", "mesh-8", "--before", "old", "--after", "new", "--json")
    for again in ((), ("ring-2", "--after", "new")):
        document = json.loads(invoke(command_line.command, *words, *again).stdout)
        assert [entry["machine"] for entry in document] == ["ring-2", "ring-4", "mesh-8"]
        assert {entry["measures"][0]["family"] for entry in document} == {3}
