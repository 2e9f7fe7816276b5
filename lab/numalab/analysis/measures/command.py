"""Measures from counters around the command, its times, and the metrics that it printed.

Allocations by node: Documentation/admin-guide/numastat.rst of Linux 6.12. It speaks of pages, but
zone_statistics() in mm/page_alloc.c counts an allocation of any order once (6.1 to 7.3). Waiting:
Documentation/scheduler/sched-stats.rst.
"""

from collections.abc import Iterator
from dataclasses import replace

from numalab.analysis.measures.family import (
    HIGHER,
    LOWER,
    NONE,
    MeasureFamily,
    guest,
    register_measures,
)
from numalab.capture.counters import difference, is_tracepoint, perf_measure_name
from numalab.measure import (
    Direction,
    Measure,
    MeasureInfo,
    MeasureKind,
    MeasureSource,
    SourceKind,
    percent,
)
from numalab.recording.recording import Recording

_NUMASTAT = "numastat of each node"
WAIT_TIME = MeasureFamily(
    "schedstat_wait_time",
    "s",
    LOWER,
    "How long tasks waited for a CPU that was busy with others, all tasks and CPUs together, from "
    "before the capture to after the command.",
    (guest("/proc/schedstat"),),
    MeasureKind.TIMING,
)
WAIT_MEAN = MeasureFamily(
    "schedstat_wait_mean",
    "ms",
    LOWER,
    "schedstat_wait_time for each time slice that a task was given.",
    (guest("/proc/schedstat"),),
    MeasureKind.TIMING,
)
NUMASTAT = MeasureFamily(
    "numastat_{counter}_node{node}",
    "allocations",
    NONE,
    "How much the counter {counter} of node {node} grew from before the capture to after the "
    "command.",
    (guest(_NUMASTAT),),
    needs_nodes=True,
)
LOCAL = MeasureFamily(
    "allocations_local",
    "%",
    HIGHER,
    "Of the pages allocated by anybody, those of the node whose CPU asked for them.",
    (guest(f"{_NUMASTAT}, local_node, other_node"),),
)
ASTRAY = MeasureFamily(
    "allocations_astray",
    "%",
    LOWER,
    "Of the pages allocated by anybody, those that came from another node than was wanted.",
    (guest(f"{_NUMASTAT}, numa_miss, numa_hit"),),
)


def _waits(run: Recording) -> Iterator[Measure]:
    """Yield the waits of all CPUs that /proc/schedstat lists before and after; None for none."""
    if run.command is None:
        return
    before, after = run.command.schedstat
    first = {cpu.cpu: cpu for cpu in before}
    pairs = [(first[cpu.cpu], cpu) for cpu in after if cpu.cpu in first]
    waited = sum(new.waiting_ns - old.waiting_ns for old, new in pairs)
    slices = sum(new.timeslices - old.timeslices for old, new in pairs)
    yield WAIT_TIME.of(waited / 1e9 if pairs else None)
    yield WAIT_MEAN.of(waited / slices / 1e6 if slices else None)


def _allocations(run: Recording) -> Iterator[Measure]:
    """Yield how often each node gave memory, and the shares that were local and went astray."""
    if run.command is None or run.command.numastat is None:
        return
    before, after = run.command.numastat
    nodes = sorted(set(before) & set(after))
    grown = {node: difference(before[node], after[node]) for node in nodes}

    def total(counter: str) -> int:
        return sum(counters.get(counter, 0) for counters in grown.values())

    for node, counters in grown.items():
        for counter, value in sorted(counters.items()):
            yield NUMASTAT.of(value, counter=counter, node=node)
    local, missed = total("local_node"), total("numa_miss")
    yield LOCAL.of(percent(local, local + total("other_node")))
    yield ASTRAY.of(percent(missed, missed + total("numa_hit")))


_COMMAND = "of the workload's command, by the guest's own clock"
_WITH_CHILDREN = (
    f"{_COMMAND}, and of its descendants that were waited for. "
    "None in mode icount."  # docs/results/cpu-time.md
)


def _time(name: str, source: str, definition: str) -> MeasureFamily:
    return MeasureFamily(name, "s", LOWER, definition, (guest(source),), MeasureKind.TIMING)


ELAPSED = _time("elapsed_time", "clock", f"Elapsed time {_COMMAND} (CLOCK_MONOTONIC).")
USER = _time(
    "user_time",
    "getrusage",
    f"CPU time in user mode {_WITH_CHILDREN}",
)
SYSTEM = _time(
    "system_time",
    "getrusage",
    f"CPU time in the kernel {_WITH_CHILDREN}",
)

_PERF = (MeasureSource(SourceKind.PERF),)
_DURING = "on all CPUs while the command ran"


def _counts(kind: MeasureKind, direction: Direction, *events: str) -> tuple[MeasureFamily, ...]:
    text = f"How often perf counted {{event}} {_DURING}."
    return tuple(
        MeasureFamily(
            f"perf_{event}", "events", direction, text.replace("{event}", event), _PERF, kind
        )
        for event in events
    )


# Counts of the CPU itself, which an emulated one does not have and which depend on real time.
HARDWARE = _counts(
    MeasureKind.TIMING, LOWER,
    *("cache_misses", "cache_references", "cycles", "instructions", "branch_misses"),
    *("LLC_load_misses", "node_loads", "node_load_misses"),
)  # fmt: skip
CLOCKS = tuple(
    MeasureFamily(f"perf_{clock}", unit, LOWER, f"perf's {what}.", _PERF, MeasureKind.TIMING)
    for unit, what, *clocks in (
        ("ms", f"clock {_DURING}", "task_clock", "cpu_clock"),
        ("ns", "times of the command", "duration_time", "user_time", "system_time"),
    )
    for clock in clocks
)
SOFTWARE = _counts(
    MeasureKind.PLACEMENT, NONE,
    *("context_switches", "cpu_migrations", "page_faults", "minor_faults", "major_faults"),
    *("alignment_faults", "emulation_faults", "cgroup_switches"),
)  # fmt: skip
# Of an event that its name does not explain.
TRACEPOINTS = _counts(MeasureKind.PLACEMENT, NONE, "{event}")
OTHER = tuple(
    replace(family, definition=f"{family.definition} Of a tracepoint: placement.")
    for family in _counts(MeasureKind.TIMING, NONE, "{event}")
)


def perf_info(event: str) -> MeasureInfo:
    """Return what the count of an event of perf means. Its measure's name hides a tracepoint.

    With modifiers (`cycles:u`) an event has the unit and the kind that it has without.
    """
    name, sources = perf_measure_name(event), (MeasureSource(SourceKind.PERF, event),)
    if is_tracepoint(event):
        possible, plain, text = TRACEPOINTS, name, "{}"
    else:
        plain, _, modifiers = event.partition(":")
        possible, plain = (*HARDWARE, *CLOCKS, *SOFTWARE, *OTHER), perf_measure_name(plain)
        text = f"{{}} Modifiers: {modifiers}." if modifiers else "{}"
    info = next(info for family in possible if (info := family.explain(plain)))
    return replace(info, name=name, definition=text.format(info.definition), sources=sources)


def _times(run: Recording) -> Iterator[Measure]:
    if run.command is None:
        return
    times = run.command.times
    yield ELAPSED.of(times.elapsed if times else None)
    yield USER.of(times.user if times else None)
    yield SYSTEM.of(times.system if times else None)


def _perf(run: Recording) -> Iterator[Measure]:
    """Yield a measure for each event of perf; None stays None, for what was not counted."""
    if run.command is None or run.command.perf is None:
        return
    for event, count in run.command.perf.items():
        yield Measure(perf_info(event), count)


def _printed(run: Recording) -> Iterator[Measure]:
    """Yield a measure for each metric of the command."""
    if run.command is None:
        return
    workload = run.command.workload
    for metric in run.command.metrics:
        info = MeasureInfo(
            metric.measure,
            metric.unit,
            Direction(metric.direction),
            MeasureKind(metric.kind),
            f"What {workload} printed as {metric.measure}.",
            (MeasureSource(SourceKind.WORKLOAD, workload),),
        )
        yield Measure(info, metric.value)


SCHEDULER = MeasureFamily(
    "scheduler.{statistic}",
    "as printed",
    NONE,
    "The last value of {statistic} in the JSON of the scheduler (sched_ext).",
    (guest("output of the scheduler"),),
    MeasureKind.TIMING,
)


def _scheduler(run: Recording) -> Iterator[Measure]:
    """Yield the statistics that the scheduler printed."""
    for name, value in (run.command.scheduler if run.command else {}).items():
        yield SCHEDULER.of(value, statistic=name)


GROUPS = (
    register_measures("waiting", (WAIT_TIME, WAIT_MEAN), _waits),
    register_measures("allocations", (NUMASTAT, LOCAL, ASTRAY), _allocations),
    register_measures("times", (ELAPSED, USER, SYSTEM), _times),
    register_measures("perf stat", (*HARDWARE, *CLOCKS, *SOFTWARE, *OTHER), _perf),
    register_measures("printed by the scheduler", (SCHEDULER,), _scheduler),
    register_measures("printed by the workload", (), _printed),
)
