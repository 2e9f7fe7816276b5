"""What the memory model of mode timed counted, as findings: by node pair, over time, by task."""

from collections.abc import Iterator

import polars as pl

from numalab.analysis.findings import MAX_TASKS, Matrix, TaskMemory, TimeSeries
from numalab.capture.guest_time import JoinedTables
from numalab.recording.memory import LINE_BYTES, sum_by_slice, sum_within, with_locality
from numalab.recording.recording import Recording

LINK_SERIES, MEMORY_SERIES = "memory_link", "memory_node"
_PAGES_OF_MIB = 256


def memory_matrix(run: Recording) -> tuple[Matrix, ...]:
    """Return how many lines went from each node's memory and caches to each node's CPUs."""
    nodes = run.machine.nodes
    if (memory := _model(run)) is None:
        return ()
    names = [f"from_{node}" for node in nodes]
    counts = with_locality(memory.counts, nodes)
    window = run.window
    sums = sum_within(counts, window.start_ns, window.end_ns, ("node",), names)
    by_node = {row["node"]: row for row in sums.iter_rows(named=True)}
    cells = tuple(
        tuple(float(round(by_node.get(to, {}).get(name, 0))) for to in nodes) for name in names
    )
    title = "Lines fetched from a node's memory and caches (modelled)"
    return (Matrix("lines", title, "lines", cells),)


def memory_series(run: Recording) -> tuple[TimeSeries, ...]:
    """Return over time the local and stall shares of the tasks of interest, the nodes of their
    pages, and the traffic of each memory and link.
    """
    nodes, slices = run.machine.nodes, run.slices
    if (memory := _model(run)) is None or not slices.count:
        return ()
    mine = with_locality(memory.counts.filter(run.of_interest), nodes)
    values = ("lines", "local", "stalled_ps")
    sums = {row[0]: row[1:] for row in sum_by_slice(mine, slices, (), values).iter_rows()}
    cpu_ns = dict(run.sums.time.group_by("slice").agg(pl.col("ns").sum()).iter_rows())
    local, stall = [], []
    for number in range(slices.count):
        lines, near, stalled_ps = sums.get(number, (0, 0, 0))
        ran = cpu_ns.get(number, 0)
        local.append(round(100 * near / lines, 3) if lines >= 1 else None)
        # Where a task runs for a part of a slice, its counts are spread over all of it.
        stall.append(round(min(100.0, stalled_ps / 10 / ran), 3) if ran else None)
    at = slices.ends_ms
    return (
        TimeSeries(
            "memory_local",
            "Local share of the lines that the tasks fetched (modelled)",
            "%",
            None,
            at,
            tuple(local),
        ),
        TimeSeries(
            "memory_stall",
            "Share of the tasks' CPU time in which they waited for memory (modelled)",
            "%",
            None,
            at,
            tuple(stall),
        ),
        *_homes(run, mine),
        *_traffic(run, memory.traffic),
    )


def _homes(run: Recording, counts: pl.DataFrame) -> Iterator[TimeSeries]:
    """Yield the memory that the tasks used at a time, by node: the mean over the model's slices."""
    nodes, slices = run.machine.nodes, run.slices
    names = [f"pages_{node}" for node in nodes]
    slice_ns = counts.select((pl.col("end_ns") - pl.col("start_ns")).median()).item()
    sums = {row[0]: row[1:] for row in sum_by_slice(counts, slices, (), names).iter_rows()}
    if not any(map(any, sums.values())):
        return
    for place, node in enumerate(nodes):
        mib = tuple(
            round(sums[number][place] * slice_ns / length / _PAGES_OF_MIB, 3)
            if number in sums
            else 0.0
            for number, length in enumerate(slices.lengths_ns())
        )
        title = "Memory that the tasks fetched from within 10 ms, by its node (modelled)"
        yield TimeSeries("memory_home", title, "MiB", node, slices.ends_ms, mib)


def _traffic(run: Recording, traffic: pl.DataFrame) -> list[TimeSeries]:
    slices = run.slices
    lengths = slices.lengths_ns()
    keys = ("from_node", "to_node")
    sums = sum_by_slice(traffic, slices, keys, ("lines",))
    carried: dict[tuple[int, int], dict[int, float]] = {}
    for source, target, number, lines in sums.iter_rows():
        carried.setdefault((source, target), {})[number] = lines
    series = []
    for source, target in sorted(carried, key=lambda ends: (ends[0] != ends[1], ends)):
        lines_of = carried[source, target]
        rates = tuple(
            round(lines_of.get(number, 0) * LINE_BYTES * 1e3 / length, 3)
            for number, length in enumerate(lengths)
        )
        at = slices.ends_ms
        if source == target:
            title = "Read from and written to each node's memory (modelled)"
            series.append(TimeSeries(MEMORY_SERIES, title, "MB/s", source, at, rates))
        else:
            title = "Traffic on each link, by direction (modelled)"
            ends = (source, target)
            series.append(TimeSeries(LINK_SERIES, title, "MB/s", None, at, rates, link=ends))
    return series


def task_memory(run: Recording) -> tuple[TaskMemory, ...]:
    """Return what each task of interest fetched and how long it stood still, the longest first."""
    nodes, window = run.machine.nodes, run.window
    if (memory := _model(run)) is None:
        return ()
    mine = with_locality(memory.counts.filter(run.of_interest), nodes)
    names = [f"from_{node}" for node in nodes]
    values = ("stalled_ps", "waited_ps", "local", *names)
    sums = sum_within(mine, window.start_ns, window.end_ns, ("pid",), values)
    ran = dict(run.sums.time.group_by("pid").agg(pl.col("ns").sum()).iter_rows())
    tasks = [
        TaskMemory(
            pid,
            run.sums.names.get(pid, ""),
            ran[pid] / 1e6,
            stalled_ps / 1e9,
            waited_ps / 1e9,
            round(local, 1),
            tuple(round(lines, 1) for lines in by_node),
        )
        for pid, stalled_ps, waited_ps, local, *by_node in sums.iter_rows()
        if pid in ran
    ]
    tasks.sort(key=lambda task: (-task.stalled_ms, task.pid))
    return tuple(tasks[:MAX_TASKS])


def _model(run: Recording) -> JoinedTables | None:
    """Return the model's tables if they are on the trace's clock and the nodes are known."""
    memory = run.memory
    if memory is None or not run.machine.nodes or memory.counts["start_ns"].null_count():
        return None
    return memory
