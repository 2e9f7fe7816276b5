"""NUMA balancing from /proc/vmstat: locality of hinting faults, and cost.

The figures are those of mmtests' vmstat report (`AutoNUMA cost model` in its compare-kernels
scripts), as in the changelogs of "mm: numa: group related processes based on VMA flags" (2015) and
"sched/fair: Allow a small load imbalance" (2020).
"""

from collections.abc import Mapping

PAGES_OF_A_PMD = 512  # base pages of a huge page on x86-64
# Costs in the model: of one PTE update, one hinting fault and one page migrated. Its unit is a
# million accesses of 8 bytes. struct page is taken as 56 bytes, so one is 7 accesses.
COST_UPDATE, COST_FAULT, COST_MIGRATED = 7, 5000, 19

Counters = Mapping[str, float | None]


def page_range_updates(counters: Counters) -> float | None:
    """Return the base pages marked for hinting faults: PTEs, and 512 for each PMD, if counted."""
    base, huge = counters.get("numa_pte_updates"), counters.get("numa_huge_pte_updates")
    return None if base is None else base + PAGES_OF_A_PMD * (huge or 0)


def local_percent(counters: Counters) -> float | None:
    """Return the share of hinting faults that were local, in percent."""
    faults, local = counters.get("numa_hint_faults"), counters.get("numa_hint_faults_local")
    return None if not faults or local is None else 100 * local / faults


def autonuma_cost(counters: Counters) -> float | None:
    """Return mmtests' cost of NUMA balancing in millions of accesses of 8 bytes, without copying
    pages.
    """
    names = ("numa_pte_updates", "numa_hint_faults", "numa_pages_migrated")
    updates, faults, migrated = (counters.get(name) for name in names)
    if updates is None or faults is None or migrated is None:
        return None
    return (COST_UPDATE * updates + COST_FAULT * faults + COST_MIGRATED * migrated) / 1e6
