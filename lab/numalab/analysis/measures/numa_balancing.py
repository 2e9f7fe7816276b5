"""Measures of NUMA balancing: decisions, faults of tasks, and counters of /proc/vmstat.

The cost model and the locality of hinting faults are those of the vmstat report of mmtests (its
`AutoNUMA cost model`), as in the changelogs of "mm: numa: group related processes based on VMA
flags" (2015) and "sched/fair: Allow a small load imbalance" (2020).
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import polars as pl

from numalab.analysis.measures.family import (
    HIGHER,
    LOWER,
    NONE,
    WINDOW,
    MeasureFamily,
    guest,
    register_measures,
    trace,
)
from numalab.analysis.series import faults_of, samples_of_interest, sum_of
from numalab.measure import Direction, Measure, MeasureSource, SourceKind, percent
from numalab.recording.numa_decisions import (
    FAILED,
    KINDS,
    NO_DESTINATION,
    NOT_ALLOWED,
    success_percent,
)
from numalab.recording.recording import NUMA_EVENTS, Recording

_MOVED = trace("sched_move_numa", "sched_swap_numa")
_STUCK = (trace("sched_stick_numa"),)
EVENTS = {
    event: MeasureFamily(event, "events", NONE, f"{text} in {WINDOW}.", (trace(event),))
    for event, text in (
        (
            "sched_move_numa",
            "How often NUMA balancing chose to move a task to a CPU of another node",
        ),
        ("sched_swap_numa", "How often NUMA balancing chose to swap two tasks"),
        (
            "sched_stick_numa",
            "How often NUMA balancing wanted to move or swap a task and could not",
        ),
    )
}
SUCCESS = MeasureFamily(
    "numa_move_success",
    "%",
    HIGHER,
    f"Of the attempts of NUMA balancing in {WINDOW}, those that moved or swapped a task. An "
    "attempt is a move, a swap, or a stick that does not answer one of these.",
    (trace("sched_move_numa", "sched_swap_numa", "sched_stick_numa"),),
    may_be_never=True,
)
STICKS_NO_DESTINATION = MeasureFamily(
    "numa_sticks_no_destination",
    "events",
    NONE,
    f"How often NUMA balancing found no CPU that is better in {WINDOW}.",
    _STUCK,
)
STICKS_FAILED = MeasureFamily(
    "numa_sticks_failed",
    "events",
    LOWER,
    "How often a move or swap that it announced failed, or the task might not run there, in "
    f"{WINDOW}.",
    _STUCK,
)
HOPS = MeasureFamily(
    "numa_moves_hops",
    "hops",
    NONE,
    "The mean hops that NUMA balancing moved a task by. Hops are the rank of the "
    "distance among all in the table, 0 for local.",
    (_MOVED,),
    needs_nodes=True,
    may_be_never=True,
)


def _to_preferred(name: str, direction: Direction, how: str) -> MeasureFamily:
    return MeasureFamily(
        f"numa_moves_{name}",
        "moves",
        direction,
        f"How many tasks NUMA balancing moved {how} their preferred node in {WINDOW}.",
        (_MOVED, guest("/proc/PID/sched")),
        needs_nodes=True,
    )


NEARER = _to_preferred("nearer", HIGHER, "nearer to")
AS_NEAR = _to_preferred("as_near", NONE, "without a change in distance to")
FARTHER = _to_preferred("farther", LOWER, "farther from")


def _compute(run: Recording) -> Iterator[Measure]:
    kinds = Counter(run.decisions["kind"].to_list())
    reasons = Counter(run.decisions["reason"].to_list())
    stuck = run.has("sched_stick_numa")
    all_three = run.has(*NUMA_EVENTS)
    for event, family in EVENTS.items():
        yield family.of(kinds[KINDS[event]] if run.has(event) else None)
    yield SUCCESS.of(success_percent(run.decisions) if all_three else None)
    yield STICKS_NO_DESTINATION.of(reasons[NO_DESTINATION] if stuck else None)
    yield STICKS_FAILED.of(reasons[FAILED] + reasons[NOT_ALLOWED] if stuck else None)
    pairs = run.numa_moves.select("from_node", "to_node").iter_rows()
    hops = [run.machine.hops[pair] for pair in pairs if pair in run.machine.hops]
    yield HOPS.of(sum(hops) / len(hops) if hops and all_three else None)
    if run.samples is None or run.samples.tasks.is_empty():
        return
    change = run.numa_moves["nearer"].drop_nulls()
    for family, those in ((NEARER, change > 0), (AS_NEAR, change == 0), (FARTHER, change < 0)):
        yield family.of(int(those.sum()) if all_three else None)


GROUP = register_measures(
    "NUMA balancing",
    (
        *EVENTS.values(),
        *(SUCCESS, STICKS_NO_DESTINATION, STICKS_FAILED, HOPS, NEARER, AS_NEAR, FARTHER),
    ),
    _compute,
)


_SCHED = guest("/proc/PID/sched")
_FOLLOWED = ("sched_switch", "sched_wakeup", "sched_migrate_task")
ON_PREFERRED_NODE = MeasureFamily(
    "task_faults_preferred",
    "%",
    HIGHER,
    "Of the NUMA faults that the kernel remembered of the tasks of interest at the last sample "
    f"of each in {WINDOW}, those on memory of the task's preferred node.",
    (_SCHED,),
)
SHARED = MeasureFamily(
    "task_faults_shared",
    "%",
    NONE,
    "Of these NUMA faults, those on memory that another task had touched last.",
    (_SCHED,),
)
TASKS_ON_PREFERRED = MeasureFamily(
    "tasks_on_preferred",
    "%",
    HIGHER,
    "Of the tasks of interest that had a preferred node at their last sample, those that were "
    f"last on a CPU of it at the end of {WINDOW}.",
    (_SCHED, trace(*_FOLLOWED)),
)


def _faults(run: Recording) -> Iterator[Measure]:
    if run.samples is None or run.samples.tasks.is_empty():
        return
    tasks = samples_of_interest(run).group_by("pid").agg(pl.all().sort_by("time_ns").last())
    faults = faults_of(run.samples, tasks)
    private, shared = (pl.col(f"task_{kind}") for kind in ("private", "shared"))
    preferred = faults.filter(pl.col("node") == pl.col("node_task"))
    settled = tasks.filter(pl.col("node") >= 0)
    last = run.sums.final.join(settled, on="pid", suffix="_task")["cpu", "node"].rows()
    on_preferred = sum(run.machine.node_of.get(cpu) == node for cpu, node in last)
    followed = last and run.has(*_FOLLOWED)
    every = sum_of(faults, private + shared)
    yield ON_PREFERRED_NODE.of(percent(sum_of(preferred, private + shared), every))
    yield SHARED.of(percent(sum_of(faults, shared), every))
    yield TASKS_ON_PREFERRED.of(run.if_nodes(100 * on_preferred / len(last)) if followed else None)


register_measures("NUMA faults", (ON_PREFERRED_NODE, SHARED, TASKS_ON_PREFERRED), _faults)


# Costs in the model: of one PTE update, one hinting fault and one page migrated. Its unit is a
# million accesses of 8 bytes. struct page is taken as 56 bytes, so one is 7 accesses.
COST_UPDATE, COST_FAULT, COST_MIGRATED = 7, 5000, 19

Counters = Mapping[str, float | None]


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


COUNTERS = ("numa_", "pgmigrate_", "pgpromote_", "pgdemote_", "pgfault", "pgmajfault")


def _vmstat(*names: str) -> tuple[MeasureSource, ...]:
    return (MeasureSource(SourceKind.VMSTAT, ", ".join(names)),)


LOCAL_FAULTS = MeasureFamily(
    "numa_local_faults",
    "%",
    HIGHER,
    "Of the NUMA hinting faults, those on memory of the node that the task ran on.",
    _vmstat("numa_hint_faults_local", "numa_hint_faults"),
)
AUTONUMA_COST = MeasureFamily(
    "autonuma_cost",
    "Maccesses",
    LOWER,
    "What NUMA balancing cost, as mmtests estimates it, in millions of accesses of 8 bytes: 7 for "
    "a PTE update, 5000 for a hinting fault, 19 for a page migrated, copying left out.",
    _vmstat("numa_pte_updates", "numa_hint_faults", "numa_pages_migrated"),
)
PAGES_OF_A_MIB = 256
SCAN_PASSES = MeasureFamily(
    "numa_scan_passes",
    "passes",
    NONE,
    "How often NUMA balancing marked the memory that the workload allocates: the base pages marked "
    "(512 of a huge one, which numa_pte_updates contains) divided by those of its `memory_mib`. A "
    "page that is still marked is not counted again.",
    (*_vmstat("numa_pte_updates"), guest("memory_mib of the workload")),
)
OTHER_FAULTS = MeasureFamily(
    "other_minor_faults",
    "count",
    NONE,
    "Minor faults that are no NUMA hinting faults. A write to a page that lost its write "
    "permission at a hinting fault is one of them, and so is the first touch of a page.",
    _vmstat("pgfault", "pgmajfault", "numa_hint_faults"),
)
VMSTAT = MeasureFamily(
    "vmstat_{counter}",
    "count",
    NONE,
    "How much the counter {counter} grew from before the capture to after the command.",
    _vmstat(),
)


def _locality(run: Recording) -> Iterator[Measure]:
    if run.vmstat is None:
        return
    yield LOCAL_FAULTS.of(local_percent(run.vmstat))
    yield AUTONUMA_COST.of(autonuma_cost(run.vmstat))
    if run.command is not None and run.command.memory_mib:
        marked = run.vmstat.get("numa_pte_updates")
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


register_measures(
    "locality", (LOCAL_FAULTS, AUTONUMA_COST, SCAN_PASSES, OTHER_FAULTS, VMSTAT), _locality
)
