"""Time series from samples: NUMA faults, memory by node, waiting tasks, sources of plug-ins.

The NUMA faults of a task are those of show_numa_stats() (kernel/sched/fair.c of Linux 6.12) in
/proc/PID/sched. The kernel halves them with each scan (task_numa_placement()), so recent faults
weigh most. /proc/schedstat (Documentation/scheduler/sched-stats.rst) counts a wait when it ends.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise

import polars as pl

from numalab.analysis.findings import TimeSeries
from numalab.capture.samples import SOURCES, Samples
from numalab.measure import Number
from numalab.recording.recording import RecordedMachine, Recording
from numalab.recording.window import Window


def fault_series(vmstat: pl.DataFrame, window: Window) -> tuple[TimeSeries, ...]:
    """Return the local share of hinting faults, and pages migrated, between samples.

    `vmstat` has time_ns, counter, value. The share is None between samples without a fault.
    """
    wide = {
        counter: dict(vmstat.filter(pl.col("counter") == counter)["time_ns", "value"].iter_rows())
        for counter in ("numa_hint_faults", "numa_hint_faults_local", "numa_pages_migrated")
    }
    times = [time for time in sorted(set(vmstat["time_ns"])) if _inside(time, window)]
    if len(times) < 2:
        return ()
    at = _since_begin(window, times[1:])

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
        TimeSeries("local_faults", "Local share of NUMA hinting faults", "%", None, at, share),
        TimeSeries(
            "pages_migrated",
            "Pages migrated by NUMA balancing",
            "pages",
            None,
            at,
            tuple(grown("numa_pages_migrated")),
        ),
    )


def page_series(
    pages: pl.DataFrame, window: Window, nodes: Sequence[int]
) -> tuple[TimeSeries, ...]:
    """Return the memory of the sampled processes on each node in MiB, a series a node.

    `pages` has time_ns, tgid, node, kib (from numa_maps; shared pages count in each process).
    """
    inside = pages.filter(pl.col("time_ns").is_between(window.start_ns, window.end_ns))
    sums = inside.group_by("time_ns", "node").agg(pl.col("kib").sum())
    total = {(time, node): kib for time, node, kib in sums.iter_rows()}
    named = partial(TimeSeries, "pages_node", "Memory of the command's processes by node", "MiB")
    times = sorted({time for time, _ in total})
    return _by_node(named, window, times, nodes, lambda *at: total.get(at, 0) / 1024)


def fault_nodes(run: Recording) -> tuple[TimeSeries, ...]:
    """Return the NUMA faults of the tasks of interest, a series a node; nothing without a fault."""
    if run.samples is None:
        return ()
    faults = faults_of(run.samples, samples_of_interest(run))
    if not sum_of(faults, pl.col("task_private") + pl.col("task_shared")):
        return ()
    sums = faults.group_by("time_ns", "node").agg(
        pl.col("task_private").sum() + pl.col("task_shared").sum()
    )
    of = {(time, node): count for time, node, count in sums.iter_rows()}
    title = "NUMA faults of the tasks by node of the memory, as the kernel remembers them"
    named = partial(TimeSeries, "task_faults", title, "faults")
    times = sorted({time for time, _ in of})
    return _by_node(named, run.window, times, run.machine.nodes, lambda *at: of.get(at, 0))


def waiting_series(
    schedstat: pl.DataFrame, window: Window, machine: RecordedMachine
) -> tuple[TimeSeries, ...]:
    """Return the mean number of tasks that waited for a CPU of each node, between samples."""
    inside = schedstat.filter(pl.col("time_ns").is_between(window.start_ns, window.end_ns))
    waited: dict[int, Mapping[int, int]] = {
        time: dict(rows["cpu", "waiting_ns"].iter_rows())
        for (time,), rows in inside.group_by("time_ns")
        if isinstance(time, int)
    }
    times = sorted(waited)
    before = dict(zip(times[1:], times, strict=False))
    title = "Tasks that waited for a CPU, by node (/proc/schedstat)"

    def mean(at: int, node: int) -> Number:
        then = before[at]
        return _waiting(waited[then], waited[at], machine.cpus_of[node], at - then)

    named = partial(TimeSeries, "waiting", title, "tasks")
    return _by_node(named, window, times[1:], machine.nodes, mean)


def added_series(
    added: pl.DataFrame, window: Window, nodes: Sequence[int]
) -> tuple[TimeSeries, ...]:
    """Return the samples of plug-ins: a diagram for each counter, a series for each node."""
    series = []
    inside = added.filter(pl.col("time_ns").is_between(window.start_ns, window.end_ns))
    lines = inside.sort("source", "counter", "node", "time_ns", maintain_order=True)
    for (name, counter, node), rows in lines.group_by(
        "source", "counter", "node", maintain_order=True
    ):
        if node is not None and node not in nodes:
            continue
        source = SOURCES.all()[str(name)]
        of = dict(rows["time_ns", "value"].iter_rows())
        times, values = [*of], [*of.values()]
        if source.grows:
            times, values = times[1:], [after - before for before, after in pairwise(values)]
        if times:
            title, at = f"{source.title}: {counter}", _since_begin(window, times)
            number = None if node is None else int(str(node))
            key = f"{name}-{counter}"
            series.append(TimeSeries(key, title, source.unit, number, at, tuple(values)))
    return tuple(series)


def _by_node(
    named: Callable[[int, tuple[float, ...], tuple[Number, ...]], TimeSeries],
    window: Window,
    times: Sequence[int],
    nodes: Sequence[int],
    value: Callable[[int, int], Number],
) -> tuple[TimeSeries, ...]:
    """Return a series for each node, of its `value` at each of the times; none without times."""
    at = _since_begin(window, times)
    return tuple(
        named(node, at, tuple(value(time, node) for time in times)) for node in nodes if times
    )


def _since_begin(window: Window, times: Sequence[int]) -> tuple[float, ...]:
    return tuple((time - window.start_ns) / 1e6 for time in times)


def _waiting(
    before: Mapping[int, int], after: Mapping[int, int], cpus: tuple[int, ...], length: int
) -> Number:
    counted = [cpu for cpu in cpus if cpu in before and cpu in after]
    return sum(after[cpu] - before[cpu] for cpu in counted) / length if counted else None


def samples_of_interest(run: Recording) -> pl.DataFrame:
    """Return the samples of the tasks of interest in the window, one of each task at a time."""
    assert run.samples is not None
    inside = pl.col("time_ns").is_between(run.window.start_ns, run.window.end_ns)
    mine = run.samples.tasks.filter(inside & run.of_interest)
    return mine.unique(["pid", "time_ns"], keep="last", maintain_order=True)


def faults_of(samples: Samples, tasks: pl.DataFrame) -> pl.DataFrame:
    """Return the faults of these samples of tasks; `node_task` is the preferred node."""
    faults = samples.faults.unique(["pid", "time_ns", "node"], keep="last")
    return faults.join(tasks, on=["pid", "time_ns"], suffix="_task")


def sum_of(table: pl.DataFrame, values: pl.Expr) -> int:
    """Return the sum of some values of a table, 0 of none."""
    return int(table.select(values.sum()).item() or 0)


def _inside(time: int, window: Window) -> bool:
    return window.start_ns <= time <= window.end_ns
