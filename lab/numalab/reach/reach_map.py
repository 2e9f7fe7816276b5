"""The reach map: which lines of the scheduler each cell of the lab executes. Pure.

From it follows which cells reach the lines of a patch, and which lines none of them reaches.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict

from numalab.reach.kernel_code_artifact import KernelCode
from numalab.reach.line_table import LineTable, TableLine, line_code
from numalab.reach.model import CodeChange, LineState, RunReach
from numalab.source.c_functions import called
from numalab.units import counted

# The scheduler, and the NUMA code of mm.
MAPPED = (
    "kernel/sched/core.c",
    "kernel/sched/fair.c",
    "kernel/sched/rt.c",
    "kernel/sched/topology.c",
    "kernel/sched/sched.h",
    "mm/mempolicy.c",
    "mm/migrate.c",
    "mm/memory.c",
    "mm/huge_memory.c",
    "mm/mprotect.c",
)
_BELOW = ("kernel/sched/", *(name for name in MAPPED if name.startswith("mm/")))

# What a machine, load or setting must have so that a function runs: the first match counts. A file
# operation comes before what it is about.
# Sources: the conditions in front of the calls in Linux 6.12, and Documentation/scheduler/.
_FEATURES: tuple[tuple[str, str], ...] = (
    (r"kernel/sched/debug\.c:.*_(write|set|enable|disable)$", "a write to its file in debugfs"),
    (r"kernel/sched/debug\.c:.*(show|print|open|read|sched_debug)", "a reader of its file"),
    (r".*:(sysctl_|proc_do)|kernel/sched/.*:.*_handler$", "a reader or writer of its sysctl"),
    (r"kernel/sched/(deadline|cpudeadline)\.c|.*:.*(_dl_|dl_(server|task|bw))", "deadline tasks"),
    (r"kernel/sched/(rt|cpupri)\.c|.*:.*_rt_", "real-time tasks (SCHED_FIFO, SCHED_RR)"),
    (r".*:.*uclamp", "uclamp"),
    (r".*:.*(cfs_b|bandwidth|throttle|cfs_rq_runtime)", "a cgroup with a CPU limit (cpu.max)"),
    (r".*:.*(cpuset|partition_sched_domains|isolated|housekeeping)", "cpusets or isolated CPUs"),
    (r".*:.*(hotplug|sched_cpu_(de|dy)|cpu_(active|inactive)|rq_o(n|ff)line|migrate_tasks"
     r"|balance_push|cpu_dying)", "CPU hotplug"),
    (r".*:.*(smt|idle_core|asym|core_sched|sched_core)", "SMT, or CPUs of different capacity"),
    (r".*:.*(misfit|capacity_greater|energy|perf_domain|eas_)", "CPUs of different capacity"),
    (r".*:.*(tier|demot|promot|toptier)", "memory tiers"),
    (r".*:.*(huge|pmd|thp)|mm/huge_memory\.c", "transparent huge pages"),
    (r".*:.*(autogroup|tg_|task_group|group_sched|sched_group_|online_fair)", "cgroups"),
    (r".*:.*(psi|pressure)|kernel/sched/psi\.c", "pressure stall information (cgroups)"),
    (r".*:.*(membarrier)", "the system call membarrier"),
    (r".*:.*(nohz_full|tick_offload|sched_tick_remote)", "nohz_full"),
    (r".*:.*(mbind|mempolicy|mpol|interleave|policy)|mm/mempolicy\.c", "memory policies"),
    (r".*:.*(move_pages|migrate_pages)|mm/migrate\.c", "migration of pages"),
    (r".*:.*(affinity|allowed|migration_cpu)", "changes of affinity"),
    (r".*:.*(numa|nid|preferred)", "tasks with memory on several nodes (NUMA balancing)"),
    (r".*:.*(debug|show|print|proc_|param_)", "a reader of debugfs or procfs"),
    (r".*:.*(init|setup|build)", "the boot of another machine"),
)  # fmt: skip
UNKNOWN = "unknown"
_MOST_MISSED = 30  # lines of a text
SCHEDULER = "kernel/sched"  # the series of a table of all branches


class CellReach(BaseModel):
    """The executed lines of one cell: executions by line, by file; its wall time in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    topology: str
    workload: str
    seconds: float
    lines: Mapping[str, Mapping[int, int]]

    @property
    def label(self) -> str:
        """The name of the cell."""
        return f"{self.topology}, {self.workload}"

    def count(self, place: tuple[str, int]) -> int:
        """Return how often a line ran."""
        return self.lines.get(place[0], {}).get(place[1], 0)


@dataclass(frozen=True)
class MissedLine:
    """A line that no cell reaches, and the feature that it needs."""

    file: str
    number: int
    function: str
    feature: str


@dataclass(frozen=True)
class CellChoice:
    """The cells for a patch: the smallest set that reaches its lines, and those with most.

    Its lines are those that it changes, and their neighbours. `reached` of them are reached;
    `changed` is how many changed ones are, and how many there are. The map lacks the files in
    `unmapped`.
    """

    cells: tuple[str, ...]
    most: tuple[str, ...]
    reached: int
    missed: tuple[MissedLine, ...]
    changed: tuple[int, int]
    unmapped: tuple[str, ...]


def map_table(kernel: str, code: KernelCode, hz: int) -> LineTable:
    """Return the table that counts every mapped line of a kernel."""
    codes = [item.code for item in code.objects if not item.reason]
    places = sorted({place for own in codes for place in own.places() if _is_mapped(place[0])})
    lines = []
    for file, number in places:
        code_of_line = line_code((file, number), codes)
        if code_of_line is not None:
            plain = replace(code_of_line, jumps=())
            state = LineState.NOT_REACHED
            lines.append(TableLine(file, number, "context", "", plain, state=state))
    change = CodeChange.LINES
    return LineTable("map", kernel, "baseline", change, tuple(lines), (), code.jiffies, hz)


def branch_table(kernel: str, code: KernelCode, hz: int) -> LineTable:
    """Return the table that counts every branch of the scheduler's source files."""
    codes = [item.code for item in code.objects if not item.reason]
    places = sorted({place for own in codes for place in own.places() if _is_scheduler(place[0])})
    coded = ((place, line_code(place, codes)) for place in places)
    lines = (
        TableLine(file, number, "function", "", own, state=LineState.NOT_REACHED)
        for (file, number), own in coded
        if own is not None and own.jumps
    )
    change = CodeChange.LINES
    return LineTable(SCHEDULER, kernel, "patched", change, tuple(lines), (), code.jiffies, hz)


def _is_scheduler(file: str) -> bool:
    return file.startswith(f"{SCHEDULER}/") and file.endswith(".c")


def _is_mapped(file: str) -> bool:
    return file.startswith(_BELOW)


def cell_reach(topology: str, workload: str, seconds: float, reach: RunReach) -> CellReach:
    """Return the lines that a run executed."""
    lines: dict[str, dict[int, int]] = {}
    for line in reach.lines:
        if line.executions:
            lines.setdefault(line.file, {})[line.number] = line.executions
    return CellReach(topology=topology, workload=workload, seconds=seconds, lines=lines)


def select_cells(cells: Sequence[CellReach], table: LineTable, most: int = 3) -> CellChoice:
    """Return the cells that reach the lines of a patch; `table` is that of its baseline.

    The smallest set is chosen greedily (set cover), by the number of further lines, then by time.
    """
    coded = [line for line in table.lines if line.code]
    wanted = {(line.file, line.number): line for line in coded if _is_mapped(line.file)}
    left = {place for place in wanted if any(cell.count(place) for cell in cells)}
    missed = [wanted[place] for place in wanted if place not in left]
    changed = [place in left for place, line in wanted.items() if line.is_changed]
    reached, chosen = len(left), list[CellReach]()
    while left:
        best = max(cells, key=lambda cell: (_covered(cell, left), -cell.seconds))
        chosen.append(best)
        left -= {place for place in left if best.count(place)}
    ranked = sorted(cells, key=lambda cell: -sum(cell.count(place) for place in wanted))
    busy = [cell.label for cell in ranked if any(cell.count(place) for place in wanted)]
    return CellChoice(
        tuple(cell.label for cell in chosen),
        tuple(busy[:most]),
        reached,
        tuple(_missed(line) for line in missed),
        (sum(changed), len(changed)),
        tuple(sorted({line.file for line in coded if not _is_mapped(line.file)})),
    )


def choice_lines(choice: CellChoice) -> Iterator[str]:
    """Return a choice for people, a line each."""
    ran, changed = choice.changed
    neighbours = choice.reached + len(choice.missed) - changed
    parts = [f"{ran} of {changed} changed lines"] if changed or not neighbours else []
    if neighbours:
        parts.append(f"{choice.reached - ran} of {neighbours} lines beside changes")
    cells = counted(len(choice.cells), "cell")
    yield f"{' and '.join(parts)} are reached by {cells}"
    yield from (f"  {cell}" for cell in choice.cells)
    if choice.most:
        yield f"most executions: {'; '.join(choice.most)}"
    for line in choice.missed[:_MOST_MISSED]:
        place = f"{line.file}:{line.number}{line.function and f' {called(line.function)}'}"
        needs = feature_text(line.feature)
        yield f"not reached: {place}{needs and f': {needs}'}"
    yield from (f"not in the map: {file}" for file in choice.unmapped)


def _covered(cell: CellReach, places: Collection[tuple[str, int]]) -> int:
    return sum(1 for place in places if cell.count(place))


def _missed(line: TableLine) -> MissedLine:
    function = next(iter(line.functions), "")
    return MissedLine(line.file, line.number, function, needed_feature(line.file, function))


def needed_feature(file: str, function: str) -> str:
    """Return what a guest may need so that a function runs, by its name; UNKNOWN for none."""
    text = f"{file}:{function}"
    return next((what for pattern, what in _FEATURES if re.match(pattern, text)), UNKNOWN)


def feature_text(feature: str) -> str:
    """Return a feature in words, as the guess that it is; "" for UNKNOWN."""
    return "" if feature == UNKNOWN else f"perhaps needs {feature}"


def coverage(cells: Iterable[CellReach], table: LineTable) -> Mapping[str, tuple[int, int]]:
    """Return by file how many lines any cell reaches, and how many have code."""
    union: dict[str, set[int]] = {}
    for cell in cells:
        for file, lines in cell.lines.items():
            union.setdefault(file, set()).update(lines)
    total: dict[str, int] = {}
    for line in table.lines:
        total[line.file] = total.get(line.file, 0) + 1
    return {file: (len(union.get(file, ())), count) for file, count in total.items()}
