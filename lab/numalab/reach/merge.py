"""Sums the reach of runs. Pure."""

from collections.abc import Iterable
from functools import reduce

from numalab.reach.model import (
    BranchReach,
    FunctionReach,
    LineReach,
    LineState,
    PatchReach,
    RunReach,
    Side,
)


def merged(runs: Iterable[tuple[str, RunReach]]) -> PatchReach:
    """Return the reach of all runs; each comes with the label of its cell ("" for none).

    Runs that counted other lines than the last one of their kernel are left out: their patch was
    another version. Raises ValueError without a run.
    """
    sides: dict[Side, list[RunReach]] = {}
    for label, run in runs:
        sides.setdefault(run.side, []).append(_labelled(run, label))
    if not sides:
        raise ValueError("no run to sum")
    first = next(iter(sides.values()))[-1]
    totals = {
        side: reduce(_sum, [run for run in group if _counted(run) == _counted(group[-1])])
        for side, group in sides.items()
    }
    return PatchReach(
        series=first.series,
        code=first.code,
        baseline=totals.get("baseline"),
        patched=totals.get("patched"),
    )


def _counted(run: RunReach) -> list[tuple[object, ...]]:
    """Return what a run counted: lines with their branches, and functions."""
    lines = [(line.file, line.number, line.text, len(line.branches)) for line in run.lines]
    return [*lines, *((item.file, item.name) for item in run.functions)]


def _labelled(run: RunReach, label: str) -> RunReach:
    loads = (label,) if label else ()

    def mark(item: LineReach | FunctionReach) -> dict[str, tuple[str, ...]]:
        return {"loads": loads if item.executions else ()}

    return run.model_copy(
        update={
            "lines": tuple(line.model_copy(update=mark(line)) for line in run.lines),
            "functions": tuple(item.model_copy(update=mark(item)) for item in run.functions),
        }
    )


def _sum(left: RunReach, right: RunReach) -> RunReach:
    lines = zip(left.lines, right.lines, strict=True)
    functions = zip(left.functions, right.functions, strict=True)
    return left.model_copy(
        update={
            "runs": left.runs + right.runs,
            "since": left.since if left.since == right.since else "start",
            "lines": tuple(_line_sum(*pair) for pair in lines),
            "functions": tuple(_function_sum(*pair) for pair in functions),
        }
    )


def _line_sum(left: LineReach, right: LineReach) -> LineReach:
    firsts = [line.first_s for line in (left, right) if line.first_s is not None]
    states = (LineState.REACHED, LineState.UNKNOWN)
    state = next((state for state in states if state in (left.state, right.state)), left.state)
    return left.model_copy(
        update={
            "state": state,
            "reason": (left if left.state is state else right).reason,
            "executions": left.executions + right.executions,
            "cpus": tuple(sorted({*left.cpus, *right.cpus})),
            "first_s": min(firsts, default=None),
            "branches": tuple(
                _branch_sum(*pair) for pair in zip(left.branches, right.branches, strict=True)
            ),
            "loads": tuple(dict.fromkeys((*left.loads, *right.loads))),
        }
    )


def _branch_sum(left: BranchReach, right: BranchReach) -> BranchReach:
    return left.model_copy(
        update={"taken": left.taken + right.taken, "not_taken": left.not_taken + right.not_taken}
    )


def _function_sum(left: FunctionReach, right: FunctionReach) -> FunctionReach:
    return left.model_copy(
        update={
            "executions": left.executions + right.executions,
            "loads": tuple(dict.fromkeys((*left.loads, *right.loads))),
        }
    )
