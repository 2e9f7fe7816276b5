"""Runs the experiment of a patch: the first runs, then fresh runs where they seem to differ."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import get_args

from numalab.campaign.build import BuiltStudy
from numalab.campaign.cost_model import Costs
from numalab.campaign.execute import Failure, OnEvent, Schedule, execute
from numalab.campaign.resume import OnWait, missing_tasks
from numalab.campaign.schedule import at_once
from numalab.campaign.task import Ended
from numalab.patch.candidates import (
    Candidate,
    OneSided,
    find_candidates,
    one_sided_measures,
    sample,
)
from numalab.patch.screening import choose_cells, fitting, lacks_seeds, spread
from numalab.patch.standard import BASELINE, PATCHED
from numalab.reach.model import Side
from numalab.results.plan import AddedRemark, Cell, PlannedRun, planned_run
from numalab.results.reader import StoredRun, load_plan, load_runs
from numalab.run_dir import RunDir
from numalab.statistics.comparison import FEWEST
from numalab.statistics.sequential import (
    LEVEL,
    LOOKS,
    FreshDecision,
    FreshSample,
    decide,
    share_of_look,
)
from numalab.study.plan import select
from numalab.units import counted

Tell = Callable[[str], None]
FEWEST_LOST = 2  # runs of one kernel, and none of the other one in their cells


@dataclass(frozen=True)
class DecidedCandidate:
    """A candidate with its fresh runs, and the decision about it; None without enough runs."""

    candidate: Candidate
    sample: FreshSample
    decision: FreshDecision | None


@dataclass(frozen=True)
class ExperimentOutcome:
    """What an experiment gave: finished runs, decisions, failed runs, and whether time was over.

    No changed code ran in the cells `unreached`, so they got one run of each kernel only. `counted`
    are the folders of all runs that may hold counts of lines. The cells that more time would let
    compare need about `needs` seconds.
    """

    runs: tuple[StoredRun, ...]
    screened: int
    decided: tuple[DecidedCandidate, ...]
    failures: tuple[Failure, ...]
    time_over: bool
    unreached: tuple[Cell, ...] = ()
    counted: tuple[tuple[Cell, RunDir], ...] = ()
    needs: float = 0.0

    @property
    def gave_up(self) -> bool:
        """Whether one kernel lost runs, and finished none."""
        finished = {run.manifest.variant for run in self.runs}
        return any(self.lost(side) and side not in finished for side in get_args(Side))

    def lost(self, side: Side) -> tuple[Ended, ...]:
        """Return the ends of a kernel's runs that failed, but for those that the host ended."""
        ends = (failure.ended for failure in self.failures)
        return tuple(end for end in ends if _place(end)[1] == side and not end.by_host)

    def lost_alone(self, side: Side) -> tuple[Ended, ...]:
        """Return the runs that a kernel lost in cells in which the other one only finished runs.

        An error of a plug-in, or of numalab itself, is no loss of a kernel; nor is the end of a job
        that asks for an event or a tunable which the kernel does not have.
        """
        other: Side = BASELINE if side == PATCHED else PATCHED
        finished = {run.cell.name for run in self.runs if run.manifest.variant == other}
        cells = finished - {_place(end)[0] for end in self.lost(other)}
        ends = (end for end in self.lost(side) if not (end.by_lab or end.by_job))
        return tuple(end for end in ends if _place(end)[0] in cells)

    def failed(self, cells: Sequence[Cell]) -> tuple[Cell, ...]:
        """Return the cells that are not compared because runs failed: more time compares none.

        A kernel lost so many of a cell's first runs that the others are too few, or it gave up.
        """
        sides = get_args(Side)
        lost = Counter((_place(end)[0], side) for side in sides for end in self.lost(side))
        failed = {cell for (cell, _), count in lost.items() if self.screened - count < FEWEST}
        gave_up, missing = self.gave_up, self._not_compared(cells)
        return tuple(cell for cell in missing if gave_up or cell.name in failed)

    def short(self, cells: Sequence[Cell]) -> tuple[Cell, ...]:
        """Return the cells that are not compared because the time was too short."""
        failed = self.failed(cells)
        return tuple(cell for cell in self._not_compared(cells) if cell not in failed)

    def _not_compared(self, cells: Sequence[Cell]) -> tuple[Cell, ...]:
        done = {*self.unreached, *self.compared(cells)}
        return tuple(cell for cell in cells if cell not in done)

    def compared(self, cells: Sequence[Cell]) -> tuple[Cell, ...]:
        """Return the cells with enough first runs of both kernels for a comparison."""
        finished = Counter((run.cell, run.manifest.variant) for run in self.first_runs())
        sides = (BASELINE, PATCHED)
        return tuple(
            cell for cell in cells if min(finished[cell, side] for side in sides) >= FEWEST
        )

    def one_sided(self, cells: Sequence[Cell]) -> tuple[OneSided, ...]:
        """Return the measures that one kernel alone has, in cells with enough runs of both."""
        return tuple(one_sided_measures(self.first_runs(), self.compared(cells)))

    def first_runs(self) -> tuple[StoredRun, ...]:
        """Return the runs that were planned from the start."""
        return tuple(run for run in self.runs if run.manifest.seed <= self.screened)


def _place(end: Ended) -> tuple[str, str]:
    """Return the cell and the kernel of a run, by name. A machine's name may hold anything."""
    cell, side, _ = end.run.rsplit("_", 2)
    return cell, side


@dataclass
class Conductor:
    """Runs an experiment until every candidate is decided.

    The first runs end at `screen_until`, fresh runs at `decide_until`, both monotonic time. While
    no cell is compared, it goes on until `over`.
    """

    study: BuiltStudy
    watch: Callable[[Schedule], OnEvent]
    tell: Tell
    screen_until: float
    decide_until: float
    over: float
    jobs: int | None = None
    on_wait: OnWait | None = None

    def run(self) -> ExperimentOutcome:
        """Run what is missing and decide. Raises what `execute` raises."""
        plan = self.study.plan
        seed, screened = min(plan.study.seeds), max(plan.study.seeds)
        failures, tried = dict[str, Failure](), list[Cell]()
        waiting = spread(plan.cells)
        while waiting:
            count = self._fitting(waiting) or (0 if tried else 1)
            batch, waiting = waiting[:count], waiting[count:]
            if not batch:
                break
            tried += batch
            first = [run for run in plan.runs if run.cell in batch and run.seed == seed]
            failures |= self._execute(first, self.screen_until)
            if self._so_far(failures).gave_up:
                break
            failures |= self._screen(batch)
            ended = {*self.study.results.finished(), *failures}
            if lacks_seeds(plan.runs, choose_cells(self._counted(), batch).reached, ended):
                break  # there is no time for what other cells would need either
        failures |= self._again(failures, seed)
        chosen = find_candidates(self._finished(), plan.cells, screened)
        decided, more = self._confirm(chosen, screened)
        failures |= more
        outcome = ExperimentOutcome(
            tuple(self._finished()),
            screened,
            decided,
            tuple(failures.values()),
            self._is_over(),
            choose_cells(self._counted(), plan.cells).unreached,
            tuple(self._counted()),
        )
        return replace(outcome, needs=fsum(map(self._seconds, outcome.short(plan.cells))))

    def _again(self, failures: Mapping[str, Failure], seed: int) -> dict[str, Failure]:
        """Run other seeds where the first one of one kernel was lost, until they lose one more.

        The other kernel lost none in this cell. Where the patched kernel lost enough, the baseline
        has no other seeds. One lost run may be chance, so one seed may start when the time is over:
        as the first seed is lost again whenever the command is repeated, it would never come to
        another one.
        """
        plan, more, until = self.study.plan, dict[str, Failure](), math.inf
        for later in range(seed + 1, max(plan.study.seeds) + 1):
            so_far = self._so_far({**failures, **more})
            lost = [so_far.lost_alone(side) for side in (PATCHED, BASELINE)]
            once = [alone[0].run for alone in lost if len(alone) < FEWEST_LOST and alone]
            cells = [run.cell for run in plan.runs if run.id in once and run.seed == seed]
            if len(lost[0]) >= FEWEST_LOST or not cells:
                break
            pairs = [
                planned_run(cell, name, later) for cell in cells for name in plan.study.variants
            ]
            if {run.id for run in pairs} <= self.study.results.finished().keys():
                continue
            more |= self._execute(pairs, until)
            until = self.over
        return more

    def _counted(self) -> list[tuple[Cell, RunDir]]:
        """Return the folders of the runs that may hold counts of lines, failed ones too."""
        results = self.study.results
        runs = (*self.study.plan.runs, *load_plan(results).runs)
        failed = ((cell, results.failed(run)) for run, cell in {r.id: r.cell for r in runs}.items())
        left = [(cell, directory) for cell, directory in failed if directory.path.exists()]
        return [*((run.cell, run.directory) for run in self._finished()), *left]

    def _fitting(self, cells: Sequence[Cell]) -> int:
        """Return for how many cells one seed takes at most half of the time for first seeds."""
        plan, setting, costs = self.study.plan, self.study.setting, Costs()
        seconds = [
            costs.of(
                plan.topologies[cell.topology],
                plan.workloads[cell],
                setting.choice.mode,
                plan.study.machine,
            ).seconds
            for cell in cells
        ]
        one_seed = [len(plan.study.variants) * cost / self._places() for cost in seconds]
        return fitting(one_seed, (self.screen_until - time.monotonic()) / 2)

    def _places(self) -> int:
        """Return how many guests run at once."""
        plan, mode = self.study.plan, self.study.setting.choice.mode
        return self.jobs or at_once(plan.study, mode, plan.topologies.values())

    def _screen(self, cells: Sequence[Cell]) -> dict[str, Failure]:
        """Run the other first seeds of cells in which changed code ran, as many as the time allows.

        A cell gets all its seeds or, while none is compared, what can be compared: else the same
        command would never come further.
        """
        plan, failures = self.study.plan, dict[str, Failure]()
        choice = choose_cells(self._counted(), cells)
        if choice.unreached:
            self.tell(f"no changed line ran in {counted(len(choice.unreached), 'cell')}")
        waiting = list(choice.reached)
        fewest = sorted(plan.study.seeds)[:FEWEST]
        while waiting:
            costs = [self._seconds(cell) for cell in waiting]
            count = fitting(costs, self.screen_until - time.monotonic())
            if not count and self._lacks_comparison():
                runs = [run for run in plan.runs if run.cell == waiting[0] and run.seed in fewest]
                failures |= self._execute(runs, self.over)
                count = 1
            if not count:
                break
            batch, waiting = waiting[:count], waiting[count:]
            runs = [run for run in plan.runs if run.cell in batch]
            failures |= self._execute(runs, self.screen_until)
        return failures

    def _seconds(self, cell: Cell) -> float:
        """Return the wall seconds of what a cell lacks of its first seeds.

        By its finished runs, or those of other cells where it has none.
        """
        every = self._finished()
        finished = [run for run in every if run.cell == cell]
        planned = sum(run.cell == cell for run in self.study.plan.runs)
        alike = finished or every
        mean = fsum(run.manifest.seconds or 0.0 for run in alike) / max(1, len(alike))
        return mean * max(0, planned - len(finished)) / self._places()

    def _lacks_comparison(self) -> bool:
        """Whether no cell can be compared yet, and there is time to go on."""
        compared = self._so_far({}).compared(self.study.plan.cells)
        return time.monotonic() < self.over and not compared

    def _so_far(self, failures: Mapping[str, Failure]) -> ExperimentOutcome:
        """Return the finished and failed runs."""
        runs, screened = tuple(self._finished()), max(self.study.plan.study.seeds)
        return ExperimentOutcome(runs, screened, (), tuple(failures.values()), time_over=False)

    def _confirm(
        self, chosen: Sequence[Candidate], screened: int
    ) -> tuple[tuple[DecidedCandidate, ...], dict[str, Failure]]:
        """Add fresh runs to the cells of open candidates, and decide at each look."""
        settled: dict[Candidate, DecidedCandidate] = {}
        failures: dict[str, Failure] = {}
        spent = 0.0
        for look, count in enumerate(LOOKS):
            waiting = [candidate for candidate in chosen if candidate not in settled]
            if not waiting:
                break
            if not look:
                self.tell(f"{counted(len(waiting), 'measure')} may differ; fresh runs decide")
            seeds = range(screened + 1, screened + count + 1)
            cells = dict.fromkeys(candidate.cell for candidate in waiting)
            fresh = [
                planned_run(cell, variant, seed)
                for cell in cells  # the clearest first: time may end
                for seed in seeds
                for variant in self.study.plan.study.variants
            ]
            failures |= self._execute(fresh, self.decide_until)
            over = self._is_over() or look == len(LOOKS) - 1
            share = LEVEL - spent if over else share_of_look(look)
            spent += share
            settled |= self._look(waiting, seeds, share, len(chosen), last=over)
            if over:
                break
        return tuple(settled[candidate] for candidate in chosen if candidate in settled), failures

    def _look(
        self, waiting: Sequence[Candidate], seeds: range, share: float, family: int, *, last: bool
    ) -> dict[Candidate, DecidedCandidate]:
        """Return the candidates that this look settles."""
        fresh = [run for run in self._finished() if run.manifest.seed in seeds]
        samples = {
            candidate: sample(fresh, candidate.cell, candidate.info.name) for candidate in waiting
        }
        enough = [candidate for candidate in waiting if samples[candidate].fewest >= FEWEST]
        decisions = decide([samples[candidate] for candidate in enough], share, family)
        settled = {
            candidate: DecidedCandidate(candidate, samples[candidate], decision)
            for candidate, decision in zip(enough, decisions, strict=True)
            if last or not decision.open
        }
        if last:
            short = (candidate for candidate in waiting if candidate not in enough)
            settled |= {
                candidate: DecidedCandidate(candidate, samples[candidate], None)
                for candidate in short
            }
        return settled

    def _execute(self, runs: Sequence[PlannedRun], deadline: float) -> dict[str, Failure]:
        """Run what the results lack of some runs; return the failures by run."""
        plan = self.study.plan
        fresh = tuple(run for run in runs if run.seed not in plan.study.seeds)
        if fresh:
            finished = self.study.results.finished()
            done = (run for run in plan.runs if run.id in finished)
            remark = AddedRemark(first=max(plan.study.seeds), level=LEVEL, looks=LOOKS)
            chosen = select(plan, (*done, *fresh), remark)
        else:
            chosen = select(plan, runs)
        if not missing_tasks(study := replace(self.study, plan=chosen)):
            return {}
        failures = execute([study], self.jobs, self.watch, on_wait=self.on_wait, deadline=deadline)
        return {failure.ended.run: failure for failure in failures}

    def _finished(self) -> list[StoredRun]:
        return [run for run in load_runs(self.study.results)[1] if run.manifest.status == "ok"]

    def _is_over(self) -> bool:
        return time.monotonic() > self.decide_until
