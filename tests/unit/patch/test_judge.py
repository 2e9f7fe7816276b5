"""What `judge` writes for a patch without code, and its remarks on cells."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest

from numalab.campaign.build import BuiltStudy
from numalab.campaign.execute import Failure, execute
from numalab.campaign.task import Ended
from numalab.errors import UserError
from numalab.patch import judge as module
from numalab.patch.experiment import ExperimentOutcome
from numalab.patch.hunting import HuntOutcome
from numalab.patch.remarks import cell_remarks, losses
from numalab.patch.standard import BASELINE, PATCHED
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
from numalab.results.plan import Cell
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
        (other, "of another study"),
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
