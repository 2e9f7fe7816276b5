"""What samples of tasks and of CPUs say: where NUMA faults were, and how many tasks waited.

The NUMA faults of a task are those that show_numa_stats() (kernel/sched/fair.c of Linux 6.12)
prints in /proc/PID/sched: by node of the memory, private to the task or shared. The kernel halves
them with each scan (task_numa_placement()), so that they say what the task touched lately. How long
tasks waited for a CPU is added up in /proc/schedstat (Documentation/scheduler/sched-stats.rst) when
a wait ends.
"""

from collections.abc import Mapping
from itertools import pairwise

import polars as pl

from lab.analysis.findings import Series
from lab.analysis.ground import Ground
from lab.analysis.measure import Measure, Number, measure, percent
from lab.analysis.placement import of_interest
from lab.analysis.recorded import Recorded
from lab.analysis.window import Window
from lab.capture.samples import Samples


def fault_measures(run: Recorded) -> tuple[Measure, ...]:
    """Say where the tasks of interest had their NUMA faults, by each task's last sample in the
    window. Nothing without samples of tasks."""
    if run.samples is None or run.samples.tasks.is_empty():
        return ()
    tasks = _of_interest(run).group_by("pid").agg(pl.all().sort_by("time_ns").last())
    faults = _faults(run.samples, tasks)
    private, shared = (pl.col(f"task_{kind}") for kind in ("private", "shared"))
    preferred = faults.filter(pl.col("node") == pl.col("node_task"))
    settled = tasks.filter(pl.col("node") >= 0)
    last = run.totals.final.join(settled, on="pid", suffix="_task")["cpu", "node"].rows()
    there = sum(run.ground.node_of.get(cpu) == node for cpu, node in last)
    followed = last and run.has("sched_switch", "sched_wakeup", "sched_migrate_task")
    every = _sum(faults, private + shared)
    return (
        measure("task_faults_preferred", percent(_sum(preferred, private + shared), every)),
        measure("task_faults_shared", percent(_sum(faults, shared), every)),
        measure("tasks_on_preferred", run.if_nodes(100 * there / len(last)) if followed else None),
    )


def fault_nodes(run: Recorded) -> tuple[Series, ...]:
    """Return the NUMA faults of the tasks of interest over time, a series for each node; none
    where there never was one."""
    if run.samples is None:
        return ()
    faults = _faults(run.samples, _of_interest(run))
    if not _sum(faults, pl.col("task_private") + pl.col("task_shared")):
        return ()
    sums = faults.group_by("time_ns", "node").agg(
        pl.col("task_private").sum() + pl.col("task_shared").sum()
    )
    of = {(time, node): count for time, node, count in sums.iter_rows()}
    times = sorted(set(faults["time_ns"]))
    at = tuple((time - run.window.start_ns) / 1e6 for time in times)
    title = "NUMA faults of the tasks by node of the memory, as the kernel remembers them"
    return tuple(
        Series(
            "task_faults",
            title,
            "faults",
            f"node {node}",
            at,
            tuple(of.get((time, node), 0) for time in times),
        )
        for node in run.ground.nodes
    )


def waiting_series(schedstat: pl.DataFrame, window: Window, ground: Ground) -> tuple[Series, ...]:
    """Return how many tasks waited for a CPU of each node, the mean between samples in the window.

    `schedstat` is that of `Samples`. A wait counts when it ends.
    """
    inside = schedstat.filter(pl.col("time_ns").is_between(window.start_ns, window.end_ns))
    waited: dict[int, Mapping[int, int]] = {
        time: dict(rows["cpu", "waiting_ns"].iter_rows())
        for (time,), rows in inside.group_by("time_ns")
        if isinstance(time, int)
    }
    times = sorted(waited)
    if len(times) < 2:
        return ()
    at = tuple((time - window.start_ns) / 1e6 for time in times[1:])
    title = "Tasks that waited for a CPU, by node (/proc/schedstat)"
    return tuple(
        Series(
            "waiting",
            title,
            "tasks",
            f"node {node}",
            at,
            tuple(
                _waiting(waited[a], waited[b], ground.cpus_of[node], b - a)
                for a, b in pairwise(times)
            ),
        )
        for node in ground.nodes
    )


def _waiting(
    before: Mapping[int, int], after: Mapping[int, int], cpus: tuple[int, ...], length: int
) -> Number:
    known = [cpu for cpu in cpus if cpu in before and cpu in after]
    return sum(after[cpu] - before[cpu] for cpu in known) / length if known else None


def _of_interest(run: Recorded) -> pl.DataFrame:
    """Return the samples of the tasks of interest in the window, one of each task at a time."""
    assert run.samples is not None
    inside = pl.col("time_ns").is_between(run.window.start_ns, run.window.end_ns)
    mine = run.samples.tasks.filter(inside & of_interest(run.wanted.tasks))
    return mine.unique(["pid", "time_ns"], keep="last", maintain_order=True)


def _faults(samples: Samples, tasks: pl.DataFrame) -> pl.DataFrame:
    """Return the faults of these samples of tasks; `node_task` is the preferred node."""
    known = samples.faults.unique(["pid", "time_ns", "node"], keep="last")
    return known.join(tasks, on=["pid", "time_ns"], suffix="_task")


def _sum(table: pl.DataFrame, values: pl.Expr) -> int:
    return int(table.select(values.sum()).item() or 0)
