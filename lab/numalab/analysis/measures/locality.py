"""What the counters of /proc/vmstat say of NUMA balancing, from before to after the command."""

from collections.abc import Iterator, Mapping

from numalab.analysis.autonuma import autonuma_cost, local_percent, page_range_updates
from numalab.analysis.measures.family import (
    HIGHER,
    LOWER,
    NONE,
    MeasureFamily,
    guest,
    register_measures,
)
from numalab.measure import Measure, MeasureSource, SourceKind
from numalab.recording.recording import Recording

COUNTERS = ("numa_", "pgmigrate_", "pgpromote_", "pgdemote_", "pgfault", "pgmajfault")


def _counters(*names: str) -> tuple[MeasureSource, ...]:
    return (MeasureSource(SourceKind.VMSTAT, ", ".join(names)),)


LOCAL_FAULTS = MeasureFamily(
    "numa_local_faults",
    "%",
    HIGHER,
    "Of the NUMA hinting faults, those on memory of the node that the task ran on.",
    _counters("numa_hint_faults_local", "numa_hint_faults"),
)
AUTONUMA_COST = MeasureFamily(
    "autonuma_cost",
    "Maccesses",
    LOWER,
    "What NUMA balancing cost, as mmtests estimates it, in millions of accesses of 8 bytes: 7 for "
    "a PTE update, 5000 for a hinting fault, 19 for a page migrated, copying left out.",
    _counters("numa_pte_updates", "numa_hint_faults", "numa_pages_migrated"),
)
PAGES_OF_A_MIB = 256
SCAN_PASSES = MeasureFamily(
    "numa_scan_passes",
    "passes",
    NONE,
    "How often NUMA balancing marked the memory that the workload allocates: base pages marked, "
    "512 for a huge one, by those of its `memory_mib`. A page that is still marked is not counted "
    "again.",
    (*_counters("numa_pte_updates", "numa_huge_pte_updates"), guest("memory_mib of the workload")),
)
OTHER_FAULTS = MeasureFamily(
    "other_minor_faults",
    "count",
    NONE,
    "Minor faults that are no NUMA hinting faults. A write to a page that lost its write "
    "permission at a hinting fault is one of them, and so is the first touch of a page.",
    _counters("pgfault", "pgmajfault", "numa_hint_faults"),
)
VMSTAT = MeasureFamily(
    "vmstat_{counter}",
    "count",
    NONE,
    "How much the counter {counter} grew from before the capture to after the command.",
    _counters(),
)


def _compute(run: Recording) -> Iterator[Measure]:
    if run.vmstat is None:
        return
    yield LOCAL_FAULTS.of(local_percent(run.vmstat))
    yield AUTONUMA_COST.of(autonuma_cost(run.vmstat))
    if run.command is not None and run.command.memory_mib:
        marked = page_range_updates(run.vmstat)
        pages = PAGES_OF_A_MIB * run.command.memory_mib
        yield SCAN_PASSES.of(None if marked is None else marked / pages)
    yield OTHER_FAULTS.of(_other_faults(run.vmstat))
    for name, value in sorted(run.vmstat.items()):
        if name.startswith(COUNTERS):
            yield VMSTAT.of(value, counter=name)


def _other_faults(vmstat: Mapping[str, int]) -> int | None:
    """Count as the kernel does: do_numa_page() in mm/memory.c is in pgfault as well (6.12)."""
    counters = [vmstat.get(name) for name in ("pgfault", "pgmajfault", "numa_hint_faults")]
    values = [value for value in counters if value is not None]
    return values[0] - values[1] - values[2] if len(values) == len(counters) else None


GROUP = register_measures(
    "locality", (LOCAL_FAULTS, AUTONUMA_COST, SCAN_PASSES, OTHER_FAULTS, VMSTAT), _compute
)
