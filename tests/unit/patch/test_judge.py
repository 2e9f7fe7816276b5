"""What `judge` writes for a patch without code, and its remarks on cells."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest

from numalab.campaign.build import BuiltStudy
from numalab.campaign.execute import Failure, execute
from numalab.campaign.task import Ended
from numalab.capture.counters import NOT_MEASURED
from numalab.errors import UserError
from numalab.measure import Measure, Number
from numalab.patch import judge as module
from numalab.patch.ci import render_patch_junit
from numalab.patch.experiment import ExperimentOutcome
from numalab.patch.hunting import HuntOutcome
from numalab.patch.remarks import cell_remarks, losses
from numalab.patch.standard import BASELINE, PATCHED
from numalab.patch.text import headline, render_verdict
from numalab.patch.verdict import PatchVerdict
from numalab.reach.model import (
    CodeChange,
    LineKind,
    LineReach,
    LineState,
    PatchReach,
    RunReach,
    Side,
)
from numalab.reach.prepare import ReachPlan
from numalab.results.layout import Results
from numalab.results.plan import Cell, planned_run
from numalab.results.reader import StoredRun
from numalab.source.changes import Change, ChangedLine, FileChange
from support.fake_executor import MATRIX, fake, ready
from support.stored_run import stored_manifest, stored_run

CELL = Cell("ring-2", "w")


def judged(
    study: BuiltStudy, monkeypatch: pytest.MonkeyPatch, *changes: FileChange
) -> module.Judged:
    """Judge a patch without code."""
    monkeypatch.setattr(module, "patch_changes", lambda _: changes)
    name = SimpleNamespace(name="debian-6.12")
    kernel = SimpleNamespace(base=name, patched=name, series=SimpleNamespace(name="x", patches=()))
    reach = ReachPlan("x", CodeChange.NONE, {})
    study = replace(study, setting=replace(study.setting, reach=reach))
    request, listener = SimpleNamespace(kernel=kernel, command=""), SimpleNamespace(on_wait=None)
    return module.judge(cast(Any, request), study, cast(Any, listener))


def test_a_patch_without_code_replaces_no_other_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    study = ready(tmp_path)
    execute([study], 2, lambda _: lambda _: None, run=fake)
    study.results.verdict.write_text("of another patch\n")
    kernels = study.builds.kernels
    built = {name: replace(kernel, digest=f"{name} now") for name, kernel in kernels.items()}
    rebuilt = replace(study, builds=replace(study.builds, kernels=built))
    other = ready(tmp_path, MATRIX.replace("seeds = [1, 2, 3]", "seeds = [1, 2]"))
    for refused, why in (
        (rebuilt, "differs from today's inputs in kernel "),
        (other, "these results differ from the study in seeds"),
    ):
        with pytest.raises(UserError, match=why):
            judged(refused, monkeypatch)
    assert study.results.verdict.read_text() == "of another patch\n"
    new = judged(ready(tmp_path, results="new"), monkeypatch)
    assert new.results.verdict.read_text().startswith("verdict    no changed line has code")


@pytest.mark.parametrize("file", ["init/Kconfig", "arch/x86/configs/x86_64_defconfig", "x.rst"])
def test_a_default_without_effect_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    change = FileChange(file, file, "", "default n\n", ())
    (*remarks,) = judged(ready(tmp_path), monkeypatch, change).verdict.remarks
    assert [remark.partition(";")[0] for remark in remarks] == (
        [] if file == "x.rst" else ["fragments in kernel-configs set the options of both kernels"]
    )


def plan_of(*cells: Cell) -> SimpleNamespace:
    """Return a plan of cells whose machines nothing reads."""
    return SimpleNamespace(cells=cells, topologies={}, study=SimpleNamespace(topologies=()))


def test_cells_without_a_run_are_counted_apart() -> None:
    runs = tuple(
        stored_run(stored_manifest(run=f"ring-2_w_{side}_1", variant=side, seed=1), 1.0)
        for side in (BASELINE, PATCHED)
    )
    cells = (runs[0].cell, Cell("mesh-8", "w"))
    plan = plan_of(*cells)
    outcome = ExperimentOutcome(runs, 1, (), (), time_over=True)
    before = PatchVerdict("x", (), "k", "k+x", "6.12", "icount", "undecided", cells=len(cells))
    study = cast(Any, SimpleNamespace(plan=plan))
    judged = module._judged(before, study, outcome, HuntOutcome())
    assert (judged.cells_run, judged.cells, judged.runs) == (1, 2, 2)


def test_a_hunt_clears_no_patch_whose_runs_all_failed() -> None:
    ends = tuple(
        Failure("s", Results(Path("/nowhere")), Ended(f"ring-2_w_{side}_1", 1.0, "panicked"))
        for side in (BASELINE, PATCHED)
    )
    study = cast(Any, SimpleNamespace(plan=plan_of(CELL)))
    before = PatchVerdict("x", (), "k", "k+x", "6.12", "icount", "undecided", cells=1)
    hunted = HuntOutcome(machines=5)
    for failures, word in ((ends, "runs failed"), ((), "undecided")):
        outcome = ExperimentOutcome((), 3, (), failures, time_over=True)
        assert module._judged(before, study, outcome, hunted).word == word


def remarks(outcome: ExperimentOutcome) -> str:
    """Return the remarks on an experiment of one cell."""
    return "\n".join(cell_remarks(outcome, [CELL]))


def test_remarks_say_no_more_of_cells_than_is_true() -> None:
    runs = tuple(
        stored_run(stored_manifest(run=f"ring-2_w_{side}_{seed}", variant=side, seed=seed), 1.0)
        for side, seed in ((BASELINE, 1), (BASELINE, 2), (PATCHED, 2))
    )
    outcome = ExperimentOutcome(runs, 3, (), (), time_over=False)
    skipped = remarks(replace(outcome, unreached=(CELL,)))
    assert skipped == "no changed line ran in 1 cell: nothing is compared there"
    short = remarks(replace(outcome, needs=30.0))
    assert short.endswith("the same command goes on from here: with --budget 1m it compares them")


def test_remarks_say_by_what_nothing_is_compared() -> None:
    notes = ("3 tasks", f"sched_switch has no field next_pid: {NOT_MEASURED}")
    runs = tuple(
        stored_run(
            stored_manifest(variant=side, seed=seed, notes=notes if side == PATCHED else ()), 1.0
        )
        for side in (BASELINE, PATCHED)
        for seed in (1, 2, 3)
    )
    outcome = ExperimentOutcome(runs, 3, (), (), time_over=False)
    assert remarks(outcome) == f"the patched kernel: {notes[1]}"
    older = tuple(
        stored_run(stored_manifest(variant=side, seed=4), 1.0, definition="Another.")
        for side in (BASELINE, PATCHED)
    )
    outcome = replace(outcome, runs=(*runs, *older))
    assert "m is not compared: its definition changed" in remarks(outcome).splitlines()


def test_remarks_ask_for_no_time_where_runs_failed() -> None:
    ends = tuple(
        Failure("s", Results(Path("/nowhere")), Ended(f"ring-2_w_{side}_1", 1.0, "panicked"))
        for side in (BASELINE, PATCHED)
    )
    outcome = ExperimentOutcome((), 3, (), ends, time_over=False)
    assert remarks(outcome) == "1 of 1 cell not compared, as runs failed"
    assert list(losses(outcome, None, HuntOutcome())) == [
        "1 run of the baseline failed: panicked",
        "1 run of the patched kernel failed: panicked",
    ]


LACKS = "idle_while_overloaded"  # a headline measure


def measured(
    cell: Cell, after: Sequence[Number], before: Sequence[Number] = (1.0, 2.0, 3.0), **more: Number
) -> list[StoredRun]:
    """Return runs of both kernels with these values of a headline measure and another one."""
    runs = []
    for side, values in ((BASELINE, before), (PATCHED, after)):
        for seed, value in enumerate(values, 1):
            about = {"variant": side, "seed": seed, "topology": cell.topology}
            name = planned_run(cell, side, seed).id
            run = stored_run(stored_manifest(run=name, **about), 1.0)
            info = run.measures["m"].info
            every = {LACKS: value, "numa_local_faults": None, "other": value, **more}
            named = {name: Measure(replace(info, name=name), v) for name, v in every.items()}
            runs.append(replace(run, measures={**run.measures, **named}))
    return runs


def verdict_on(
    runs: Sequence[StoredRun], *failures: Failure, time_over: bool = False
) -> PatchVerdict:
    """Return the verdict on runs of two cells, after a hunt."""
    cells = tuple(dict.fromkeys(run.cell for run in runs))
    before = PatchVerdict("x", (), "k", "k+x", "6.12", "icount", "undecided", cells=len(cells))
    outcome = ExperimentOutcome(tuple(runs), 3, (), failures, time_over=time_over)
    study = cast(Any, SimpleNamespace(plan=plan_of(*cells)))
    return module._judged(before, study, outcome, HuntOutcome(machines=3))


def test_a_cell_with_a_headline_measure_of_one_kernel_alone_is_not_compared() -> None:
    none, other = (None, None, None), Cell("ring-4", "w")
    lacks = verdict_on(measured(CELL, none))
    assert (lacks.word, lacks.compared, lacks.exit_code) == ("undecided", 0, 0)
    assert lacks.one_sided == (f"{LACKS} in {CELL}",)
    assert lacks.remarks == (f"only the baseline has values of {LACKS}, other, in 1 cell",)
    text = render_verdict(lacks)
    assert text.startswith("verdict    undecided: one kernel alone has the measures that decide\n")
    skipped = [case.get("name") for case in ET.fromstring(render_patch_junit(lacks))[0]]
    assert skipped == ["verdict", *lacks.one_sided]
    partly = verdict_on([*measured(CELL, (1.0, 2.0, 3.0), none), *measured(other, (1, 2, 3))])
    assert (partly.word, partly.compared) == ("partly compared", 1)
    assert partly.remarks == (f"only the patched kernel has values of {LACKS}, in 1 cell",)


def test_a_cell_whose_runs_define_a_headline_measure_in_two_ways_is_not_compared() -> None:
    """As where a newer numalab continues an experiment."""
    first, *rest = measured(CELL, (1.0, 2.0, 3.0))
    measure = first.measures[LACKS]
    older = replace(measure, info=replace(measure.info, definition="Another."))
    runs = [replace(first, measures={**first.measures, LACKS: older}), *rest]
    mixed = verdict_on(runs)
    assert (mixed.word, mixed.compared) == ("undecided", 0)
    assert mixed.redefined == (f"{LACKS} in {CELL}",)
    assert mixed.remarks == (f"{LACKS} is not compared: its definition changed",)
    text = render_verdict(mixed)
    assert text.startswith("verdict    undecided: runs define the measures that decide in several")
    skipped = [case.get("name") for case in ET.fromstring(render_patch_junit(mixed))[0]]
    assert skipped[-1] == mixed.redefined[0]
    assert "the time was over" in headline(replace(mixed, time_over=True))
    partly = verdict_on([*runs, *measured(Cell("ring-4", "w"), (1, 2, 3))])
    assert (partly.word, partly.compared) == ("partly compared", 1)


def test_a_headline_names_what_else_keeps_cells_from_being_compared() -> None:
    none, other = (None,) * 3, Cell("ring-4", "w")
    runs = [*measured(CELL, none), measured(other, (1, 2, 3))[0]]
    ends = [
        Failure("s", Results(Path("/nowhere")), Ended(f"ring-4_w_{side}_2", 1.0, "panicked"))
        for side in (BASELINE, PATCHED)
    ]
    over, failed = verdict_on(runs, time_over=True), verdict_on(runs, *ends)
    assert [bool(verdict.one_sided) for verdict in (over, failed)] == [True, True]
    assert headline(over) == "undecided: the time was over; the same command continues"
    assert headline(failed).startswith("undecided: runs failed, or one kernel alone has the")


@pytest.mark.parametrize(
    ("runs", "what"),
    [
        (measured(CELL, (None,) * 3, (None,) * 3), "both kernels lack it"),
        (measured(CELL, (None, None, 3.0)), "a few runs lack it"),
        (measured(CELL, (None,) * 3, (1.0, 2.0, None)), "a few runs of both lack it"),
        (
            measured(CELL, (1.0, 2.0, 3.0), numa_local_faults=50.0, vmstat_numa_hint_faults=9)[:3]
            + measured(CELL, (1.0, 2.0, 3.0), vmstat_numa_hint_faults=0)[3:],
            "no fault of NUMA balancing has a place",
        ),
    ],
)
def test_what_both_kernels_or_a_few_runs_lack_leaves_a_cell_compared(
    runs: list[StoredRun], what: str
) -> None:
    verdict = verdict_on(runs)
    assert (verdict.word, verdict.one_sided, verdict.remarks) == ("no change found", (), ()), what


def test_an_annotation_is_beside_the_first_changed_line_that_ran() -> None:
    def file(name: str, change: Change) -> FileChange:
        return FileChange(name, name, "", "", (change,))

    idle, removed = ChangedLine(3, "a"), ChangedLine(5, "b")
    lines = ChangedLine(8, ""), ChangedLine(9, "c")
    changes = (
        file("kernel/sched/a.c", Change(3, 3, (), (idle,))),
        file("kernel/sched/b.c", Change(5, 6, (removed,), ())),
        file("kernel/sched/c.c", Change(8, 8, (), lines)),
    )

    def place(**executions: int) -> tuple[str, int]:
        reached: tuple[tuple[Side, LineKind, str, int], ...] = (
            ("patched", "added", "a", 3),
            ("baseline", "removed", "b", 5),
            ("patched", "added", "c", 9),
        )
        sides = {
            side: RunReach(
                series="s", kernel="k", side=side, code=CodeChange.LINES,
                lines=tuple(
                    LineReach(
                        file=f"kernel/sched/{name}.c", number=number, kind=kind, text="",
                        state=LineState.REACHED if name in executions else LineState.NOT_REACHED,
                        executions=executions.get(name, 0),
                    )
                    for of, kind, name, number in reached
                    if of == side
                ),
            )
            for side in get_args(Side)
        }  # fmt: skip
        return module._place(changes, PatchReach(series="s", code=CodeChange.LINES, **sides))

    assert place(c=7) == ("kernel/sched/c.c", 9)
    assert place(b=2, c=7) == ("kernel/sched/b.c", 6)
    assert place() == module._place(changes, None) == ("kernel/sched/a.c", 3)
