"""Counters, times and perf events of a run, parsed from the texts that a guest leaves.

A guest may write anything: unknown lines are skipped, and nothing is raised.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

MAX_LINES = 100_000
NOT_MEASURED = "nothing is measured by it"  # how a sentence ends that says what lacks, and why
# Their lines of CPUs have the same fields (show_schedstat() in kernel/sched/stats.c of 6.1 to 7.3).
SCHEDSTAT_VERSIONS = tuple(f"version {number}" for number in (15, 16, 17))
SCHEDSTAT_FIELDS = 9
_CPU = re.compile(r"cpu\d{1,5}")
_NUMBER = re.compile(r"\d{1,20}")
_COUNT = re.compile(r"\d{1,20}(\.\d{1,9})?")
_TRACEPOINT = re.compile(r"[\w-]+:(?![DGHIPSWehkpu]+$)\w+")  # perf-list(1) has the modifiers
_TIME = re.compile(r"(elapsed|user|system) (\d{1,10}\.\d{1,9})")
_OF_NODE = re.compile(r"\S{0,200}/node(\d{1,4})/numastat:(\w{1,40}) (\d{1,20})")


@dataclass(frozen=True)
class CpuSchedstat:
    """One CPU's line of /proc/schedstat (scheduler/sched-stats.rst), versions 15 to 17.

    `running_ns` and `waiting_ns` are sums over tasks; `timeslices` counts switches to a task.
    """

    cpu: int
    running_ns: int
    waiting_ns: int
    timeslices: int


@dataclass(frozen=True)
class BufferStats:
    """The ring buffer of one CPU: events stored, overwritten, and dropped for lack of room.

    From `per_cpu/cpu*/stats` (tracing_stats_read() in kernel/trace/trace.c). `read` events have
    left it, None where that is not told.
    """

    cpu: int
    entries: int
    overrun: int
    commit_overrun: int
    dropped: int
    read: int | None = None

    @property
    def lost(self) -> int:
        """Events that happened and are not in the buffer."""
        return self.overrun + self.commit_overrun + self.dropped

    @property
    def missing(self) -> tuple[str, ...]:
        """Events that are in no page, in words: dropped, or never read out.

        Overwritten events are not: a page counts them as missed.
        """
        dropped, left = self.commit_overrun + self.dropped, self.entries
        return (
            *[f"{dropped} events dropped for lack of room"] * bool(dropped),
            *[f"{left} events stayed in the kernel's buffer"] * bool(left),
        )


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
    """Parse the CPU lines of /proc/schedstat; empty for another version or number of fields."""
    lines = text.splitlines()[:MAX_LINES]
    if not lines or lines[0] not in SCHEDSTAT_VERSIONS:
        return ()
    rows = [words for words in map(str.split, lines) if words and _CPU.fullmatch(words[0])]
    return tuple(
        CpuSchedstat(int(cpu[3:]), *map(int, numbers[-3:]))
        for cpu, *numbers in rows
        if len(numbers) == SCHEDSTAT_FIELDS and all(map(_NUMBER.fullmatch, numbers[-3:]))
    )


def describe_schedstat(text: str) -> tuple[str, ...]:
    """Return a sentence where nothing of /proc/schedstat can be parsed; none for no text."""
    if not text or parse_schedstat(text):
        return ()
    return (f"/proc/schedstat has not the layout of versions 15 to 17: {NOT_MEASURED}",)


def parse_trace_stats(text: str) -> tuple[BufferStats, ...]:
    """Parse the ring buffers' statistics: for each CPU `cpuN` or `CPU: N`, then its stats."""
    stats: list[BufferStats] = []
    cpu: int | None = None
    values: dict[str, int] = {}

    def close() -> None:
        if cpu is not None and "entries" in values:
            names = ("entries", "overrun", "commit overrun", "dropped events")
            numbers = [values.get(name, 0) for name in names]
            read = values.get("read events")
            stats.append(replace(BufferStats(cpu, *numbers), read=read))

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


@dataclass(frozen=True)
class Times:
    """Seconds: by the clock, and of CPU in the command and those of its descendants waited for."""

    elapsed: float
    user: float
    system: float


def parse_times(text: str) -> Times | None:
    """Parse what the guest's numalab-run wrote; None for anything else."""
    seconds = {m[1]: float(m[2]) for line in text.splitlines()[:10] if (m := _TIME.fullmatch(line))}
    return Times(**seconds) if len(seconds) == 3 else None


def parse_perf_stat(text: str) -> dict[str, int | float | None]:
    """Parse the CSV of perf-stat(1): counts by event, None for an event that was not counted.

    No event that `[capture]` may ask for has a comma or a quotation mark in its name.
    `<not supported>` (no such counter) and `<not counted>` (never on a CPU) are not 0. A count that
    perf scaled up, for lack of counters, is the scaled one. Unknown lines are skipped.
    """
    counts: dict[str, int | float | None] = {}
    for line in text.splitlines()[:MAX_LINES]:
        row = line.split(",", 3)
        if len(row) < 3 or row[0].startswith("#") or not row[2]:
            continue
        value, event = row[0], row[2]
        if _COUNT.fullmatch(value):
            counts[event] = float(value) if "." in value else int(value)
        elif value in ("<not supported>", "<not counted>"):
            counts[event] = None
    return counts


def perf_counts(asked: Iterable[str], text: str | None) -> dict[str, int | float | None]:
    """Return the count of every event in `asked`; None for an event that perf did not count.

    perf does not receive events that the kernel lacks. `text` is None where perf left no output.
    """
    counted = parse_perf_stat(text or "")
    return {event: counted.get(event) for event in asked}


def is_tracepoint(event: str) -> bool:
    """Return whether an event of perf is `system:event`, and not one with modifiers, `cycles:u`."""
    return _TRACEPOINT.fullmatch(event) is not None


def perf_measure_name(event: str) -> str:
    """Return the name of an event's measure: `perf_cache_misses`, `perf_sched_move_numa`."""
    return "perf_" + re.sub(r"\W", "_", event.rpartition(":")[2] if is_tracepoint(event) else event)
