"""How local memory was: hinting faults, pages migrated, where pages lay, and what that cost.

The derived figures are those of mmtests' vmstat report (`AutoNUMA cost model` in its
compare-kernels scripts), which the changelogs of "mm: numa: group related processes based on VMA
flags" (2015) and "sched/fair: Allow a small load imbalance" (2020) print.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import polars as pl

from lab.analysis.findings import Series
from lab.analysis.window import Window

PAGES_OF_A_PMD = 512  # base pages of a huge page on x86-64
# Costs in the model: of one PTE update, one hinting fault and one page migrated. Its unit is a
# million accesses of 8 bytes. struct page is taken as 56 bytes, so one is 7 accesses.
COST_UPDATE, COST_FAULT, COST_MIGRATED = 7, 5000, 19

Counters = Mapping[str, float | None]


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


def fault_series(vmstat: pl.DataFrame, window: Window) -> tuple[Series, ...]:
    """Return the local share of hinting faults, and pages migrated, between samples in the window.

    `vmstat` has time_ns, counter, value. The share is None between two samples without a fault.
    """
    wide = {
        counter: dict(vmstat.filter(pl.col("counter") == counter)["time_ns", "value"].iter_rows())
        for counter in ("numa_hint_faults", "numa_hint_faults_local", "numa_pages_migrated")
    }
    times = [time for time in sorted(set(vmstat["time_ns"])) if _inside(time, window)]
    if len(times) < 2:
        return ()
    at = tuple((time - window.start_ns) / 1e6 for time in times[1:])

    def grown(counter: str) -> list[float | None]:
        values = [wide[counter].get(time) for time in times]
        pairs = pairwise(values)
        return [None if a is None or b is None else b - a for a, b in pairs]

    faults, local = grown("numa_hint_faults"), grown("numa_hint_faults_local")
    share = tuple(
        100 * near / all_ if all_ and near is not None else None
        for all_, near in zip(faults, local, strict=True)
    )
    return (
        Series("local_faults", "Local share of NUMA hinting faults", "%", "", at, share),
        Series(
            "pages_migrated",
            "Pages migrated by NUMA balancing",
            "pages",
            "",
            at,
            tuple(grown("numa_pages_migrated")),
        ),
    )


def page_series(pages: pl.DataFrame, window: Window, nodes: Sequence[int]) -> tuple[Series, ...]:
    """Return how much memory of the sampled processes lay on each node, in MiB, a series a node.

    `pages` has time_ns, tgid, node, kib (sums over numa_maps; pages that processes share count in
    each of them).
    """
    inside = pages.filter(pl.col("time_ns").is_between(window.start_ns, window.end_ns))
    times = sorted(set(inside["time_ns"]))
    if not times:
        return ()
    sums = inside.group_by("time_ns", "node").agg(pl.col("kib").sum())
    total = {(time, node): kib for time, node, kib in sums.iter_rows()}
    at = tuple((time - window.start_ns) / 1e6 for time in times)
    return tuple(
        Series(
            "pages_node",
            "Memory of the command's processes by node",
            "MiB",
            f"node {node}",
            at,
            tuple(total.get((time, node), 0) / 1024 for time in times),
        )
        for node in nodes
    )


def _inside(time: int, window: Window) -> bool:
    return window.start_ns <= time <= window.end_ns
