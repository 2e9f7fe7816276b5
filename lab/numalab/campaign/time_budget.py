"""Which runs of a study tell most within a given time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from numalab.campaign.schedule import makespan, then
from numalab.errors import UserError
from numalab.results.cell import Cell
from numalab.results.plan import PlannedRun
from numalab.results.remarks import BudgetRemark
from numalab.study.plan import Plan, select
from numalab.units import format_seconds


@dataclass(frozen=True)
class _Group:
    """All variants of a repetition in a cell: only together can they be compared."""

    repetition: int
    cell: Cell
    runs: tuple[PlannedRun, ...]
    seconds: tuple[float, ...]


def within_budget(
    plan: Plan, seconds: float, cost: Callable[[PlannedRun], float], jobs: int = 1
) -> Plan:
    """Return the plan with the runs that tell most in so many wall seconds, `jobs` at once.

    First every topology and every workload is seen once, then every cell, then repetitions, each
    of which goes through all cells before the next one begins. The variants of a repetition stay
    together. What does not fit is left out, and cheaper ones after it may still fit. Raises
    UserError when not even one comparison fits.
    """
    chosen: list[PlannedRun] = []
    ends = [0.0] * max(1, jobs)
    groups = _in_order_of_worth(_groups(plan, cost))
    for group in groups:
        after = then(ends, group.seconds)
        if max(after) <= seconds:
            chosen += group.runs
            ends = after
    if not chosen:
        least = min(makespan(group.seconds, jobs) for group in groups)
        raise UserError(
            f"no comparison of {plan.name} fits into {format_seconds(seconds)};"
            f" the shortest takes about {format_seconds(least)}",
            key="--budget",
        )
    kept = set(chosen)
    runs = tuple(run for run in plan.runs if run in kept)
    if runs == plan.runs:
        return plan
    remark = BudgetRemark(chosen=len(runs), planned=len(plan.runs), seconds=float(seconds))
    return select(plan, runs, remark)


def _groups(plan: Plan, cost: Callable[[PlannedRun], float]) -> list[_Group]:
    seeds = dict.fromkeys(run.seed for run in plan.runs)
    repetitions = {seed: place for place, seed in enumerate(seeds)}
    sorted_runs: dict[tuple[int, Cell], list[PlannedRun]] = {}
    for run in plan.runs:
        sorted_runs.setdefault((repetitions[run.seed], run.cell), []).append(run)
    return [
        _Group(repetition, cell, tuple(runs), tuple(map(cost, runs)))
        for (repetition, cell), runs in sorted_runs.items()
    ]


def _in_order_of_worth(groups: Sequence[_Group]) -> list[_Group]:
    """Order groups: by repetition, and in the first one by how much of the axes is new."""
    left = sorted(groups, key=lambda group: group.repetition)
    found: list[_Group] = []
    seen: set[str] = set()
    while left and left[0].repetition == groups[0].repetition:
        first = [group for group in left if group.repetition == left[0].repetition]
        best = max(first, key=lambda group: (len(_values(group.cell) - seen), -sum(group.seconds)))
        seen |= _values(best.cell)
        found.append(best)
        left.remove(best)
    return [*found, *left]


def _values(cell: Cell) -> set[str]:
    return {f"topology {cell.topology}", f"workload {cell.label}"}
