"""The fault and `NUMA ...` lines that mmtests makes of /proc/vmstat: counters, and four derived.

The formulas are those of mmtests' vmstat report (`AutoNUMA cost model`), which the changelogs of
"mm: numa: group related processes based on VMA flags" (2015) and "sched/fair: Allow a small load
imbalance" (2020) print; tests hold them against these figures.
"""

from numalab.analysis.autonuma import Counters, autonuma_cost, local_percent, page_range_updates


def numa_lines(counters: Counters) -> tuple[tuple[str, float | None], ...]:
    """Return label and value of the faults and of every `NUMA ...` line, in mmtests' order.

    `counters` are those of /proc/vmstat by name; one that is missing or None makes what rests on it
    None. Without any hinting fault the local percent is None (mmtests prints 100).
    """
    get = counters.get
    return (
        ("Minor Faults", _minor_faults(get("pgfault"), get("pgmajfault"))),
        ("Major Faults", get("pgmajfault")),
        ("NUMA alloc hit", get("numa_hit")),
        ("NUMA alloc miss", get("numa_miss")),
        ("NUMA interleave hit", get("numa_interleave")),
        ("NUMA alloc local", get("numa_local")),
        ("NUMA base-page range updates", page_range_updates(counters)),
        ("NUMA PTE updates", get("numa_pte_updates")),
        ("NUMA PMD updates", get("numa_huge_pte_updates")),
        ("NUMA hint faults", get("numa_hint_faults")),
        # mmtests' own label: it is a count.
        ("NUMA hint local faults %", get("numa_hint_faults_local")),
        ("NUMA hint local percent", local_percent(counters)),
        ("NUMA pages migrated", get("numa_pages_migrated")),
        ("AutoNUMA cost", autonuma_cost(counters)),
    )


def _minor_faults(faults: float | None, major: float | None) -> float | None:
    """/proc/vmstat counts all faults, and the major ones among them."""
    return None if faults is None or major is None else faults - major
