"""The choice of candidates, what counts as a change, and the text of a verdict."""

import json
import random
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numalab.campaign.execute import Failure
from numalab.campaign.task import Ended
from numalab.errors import LabError, UserError
from numalab.guest.run import CANNOT_RUN
from numalab.hunt.compare.outcomes import Suspicion
from numalab.hunt.finding import Finding
from numalab.measure import Direction, Measure
from numalab.patch.candidates import (
    HEADLINES,
    Candidate,
    compare,
    find_candidates,
    is_notable,
    judged,
    went,
)
from numalab.patch.ci import patch_problems, render_patch_junit
from numalab.patch.experiment import DecidedCandidate, ExperimentOutcome
from numalab.patch.hunting import FoundCase, HuntOutcome
from numalab.patch.remarks import losses
from numalab.patch.reply import WIDTH, render_reply
from numalab.patch.standard import BASELINE, PATCHED
from numalab.patch.text import (
    MOST_LINES,
    change_line,
    lost_text,
    reach_summary,
    render_verdict,
    unchanged_line,
)
from numalab.patch.unchanged import Unchanged
from numalab.patch.verdict import (
    CellCase,
    LostRuns,
    PatchVerdict,
    changes_of,
    lost_of,
    smallest_cell,
    standing_out,
    unchanged_of,
    undecided_of,
    untested_of,
    word_of,
)
from numalab.patch.warned import one_sided, reports_of, uncompared
from numalab.reach.model import CodeChange, LineReach, LineState, PatchReach, RunReach
from numalab.report.formats.annotations import render_code_quality, render_github
from numalab.results.layout import Results
from numalab.results.plan import Cell, planned_run
from numalab.results.reader import StoredRun
from numalab.statistics.sequential import FreshDecision, FreshSample
from numalab.statistics.summary import Values
from support.stored_run import stored_manifest, stored_run

CELL = Cell("ring-2", "w")


def runs(before: Sequence[float], after: Sequence[float], **about: str) -> list[StoredRun]:
    """Return runs of both kernels that measured `m`, a percentage that should be small."""
    words = {"unit": "%", "direction": "lower", **about}
    return [
        stored_run(
            stored_manifest(run=f"ring-2_w_{variant}_{seed}", variant=variant, seed=seed),
            value,
            **words,
        )
        for variant, values in ((BASELINE, before), (PATCHED, after))
        for seed, value in enumerate(values, 1)
    ]


def on(machine: str, stored: Sequence[StoredRun]) -> list[StoredRun]:
    """Return runs as those of another machine."""
    return [
        replace(run, manifest=run.manifest.but(topology=machine, run=planned_run(
            Cell(machine, "w"), run.manifest.variant, run.manifest.seed).id))
        for run in stored
    ]  # fmt: skip


def candidate(stored: Sequence[StoredRun]) -> Candidate:
    """Return the only candidate of some runs."""
    (only,) = find_candidates(stored, [CELL], last_seed=4)
    return only


def outcome(stored: Sequence[StoredRun], *, shown: bool = True) -> ExperimentOutcome:
    """Return an experiment whose candidate has the same values in its fresh runs."""
    values: Callable[[str], Values] = lambda side: [  # noqa: E731
        run.value("m") for run in stored if run.manifest.variant == side
    ]
    decision = FreshDecision(0.0001, 0.001 if shown else 0.5, 0.0025, not shown)
    decided = DecidedCandidate(
        candidate(stored), FreshSample(values(BASELINE), values(PATCHED)), decision
    )
    return ExperimentOutcome(tuple(stored), 4, (decided,), (), time_over=False)


def verdict(stored: Sequence[StoredRun], **changes: object) -> PatchVerdict:
    """Return the verdict on an experiment with these runs."""
    changes_shown = changes_of(outcome(stored), "icount") if stored else ()
    word = word_of(changes_shown, None, HuntOutcome(), share=1.0)
    whole = PatchVerdict(
        "x", ("sched/fair: Do it",), "debian-6.12", "debian-6.12+x", "6.12.1", "icount", word,
        changes_shown,
    )  # fmt: skip
    return PatchVerdict(**{**vars(whole), **changes})


def test_clear_difference_is_a_candidate_and_a_vague_one_is_not() -> None:
    assert candidate(runs([10, 11, 9, 10], [40, 41, 39, 42])).info.name == "m"
    vague = runs([10, 30, 9, 50], [20, 11, 40, 12])
    assert find_candidates(vague, [CELL], last_seed=4) == ()


def test_a_halving_is_clear_where_only_the_baseline_spreads() -> None:
    """numa01 on 6.12, autonuma_cost: all three runs are alike after the patch."""
    halved = runs([82.6, 61.3, 62.0], [41.37, 41.4, 41.33])
    (only,) = find_candidates(halved, [CELL], last_seed=4)
    assert only.clear >= 1.3


def test_a_cell_without_a_clear_difference_has_one_vague_candidate() -> None:
    """Three runs of a baseline that spreads hide a third."""
    vague = candidate(runs([84.3, 62.0, 83.1], [52.0, 52.1, 52.2]))
    assert 1.0 <= vague.clear < 1.3
    clear = candidate(runs([10, 11, 9], [40, 41, 39]))
    other, vague_values = replace(vague.info, name="n"), [84.3, 62.0, 83.1, 52.0, 52.1, 52.2]
    both = [
        replace(run, measures={**run.measures, "n": Measure(other, value)})
        for run, value in zip(runs([10, 11, 9], [40, 41, 39]), vague_values, strict=True)
    ]
    assert find_candidates(both, [CELL], last_seed=4) == (clear,)


def test_a_counter_that_differs_hides_no_vague_change_for_the_worse() -> None:
    """A migration that fails half of the time: 1, 1, 1 failures, and more costs."""
    vague = runs([84.3, 62.0, 83.1], [52.0, 52.1, 52.2])
    info = replace(vague[0].measures["m"].info, name="failed", direction=Direction.NONE)
    both = [
        replace(run, measures={**run.measures, "failed": Measure(info, value)})
        for run, value in zip(vague, [1, 2, 1, 10, 11, 10], strict=True)
    ]
    names = [item.info.name for item in find_candidates(both, [CELL], last_seed=4)]
    assert sorted(names) == ["failed", "m"]


def test_what_was_not_tested_and_stands_out_is_no_absence_of_change() -> None:
    stored = runs([10.0 + seed % 5 for seed in range(15)], [40.0 + seed % 5 for seed in range(15)])
    experiment = ExperimentOutcome(tuple(stored), 3, (), (), time_over=False)
    assert standing_out(experiment, [CELL]) == ((CELL, "m"),)
    assert untested_of(experiment, [CELL]) == (f"m in {CELL}",)
    alike = runs([10.0 + seed % 5 for seed in range(15)], [10.0 + seed % 4 for seed in range(15)])
    assert standing_out(replace(experiment, runs=tuple(alike)), [CELL]) == ()
    three = replace(experiment, runs=tuple(runs([10, 11, 9], [40, 41, 39])))
    assert standing_out(three, [CELL]) == (), "three runs may differ by chance"
    five = runs([10, 11, 9, 12, 8], [40, 41, 39, 42, 38])  # p = 2 / C(10, 5)
    info = five[0].measures["m"].info
    rare = {name: Measure(replace(info, name=name), 1.0) for name in "abcdefg"}
    few = [replace(five[0], measures={**five[0].measures, **rare}), *five[1:]]
    assert standing_out(replace(experiment, runs=tuple(few)), [CELL]) == ((CELL, "m"),)
    word = word_of((), None, HuntOutcome(), share=1.0, stands_out=True)
    assert word == "may differ"
    text = render_verdict(verdict([], word=word, untested=("m in ring-2, w",)))
    assert text.startswith("verdict    undecided: measures differ that no fresh runs tested\n")
    suite = ET.fromstring(render_patch_junit(verdict([], word=word)))[0]
    assert suite.get("skipped") == "1"


def unchanged(
    name: str, before: Sequence[float], after: Sequence[float], **about: str
) -> list[Unchanged]:
    """Return the rows of a headline measure with these values."""
    stored = [
        replace(run, measures={name: replace(m, info=replace(m.info, name=name))})
        for run in runs(before, after, **about)
        for m in run.measures.values()
    ]
    experiment = ExperimentOutcome(tuple(stored), len(before), (), (), time_over=False)
    return list(unchanged_of(experiment, [CELL], ()))


def test_a_share_cannot_change_by_more_than_there_is() -> None:
    name = "numa_local_faults"
    (vague,) = unchanged(name, [10, 90, 50], [5, 95, 50])
    assert (vague.smallest, vague.largest, vague.excluded) == (None, None, False)
    assert unchanged_line(vague) == "  numa_local_faults in 1 cell (none: it spreads too much)"
    mail = render_reply(verdict([], unchanged=(vague,)))
    assert "  numa_local_faults           1 cell   any\n" in mail
    (clear,) = unchanged(name, [49, 50, 51], [49, 50, 51])
    assert clear.smallest is not None


@pytest.mark.parametrize(
    ("before", "after", "excluded"),
    [
        ([50.0, 50.1, 49.9], [50.0, 50.1, 49.9], True),
        ([1.5, 0.2, 3.9], [8.0, 2.0, 11.0], False),
    ],
)
def test_only_a_change_that_would_have_been_seen_is_excluded(
    before: list[float], after: list[float], excluded: bool
) -> None:
    """Means that differ by 400 %, with a bracket larger than the mean, are no absence."""
    (row,) = unchanged("schedstat_wait_mean", before, after, unit="ms")
    assert row.excluded is excluded
    whole_text = verdict([], unchanged=(row,))
    title, line = ("NOT CHANGED by 10 %" if excluded else "NO CHANGE SHOWN"), unchanged_line(row)
    text = render_verdict(whole_text)
    assert f"\n{title}" in text and line in text and text.count("(in brackets") == 1
    assert ("No change of 10% or more in" in render_reply(whole_text)) is excluded
    assert ("No change shown in" in render_reply(whole_text)) is not excluded
    (case,) = ET.fromstring(render_patch_junit(whole_text)).findall(".//testcase[2]")
    assert (case.find("skipped") is None) is excluded


def test_runs_that_decide_do_not_choose_the_candidates() -> None:
    stored = runs([10, 30, 9, 10, 11, 9, 10], [20, 11, 40, 40, 41, 39, 42])
    assert find_candidates(stored, [CELL], last_seed=3) == ()
    assert len(find_candidates(stored, [CELL], last_seed=7)) == 1


def test_difference_below_a_tenth_is_never_a_change() -> None:
    small = compare(FreshSample([50.0, 50.1, 49.9], [54.0, 54.1, 53.9]))
    large = compare(FreshSample([50.0, 50.1, 49.9], [57.0, 57.1, 56.9]))
    assert not is_notable(small, "ms")
    assert is_notable(large, "ms")


def test_whole_numbers_change_by_one_at_least() -> None:
    assert not is_notable(compare(FreshSample([0, 0, 1, 0], [0, 1, 1, 0])), "moves")


@pytest.mark.parametrize(
    ("direction", "difference", "word"),
    [
        (Direction.LOWER, 1.0, "regressed"),
        (Direction.LOWER, -1.0, "improved"),
        (Direction.HIGHER, 1.0, "improved"),
        (Direction.NONE, 1.0, "changed"),
    ],
)
def test_direction_of_the_measure_decides(
    direction: Direction, difference: float, word: str
) -> None:
    info = candidate(runs([10, 11, 9, 10], [40, 41, 39, 42], direction=direction)).info
    assert went(info, difference) == word


def test_only_what_fresh_runs_show_is_a_change() -> None:
    stored = runs([10, 11, 9, 10], [40, 41, 39, 42])
    assert [change.went for change in changes_of(outcome(stored), "icount")] == ["regressed"]
    assert changes_of(outcome(stored, shown=False), "icount") == ()


def test_only_emulated_times_are_called_simulated() -> None:
    decided = outcome(runs([10, 11, 9, 10], [40, 41, 39, 42], kind="timing"))
    for mode, is_simulated in (("icount", True), ("timed", True), ("tcg", True), ("kvm", False)):
        (change,) = changes_of(decided, mode)
        assert change_line(change).startswith("  m*") is is_simulated
        text = render_reply(verdict([], mode=mode, changes=(change,))).replace("\n", " ")
        assert ("* times are simulated." in text) is is_simulated


def test_regression_gives_exit_code_1_and_improvement_0() -> None:
    assert verdict(runs([10, 11, 9, 10], [40, 41, 39, 42])).exit_code == 1
    better = verdict(runs([40, 41, 39, 42], [10, 11, 9, 10]))
    assert (better.word, better.exit_code) == ("improved", 0)


def lost(*names: str, finished: Sequence[StoredRun] = (), **how: Any) -> ExperimentOutcome:
    """Return an experiment of which these runs failed."""
    failures = tuple(
        Failure(
            "s", Results(Path("/nowhere")), Ended(name, 1.0, **({"error": "it was lost"} | how))
        )
        for name in names
    )
    return ExperimentOutcome(tuple(finished), 4, (), failures, time_over=False)


LOST_TWICE = ("ring-2_w_patched_1", "ring-2_w_patched_2")


def test_two_lost_runs_of_the_patched_kernel_are_a_regression() -> None:
    finished = runs([10], [])
    twice = lost_of(lost(*LOST_TWICE, finished=finished))
    assert twice is not None
    assert word_of((), twice, HuntOutcome(), share=0.0) == "regressed"
    assert lost_of(lost("ring-2_w_patched_1", finished=finished)) is None
    assert lost_of(lost(*LOST_TWICE, "ring-2_w_baseline_2", finished=finished)) is None
    elsewhere = lost_of(lost(*LOST_TWICE, "ring-4_w_baseline_1", finished=finished))
    assert elsewhere == twice, "only runs of the same cell count"


def test_runs_are_lost_alone_only_where_the_other_kernel_finished_one() -> None:
    away = on("ring-4", runs([10], [10]))
    for finished in ([], away, runs([], [10])):
        assert lost_of(lost(*LOST_TWICE, finished=finished)) is None
    alone = lost("ring-2_w_baseline_1", "ring-2_w_baseline_2", finished=away)
    assert lost_of(alone) is None, "the patched kernel has no run either"


@pytest.mark.parametrize("code", [UserError.exit_code, LabError.exit_code])
def test_an_error_of_a_plug_in_or_of_numalab_is_no_loss_of_a_kernel(code: int) -> None:
    failed = lost(*LOST_TWICE, finished=runs([10], []), exit_code=code)
    assert lost_of(failed) is None
    assert failed.gave_up, "more runs would fail, too"


@pytest.mark.parametrize(
    ("said", "is_loss"),
    [
        ("this kernel has no event sched:sched_stick_numa", False),
        ("this kernel has no tunable /proc/sys/kernel/numa_balancing", False),
        ("the kernel refused 1 for /proc/sys/kernel/numa_balancing", True),
    ],
)
def test_what_a_patch_removes_is_no_loss(said: str, is_loss: bool) -> None:
    error = f"{CANNOT_RUN}: {said}\n  [ 1.0] last words"
    ended = lost(*LOST_TWICE, finished=runs([10], []), error=error, exit_code=9)
    assert (lost_of(ended) is not None) is is_loss
    assert ended.gave_up
    remarks = list(losses(ended, lost_of(ended), HuntOutcome()))
    assert remarks == (
        [] if is_loss else [f"2 runs of the patched kernel failed: {CANNOT_RUN}: {said}"]
    )


def test_the_name_of_a_machine_decides_no_side() -> None:
    cell = Cell("my_patched_box", "w")
    finished = on(cell.topology, runs([], [10]))
    names = [planned_run(cell, BASELINE, seed).id for seed in (1, 2)]
    ended = lost_of(lost(*names, finished=finished))
    assert ended is not None and ended.side == BASELINE


def test_one_lost_run_of_the_patched_kernel_hides_no_losses_of_the_baseline() -> None:
    baseline = tuple(f"ring-4_w_baseline_{seed}" for seed in (1, 2, 3))
    finished = [*runs([10], []), *on("ring-4", runs([], [10]))]
    both = lost("ring-2_w_patched_1", *baseline, finished=finished)
    ended = lost_of(both)
    assert ended is not None
    assert (ended.side, ended.runs) == ("baseline", baseline)
    (remark,) = losses(both, ended, HuntOutcome())
    assert remark.startswith("1 run of the patched kernel failed: ")


@pytest.mark.parametrize(
    ("samples", "confirmed", "word"),
    [(0, False, "may fail"), (3, True, "may fail"), (3, False, "no change found")],
)
def test_a_guest_that_only_the_patched_kernel_lost_in_the_hunt_is_in_the_verdict(
    samples: int, confirmed: bool, word: str
) -> None:
    finding = Finding("guest-lost", None, 1.0, 0.0, "the guest's kernel panicked")
    loss = Suspicion(finding, confirmed, 1.0, 0.0, samples, samples)
    hunt = HuntOutcome(losses=(loss,))
    assert word_of((), None, hunt, share=1.0) == word
    empty = ExperimentOutcome((), 4, (), (), time_over=False)
    (remark,) = losses(empty, None, hunt)
    assert remark.startswith("hunt, not with the baseline: the guest's kernel panicked; ")


def test_a_verdict_says_why_it_is_open() -> None:
    assert word_of((), None, HuntOutcome(), share=0.0, runs_failed=True) == "runs failed"
    assert word_of((), None, HuntOutcome(), share=0.5) == "partly compared"
    for cells, text in (
        (2, "no change found in 1 of 2 cells; the other was not compared"),
        (4, "no change found in 1 of 4 cells; 3 were not compared"),
    ):
        partly = verdict([], word="partly compared", cells=cells, compared=1)
        assert render_verdict(partly).startswith(f"verdict    {text}\n")
        (case,) = ET.fromstring(render_patch_junit(partly)).iter("skipped")
        assert case.get("message") == text


def test_two_lost_runs_of_the_baseline_alone_are_an_improvement() -> None:
    names = ("ring-2_w_baseline_1", "ring-2_w_baseline_2")
    twice = lost_of(lost(*names, finished=runs([], [10, 11])))
    assert twice is not None
    assert word_of((), twice, HuntOutcome(), share=0.0) == "improved"
    assert lost_text(twice) == (
        "2 runs of the baseline failed, none of the patched kernel in the same cells"
    )


def test_unchanged_measure_names_the_smallest_change() -> None:
    rng = random.Random(1)
    before, after = ([rng.gauss(50, 4) for _ in range(8)] for _ in range(2))
    stored = [
        StoredRun(
            run.directory,
            run.manifest,
            {"queue_imbalance": replace(m, info=replace(m.info, name="queue_imbalance"))},
        )
        for run in runs(before, after)
        for m in run.measures.values()
    ]
    (row,) = unchanged_of(ExperimentOutcome(tuple(stored), 8, (), (), time_over=False), [CELL], ())
    assert row.cells == 1
    assert row.smallest is not None and 5 < row.smallest < 15


def test_a_measure_that_seems_to_differ_is_not_called_unchanged() -> None:
    stored = [
        StoredRun(
            run.directory,
            run.manifest,
            {
                name: replace(m, info=replace(m.info, name=name))
                for name in ("idle_while_overloaded", "queue_imbalance", "task_busy_share_min")
                for m in run.measures.values()
            },
        )
        for run in runs([10, 11, 9, 10], [40, 41, 39, 42])
    ]
    tested = find_candidates(stored, [CELL], last_seed=4)
    assert len(tested) == 2
    decided = tuple(DecidedCandidate(item, FreshSample([], []), None) for item in tested)
    experiment = ExperimentOutcome(tuple(stored), 4, decided, (), time_over=False)
    (untested,) = untested_of(experiment, [CELL])
    names = {row.measure for row in unchanged_of(experiment, [CELL], ())}
    assert untested.removesuffix(" in ring-2, w") not in names
    whole = verdict([], untested=(untested,))
    assert f"MAY DIFFER (not tested by fresh runs)  {untested}\n" in render_verdict(whole)
    assert f"Not tested: {untested}." in render_reply(whole)


def test_an_undecided_measure_is_not_called_unchanged() -> None:
    stored = [
        StoredRun(
            run.directory,
            run.manifest,
            {"queue_imbalance": replace(m, info=replace(m.info, name="queue_imbalance"))},
        )
        for run in runs([10, 11, 9, 10], [40, 41, 39, 42])
        for m in run.measures.values()
    ]
    (row,) = find_candidates(stored, [CELL], last_seed=4)
    open_row = DecidedCandidate(row, FreshSample([], []), None)
    experiment = ExperimentOutcome(tuple(stored), 4, (open_row,), (), time_over=True)
    assert undecided_of(experiment) == ("queue_imbalance in ring-2, w",)
    assert unchanged_of(experiment, [CELL], ()) == ()
    settled = replace(experiment, time_over=False)
    assert [row.measure for row in unchanged_of(settled, [CELL], ())] == ["queue_imbalance"]


def warned(before: Sequence[str], after: Sequence[str]) -> ExperimentOutcome:
    """Return an experiment with what each run's kernel reported."""
    finished = [
        replace(run, manifest=run.manifest.but(kernel_reports=(name,) if name else ()))
        for run, name in zip(
            runs([1.0] * len(before), [1.0] * len(after)), (*before, *after), strict=True
        )
    ]
    return ExperimentOutcome(tuple(finished), 4, (), (), time_over=False)


def test_a_warning_of_the_patched_kernel_alone_is_a_regression() -> None:
    name = "WARNING at task_numa_work()"
    reports = reports_of(warned(["", "", ""], [name, "", name]))
    assert word_of((), None, HuntOutcome(), share=1.0, reports=reports) == "regressed"
    sentence = f"{name} in 2 of 3 runs of the patched kernel, none of the baseline"
    judged_so = verdict([], word="regressed", reports=reports)
    assert f"REPORTED   {sentence}\n  first: ring-2_w_patched_1\n" in render_verdict(judged_so)
    assert f"{sentence}." in render_reply(judged_so).replace("\n", " ")
    (failure,) = ET.fromstring(render_patch_junit(judged_so)).iter("failure")
    assert sentence in (failure.text or "")
    assert len(patch_problems(judged_so)) == 1


def test_a_warning_of_the_baseline_alone_is_an_improvement_and_of_both_is_nothing() -> None:
    reports = reports_of(warned(["W", "W"], ["", ""]))
    assert word_of((), None, HuntOutcome(), share=1.0, reports=reports) == "improved"
    suite = ET.fromstring(render_patch_junit(verdict([], word="improved", reports=reports)))
    assert not list(suite.iter("failure"))
    assert any(case.get("name") == "kernel log: W" for case in suite.iter("testcase"))
    assert not one_sided(warned(["W", ""], ["W", "W"]))


def test_a_warning_in_one_run_may_be_chance() -> None:
    experiment = warned(["", ""], ["W", ""])
    assert not reports_of(experiment)
    assert [str(report) for report in one_sided(experiment)] == [
        "W in 1 of 2 runs of the patched kernel, none of the baseline"
    ]
    assert not reports_of(warned([""], ["W", "W"])), "one run of the baseline is not enough"


def test_a_warning_counts_only_where_the_other_kernel_ran() -> None:
    """The baseline lost its runs where the patched kernel finished with a warning."""
    lockups = on("ring-4", warned([], ["soft lockup"] * 2).runs)
    clean = warned([""] * 3, [""] * 3)
    alone = replace(clean, runs=(*clean.runs, *lockups))
    assert not one_sided(alone)
    assert (
        "soft lockup in 2 runs of the patched kernel, where the baseline finished too few to"
        " compare"
    ) in list(uncompared(alone))
    rest = on("ring-4", warned([""] * 2, []).runs)
    both = replace(clean, runs=(*clean.runs, *lockups, *rest))
    assert [str(report) for report in reports_of(both)] == [
        "soft lockup in 2 of 5 runs of the patched kernel, none of the baseline"
    ]
    assert not list(uncompared(both))
    assert not one_sided(replace(both, runs=both.runs[:-1])), "one run there is not enough"


def test_less_cpu_time_in_a_fixed_time_is_no_improvement() -> None:
    (run,) = runs([10], [])
    (measure,) = run.measures.values()
    time = replace(measure, info=replace(measure.info, name="user_time"))
    for parameters, direction in (({"ms": 1000}, Direction.NONE), ({}, Direction.LOWER)):
        use = run.manifest.workload.model_copy(update={"parameters": parameters})
        manifest = run.manifest.model_copy(update={"workload": use})
        (info,) = judged([StoredRun(run.directory, manifest, {"user_time": time})])
        assert info.direction is direction
    info = measure.info
    for mixed in (replace(info, unit="apples"), replace(info, definition="Another.")):
        other = replace(measure, info=mixed)
        assert not judged([run, replace(run, measures={measure.name: other})]), "two meanings"


def test_text_is_short_and_begins_with_the_verdict() -> None:
    case = FoundCase("fairness", "a hog got little", Path("c.toml"), 2, 4, 3, (0.1,), (2.0,))
    change = verdict(runs([10, 11, 9, 10], [40, 41, 39, 42])).changes[0]
    text = render_verdict(
        verdict(
            runs([10, 11, 9, 10], [40, 41, 39, 42]),
            changes=(change,) * 30,
            hunt=HuntOutcome(case, 3, 12, 9),
            remarks=("left out: a", "left out: b"),
        )
    )
    lines = text.splitlines()
    assert len(lines) <= MOST_LINES
    assert lines[0] == "verdict    regression found"
    assert "  m  10 to 40.5 % (difference +28.5 to +32.5 points)  ring-2, w" in lines
    counted = replace(change, unit="count", before=10.0, after=40.5, percent=305.0)
    line = "  m  10 to 40.5 count, +305 % (difference +28.5 to +32.5)  ring-2, w"
    assert change_line(counted) == line
    assert "  repeat it: numalab run c.toml" in lines


def test_unchanged_measure_shows_the_median_of_several_cells() -> None:
    row = Unchanged("queue_imbalance", "tasks", 4, 0.25, 0.5, excluded=True)
    assert unchanged_line(row) == (
        "  queue_imbalance in 4 cells (0.25 tasks in the median cell, at most 0.5)"
    )
    row = replace(row, cells=1, largest=0.25)
    assert unchanged_line(row) == "  queue_imbalance in 1 cell (0.25 tasks)"
    whole_text = verdict([], unchanged=(row,))
    assert "\nNOT CHANGED by 10 % or more (in brackets" in render_verdict(whole_text)
    assert "\nNo change of 10% or more in (largest" in render_reply(whole_text)


def whole() -> PatchVerdict:
    """Return a verdict with a regression, a case, and an unchanged measure."""
    case = FoundCase("fairness", "a hog got little", Path("c.toml"), 2, 4, 3, (0.1,), (2.0,))
    row = Unchanged("queue_imbalance", "tasks", 4, 0.25, 0.5, excluded=True)
    return verdict(
        runs([10, 11, 9, 10], [40, 41, 39, 42]),
        hunt=HuntOutcome(case, 3, 12, 9),
        unchanged=(row,),
        command="numalab patch x.mbox",
        place=("kernel/sched/fair.c", 1437),
    )


def test_reply_is_ascii_of_72_columns() -> None:
    text = render_reply(whole())
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "> sched/fair: Do it\n" in text
    assert "  $ numalab patch x.mbox\n" in text
    assert "95% interval of the difference: +28.5 .. +32.5 points\n" in text
    assert "  queue_imbalance            4 cells   0.5 tasks\n" in text


def test_what_is_longer_in_ascii_has_72_columns_too() -> None:
    long = replace(whole(), subjects=("sched/fair: " + "\u2026" * 60,), remarks=("\u2026 " * 60,))
    assert max(map(len, render_reply(long).splitlines())) <= WIDTH


def test_long_names_have_72_columns_too() -> None:
    change = replace(whole().changes[0], machine="m" * 70, measure="n" * 90)
    case = CellCase("m" * 80, "w", 4, "numalab patch x.mbox")
    long = replace(whole(), changes=(change,), hunt=HuntOutcome(), cell_case=case)
    lines = render_reply(long).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert f"{'m' * 70}," in [line.strip() for line in lines]


def test_what_a_guest_said_is_no_command_of_ours() -> None:
    reason = f"$ curl http://x | sh; {'then ' * 15} $ caf\u00e9"
    text = render_reply(replace(whole(), lost=LostRuns("patched", ("a", "b"), reason)))
    assert "\n  | $ curl http://x | sh; " in text
    commands = [line for line in text.splitlines() if line.startswith("  $ ")]
    assert commands == ["  $ numalab run c.toml", "  $ numalab patch x.mbox"]


def test_a_command_in_a_reply_is_as_it_runs() -> None:
    command = "numalab patch 'für Prüfung.patch'"
    assert f"  $ {command}\n" in render_reply(replace(whole(), command=command))


def test_cells_without_a_run_are_not_claimed() -> None:
    for cells_run, text in ((1, "1 of 2 cells, 7 runs"), (2, " 2 cells, 7 runs")):
        part = replace(whole(), cells=2, cells_run=cells_run, runs=7)
        assert text in render_verdict(part)
        assert text in render_reply(part).replace("\n", " ")


def test_a_reply_claims_no_comparison_without_a_run() -> None:
    built = render_reply(verdict([], word="not compiled")).replace("\n", " ")
    assert "I built debian-6.12 (6.12.1) with and without this patch with numalab." in built
    for did in ({"runs": 7}, {"hunt": HuntOutcome(machines=1)}):
        text = render_reply(verdict([], word="undecided", **did)).replace("\n", " ")
        assert "I compared debian-6.12 (6.12.1) with and without this patch on virtual" in text


def test_a_long_subject_is_quoted_whole() -> None:
    subject = f"sched/numa: {'Scan a fourth as often ' * 4}at most"
    mail = render_reply(replace(whole(), subjects=(subject,)))
    quoted = [line for line in mail.splitlines() if line.startswith(">")]
    assert " ".join(line.removeprefix(">").strip() for line in quoted) == subject
    assert max(map(len, quoted)) <= WIDTH


def test_the_command_of_a_case_is_quoted_wherever_it_stands() -> None:
    verdict = whole()
    assert verdict.hunt.case is not None
    case = replace(verdict.hunt.case, file=Path("my out;$(touch X)/c.toml"))
    odd = replace(verdict, hunt=replace(verdict.hunt, case=case))
    command = "numalab run 'my out;$(touch X)/c.toml'"
    assert f"  repeat it: {command}\n" in render_verdict(odd)
    assert f"  $ {command}\n" in render_reply(odd)


def test_the_title_names_a_second_patch() -> None:
    for subjects, title in (
        (("a",), "patch      a\n"),
        (("a", "b"), "patch      a and 1 more patch\n"),
        (("a", "b", "c"), "patch      a and 2 more patches\n"),
    ):
        assert title in render_verdict(replace(whole(), subjects=subjects))


def test_junit_counts_every_test_and_failure() -> None:
    suite = ET.fromstring(render_patch_junit(whole()))[0]
    assert (suite.get("tests"), suite.get("failures")) == ("4", "2")
    failures = [case.find("failure") for case in suite if case.find("failure") is not None]
    texts = [failure.text or "" for failure in failures if failure is not None]
    assert not any("\\x0a" in text for text in texts) and "\n" in texts[1]
    names = [case.get("name") for case in suite if case.find("failure") is not None]
    assert names == ["ring-2, w: m regressed", "hunt: fairness violated"]


def test_junit_names_each_measure_once() -> None:
    rows = tuple(
        Unchanged("queue_imbalance", "tasks", 3, 0.1, 0.1, excluded=excluded)
        for excluded in (True, False)
    )
    suite = ET.fromstring(render_patch_junit(verdict([], unchanged=rows)))[0]
    skipped = {case.get("name"): case.find("skipped") is not None for case in suite[1:]}
    assert skipped == {
        "queue_imbalance in 3 cells": False,
        "queue_imbalance in 3 cells, not shown": True,
    }


def test_patch_that_was_not_reached_is_a_skipped_test() -> None:
    suite = ET.fromstring(render_patch_junit(verdict([], word="not reached", changes=())))[0]
    assert (suite.get("tests"), suite.get("skipped")) == ("1", "1")


def test_measures_that_are_not_decided_are_skipped_tests() -> None:
    names = {"undecided": ("queue_imbalance in ring-4, w",), "untested": ("pages in ring-4, w",)}
    suite = ET.fromstring(render_patch_junit(verdict([], word="undecided", changes=(), **names)))[0]
    skipped = {case.get("name"): case.find("skipped") for case in suite}
    assert list(skipped) == ["verdict", *names["undecided"], *names["untested"]]
    reasons = [mark.get("message") for mark in skipped.values() if mark is not None]
    assert [reason and reason.partition(" (")[0] for reason in reasons[1:]] == [
        "UNDECIDED", "MAY DIFFER",
    ]  # fmt: skip
    assert suite.get("skipped") == "3"


def test_annotations_are_beside_the_changed_line() -> None:
    first, _ = render_github(patch_problems(whole())).splitlines()
    assert first.startswith(
        "::error file=kernel/sched/fair.c,line=1437,title=x%3A ring-2%2C w%3A m regressed::"
    )
    (issue, _) = json.loads(render_code_quality(patch_problems(whole())))
    assert issue["location"] == {"path": "kernel/sched/fair.c", "lines": {"begin": 1437}}


def test_measure_that_may_differ_is_undecided_when_the_time_is_over() -> None:
    decided = outcome(runs([10, 11, 9, 10], [40, 41, 39, 42]), shown=False)
    assert undecided_of(decided) == ()
    names = undecided_of(replace(decided, time_over=True))
    assert names == ("m in ring-2, w",)
    (row,) = decided.decided
    assert row.decision is not None
    early = replace(row, decision=replace(row.decision, p_value=0.4))
    assert undecided_of(replace(decided, decided=(early,), time_over=True)), "4 of 8 fresh runs"
    late = replace(early, sample=FreshSample((10.0, 11.0) * 4, (10.0, 12.0) * 4))
    assert not undecided_of(replace(decided, decided=(late,), time_over=True))
    assert word_of((), None, HuntOutcome(), share=0.0) == "undecided", "nothing was compared"
    assert word_of((), None, HuntOutcome(), share=1.0, undecided=names) == "undecided"


def test_the_smallest_cell_that_regressed_is_the_case_where_the_hunt_has_none() -> None:
    change = verdict(runs([10, 11, 9, 10], [40, 41, 39, 42])).changes[0]
    changes = [replace(change, machine="ring-8"), change, replace(change, went="changed")]
    typed = "numalab patch x.mbox --topologies ring-8,ring-2 --workloads=w --reply m"
    cpus, names = {"ring-8": 16, "ring-2": 4}, {"ring-8": "ring-8", "ring-2": "ring-2"}
    case = smallest_cell(changes, cpus, names, typed)
    assert case is not None
    assert case.command == "numalab patch x.mbox --reply m --topologies ring-2 --workloads w"
    lines = render_verdict(verdict([], word="regressed", cell_case=case)).splitlines()
    assert "  w on ring-2 (4 CPUs), the smallest cell that regressed" in lines
    assert f"  repeat it: {case.command}" in lines
    assert smallest_cell(changes[2:], cpus, names, "") is None
    file = smallest_cell(changes, cpus, {**names, "ring-2": "../my lab/ring-2.toml"}, typed)
    assert file is not None
    assert "--reply m --topologies '../my lab/ring-2.toml' --workloads w" in file.command
    mail = render_reply(verdict([], word="regressed", cell_case=case))
    assert f"(4 CPUs), w.\n\n  $ {case.command}\n" in mail


def test_a_patch_is_not_reached_only_where_both_kernels_ran() -> None:
    def word(hunted: HuntOutcome, *, tried: bool) -> str:
        return word_of((), None, hunted, share=0.0, nothing_ran=True, tried=tried)

    assert word(HuntOutcome(), tried=True) == "not reached"
    assert word(HuntOutcome(None, 3, 12, 9), tried=False) == "not reached"
    assert word(HuntOutcome(), tried=False) == "undecided", "the time was over after one kernel"


def test_a_patch_that_only_the_hunt_executed_is_not_called_unchanged() -> None:
    hunted = HuntOutcome(None, 3, 12, 9)
    word = word_of((), None, hunted, share=0.0, only_hunted=True)
    assert word == "only hunted"
    assert word_of((), None, HuntOutcome(), share=0.0, only_hunted=True) == "undecided"
    text = render_verdict(verdict([], word=word, hunt=hunted))
    assert text.startswith("verdict    no regression found; only the hunt ran changed lines")
    suite = ET.fromstring(render_patch_junit(verdict([], word=word, hunt=hunted)))[0]
    assert suite.get("skipped") == "1"


def test_a_line_that_did_not_run_has_the_feature_that_it_needs() -> None:
    line = LineReach(
        file="kernel/sched/fair.c",
        number=7761,
        kind="added",
        text="x",
        state=LineState.NOT_REACHED,
        functions=("select_idle_smt",),
    )
    side = RunReach(series="s", kernel="k", side="patched", code=CodeChange.LINES, lines=(line,))
    patch = PatchReach(series="s", code=CodeChange.LINES, patched=side)
    assert reach_summary(patch)[1:] == [
        "  not reached: kernel/sched/fair.c:7761 in select_idle_smt();"
        " perhaps needs SMT, or CPUs of different capacity"
    ]
    beside = line.model_copy(update={"number": 7762, "kind": "context", "executions": 4})
    other = side.model_copy(update={"side": "baseline", "lines": (beside,)})
    assert reach_summary(patch.model_copy(update={"baseline": other}))[1:] == [
        "  not reached: kernel/sched/fair.c:7761 in select_idle_smt();"
        " other lines of the function ran"
    ]
    other = side.model_copy(
        update={"lines": (beside.model_copy(update={"functions": ("select_idle_core",)}),)}
    )
    assert reach_summary(patch.model_copy(update={"baseline": other}))[1:] == [
        "  not reached: kernel/sched/fair.c:7761 in select_idle_smt()"
    ], "the guests have what both functions need"


@pytest.mark.parametrize(
    ("count", "measures", "named"), [(6, 0, 6), (22, 0, 22), (24, 0, 21), (4, 12, 4), (12, 12, 9)]
)
def test_no_remark_is_left_out_without_a_word(count: int, measures: int, named: int) -> None:
    rows = [
        Unchanged(f"m{number}", "tasks", 2, 0.25, 0.5, excluded=bool(number % 2))
        for number in range(measures)
    ]
    remarks = tuple(f"it is {number}" for number in range(count))
    text = render_verdict(verdict([], unchanged=tuple(rows), remarks=remarks))
    assert len(text.splitlines()) <= MOST_LINES
    assert text.count("\nremark     it is ") == named
    more = f"\n  and {count - named} more remarks: --json has all\n"
    assert text.endswith(more if named < count else f"\nremark     {remarks[-1]}\n")


def test_lines_that_did_not_run_are_named_with_what_makes_their_function() -> None:
    def line(file: str, call: str, executions: int = 0) -> LineReach:
        state = LineState.REACHED if executions else LineState.NOT_REACHED
        return LineReach(
            file=file,
            number=9,
            kind="added",
            text="x",
            state=state,
            functions=(call,),
            executions=executions,
        )

    lines = (
        line("include/trace/events/sched.h", "TRACE_EVENT(sched_new)"),
        line("include/trace/events/sched.h", "TRACE_EVENT(sched_old)", 3),
        line("kernel/sched/syscalls.c", "SYSCALL_DEFINE3(sched_setattr)"),
        line("kernel/sched/syscalls.c", "SYSCALL_DEFINE1(sched_setattr)", 3),
    )
    side = RunReach(series="s", kernel="k", side="patched", code=CodeChange.LINES, lines=lines)
    assert reach_summary(PatchReach(series="s", code=CodeChange.LINES, patched=side))[1:] == [
        "  not reached: kernel/sched/syscalls.c:9 in SYSCALL_DEFINE3(sched_setattr)",
        "  not reached: include/trace/events/sched.h:9 in TRACE_EVENT(sched_new)",
    ], "headers last"


def test_measures_with_and_without_an_excluded_change_fit_the_text() -> None:
    rows = [
        Unchanged(name, "tasks", 2, 0.25, 0.5, excluded=excluded)
        for excluded in (True, False)
        for name in HEADLINES
    ]
    text = render_verdict(verdict([], unchanged=tuple(rows), remarks=("last",)))
    assert text.count("  and 2 more measures\n") == 2
    assert text.endswith("remark     last\n")
    assert len(text.splitlines()) <= MOST_LINES
