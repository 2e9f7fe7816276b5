"""What the driver of hunts prints of `workloads/hunt/accounts.h`: exact counts of the kernel."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

# The kernel's numbers may be unsigned, and wrong: each is read whatever it is.
FIGURE = r"(-?\d{1,20})"
_THREAD = re.compile(
    rf"load (\d{{1,3}}) thread (\d{{1,9}}) of (\d{{1,9}}) ran_ns {FIGURE} ticks {FIGURE}"
    rf" voluntary {FIGURE} involuntary {FIGURE} migrations {FIGURE}"
)
_AVERAGES = re.compile(rf"load (\d{{1,3}}) thread (\d{{1,9}}) runnable {FIGURE} load {FIGURE}")
_TURNS = re.compile(
    rf"load (\d{{1,3}}) thread (\d{{1,9}}) turns {FIGURE} delay_us {FIGURE} waits_us {FIGURE}"
)
_PROCESS = re.compile(
    rf"load (\d{{1,3}}) process (\d{{1,9}}) ticks {FIGURE} system {FIGURE} reaped {FIGURE}"
)
_FAULTS = re.compile(
    rf"load (\d{{1,3}}) thread (\d{{1,9}}) preferred {FIGURE} group {FIGURE} faults {FIGURE}"
)
_NODE = re.compile(
    rf"load (\d{{1,3}}) thread (\d{{1,9}}) node (\d{{1,2}}) private {FIGURE} shared {FIGURE}"
    rf" group_private {FIGURE} group_shared {FIGURE}"
)
_READING = re.compile(rf"load (\d{{1,3}}) (first|last) switches {FIGURE} forks {FIGURE}")
_CPU = re.compile(rf"load (\d{{1,3}}) (first|last) cpu (\d{{1,4}}) nice {FIGURE} idle {FIGURE}")


@dataclass(frozen=True)
class ThreadAccount:
    """What the kernel counts of a thread since its fork.

    `ticks` of 1/100 s are its user and system time; a switch is voluntary if the thread slept.
    """

    process: int
    ran_ns: int
    ticks: int
    voluntary: int
    involuntary: int
    migrations: int


@dataclass(frozen=True)
class ProcessTicks:
    """User and system time of a process, its system time alone, and the time of children that it
    reaped, in 1/100 s.
    """

    ticks: int
    system: int
    reaped: int


@dataclass(frozen=True)
class Averages:
    """`runnable_avg` and `load_avg` of a thread (kernel/sched/pelt.c), of 1024 at nice level 0."""

    runnable: int
    load: int


@dataclass(frozen=True)
class Turns:
    """How often a thread got a CPU, and how long it waited for one.

    `count` and `delay_us` are of /proc/PID/schedstat, `waits_us` is `wait_sum` of /proc/PID/sched
    (-1: without it).
    """

    count: int
    delay_us: int
    waits_us: int


@dataclass(frozen=True)
class NodeFaults:
    """NUMA hinting faults on memory of a node, of a thread and of its group."""

    private: int
    shared: int
    group_private: int
    group_shared: int

    @property
    def own(self) -> int:
        """The thread's faults of both kinds."""
        return self.private + self.shared

    @property
    def of_group(self) -> tuple[int, int]:
        """The group's faults of each kind."""
        return self.group_private, self.group_shared


@dataclass(frozen=True)
class ThreadFaults:
    """A thread's preferred node (-1: none), NUMA group (0: none), and faults, also by node."""

    preferred_node: int
    group: int
    total: int
    on_node: Mapping[int, NodeFaults] = field(default_factory=dict)


@dataclass(frozen=True)
class CpuTicks:
    """How long a CPU was idle, and in user space at positive nice levels, since the boot.

    In 1/100 s.
    """

    nice: int
    idle: int


@dataclass(frozen=True)
class Reading:
    """/proc/stat: context switches and forks since the boot, and the times of each CPU."""

    switches: int
    forks: int
    cpus: Mapping[int, CpuTicks] = field(default_factory=dict)


@dataclass(frozen=True)
class Exact:
    """What the driver printed about a load: by thread, by process, and by `first` and `last`."""

    threads: Mapping[int, ThreadAccount] = field(default_factory=dict)
    processes: Mapping[int, ProcessTicks] = field(default_factory=dict)
    faults: Mapping[int, ThreadFaults] = field(default_factory=dict)
    readings: Mapping[str, Reading] = field(default_factory=dict)
    averages: Mapping[int, Averages] = field(default_factory=dict)
    turns: Mapping[int, Turns] = field(default_factory=dict)


def parse_exact(text: str) -> defaultdict[int, Exact]:
    """Return what the driver printed about each load; lines of another form are left out."""
    loads: defaultdict[int, Exact] = defaultdict(Exact)
    nodes: defaultdict[tuple[int, int], dict[int, NodeFaults]] = defaultdict(dict)
    cpus: defaultdict[tuple[int, str], dict[int, CpuTicks]] = defaultdict(dict)
    threads: defaultdict[int, dict[int, ThreadAccount]] = defaultdict(dict)
    processes: defaultdict[int, dict[int, ProcessTicks]] = defaultdict(dict)
    faults: defaultdict[int, dict[int, ThreadFaults]] = defaultdict(dict)
    readings: defaultdict[int, dict[str, Reading]] = defaultdict(dict)
    averages: defaultdict[int, dict[int, Averages]] = defaultdict(dict)
    turns: defaultdict[int, dict[int, Turns]] = defaultdict(dict)
    for line in text.splitlines():
        if match := _THREAD.fullmatch(line):
            load, pid, *numbers = map(int, match.groups())
            threads[load][pid] = ThreadAccount(*numbers)
        elif match := _AVERAGES.fullmatch(line):
            load, pid, *numbers = map(int, match.groups())
            averages[load][pid] = Averages(*numbers)
        elif match := _TURNS.fullmatch(line):
            load, pid, *numbers = map(int, match.groups())
            turns[load][pid] = Turns(*numbers)
        elif match := _PROCESS.fullmatch(line):
            load, pid, *numbers = map(int, match.groups())
            processes[load][pid] = ProcessTicks(*numbers)
        elif match := _FAULTS.fullmatch(line):
            load, pid, preferred, group, total = map(int, match.groups())
            faults[load][pid] = ThreadFaults(preferred, group, total, nodes[load, pid])
        elif match := _NODE.fullmatch(line):
            load, pid, node, *numbers = map(int, match.groups())
            nodes[load, pid][node] = NodeFaults(*numbers)
        elif match := _READING.fullmatch(line):
            load, when = int(match[1]), match[2]
            readings[load][when] = Reading(int(match[3]), int(match[4]), cpus[load, when])
        elif match := _CPU.fullmatch(line):
            cpus[int(match[1]), match[2]][int(match[3])] = CpuTicks(int(match[4]), int(match[5]))
    for load in {*threads, *processes, *faults, *readings, *averages, *turns}:
        loads[load] = Exact(
            threads[load], processes[load], faults[load], readings[load], averages[load],
            turns[load],
        )  # fmt: skip
    return loads
