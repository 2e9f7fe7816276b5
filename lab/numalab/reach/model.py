"""What reach reports: of a run, of a kernel, of a patch."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from numalab.document import Count, Listed

Side = Literal["baseline", "patched"]
# "function": a line of a function that is changed elsewhere
LineKind = Literal["added", "removed", "context", "function"]


class LineState(StrEnum):
    """Whether a line ran, or why it has no count."""

    REACHED = "reached"
    NOT_REACHED = "not reached"
    NO_CODE = "no code"
    COMPILED_OUT = "compiled out"
    UNKNOWN = "unknown"  # its object has no line numbers, or gcc merged it with other code


class CodeChange(StrEnum):
    """What a patch changes in the objects that its files are part of."""

    LINES = "lines"  # at least one changed line has code
    FUNCTIONS = "functions"  # code of unchanged lines (macros, layouts), or of unknown objects
    DATA = "data"  # only initial values
    NONE = "none"  # both kernels have the same code and data


class Reached(StrEnum):
    """The verdict of reach for a patch."""

    ALL = "reached"
    PARTLY = "partly reached"
    NOT = "not reached"
    NO_CODE = "no code"
    UNKNOWN = "unknown"  # no counted line ran, but other changes may have an effect


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class BranchReach(_Record):
    """A conditional jump or static branch: the line it goes to, and how often (line 0: unknown)."""

    taken: Count
    taken_line: Count
    not_taken: Count
    not_taken_line: Count
    is_static: bool = False


class LineReach(_Record):
    """A changed line, or a line near changed lines; `loads` are the cells that executed it.

    `first_s` is the guest's uptime at the first execution, to a tick; None: unknown.
    """

    file: str
    number: Count
    kind: LineKind
    text: Annotated[str, Field(max_length=100_000)]
    state: LineState
    reason: str = ""
    functions: Listed[str] = ()
    executions: Count = 0
    cpus: Listed[Count] = ()
    first_s: float | None = None
    branches: Listed[BranchReach] = ()
    loads: Listed[str] = ()

    @property
    def executed_branches(self) -> tuple[BranchReach, ...]:
        """The branches that were executed, the most frequent first."""
        ran = [branch for branch in self.branches if branch.taken or branch.not_taken]
        return tuple(sorted(ran, key=lambda branch: -branch.taken - branch.not_taken))

    @property
    def is_changed(self) -> bool:
        """Whether the patch adds or removes it."""
        return self.kind in ("added", "removed")

    @property
    def sign(self) -> Literal["+", "-", " "]:
        """Its sign in a patch."""
        return "+" if self.kind == "added" else "-" if self.kind == "removed" else " "

    @property
    def executable(self) -> bool:
        """Whether it has code."""
        return self.state in (LineState.REACHED, LineState.NOT_REACHED)


class FunctionReach(_Record):
    """A function whose code differs between the kernels, and how often it was entered."""

    name: str
    file: str
    executions: Count = 0
    loads: Listed[str] = ()


class RunReach(_Record):
    """The reach of a patch in one run, or summed over runs of one kernel (`runs`)."""

    series: str
    kernel: str
    side: Side
    code: CodeChange
    data: bool = False  # whether initial data or uncounted code differs, too
    since: Literal["boot", "start"] = "boot"
    runs: Annotated[Count, Field(gt=0)] = 1
    lines: Listed[LineReach] = ()
    functions: Listed[FunctionReach] = ()
    notes: Listed[str] = ()

    @property
    def changed(self) -> tuple[LineReach, ...]:
        """The changed lines that have code."""
        return tuple(line for line in self.lines if line.is_changed and line.executable)


class PatchReach(_Record):
    """The reach of a patch in all runs of both kernels."""

    series: str
    code: CodeChange
    baseline: RunReach | None = None
    patched: RunReach | None = None

    @property
    def changed(self) -> tuple[LineReach, ...]:
        """The changed lines with code: those added, and those removed.

        Where only one kernel ran, and the patch has lines only in the other one: their neighbours.
        """
        sides = [side for side in (self.patched, self.baseline) if side]
        changed = tuple(line for side in sides for line in side.changed)
        if changed or len(sides) == 2:
            return changed
        lines = (line for side in sides for line in side.lines)
        return tuple(line for line in lines if line.kind == "context" and line.executable)

    def runs_of(self, line: LineReach) -> int:
        """Return how many runs counted a line: those of the kernel that has it."""
        side = (None if line.kind == "removed" else self.patched) or self.baseline
        return side.runs if side is not None else 1

    @property
    def not_reached(self) -> tuple[LineReach, ...]:
        """The changed lines with code that no run executed."""
        return tuple(line for line in self.changed if line.state is LineState.NOT_REACHED)

    def in_state(self, state: LineState) -> int:
        """Return how many of the lines that the patch adds or removes are in a state."""
        lines = (line for side in (self.patched, self.baseline) if side for line in side.lines)
        return sum(line.is_changed and line.state is state for line in lines)

    @property
    def verdict(self) -> Reached:
        """Whether the changed code ran: lines, and functions that differ without them.

        A function ran if it did in one kernel. Lines of which this is unknown, as many that the
        compiler merges, decide only alone.
        """
        if self.code in (CodeChange.NONE, CodeChange.DATA):
            return Reached.NO_CODE
        sides = [side for side in (self.patched, self.baseline) if side]
        lines = [line.state is LineState.REACHED for line in self.changed]
        every = [item for side in sides for item in side.functions]
        ran = {item.name for item in every if item.executions}
        functions = [item.name in ran for item in every]
        if any(lines) or any(functions):
            return Reached.ALL if all((*lines, *functions)) else Reached.PARTLY
        unknown = any(line.state is LineState.UNKNOWN for side in sides for line in side.lines)
        if unknown or any(side.data for side in sides) or not (lines or functions):
            return Reached.UNKNOWN
        return Reached.NOT
