"""Measures from counters of CPUs and nodes, read before and after the command.

Pages allocated by node: Documentation/admin-guide/numastat.rst of Linux 6.12 (counted by
zone_statistics() in mm/page_alloc.c). Waiting: Documentation/scheduler/sched-stats.rst.
"""

from collections.abc import Iterator

from numalab.analysis.measures.family import (
    HIGHER,
    LOWER,
    NONE,
    MeasureFamily,
    guest,
    register_measures,
)
from numalab.capture.counters import difference
from numalab.measure import Measure, MeasureKind, percent
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
    "pages",
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
    """Yield how many pages each node gave, and the shares that were local and that went astray."""
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


GROUPS = (
    register_measures("waiting", (WAIT_TIME, WAIT_MEAN), _waits),
    register_measures("allocations", (NUMASTAT, LOCAL, ASTRAY), _allocations),
)
