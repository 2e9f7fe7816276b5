"""What counters read before and after the command say, as measures.

Pages allocated by node: Documentation/admin-guide/numastat.rst of Linux 6.12 (counted by
zone_statistics() in mm/page_alloc.c). Waiting: Documentation/scheduler/sched-stats.rst.
"""

from collections.abc import Mapping, Sequence

from lab.analysis.measure import Measure, measure, percent
from lab.capture.counters import CpuSchedstat, difference

NodeCounters = Mapping[int, Mapping[str, int]]


def allocation_measures(before: NodeCounters, after: NodeCounters) -> tuple[Measure, ...]:
    """Return how many pages each node gave, and the shares that were local and that went astray.

    In: the counters of each node's numastat. The shares are None where nothing was allocated.
    """
    nodes = sorted(set(before) & set(after))
    grown = {node: difference(before[node], after[node]) for node in nodes}

    def total(counter: str) -> int:
        return sum(counters.get(counter, 0) for counters in grown.values())

    local, missed = total("local_node"), total("numa_miss")
    return (
        *(
            measure("numastat_{counter}_node{node}", value, counter=counter, node=node)
            for node, counters in grown.items()
            for counter, value in sorted(counters.items())
        ),
        measure("allocations_local", percent(local, local + total("other_node"))),
        measure("allocations_astray", percent(missed, missed + total("numa_hit"))),
    )


def wait_measures(
    before: Sequence[CpuSchedstat], after: Sequence[CpuSchedstat]
) -> tuple[Measure, ...]:
    """Return how long tasks waited for a CPU: in all, and for each time slice (None without one).

    In: the CPUs' lines of /proc/schedstat. A CPU that one side lacks is left out; None for none.
    """
    first = {each.cpu: each for each in before}
    pairs = [(first[each.cpu], each) for each in after if each.cpu in first]
    waited = sum(new.waiting_ns - old.waiting_ns for old, new in pairs)
    slices = sum(new.timeslices - old.timeslices for old, new in pairs)
    return (
        measure("schedstat_wait_time", waited / 1e9 if pairs else None),
        measure("schedstat_wait_mean", waited / slices / 1e6 if slices else None),
    )
