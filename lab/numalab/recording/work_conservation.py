"""Violations of work conservation: a CPU is idle while a task that may use it waits on another.

Short ones are normal: balancing takes time, and moving a task has a cost. Long ones are a sign of
wrongly built sched groups. A task that may not use the idle CPU waits without a violation.
"""

from collections.abc import Collection, Iterator, Mapping

import polars as pl

from numalab.recording.intervals import Spans, covered, met, minus
from numalab.recording.intervals import joined as union_of
from numalab.recording.masks import Masks
from numalab.recording.stays import queue_lengths
from numalab.recording.window import Window
from numalab.topology.limits import MAX_NODES

VIOLATION = {
    "cpu": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "busy_cpu": pl.Int64,
    "pid": pl.Int64,
    "comm": pl.String,
}
_IDLE = {name: VIOLATION[name] for name in ("cpu", "start_ns", "end_ns")}
# Threads that the kernel binds to the CPU in their name (smpboot_register_percpu_thread(), and
# create_worker() of kernel/workqueue.c, Linux 4.4 to 7.3); kworker/u4:1 is bound to none. (Up to
# 6.5 it often is bound to a node, which its name hides: wq_calc_node_cpumask().)
_OF_ONE_CPU = (
    r"^(backlog_napi|cpuhp|idle_inject|irq_work|ksoftirqd|ktimers|kworker|migration|rcuc|watchdog)"
    r"/\d+(:|$)"
)
# Threads that the kernel binds to the CPUs of the node in their name, where it has any: kcompactd()
# of mm/compaction.c and kswapd() of mm/vmscan.c, Linux 4.6 to 7.3. It binds kdamond.N, ksmd and
# khugepaged to none.
_OF_ONE_NODE = ("kcompactd", "kswapd")
# Our own programs in the guest, which bind themselves to CPU 0 (images/src, workloads).
_ON_BOOT_CPU = ("numalab-beat", "numalab-run", "numalab-sample")


def bound_by_name(cpus_of: Mapping[int, Collection[int]]) -> dict[str, frozenset[int]]:
    """Return the CPUs of threads that are bound to a node or to CPU 0, by their names.

    `cpus_of` are the CPUs of each node. Where no nodes are known, threads of nodes have no CPUs:
    nobody knows what they wait for.
    """
    nodes = {node: frozenset(cpus) for node, cpus in cpus_of.items() if cpus}
    nodes = nodes or dict.fromkeys(range(MAX_NODES), frozenset[int]())
    of_node = {f"{name}{node}": cpus for name in _OF_ONE_NODE for node, cpus in nodes.items()}
    return of_node | dict.fromkeys(_ON_BOOT_CPU, frozenset({0}))


def violations(
    lengths: pl.DataFrame,
    stayed: pl.DataFrame,
    ran: pl.DataFrame,
    lost: pl.DataFrame,
    *,
    masks: Masks,
    offline: pl.DataFrame,
) -> pl.DataFrame:
    """Return when a CPU was idle and a task that may use it waited: cpu, start_ns, end_ns.

    `lengths` is from `queue_lengths`, `stayed` from `stays`, `ran` from `spans`. A task without a
    mask may use every CPU of `lengths`, except for the kernel's threads of one CPU. Times with lost
    events on any of these CPUs are left out. A CPU that is `offline` is not idle.
    """
    cpus = lengths["cpu"].unique().to_list()
    unknown = covered(lost.filter(pl.col("cpu").is_in(cpus)))
    waits = [(mask, minus(wait, unknown)) for mask, wait in _waits(lengths, stayed, ran, masks)]
    idle = _by_cpu(lengths.filter(pl.col("runnable") <= 0).sort("cpu", "start_ns"))
    parts = [pl.DataFrame(schema=_IDLE)]
    for cpu, table in idle.items():
        online = minus(covered(table), covered(offline.filter(pl.col("cpu") == cpu)))
        start, end = met(online, union_of(wait for mask, wait in waits if cpu in mask))
        here = pl.DataFrame({"start_ns": start, "end_ns": end})
        parts.append(here.select(pl.lit(cpu).cast(pl.Int64).alias("cpu"), "start_ns", "end_ns"))
    return pl.concat(parts).sort("cpu", "start_ns")


def _waits(
    lengths: pl.DataFrame, stayed: pl.DataFrame, ran: pl.DataFrame, masks: Masks
) -> Iterator[tuple[frozenset[int], Spans]]:
    """Yield each mask, and when a task with it waited on a CPU with two tasks or more."""
    cpus = frozenset(lengths["cpu"].unique().to_list())
    crowded = _by_cpu(lengths.filter(pl.col("runnable") >= 2))
    queued = stayed.filter(pl.col("runnable") & pl.col("cpu").is_in(list(crowded)))
    of_mask = masks.split(queued.filter(~_of_one_cpu()), cpus)
    ran_with = masks.split(ran, cpus)
    bound = [tasks for mask, tasks in of_mask.items() if mask != cpus]
    mixed = set(pl.concat([queued.filter(_of_one_cpu()), *bound])["cpu"].to_list())
    # Where all may use all, somebody waits as long as there are two.
    alike = [covered(table) for cpu, table in crowded.items() if cpu not in mixed]
    some = {cpu: table for cpu, table in crowded.items() if cpu in mixed}
    inside = covered(lengths)
    window = Window(int(inside[0][0]), int(inside[1][-1])) if len(inside[0]) else Window(0, 0)
    yield cpus, union_of(alike)
    for mask, tasks in of_mask.items():
        yield mask, union_of(_waits_of(tasks, some, ran_with[mask], window))


def _waits_of(
    tasks: pl.DataFrame, crowded: Mapping[int, pl.DataFrame], ran: pl.DataFrame, window: Window
) -> Iterator[Spans]:
    """Yield for each CPU when one of these tasks was runnable there and did not run.

    `tasks` are stays, `crowded` when each CPU had two runnable tasks or more.
    """
    if tasks.is_empty():
        return
    counts = _by_cpu(queue_lengths(tasks, window, sorted(crowded)))
    running = _by_cpu(ran.filter(pl.col("pid").is_in(tasks["pid"].unique().to_list())))
    for cpu, table in crowded.items():
        several = covered(counts[cpu].filter(pl.col("runnable") >= 2))
        wait = covered(counts[cpu].filter(pl.col("runnable") >= 1))
        if cpu in running:
            wait = union_of([several, minus(wait, covered(running[cpu]))])
        yield met(wait, covered(table))


def longest(
    violations: pl.DataFrame,
    lengths: pl.DataFrame,
    stayed: pl.DataFrame,
    most: int,
    *,
    masks: Masks,
    window: Window,
) -> pl.DataFrame:
    """Return the longest violations, each with an overloaded CPU and a task that waited there.

    The task is the last to arrive of those that were runnable when the violation began and may use
    the idle CPU, on the fullest of their CPUs. Violations that touch the ends of the window are
    always included: they may go on in the next chunk.
    """
    ordered = violations.sort(pl.col("start_ns") - pl.col("end_ns"), "start_ns", "cpu")
    cut = (pl.col("start_ns") == window.start_ns) | (pl.col("end_ns") == window.end_ns)
    chosen = pl.concat([ordered.head(most), ordered.slice(most).filter(cut)])
    rows = []
    for cpu, start, end in chosen.iter_rows():
        now = (pl.col("start_ns") <= start) & (pl.col("end_ns") > start)
        busy = lengths.filter(now & (pl.col("runnable") >= 2)).select("cpu", tasks="runnable")
        queued = stayed.filter(now & pl.col("runnable") & ~_of_one_cpu())
        waits = queued.filter(~masks.barred(queued, cpu, start)).join(busy, on="cpu")
        last = waits.sort("tasks", -pl.col("cpu"), "start_ns", "pid").tail(1)
        row = last.select("cpu", "pid", "comm").row(0) if len(last) else (None, None, None)
        rows.append((cpu, start, end, *row))
    return pl.DataFrame(rows, schema=VIOLATION, orient="row")


def joined(violations: pl.DataFrame) -> pl.DataFrame:
    """Join violations of a CPU that follow each other without a hole, as pieces cut them."""
    ordered = violations.sort("cpu", "start_ns")
    new = (pl.col("start_ns") != pl.col("end_ns").shift(1).over("cpu")).fill_null(value=True)
    return (
        ordered.with_columns(number=new.cum_sum())
        .group_by("number", maintain_order=True)
        .agg(pl.exclude("end_ns").first(), pl.col("end_ns").last())
        .select(ordered.columns)
    )


def _of_one_cpu() -> pl.Expr:
    return pl.col("comm").str.contains(_OF_ONE_CPU).fill_null(value=False)


def _by_cpu(table: pl.DataFrame) -> dict[int, pl.DataFrame]:
    parts = table.partition_by("cpu", as_dict=True, maintain_order=True)
    return {int(key[0]): part for key, part in parts.items()}
