"""What the time of an experiment is used for, by a clock and runs that are made up."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from numalab.campaign.build import BuiltStudy
from numalab.campaign.execute import Failure
from numalab.campaign.task import Ended
from numalab.patch import experiment as module
from numalab.patch.experiment import Conductor
from numalab.patch.hunting import HuntOutcome
from numalab.patch.remarks import losses
from numalab.patch.standard import BASELINE, PATCHED
from numalab.patch.verdict import lost_of
from numalab.results.layout import Results
from numalab.results.plan import Cell, PlannedRun, planned_run
from numalab.results.reader import StoredRun
from numalab.run_dir import RunDir
from support.stored_run import stored_manifest, stored_run

CELLS = (Cell("ring-2", "w"), Cell("ring-4", "w"))
SEEDS = range(1, 8)
RUN_S = 10.0


@dataclass
class Made:
    """Runs take ten seconds each; those that are `lost` fail, and take `hang_s`."""

    lost: frozenset[str] = frozenset()
    hang_s: float = RUN_S
    by_host: bool = False
    now: float = 0.0
    finished: dict[str, StoredRun] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)

    def go_on(self, budget: float, cells: Sequence[Cell] = CELLS[:1]) -> module.ExperimentOutcome:
        """Run the command once."""
        runs = tuple(
            planned_run(cell, side, seed)
            for seed in SEEDS
            for cell in cells
            for side in (BASELINE, PATCHED)
        )
        study = SimpleNamespace(seeds=tuple(SEEDS), variants=(BASELINE, PATCHED))
        built = SimpleNamespace(
            plan=SimpleNamespace(runs=runs, cells=cells, study=study),
            results=SimpleNamespace(finished=lambda: self.finished),
        )
        at = self.now
        return MadeConductor(
            cast(BuiltStudy, built), cast(Any, None), lambda _: None,
            at + 0.55 * budget, at + 0.75 * budget, at + budget, made=self,
        ).run()  # fmt: skip

    def run(self, run: PlannedRun) -> Failure | None:
        self.begun.append(run.id)
        if run.id in self.lost:
            self.now += self.hang_s
            ended = Ended(run.id, 1.0, "silent", by_host=self.by_host)
            return Failure("s", Results(Path("/nowhere")), ended)
        self.now += RUN_S
        manifest = stored_manifest(
            run=run.id, variant=run.variant, seed=run.seed, topology=run.cell.topology,
            seconds=RUN_S,
        )  # fmt: skip
        self.finished[run.id] = stored_run(manifest, 1.0)
        return None


@dataclass
class MadeConductor(Conductor):
    """Runs made-up runs, one at a time."""

    made: Made = field(default_factory=Made)

    def _execute(self, runs: Sequence[PlannedRun], deadline: float) -> dict[str, Failure]:
        failures = {}
        for run in runs:
            if run.id in self.made.finished or self.made.now > deadline:
                continue
            if failure := self.made.run(run):
                failures[run.id] = failure
        return failures

    def _finished(self) -> list[StoredRun]:
        return list(self.made.finished.values())

    def _counted(self) -> list[tuple[Cell, RunDir]]:
        return []

    def _fitting(self, cells: Sequence[Cell]) -> int:
        seconds = (self.screen_until - self.made.now) / 2
        return min(len(cells), max(0, math.floor(seconds / (2 * RUN_S))))

    def _places(self) -> int:
        return 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Made], Made]:
    """Let the experiment read the time of made-up runs."""

    def of(made: Made) -> Made:
        monkeypatch.setattr("time.monotonic", lambda: made.now)
        return made

    return of


def test_while_no_cell_is_compared_its_runs_have_all_the_time(
    clock: Callable[[Made], Made],
) -> None:
    made = clock(Made())
    outcome = made.go_on(100.0)
    assert outcome.compared(CELLS) == CELLS[:1], "14 runs do not fit, but 6 of them do"
    assert made.now <= 100.0 + RUN_S


def test_the_same_command_comes_further(clock: Callable[[Made], Made]) -> None:
    made, counts = clock(Made()), []
    while not made.go_on(25.0).compared(CELLS):
        counts.append(len(made.finished))
        assert len(counts) < 7
    assert counts == sorted(set(counts))


def test_what_a_short_time_did_not_allow_is_told_in_seconds(clock: Callable[[Made], Made]) -> None:
    made = clock(Made())
    outcome = made.go_on(60.0, CELLS)
    done = outcome.compared(CELLS)
    short = [cell for cell in CELLS if cell not in done]
    missing = 14 * len(short) - sum(run.cell in short for run in outcome.runs)
    assert short and outcome.needs == missing * RUN_S


def test_a_lost_run_leads_to_other_seeds_until_a_second_one_is_lost(
    clock: Callable[[Made], Made],
) -> None:
    lost = frozenset({f"ring-2_w_{PATCHED}_1", f"ring-2_w_{PATCHED}_3"})
    made = clock(Made(lost=lost, hang_s=20.0))
    outcome = made.go_on(400.0)
    assert {end.run for end in outcome.lost(PATCHED)} == lost
    assert not outcome.lost(BASELINE)


def test_a_command_that_is_repeated_tries_one_more_seed_after_a_hang(
    clock: Callable[[Made], Made],
) -> None:
    lost = frozenset({f"ring-2_w_{PATCHED}_1", f"ring-2_w_{PATCHED}_3"})
    made = clock(Made(lost=lost, hang_s=200.0))
    assert len(made.go_on(150.0).lost(PATCHED)) == 1
    assert len(made.go_on(150.0).lost(PATCHED)) == 2


def test_each_kernel_that_lost_a_run_gets_other_seeds(clock: Callable[[Made], Made]) -> None:
    chance = frozenset({f"ring-2_w_{PATCHED}_1"})
    lost = frozenset(f"ring-4_w_{BASELINE}_{seed}" for seed in SEEDS)
    outcome = clock(Made(lost=lost | chance, hang_s=30.0)).go_on(149.0, CELLS)
    assert {end.run for end in outcome.lost(PATCHED)} == chance
    assert len(outcome.lost(BASELINE)) == 2


FAILED_IN_BOTH = frozenset({f"ring-2_w_{BASELINE}_1", f"ring-2_w_{PATCHED}_1"})


def test_a_cell_in_which_both_kernels_fail_hides_no_loss_in_another_one(
    clock: Callable[[Made], Made],
) -> None:
    lost = FAILED_IN_BOTH | {f"ring-4_w_{PATCHED}_{seed}" for seed in SEEDS}
    made = clock(Made(lost=lost))
    outcome = made.go_on(400.0, CELLS)
    ended = lost_of(outcome)
    assert ended is not None and ended.side == PATCHED
    assert ended.runs == (f"ring-4_w_{PATCHED}_1", f"ring-4_w_{PATCHED}_2")


def test_no_more_time_is_asked_for_where_runs_failed(clock: Callable[[Made], Made]) -> None:
    outcome = clock(Made(lost=FAILED_IN_BOTH)).go_on(400.0)
    assert (outcome.gave_up, outcome.needs) == (True, 0.0)
    assert (outcome.failed(CELLS[:1]), outcome.short(CELLS[:1])) == (CELLS[:1], ())


def test_cells_lack_time_where_enough_first_runs_are_left(clock: Callable[[Made], Made]) -> None:
    cells = (*CELLS, Cell("mesh-8", "w"))
    made = clock(Made(lost=frozenset({f"ring-4_w_{PATCHED}_1"})))
    for run in (
        planned_run(CELLS[0], side, seed) for side in (BASELINE, PATCHED) for seed in SEEDS
    ):
        made.run(run)
    outcome = made.go_on(120.0, cells)
    assert len(outcome.lost(PATCHED)) == 1
    assert (outcome.failed(cells), outcome.short(cells)) == ((), cells[2:])
    begun = replace(outcome, runs=tuple(run for run in outcome.runs if run.cell == cells[0]))
    assert (begun.failed(cells), begun.short(cells)) == ((), cells[1:])
    few = replace(outcome, screened=3)
    assert (few.failed(cells), few.short(cells)) == (cells[1:2], cells[2:])


def test_a_run_that_the_host_ended_is_no_reason_to_give_up(clock: Callable[[Made], Made]) -> None:
    made = clock(Made(lost=FAILED_IN_BOTH, by_host=True))
    outcome = made.go_on(60.0)
    assert not outcome.gave_up
    assert outcome.short(CELLS[:1]) == CELLS[:1]
    assert list(losses(outcome, None, HuntOutcome())) == [
        "2 runs failed because of this host: silent"
    ]
