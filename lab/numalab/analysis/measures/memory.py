"""Measures and findings from the counts of the memory model of mode timed.

The model counts in slices of 10 ms. A slice that lies partly in a part of the window counts in
proportion.
"""

from collections.abc import Iterator, Sequence

import polars as pl

from numalab.analysis.findings import MAX_TASKS, Matrix, TaskMemory, TimeSeries
from numalab.analysis.measures.family import (
    HIGHER,
    LOWER,
    NONE,
    WINDOW,
    MeasureFamily,
    register_measures,
)
from numalab.capture.joined_tables import JoinedTables
from numalab.measure import (
    Direction,
    Measure,
    MeasureKind,
    MeasureSource,
    Number,
    SourceKind,
    percent,
)
from numalab.recording.recording import Recording
from numalab.recording.window import Slices

LINE_BYTES = 64


def sum_within(
    table: pl.DataFrame, start_ns: int, end_ns: int, keys: Sequence[str], values: Sequence[str]
) -> pl.DataFrame:
    """Sum `values` of slices (start_ns, end_ns) from `start_ns` to `end_ns`, by `keys`."""
    overlap = pl.min_horizontal("end_ns", pl.lit(end_ns)) - pl.max_horizontal(
        "start_ns", pl.lit(start_ns)
    )
    inside = table.with_columns(_weight=overlap / (pl.col("end_ns") - pl.col("start_ns"))).filter(
        pl.col("_weight") > 0
    )
    return _sum_weighted(inside, keys, values)


def sum_by_slice(
    table: pl.DataFrame, slices: Slices, keys: Sequence[str], values: Sequence[str]
) -> pl.DataFrame:
    """Sum `values` of slices of the model by `keys` and slice of the window: keys, slice, values.

    A slice of the model counts in each slice of the window with its part in it.
    """
    step, number = slices.step_ns, pl.col("slice")
    begin, end = pl.col("start_ns") - slices.start_ns, pl.col("end_ns") - slices.start_ns
    first, last = (begin // step).clip(0), ((end - 1) // step).clip(None, slices.count - 1)
    to_ns = pl.min_horizontal((number + 1) * step, pl.lit(slices.end_ns - slices.start_ns))
    overlap = pl.min_horizontal(end, to_ns) - pl.max_horizontal(begin, number * step)
    numbered = (
        table.with_columns(slice=pl.int_ranges(first, last + 1))
        .explode("slice")
        .with_columns(_weight=overlap / (end - begin))
        .filter(pl.col("_weight") > 0)
    )
    return _sum_weighted(numbered, (*keys, "slice"), values)


def _sum_weighted(table: pl.DataFrame, keys: Sequence[str], values: Sequence[str]) -> pl.DataFrame:
    """Sum `values` by `keys` in the order of the rows.

    polars gives each of its threads a part of a group_by that only sums; float sums of parts would
    differ in their last digits with the number of threads. `cum_sum` is never split.
    """
    weighted = {value: pl.col(value) * pl.col("_weight") for value in values}
    if not keys:
        return table.rechunk().select(value.sum().alias(name) for name, value in weighted.items())
    return table.group_by(keys, maintain_order=True).agg(
        value.cum_sum().last().alias(name) for name, value in weighted.items()
    )


def with_locality(counts: pl.DataFrame, nodes: Sequence[int]) -> pl.DataFrame:
    """Add to counts with `node` (of the CPU) lines from each node (`from_<node>`), their sum
    (`lines`), and those from the CPU's own node (`local`).
    """
    table = counts.with_columns(
        (pl.col(f"memory_{node}") + pl.col(f"cache_{node}")).alias(f"from_{node}") for node in nodes
    )
    own = [pl.when(pl.col("node") == node).then(f"from_{node}").otherwise(0) for node in nodes]
    return table.with_columns(
        lines=pl.sum_horizontal(f"from_{node}" for node in nodes), local=pl.sum_horizontal(own)
    )


_COUNTS = (MeasureSource(SourceKind.MODEL, "counts"),)
_TRAFFIC = (MeasureSource(SourceKind.MODEL, "traffic"),)


def _family(
    name: str,
    unit: str,
    direction: Direction,
    definition: str,
    sources: tuple[MeasureSource, ...] = _COUNTS,
) -> MeasureFamily:
    kind = MeasureKind.MODELLED
    return MeasureFamily(name, unit, direction, definition, sources, kind, needs_nodes=True)


LOCAL = _family(
    "memory_local_share",
    "%",
    HIGHER,
    "Of the lines that the tasks of interest had to fetch, from memory or from a cache of another "
    f"group, those that were on the node of the CPU that asked, in {WINDOW}.",
)
STALL = _family(
    "memory_stall_share",
    "%",
    LOWER,
    "Of the CPU time that the tasks of interest had in the window, the part in which they waited "
    "for a cache or a memory; a first-level hit is no wait.",
)
QUEUED = _family(
    "memory_queue_share",
    "%",
    LOWER,
    "Of the time in which the tasks of interest waited for a cache or a memory, the part that they "
    "waited for others, in the queues of memories and links.",
)
LINES = _family(
    "memory_lines",
    "lines",
    NONE,
    "How many lines (of 64 bytes) the tasks of interest had to fetch from memory or from a cache "
    "of another group in the window.",
)
LOADS = _family(
    "memory_node_loads",
    "loads",
    NONE,
    "How many loads of any task went to a memory in the window: what "
    "`perf stat -a -e node-loads` counts on Sandy Bridge (on Skylake only local ones).",
)
LOAD_MISSES = _family(
    "memory_node_load_misses",
    "loads",
    NONE,
    "How many loads of any task went to another node's memory in the window, as "
    "`perf stat -a -e node-load-misses` counts.",
)
NODE_TRAFFIC = _family(
    "traffic_node{node}",
    "MB/s",
    NONE,
    "What the memory of node {node} was read and written, over the window.",
    _TRAFFIC,
)
LINK_TRAFFIC = _family(
    "traffic_link{source}to{target}",
    "MB/s",
    NONE,
    "What passed the link from node {source} to node {target}, over the window.",
    _TRAFFIC,
)
_OF_TASKS = ("lines", "local", "stalled_ps", "waited_ps")


def _compute(run: Recording) -> Iterator[Measure]:
    memory = run.memory
    if memory is None or not run.machine.nodes:
        return
    yield from _tasks(run, memory)
    loads = _sums(run, memory.counts, ("loads", "far_loads"))
    yield LOADS.of(_whole(loads["loads"]))
    yield LOAD_MISSES.of(_whole(loads["far_loads"]))
    yield from _traffic(run, memory)


def _tasks(run: Recording, memory: JoinedTables) -> Iterator[Measure]:
    mine = with_locality(memory.counts.filter(run.of_interest), run.machine.nodes)
    sums = _sums(run, mine, _OF_TASKS)
    cpu_ns = int(run.sums.time["ns"].sum())
    stalled, waited, lines = sums["stalled_ps"], sums["waited_ps"], sums["lines"]
    counted = None not in (stalled, waited, lines)
    yield LOCAL.of(percent(sums["local"] or 0, lines or 0) if counted else None)
    yield STALL.of(percent((stalled or 0) / 1000, cpu_ns) if counted else None)
    yield QUEUED.of(percent(waited or 0, stalled or 0) if counted else None)
    yield LINES.of(_whole(lines))


def _traffic(run: Recording, memory: JoinedTables) -> Iterator[Measure]:
    seconds = run.window.length_ns / 1e9
    keys = ("from_node", "to_node")
    rates = {
        (source, target): lines * LINE_BYTES / 1e6 / seconds
        for source, target, lines in _within(run, memory.traffic, keys, ("lines",)).iter_rows()
    }
    counted = seconds > 0 and memory.traffic["start_ns"].null_count() == 0
    for node in run.machine.nodes:
        yield NODE_TRAFFIC.of(rates.get((node, node), 0.0) if counted else None, node=node)
    links = memory.traffic.select(keys).unique().filter(pl.col("from_node") != pl.col("to_node"))
    for source, target in sorted(links.iter_rows()):
        value = rates.get((source, target), 0.0) if counted else None
        yield LINK_TRAFFIC.of(value, source=source, target=target)


def _sums(run: Recording, table: pl.DataFrame, values: tuple[str, ...]) -> dict[str, float | None]:
    """Sum columns over the window; None where the tables lie at no time of the trace."""
    if run.window.length_ns == 0 or table["start_ns"].null_count():
        return dict.fromkeys(values)
    row = _within(run, table, (), values).row(0)
    return {value: float(sum_ or 0) for value, sum_ in zip(values, row, strict=True)}


def _within(
    run: Recording, table: pl.DataFrame, keys: tuple[str, ...], values: tuple[str, ...]
) -> pl.DataFrame:
    return sum_within(table, run.window.start_ns, run.window.end_ns, keys, values)


def _whole(value: float | None) -> Number:
    return None if value is None else round(value)


GROUP = register_measures(
    "memory",
    (LOCAL, STALL, QUEUED, LINES, LOADS, LOAD_MISSES, NODE_TRAFFIC, LINK_TRAFFIC),
    _compute,
)


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
        *_home_series(run, mine),
        *_traffic_series(run, memory.traffic),
    )


def _home_series(run: Recording, counts: pl.DataFrame) -> Iterator[TimeSeries]:
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


def _traffic_series(run: Recording, traffic: pl.DataFrame) -> list[TimeSeries]:
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
    """Return what tasks of interest fetched and how long they stood still, the `MAX_TASKS` that
    stood still longest."""
    return memory_by_task(run)[:MAX_TASKS]


def memory_by_task(run: Recording) -> tuple[TaskMemory, ...]:
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
    return tuple(sorted(tasks, key=lambda task: (-task.stalled_ms, task.pid)))


def _model(run: Recording) -> JoinedTables | None:
    """Return the model's tables if they are on the trace's clock and the nodes are known."""
    memory = run.memory
    if memory is None or not run.machine.nodes or memory.counts["start_ns"].null_count():
        return None
    return memory
