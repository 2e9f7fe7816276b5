"""What the driver of hunts prints about the settings of tasks (`workloads/hunt/settings.h`)."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from numalab.cpulist import parse_cpulist
from numalab.hunt.loads.exact_output import FIGURE

_SETTINGS = re.compile(
    rf"load (\d{{1,3}}) part (\d{{1,2}}) wakee (0|1) policy {FIGURE} nice {FIGURE}"
    rf" priority {FIGURE} flags {FIGURE} runtime {FIGURE} deadline {FIGURE} period {FIGURE}"
    rf" weight {FIGURE} rank {FIGURE} cpus ([\d,-]{{1,500}})"
)
_CHILDREN = re.compile(
    r"load (\d{1,3}) part (\d{1,2}) children (\d{1,7})((?: [a-z]{1,8} \d{1,7})+)"
)


@dataclass(frozen=True)
class TaskSettings:
    """What the kernel says of a task when it was stopped.

    `policy`, `priority`, `flags` and times in ns as in sched_getattr(2): `runtime` is the slice of
    a fair task (0: the kernel does not tell). `weight` is that of its load in 1024ths of one of
    nice level 0 times 1024, or -1; `rank` the priority of /proc/PID/stat (proc(5)).
    """

    cpus: frozenset[int]
    policy: int
    nice: int
    priority: int
    flags: int
    runtime: int
    deadline: int
    period: int
    weight: int
    rank: int


@dataclass(frozen=True)
class PrintedSettings:
    """The settings of the tasks of a load by part, and whether they are wakees.

    And of each part with forkers: how many children were compared with their parents, and how many
    differ in which setting.
    """

    tasks: Mapping[tuple[int, bool], list[TaskSettings]] = field(default_factory=dict)
    children: Mapping[int, int] = field(default_factory=dict)
    differing: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


def parse_settings(text: str) -> Mapping[int, PrintedSettings]:
    """Return the settings of each load; lines of another form are left out."""
    tasks: defaultdict[int, dict[tuple[int, bool], list[TaskSettings]]] = defaultdict(dict)
    children: defaultdict[int, dict[int, int]] = defaultdict(dict)
    differing: defaultdict[int, dict[int, dict[str, int]]] = defaultdict(dict)
    for line in text.splitlines():
        if match := _SETTINGS.fullmatch(line):
            try:
                cpus = frozenset(parse_cpulist(match[13]))
            except ValueError:
                continue
            load, part, wakee, *numbers = map(int, match.groups()[:-1])
            of_part = tasks[load].setdefault((part, bool(wakee)), [])
            of_part.append(TaskSettings(cpus, *numbers))
        elif match := _CHILDREN.fullmatch(line):
            load, part, compared = map(int, match.groups()[:3])
            words = match[4].split()
            children[load][part] = compared
            differing[load][part] = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    return {
        load: PrintedSettings(tasks[load], children[load], differing[load])
        for load in {*tasks, *children}
    }
