"""What the driver of hunts (`workloads/hunt/hunt.c`) prints about loads, and calls their tasks."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from numalab.hunt.loads.exact_output import FIGURE, Exact, parse_exact
from numalab.hunt.loads.settings_output import PrintedSettings, parse_settings

_COUNTER = re.compile(rf"load (\d{{1,3}}) (begin|half|end) (\w{{1,40}}) {FIGURE}")
_PAGES = re.compile(r"load (\d{1,3}) part (\d{1,2}) task (\d{1,3}) node (\d{1,2}) pages (\d{1,9})")
_LOCK = re.compile(
    rf"load (\d{{1,3}}) part (\d{{1,2}}) task (\d{{1,3}}) turns {FIGURE} worst_us {FIGURE}"
)
_TASK_STATE = re.compile(
    rf"load (\d{{1,3}}) pid (\d{{1,9}}) utilization {FIGURE} preferred {FIGURE}"
)
_ACCOUNT = re.compile(
    rf"load (\d{{1,3}}) pid (\d{{1,9}}) ran_ns {FIGURE} waited_ns {FIGURE} switches {FIGURE}"
    rf" migrations {FIGURE}"
)
_GROUP_ACCOUNT = re.compile(
    rf"load (\d{{1,3}}) group ([a-z]{{1,8}}) used_us {FIGURE} load {FIGURE} listed {FIGURE}"
    rf" wrong (\d) delay_us {FIGURE}"
)
_LIMIT_ACCOUNT = re.compile(
    rf"load (\d{{1,3}}) group ([a-z]{{1,8}}) since_us {FIGURE} used_us {FIGURE} user_us {FIGURE}"
    rf" system_us {FIGURE} periods {FIGURE} throttled {FIGURE} throttled_us {FIGURE}"
    rf" bursts {FIGURE} burst_us {FIGURE} late {FIGURE}"
)
_GROUP_LEFT = re.compile(rf"load (\d{{1,3}}) group ([a-z]{{1,8}}) left {FIGURE} ([a-z_]{{1,31}})")
_PROBES = re.compile(
    rf"load (\d{{1,3}}) calls (\d{{1,4}}) wrong (\d{{1,4}}) ([a-z0-9-]{{1,31}}) {FIGURE}"
)
_TASK = re.compile(
    r"(hog|sleeper|waker|wakee|forker|child|memory|thread|locker)(\d{1,2})\.(\d{1,3})"
)
_FAULT = re.compile(
    r"load (\d{1,3}) part (\d{1,2}) (does not start|ended (?:by signal|with) \d{1,3})"
)


@dataclass(frozen=True)
class TaskState:
    """What the kernel takes for a task's utilization, in 1024ths of a CPU, and its preferred node.

    Of NUMA balancing; -1 for what is not known, or for no node.
    """

    utilization: int
    preferred_node: int


@dataclass(frozen=True)
class TaskAccount:
    """What the kernel's account of a task says since its fork: how long it ran and waited in run
    queues, how often it left a CPU, and how often it changed CPUs."""

    ran_ns: int
    waited_ns: int
    switches: int
    migrations: int


@dataclass(frozen=True)
class GroupAccount:
    """What the kernel's account of a cgroup says: its CPU time, its load, and the part of the load
    that is in queues that the kernel updates (-1: it lists no queue); how many of its files
    read other than was written; and how long before the begin its CPU time was read first."""

    used_us: int
    load: int
    listed: int
    wrong: int = 0
    delay_us: int = 0


@dataclass(frozen=True)
class LimitAccount:
    """What `cpu.stat` of a cgroup says of its quota, after `since_us` of its existence.

    `late` of the `throttled` periods are of the time since the load's begin. In the others -1 is
    for what the kernel does not print.
    """

    since_us: int
    used_us: int
    user_us: int
    system_us: int
    periods: int
    throttled: int
    throttled_us: int
    bursts: int
    burst_us: int
    late: int


@dataclass(frozen=True)
class GroupLeft:
    """What the queues of a cgroup count, all together, when its tasks are gone; a field of it."""

    count: int
    member: str


@dataclass(frozen=True)
class Probes:
    """How many system calls were made after the load, and how many of them returned other than they
    must; what the first wrong one is called, and what it returned: minus an error number."""

    calls: int
    wrong: int
    name: str
    result: int


@dataclass(frozen=True)
class LockTurns:
    """How often a locker had the lock, and its longest wait for it."""

    turns: int
    worst_us: int


@dataclass(frozen=True)
class Printed:
    """What the driver printed about a load.

    `counters[when][name]` and `pages[part, task][node]`; `locks[part, task]`; by process
    `task_states` and `accounts`, `groups` and `limits` by name, and `settings`, when all tasks had
    been stopped, then also what is `exact`; `left` by group, when they were gone.
    """

    counters: Mapping[str, dict[str, int]] = field(default_factory=dict)
    pages: Mapping[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    locks: Mapping[tuple[int, int], LockTurns] = field(default_factory=dict)
    task_states: Mapping[int, TaskState] = field(default_factory=dict)
    accounts: Mapping[int, TaskAccount] = field(default_factory=dict)
    groups: Mapping[str, GroupAccount] = field(default_factory=dict)
    limits: Mapping[str, LimitAccount] = field(default_factory=dict)
    left: Mapping[str, GroupLeft] = field(default_factory=dict)
    exact: Exact = field(default_factory=Exact)
    settings: PrintedSettings = field(default_factory=PrintedSettings)
    probes: Probes | None = None

    @property
    def refused(self) -> int:
        """How many policies, masks and nice levels the kernel had not set, at the end."""
        return self.counters.get("end", {}).get("refused", 0)

    @property
    def denied(self) -> int:
        """How many files of cgroups, moves of tasks and changes of CPUs it had refused."""
        return self.counters.get("end", {}).get("denied", 0)


def parse_output(text: str) -> Mapping[int, Printed]:
    """Return what the driver printed about each load; lines of another form are left out."""
    counters: defaultdict[int, dict[str, dict[str, int]]] = defaultdict(dict)
    pages: defaultdict[int, dict[tuple[int, int], dict[int, int]]] = defaultdict(dict)
    locks: defaultdict[int, dict[tuple[int, int], LockTurns]] = defaultdict(dict)
    task_states: defaultdict[int, dict[int, TaskState]] = defaultdict(dict)
    accounts: defaultdict[int, dict[int, TaskAccount]] = defaultdict(dict)
    groups: defaultdict[int, dict[str, GroupAccount]] = defaultdict(dict)
    limits: defaultdict[int, dict[str, LimitAccount]] = defaultdict(dict)
    left: defaultdict[int, dict[str, GroupLeft]] = defaultdict(dict)
    probes: dict[int, Probes] = {}
    for line in text.splitlines():
        if match := _COUNTER.fullmatch(line):
            number, when, name, value = match.groups()
            counters[int(number)].setdefault(when, {})[name] = int(value)
        elif match := _PAGES.fullmatch(line):
            load, part, task, node, count = map(int, match.groups())
            pages[load].setdefault((part, task), {})[node] = count
        elif match := _LOCK.fullmatch(line):
            load, part, task, *turns = map(int, match.groups())
            locks[load][part, task] = LockTurns(*turns)
        elif match := _TASK_STATE.fullmatch(line):
            load, pid, *state = map(int, match.groups())
            task_states[load][pid] = TaskState(*state)
        elif match := _ACCOUNT.fullmatch(line):
            load, pid, *account = map(int, match.groups())
            accounts[load][pid] = TaskAccount(*account)
        elif match := _GROUP_ACCOUNT.fullmatch(line):
            group = GroupAccount(*map(int, match.groups()[2:]))
            groups[int(match[1])][match[2]] = group
        elif match := _LIMIT_ACCOUNT.fullmatch(line):
            limits[int(match[1])][match[2]] = LimitAccount(*map(int, match.groups()[2:]))
        elif match := _GROUP_LEFT.fullmatch(line):
            left[int(match[1])][match[2]] = GroupLeft(int(match[3]), match[4])
        elif match := _PROBES.fullmatch(line):
            calls, wrong, result = map(int, match.group(2, 3, 5))
            probes[int(match[1])] = Probes(calls, wrong, match[4], result)
    exact, settings = parse_exact(text), parse_settings(text)
    printed = (counters, pages, locks, task_states, accounts, groups, limits, left, exact, settings)
    loads = {load for by_load in (*printed, probes) for load in by_load}
    return {
        load: Printed(counters[load], pages[load], locks[load], task_states[load], accounts[load],
                      groups[load], limits[load], left[load], exact[load],
                      settings.get(load, PrintedSettings()), probes.get(load))
        for load in loads
    }  # fmt: skip


def explain_faults(stdout: str) -> list[str]:
    """Return which parts of loads did not start, or have a task that died, a sentence each."""
    matches = map(_FAULT.fullmatch, stdout.splitlines())
    faults = (f"load {match[1]}: part {match[2]} {match[3]}" for match in matches if match)
    return list(dict.fromkeys(fault.replace(" ended", ": a task ended") for fault in faults))


def part_of_task(comm: str) -> tuple[str, int, int] | None:
    """Return kind, part and number of a task by its name; None if no load started it."""
    match = _TASK.fullmatch(comm)
    return (match[1], int(match[2]), int(match[3])) if match else None
