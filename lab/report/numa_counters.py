"""The `NUMA ...` lines that mmtests makes of /proc/vmstat: names for counters, and three derived.

The formulas are those of mmtests' vmstat report (`AutoNUMA cost model`), which the changelogs of
"mm: numa: group related processes based on VMA flags" (2015) and "sched/fair: Allow a small load
imbalance" (2020) print; tests hold them against these figures.
"""

from collections.abc import Mapping

PAGES_OF_A_PMD = 512  # base pages of a huge page on x86-64
# Costs in the model: of one PTE update, one hinting fault and one page migrated. Its unit is a
# million accesses of 8 bytes. struct page is taken as 56 bytes, so one is 7 accesses.
COST_UPDATE, COST_FAULT, COST_MIGRATED = 7, 5000, 19

Counters = Mapping[str, float | None]


def numa_lines(counters: Counters) -> tuple[tuple[str, float | None], ...]:
    """Return label and value of every `NUMA ...` line, in mmtests' order.

    `counters` are those of /proc/vmstat by name; one that is missing or None makes what rests on it
    None. Without any hinting fault the local percent is None (mmtests prints 100).
    """
    get = counters.get
    return (
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


def page_range_updates(counters: Counters) -> float | None:
    """Return the base pages that were marked for hinting faults: PTEs, and 512 for each PMD.

    A kernel without the counter of huge pages marks none.
    """
    base, huge = counters.get("numa_pte_updates"), counters.get("numa_huge_pte_updates")
    return None if base is None else base + PAGES_OF_A_PMD * (huge or 0)


def local_percent(counters: Counters) -> float | None:
    """Return the share of hinting faults that were local, in percent."""
    faults, local = counters.get("numa_hint_faults"), counters.get("numa_hint_faults_local")
    return None if not faults or local is None else 100 * local / faults


def autonuma_cost(counters: Counters) -> float | None:
    """Return mmtests' estimate of what NUMA balancing cost, in millions of accesses of 8 bytes.

    It leaves out copying the migrated pages, as the figures that are published do.
    """
    names = ("numa_pte_updates", "numa_hint_faults", "numa_pages_migrated")
    updates, faults, migrated = (counters.get(name) for name in names)
    if updates is None or faults is None or migrated is None:
        return None
    return (COST_UPDATE * updates + COST_FAULT * faults + COST_MIGRATED * migrated) / 1e6
