"""The findings of a run beside its measures: matrices, curves and lists.

`Findings` is one JSON document (`RunDir.analysis`) of bounded size; counts beside a list give its
full length. Times are milliseconds since the begin of the window. Tuples by node are in the order
of `Findings.nodes`. None means not measured.
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic import TypeAdapter

from numalab.document import Listed
from numalab.measure import LARGEST_NUMBER
from numalab.recording.migrations import Moves, Storm
from numalab.recording.numa_decisions import StickReason
from numalab.recording.residence import Level

MAX_DECISIONS = 2000
MAX_TASKS = 64


DecisionKind = Literal["move", "swap", "stick"]
Undone = Literal["", "failed", "moved back"]


class Weight(StrEnum):
    """What the counts of a matrix are multiplied by, which is then their unit."""

    HOPS = "hops"
    DISTANCE = "distance"

    def of(self, name: str) -> str:
        """Return the name of the matrix that is another one with this weight."""
        return f"{name}_{self}"


@dataclass(frozen=True)
class Matrix:
    """Counts between nodes: `cells[from][to]`."""

    name: str
    title: str
    unit: str
    cells: tuple[tuple[float, ...], ...]

    @property
    def weighted(self) -> bool:
        """Whether it is another one with a weight."""
        return self.unit in set(Weight)


@dataclass(frozen=True)
class TimeSeries:
    """A curve: `values[i]` is of the time from `at_ms[i - 1]` (or 0) to `at_ms[i]`.

    Series of one `name` share a diagram; they differ in `node`, or in `link` (from node, to node).
    """

    name: str
    title: str
    unit: str
    node: int | None
    at_ms: tuple[float, ...]
    values: tuple[float | None, ...]
    link: tuple[int, int] | None = None

    @property
    def label(self) -> str:
        """What tells it apart in its diagram, for people."""
        if self.link is not None:
            return f"link {self.link[0]}-{self.link[1]}"
        return "" if self.node is None else f"node {self.node}"


@dataclass(frozen=True)
class Decision:
    """One decision of NUMA balancing.

    A `stick` has a `reason`, and no `to_cpu` without a destination. `undone` is "failed" for a move
    or swap that failed, "moved back" for one that another mover reversed, of a swap for one task
    at least. `other` is the task swapped with. `nearer` is the decrease of the distance to the
    preferred node, None without a sample of it. Nodes are None without a topology.
    """

    at_ms: float
    kind: DecisionKind
    pid: int
    task: str
    from_cpu: int
    from_node: int | None
    to_cpu: int | None
    to_node: int | None
    other_pid: int | None = None
    other_task: str = ""
    reason: StickReason = ""
    undone: Undone = ""
    nearer: int | None = None


@dataclass(frozen=True)
class Residence:
    """Where a task, process (`id`: tgid) or NUMA group (`id`: ngid) had its CPU time.

    `share` is in percent by node; `slices` the same by time slice (`Findings.slice_ends_ms`), None
    for a slice without CPU time. From `converged_ms` on, `Findings.convergence_percent` of the time
    was on one node; None for never.
    """

    level: Level
    id: int
    name: str
    cpu_ms: float
    share: tuple[float, ...]
    slices: tuple[tuple[float, ...] | None, ...]
    converged_ms: float | None
    final_node: int | None


@dataclass(frozen=True)
class Violation:
    """A CPU had no runnable task for `length_ms` while another had two or more.

    `task` is one that waited on `busy_cpu` when it began.
    """

    cpu: int
    at_ms: float
    length_ms: float
    busy_cpu: int
    pid: int | None
    task: str


@dataclass(frozen=True)
class TaskMemory:
    """Counts of the memory model of mode timed for a task in the window.

    It stalled for `stalled_ms` of its `cpu_ms`, of which `queued_ms` in queues of memories and
    links. `lines` are by the node of their memory or cache; `local` lines came from the CPU's own
    node.
    """

    pid: int
    name: str
    cpu_ms: float
    stalled_ms: float
    queued_ms: float
    local: float
    lines: tuple[float, ...]


@dataclass(frozen=True)
class Findings:
    """The findings of one run. `notes` name what could not be analysed, and why.

    A count `_in_all` is None where the recording lacks its events.
    """

    nodes: Listed[int]
    length_ms: float
    slice_ends_ms: Listed[float]
    convergence_percent: float
    matrices: Listed[Matrix] = ()
    series: Listed[TimeSeries] = ()
    decisions: Listed[Decision] = ()
    decisions_in_all: int | None = 0
    residence: Listed[Residence] = ()
    tasks_in_all: int = 0
    violations: Listed[Violation] = ()
    violations_in_all: int | None = 0
    storms: Listed[Storm] = ()
    storms_in_all: int | None = 0
    moves: Listed[Moves] = ()
    memory: Listed[TaskMemory] = ()
    notes: Listed[str] = ()


def _integer(text: str) -> int:
    """Read an integer that sums of it have room for. Raises ValueError."""
    _number(text)
    return int(text)


def _number(text: str) -> float:
    """Read a number that sums and squares of it have room for. Raises ValueError."""
    if not abs(number := float(text)) < LARGEST_NUMBER:
        raise ValueError(f"{text[:20]} is out of all bounds")
    return number


def read_findings(text: bytes) -> Findings:
    """Read the stored findings of a run. Raises ValueError for a damaged file."""
    stored = json.loads(text, parse_int=_integer, parse_float=_number, parse_constant=_number)
    return TypeAdapter(Findings).validate_python(stored)
