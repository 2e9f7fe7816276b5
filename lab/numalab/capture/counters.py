"""Counters of the kernel: vmstat, schedstat, numastat and the ring buffer's own statistics.

The texts come from a guest: a line that is not understood is left out, and nothing is raised.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

MAX_LINES = 100_000
_NUMBER = re.compile(r"\d{1,20}")
_OF_NODE = re.compile(r"\S{0,200}/node(\d{1,4})/numastat:(\w{1,40}) (\d{1,20})")


@dataclass(frozen=True)
class CpuSchedstat:
    """One CPU's line of /proc/schedstat (Documentation/scheduler/sched-stats.rst), version 15 on.

    `running_ns` is the time that tasks ran, `waiting_ns` the time that tasks waited to run, both
    summed over tasks; `timeslices` counts the times that a task was put on the CPU.
    """

    cpu: int
    running_ns: int
    waiting_ns: int
    timeslices: int


@dataclass(frozen=True)
class BufferStats:
    """The ring buffer of one CPU: events in it, overwritten, dropped for want of room.

    From `per_cpu/cpu*/stats` (tracing_stats_read() in kernel/trace/trace.c).
    """

    cpu: int
    entries: int
    overrun: int
    commit_overrun: int
    dropped: int

    @property
    def lost(self) -> int:
        """Events that happened and are not in the buffer."""
        return self.overrun + self.commit_overrun + self.dropped


def parse_vmstat(text: str) -> dict[str, int]:
    """Parse /proc/vmstat (or a node's vmstat) into counters by name."""
    counters = {}
    for line in text.splitlines()[:MAX_LINES]:
        name, _, value = line.partition(" ")
        if name and _NUMBER.fullmatch(value):
            counters[name] = int(value)
    return counters


def parse_numastat(text: str) -> dict[int, dict[str, int]]:
    """Parse lines of `.../nodeN/numastat:counter value` into the counters of each node."""
    counters: dict[int, dict[str, int]] = {}
    for match in filter(None, map(_OF_NODE.fullmatch, text.splitlines()[:MAX_LINES])):
        counters.setdefault(int(match[1]), {})[match[2]] = int(match[3])
    return counters


def difference(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return how much each counter grew. A counter that one side lacks is left out, not 0."""
    return {name: after[name] - before[name] for name in after if name in before}


def parse_schedstat(text: str) -> tuple[CpuSchedstat, ...]:
    """Parse the CPU lines of /proc/schedstat; empty for a version before 15."""
    version = re.match(r"version (\d{1,4})\n", text)
    if version is None or int(version[1]) < 15:
        return ()
    cpus = []
    for line in text.splitlines()[:MAX_LINES]:
        words = line.split()
        if words and re.fullmatch(r"cpu\d{1,5}", words[0]) and len(words) >= 10:
            numbers = words[7:10]
            if all(map(_NUMBER.fullmatch, numbers)):
                cpus.append(CpuSchedstat(int(words[0][3:]), *map(int, numbers)))
    return tuple(cpus)


def parse_trace_stats(text: str) -> tuple[BufferStats, ...]:
    """Parse the ring buffers' statistics: for each CPU `cpuN` or `CPU: N`, then its stats."""
    stats: list[BufferStats] = []
    cpu: int | None = None
    values: dict[str, int] = {}

    def close() -> None:
        if cpu is not None and "entries" in values:
            names = ("entries", "overrun", "commit overrun", "dropped events")
            stats.append(BufferStats(cpu, *(values.get(name, 0) for name in names)))

    for line in text.splitlines()[:MAX_LINES]:
        if head := re.fullmatch(r"(?:cpu|CPU: ?)(\d{1,5})", line.strip()):
            close()
            cpu, values = int(head[1]), {}
        else:
            name, _, value = line.partition(":")
            if _NUMBER.fullmatch(value.strip()):
                values[name.strip()] = int(value)
    close()
    return tuple(stats)
