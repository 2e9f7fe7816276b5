"""Which cells run: as many as the time allows, then those in which the changed code ran."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from numalab.reach.model import CodeChange, RunReach, Side
from numalab.results.plan import Cell, PlannedRun
from numalab.results.reader import load_reaches
from numalab.run_dir import RunDir

SCREEN = 0.55  # of the budget, from its start
SLOWER = 1.1  # the host may become slower while the runs last


@dataclass(frozen=True)
class ScreenedCells:
    """Cells in which changed code ran, the most executions first; and those in which none ran."""

    reached: tuple[Cell, ...]
    unreached: tuple[Cell, ...] = ()


def choose_cells(runs: Iterable[tuple[Cell, RunDir]], cells: Sequence[Cell]) -> ScreenedCells:
    """Choose cells by the reach of their runs, also of those that were lost.

    All cells are chosen, in their order, where reach cannot tell: nothing was counted, or the patch
    changes initial data, whose readers are not counted.
    """
    counted: dict[Cell, list[RunReach]] = {}
    for cell, reach in load_reaches(runs):
        counted.setdefault(cell, []).append(reach)
    return sort_cells(counted, cells)


def sort_cells(counted: Mapping[Cell, Sequence[RunReach]], cells: Sequence[Cell]) -> ScreenedCells:
    """Sort cells by the executions of changed code in their runs; pure."""
    every = [reach for cell in cells for reach in counted.get(cell, ())]
    if not every or any(reach.data or reach.code is CodeChange.DATA for reach in every):
        return ScreenedCells(tuple(cells))
    executions = {cell: _in_cell(counted.get(cell, ())) for cell in cells}
    reached = sorted(
        (cell for cell in cells if executions[cell]), key=lambda cell: -executions[cell]
    )
    return ScreenedCells(tuple(reached), tuple(cell for cell in cells if not executions[cell]))


def _in_cell(runs: Sequence[RunReach]) -> int:
    """Count executions of changed code; 1 if none is known, and runs of a kernel were not counted.

    Removed lines run in the baseline, and added ones in the patched kernel.
    """
    executions = sum(map(_executions, runs))
    is_whole = {run.side for run in runs} == {*get_args(Side)}
    return executions if is_whole else max(executions, 1)


def _executions(reach: RunReach) -> int:
    """Count executions of changed code; 1 where some of it could not be counted."""
    lines = [line for line in reach.lines if line.is_changed]
    count = sum(line.executions for line in lines) + sum(
        function.executions for function in reach.functions
    )
    return count or int(any(line.state == "unknown" for line in lines))


def ran_equally_often(counted: Iterable[tuple[Cell, RunReach]]) -> bool:
    """Whether changed code ran, and equally often in each of several runs of a machine and kernel.

    Code that only the boot executes does so, but also periodic code under a regular load.
    """
    of_machines: dict[tuple[str, str], list[tuple[int, ...]]] = {}
    for cell, reach in counted:
        lines = (line.executions for line in reach.changed)
        executions = (*lines, *(function.executions for function in reach.functions))
        of_machines.setdefault((cell.topology, reach.side), []).append(executions)
    ran = [counts for counts in of_machines.values() if any(map(sum, counts))]
    return bool(ran) and all(len(counts) > 1 and len(set(counts)) == 1 for counts in ran)


def lacks_seeds(
    runs: Iterable[PlannedRun], reached: Collection[Cell], ended: Collection[str]
) -> bool:
    """Whether a run of these cells was not begun; `ended` are those that finished or failed."""
    return any(run.cell in reached and run.id not in ended for run in runs)


def spread(cells: Sequence[Cell]) -> list[Cell]:
    """Sort cells so that any first part of them has many loads and all machines."""
    machines = list(dict.fromkeys(cell.topology for cell in cells))
    loads = list(dict.fromkeys(cell.label for cell in cells))

    def place(cell: Cell) -> tuple[int, int]:
        load, machine = loads.index(cell.label), machines.index(cell.topology)
        return (machine - load) % len(machines), load

    return sorted(cells, key=place)


def fitting(costs: Sequence[float], seconds: float) -> int:
    """Return how many of the first cells fit into a time, by the wall seconds of each."""
    total = 0.0
    for count, cost in enumerate(costs):
        total += cost * SLOWER
        if total > seconds:
            return count
    return len(costs)
