"""What becomes of a claim in the runs of a cell."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from numalab.guest.proof import Misplaced, MisplacedKind, Proof, ThreadProof
from numalab.guest.witness import Doubt, Timing
from numalab.report.build.verdicts import judge_cells
from numalab.report.claim_outcome import ClaimOutcome
from numalab.results.manifest import HostFacts
from numalab.results.plan import Cell
from numalab.results.reader import StoredRun
from numalab.study.claims import Claim
from support.stored_run import stored_manifest, stored_run


def stored(
    variant: str,
    value: float | None,
    mode: str = "icount",
    timing: Timing | None = None,
    **about: str,
) -> StoredRun:
    if mode == "kvm" and timing is None:
        timing = Timing(True, (), ())
    gone = Misplaced(MisplacedKind.GONE, "3")
    differs = (gone,) if timing and not timing.means else ()
    proof = Proof((), (), "", differs=differs)
    manifest = stored_manifest(variant=variant, mode=mode, timing=timing, proof=proof)
    return stored_run(manifest, value, **about)


def runs(
    before: Sequence[float | None], after: Sequence[float | None], **about: Any
) -> list[StoredRun]:
    sides = {"before": before, "after": after}
    return [stored(name, value, **about) for name, side in sides.items() for value in side]


def compared(**keys: Any) -> Claim:
    table = {"text": "t", "measure": "m", "from": "before", "to": "after", "direction": "higher"}
    return Claim.model_validate_json(json.dumps({**table, **keys}))


CELL = Cell("ring-2", "w")


def judge(claim: Claim, stored_runs: list[StoredRun]) -> ClaimOutcome:
    """Judge a claim that is alone in its study."""
    (outcome,) = judge_cells({CELL: ([claim], stored_runs)}, "before")[CELL]
    return outcome


LOW, HIGH = [10.0, 11.0, 9.0, 10.0], [90.0, 91.0, 92.0, 90.0]
STEADY = [1000.0, 1001.0, 999.0, 1000.0]


@pytest.mark.parametrize(
    ("direction", "before", "after", "verdict"),
    [
        ("higher", LOW, HIGH, "reproduced"),
        ("higher", HIGH, LOW, "refuted"),
        ("lower", HIGH, LOW, "reproduced"),
        ("lower", LOW, LOW, "inconclusive"),
        ("lower", [0.0] * 4, [0.0] * 4, "not reached"),
        ("lower", [1.0, 0.0, 0.0, 0.0], [0.0] * 4, "not reached"),
        ("same", STEADY, STEADY, "reproduced"),
        ("same", [0.0] * 4, [0.0] * 4, "vacuous"),
        ("same", LOW, LOW, "inconclusive"),  # by up to 14 %, which nobody would call none
        ("same", HIGH[:1], HIGH[:1], "inconclusive"),
        ("same", LOW, HIGH, "refuted"),
        ("higher", LOW[:3], HIGH[:3], "inconclusive"),  # three seeds show nothing
    ],
)
def test_verdicts(direction: str, before: list[float], after: list[float], verdict: str) -> None:
    claim = compared(direction=direction, mechanism="m", published="more, or less")
    outcome = judge(claim, runs(before, after))
    assert (outcome.verdict, outcome.holds, outcome.required) == (verdict, True, False)
    assert outcome.published == "more, or less"
    assert ("seeds would decide" in outcome.verdict_text or len(after) == 1) == (
        verdict == "inconclusive"
    )


@pytest.mark.parametrize("direction", ["same", "higher"])
@pytest.mark.parametrize(
    ("mechanism", "baseline", "acts"),
    [
        ("m", "before", True),
        ("sched_move_numa", "before", None),  # no run has it, as with an event that is not recorded
        ("numa_move_success", "before", False),  # no value is of something that never happened
        ("m", "another", None),
    ],
)
def test_a_mechanism_without_a_value_is_not_known(
    direction: str, mechanism: str, baseline: str, *, acts: bool | None
) -> None:
    claim = compared(direction=direction, mechanism=mechanism)
    (outcome,) = judge_cells({CELL: ([claim], runs(STEADY, STEADY))}, baseline)[CELL]
    assert (
        outcome.verdict
        == {
            True: "reproduced" if direction == "same" else "refuted",
            False: "vacuous" if direction == "same" else "not reached",
            None: "cannot be seen",
        }[acts]
    )
    if acts is None:
        assert outcome.standing == "neither"
        assert outcome.verdict_text == (
            "cannot be seen (no run of the baseline measured the mechanism)"
        )


def test_runs_without_the_mechanism_do_not_outvote_those_with_it() -> None:
    claim = compared(direction="same", mechanism="m", measure="n")
    before = [*runs(STEADY, []), *runs([None] * 9, [])]
    measured = [
        replace(run, measures={**run.measures, "n": stored("before", 9.0).measures["m"]})
        for run in (*before, *runs([], STEADY))
    ]
    assert judge(claim, measured).verdict == "reproduced"


@pytest.mark.parametrize(
    ("published", "verdict"),
    [
        ("9.5 to 90.5", "reproduced"),
        ("+700% to +1000%", "reproduced"),
        ("+15%", "direction only (larger than published)"),
        ("1 to 1,000", "direction only (smaller than published)"),
    ],
)
def test_the_published_change_decides(published: str, verdict: str) -> None:
    assert judge(compared(published=published), runs(LOW, HIGH)).verdict_text == verdict


def test_a_published_halving_is_not_reproduced_by_a_small_decrease() -> None:
    claim = compared(direction="lower", published="a drop to 1/2 (-50%)")
    outcome = judge(claim, runs(STEADY, [967.0, 966.0, 968.0, 967.0]))
    assert (outcome.verdict, outcome.detail, outcome.standing) == (
        "direction only", "smaller than published", "for"
    )  # fmt: skip
    outcome = judge(claim, runs(STEADY, [1010.0, 1011.0, 1012.0, 1010.0]))
    assert (outcome.detail, outcome.standing) == ("no change beyond the margin", "against")


def test_a_count_falls_to_0_at_most() -> None:
    claim = compared(direction="lower", published="4,244 to 1")
    assert judge(claim, runs([40.0, 44.0, 38.0, 41.0], [0.0] * 4)).verdict == "reproduced"
    assert judge(claim, runs([40.0, 44.0, 38.0, 41.0], [9.0] * 4)).verdict == "direction only"


def test_the_figures_of_the_rule_are_printed() -> None:
    primary = compared(primary=True, published="9.5 to 90.5")
    claims = [primary, compared(direction="lower"), compared(measure="never")]
    outcomes = judge_cells({CELL: (claims, runs(LOW, HIGH))}, "before", 2)[CELL]
    first, second, unseen = outcomes
    assert first.measured == (
        "10 to 90.75 moves, change of geometric means +771 %, -100 to +inf"
        " (97.5 % interval), p = 0.029, one of 2 primary claims, 4 and 4 runs"
    )
    assert first.verdict_text == "inconclusive (5 seeds would decide)"
    assert first.figures is not None
    assert (first.figures.family, first.figures.size, first.figures.seeds) == ("primary", 2, 5)
    assert first.figures.level == pytest.approx(0.025)
    assert second.figures is not None
    assert (second.figures.family, second.figures.size) == ("secondary", 1)
    assert second.measured.endswith("(95 % interval), p = 0.029, 4 and 4 runs")
    assert (unseen.figures, unseen.verdict) == (None, "cannot be seen")


def test_runs_without_a_value_are_counted() -> None:
    """A metric that is not required, and that two of five runs printed."""
    bounded = Claim(text="t", measure="m", variant="before", below=20)
    sides = runs([10.0, 11.0, None, None, None], [None, 90.0, 10.0, 10.0, None])
    outcome = judge(bounded, sides)
    assert (outcome.measured, outcome.holds) == (
        "between 10 and 11 moves (5 runs, 3 without a value)",
        False,
    )
    none = judge(bounded, runs([None] * 3, []))
    assert none.measured == "nothing (3 runs, 3 without a value)"
    assert (none.holds, none.verdict_text) == (False, "not judged (no run of before has a value)")
    advice = judge(compared(), sides).verdict_text
    assert re.fullmatch(r"inconclusive \(\d+ seeds with a value would decide\)", advice)


def test_all_cells_of_a_study_share_one_error_rate() -> None:
    cells = {Cell("ring-2", f"w{n}"): ([compared()], runs(LOW, HIGH)) for n in range(3)}
    none = {Cell("ring-2", "none"): ([compared()], runs(LOW, LOW))}
    outcomes = judge_cells(cells | none, "before")
    levels = {outcome.figures.level for (outcome,) in outcomes.values() if outcome.figures}
    assert levels == {0.05 * 3 / 4}
    assert [outcome.verdict for (outcome,) in outcomes.values()] == [
        *["reproduced"] * 3,
        "inconclusive",
    ]


def test_no_number_of_seeds_decides_one_of_very_many_claims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("numalab.report.build.verdicts.fewest_runs", lambda level: None)
    (first, _) = judge_cells({CELL: ([compared()] * 2, runs(LOW, LOW))}, "before")[CELL]
    assert first.verdict_text == (
        "inconclusive (no number of seeds decides one of 2 secondary claims)"
    )


def test_a_percentage_changes_by_points() -> None:
    claim = compared(published="52.18% to 99.30%")
    outcome = judge(claim, runs([50.0, 52.0, 51.0, 52.5], [99.0, 98.0, 99.5, 99.0], unit="%"))
    assert "change +47.5 points, +45.5 to +49.5 (95 % interval)" in outcome.measured
    assert outcome.verdict == "reproduced"


def test_a_ratio_has_no_zero() -> None:
    outcome = judge(compared(), runs([0.0, 1.0], [1.0, 2.0], unit="s"))
    assert outcome.verdict_text == (
        "cannot be seen because 0 has no logarithm; its claim needs another scale"
    )
    claim = compared(scale="linear")
    assert judge(claim, runs([0.0, 1.0], [1.0, 2.0], unit="s")).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("mode", "kind", "verdict"),
    [
        ("icount", "timing", "cannot be seen in this mode because icount counts instructions"),
        ("tcg", "timing", "cannot be seen in this mode because tcg emulates"),
        ("kvm", "timing", "reproduced"),
        ("timed", "timing", "reproduced"),
        ("tcg", "placement", "reproduced"),
    ],
)
def test_time_is_not_judged_where_it_is_not_that_of_hardware(
    mode: str, kind: str, verdict: str
) -> None:
    outcome = judge(compared(), runs(LOW, HIGH, mode=mode, kind=kind))
    assert outcome.verdict_text.startswith(verdict)
    assert outcome.kind == ("modelled" if mode == "timed" else kind)
    assert outcome.measured.startswith("10 to 90.75 moves")


@pytest.mark.parametrize(
    ("timing", "verdict"),
    [
        (Timing(True, (), ()), "reproduced"),
        (Timing(False, (Doubt.MISPLACED,), ()), "placed: vCPU thread 3 is gone"),
    ],
)
def test_time_is_judged_where_the_proof_of_placement_held(timing: Timing, verdict: str) -> None:
    about = {"mode": "kvm", "kind": "timing"}
    every = runs(LOW, HIGH, timing=Timing(True, (), ()), **about)
    every[-1] = stored("after", HIGH[-1], timing=timing, **about)
    assert judge(compared(), every).verdict_text.endswith(verdict)


VCPUS = (ThreadProof("vcpu 0", 12, (1,), (1,), (0,)), ThreadProof("vcpu 1", 13, (2,), (2,), (1,)))
OTHER = ThreadProof("worker", 14, (0,), (0,))
ELSEWHERE = (VCPUS[0], ThreadProof("vcpu 1", 13, (3,), (3,), (1,)), OTHER)


@pytest.mark.parametrize(
    ("threads", "verdict"),
    [
        ((*VCPUS, OTHER), "reproduced"),
        ((OTHER, *VCPUS), "reproduced"),  # numbers of processes begin anew
        ((*VCPUS, OTHER, OTHER), "reproduced"),  # one that has nothing to do ends after a while
        (ELSEWHERE, "because the runs were not on the same host CPUs"),
    ],
)
def test_time_is_judged_where_vcpus_had_the_same_host_cpus(
    threads: tuple[ThreadProof, ...], verdict: str
) -> None:
    every = runs(LOW, HIGH, mode="kvm", kind="timing")
    for place, run in enumerate(every):
        proof = Proof(threads if place else (*VCPUS, OTHER), (), "")
        every[place] = replace(run, manifest=run.manifest.but(proof=proof))
    assert judge(compared(), every).verdict_text.endswith(verdict)


@pytest.mark.parametrize("mode", ["kvm", "timed"])
@pytest.mark.parametrize(
    ("other", "one_kind"),
    [
        (None, True),
        ({"memory_mib": 1}, True),
        ({"kernel": "6.13"}, False),
        ({"processor": "EPYC"}, False),
        ({"cpus": 3}, False),
    ],
)
def test_time_is_judged_where_all_runs_were_on_one_kind_of_host(
    mode: str, other: Mapping[str, int | str] | None, *, one_kind: bool
) -> None:
    every = runs(LOW, HIGH, mode=mode, kind="timing")
    host = HostFacts(kernel="6.12", processor="Xeon", cpus=64, memory_mib=4096)
    first = None if other is None else host.model_copy(update=other)
    hosts = [first, *[host] * (len(every) - 1)]
    every = [
        replace(run, manifest=run.manifest.but(host=at))
        for run, at in zip(every, hosts, strict=True)
    ]
    verdict = judge(compared(), every).verdict_text
    expected = "because the hosts of the runs differ in processor, CPUs or kernel"
    assert verdict.endswith("reproduced" if one_kind or mode == "timed" else expected)


def test_a_claim_about_large_numbers() -> None:
    large = [[181500.0, 181600.0, 181400.0, 181500.0], [186800.0, 186900.0, 186700.0, 186800.0]]
    assert judge(compared(), runs(*large)).measured == (
        "181,500 to 186,800 moves, change of geometric means +2.92 %, +2.81 to +3.03"
        " (95 % interval), p = 0.029,"
        " 4 and 4 runs"
    )


def test_no_change_is_written_with_an_exponent() -> None:
    measured = judge(compared(), runs([1.0] * 4, [10.997, 10.996, 10.998, 10.997])).measured
    assert "change of geometric means +1,000 %" in measured


def test_means_that_are_no_counts_are_compared_by_their_ratio() -> None:
    """Half an event more would hide the change of small figures."""
    low, high = [0.02, 0.021, 0.019, 0.02], [0.03, 0.0301, 0.0299, 0.03]
    outcome = judge(compared(direction="same"), runs(low, high))
    assert (outcome.verdict, outcome.figures and outcome.figures.scale) == ("refuted", "ratio")
    unseen = judge(compared(direction="higher", scale="ratio"), runs([0.0, *low[1:]], high))
    assert unseen.verdict_text == (
        "cannot be seen because 0 has no logarithm; its claim needs another scale"
    )


def test_means_of_which_one_is_0_are_compared_as_counts() -> None:
    """A fall to 0 has a verdict, whether it is measured or published."""
    fall = judge(compared(direction="lower"), runs([0.31, 0.28, 0.35, 0.3], [0.0, 0.0, 0.01, 0.0]))
    assert (fall.verdict, fall.figures and fall.figures.scale) == ("reproduced", "count")
    claim = compared(direction="lower", published="27 to 0")
    less = judge(claim, runs([4.5, 5.0, 6.0, 5.0], [0.1, 0.2, 0.1, 0.15]))
    assert (less.verdict, less.detail) == ("direction only", "smaller than published")


def test_what_was_not_measured_cannot_be_seen() -> None:
    outcome = judge(compared(), [stored("before", None), stored("after", 3)])
    assert outcome.verdict_text.startswith("cannot be seen in this mode because no run of bef")


def test_an_expected_verdict_and_a_threshold_are_conditions() -> None:
    samples = runs(LOW, HIGH)
    reproduced = judge(compared(expect=["reproduced"]), samples)
    assert (reproduced.holds, reproduced.required) == (True, True)
    assert not judge(compared(expect=["refuted", "inconclusive"]), samples).holds
    assert judge(compared(above=800.0), samples).holds
    assert not judge(compared(above=800.0, below=801.0), samples).holds
    bounded = judge(compared(direction=None, above=800.0), samples)
    assert (bounded.holds, bounded.verdict, bounded.figures) == (True, "", None)
    assert bounded.measured == "10 to 90.75 moves (+807.5%), 4 and 4 runs"
    both = judge(compared(above=800.0), samples).measured
    assert both.startswith("10 to 90.75 moves (+807.5%), change of geometric means +")
    assert judge(compared(direction="same", at_most=0.0), runs([0.0], [0.0])).holds


def test_the_p_value_of_no_change_says_of_what_it_is() -> None:
    """It is small where there is no change, unlike that of every other claim."""
    same = [100.0, 101.0, 100.5, 99.5]
    outcome = judge(compared(direction="same"), runs(same, same))
    assert outcome.verdict == "reproduced"
    assert "p = 0.029 against a change beyond the margin, 4 and 4 runs" in outcome.measured
    assert "margin" not in judge(compared(), runs(same, same)).measured
