"""Counts of a boot for tests of the direction."""

from numalab.reach.model import (
    BranchReach,
    CodeChange,
    LineKind,
    LineReach,
    LineState,
    RunReach,
)


def line(
    number: int, kind: LineKind = "added", count: int = 0, *ways: tuple[int, int], text: str = "x"
) -> LineReach:
    """Return a line; `ways` are how often its branches were taken and not taken."""
    return LineReach(
        file="kernel/sched/fair.c",
        number=number,
        kind=kind,
        text=text,
        state=LineState.REACHED if count else LineState.NOT_REACHED,
        functions=("decide",),
        executions=count,
        branches=tuple(
            BranchReach(taken=taken, taken_line=90, not_taken=other, not_taken_line=0)
            for taken, other in ways
        ),
    )


def boot(*lines: LineReach) -> RunReach:
    """Return the counts of one boot of the patched kernel."""
    return RunReach(series="x", kernel="mine", side="patched", code=CodeChange.LINES, lines=lines)
