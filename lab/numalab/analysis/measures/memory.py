"""What the memory model of mode timed counted: exact, and at no cost to the guest."""

from collections.abc import Iterator

import polars as pl

from numalab.analysis.measures.family import (
    HIGHER,
    LOWER,
    NONE,
    WINDOW,
    MeasureFamily,
    register_measures,
)
from numalab.capture.guest_time import JoinedTables
from numalab.measure import (
    Direction,
    Measure,
    MeasureKind,
    MeasureSource,
    Number,
    SourceKind,
    percent,
)
from numalab.recording.memory import LINE_BYTES, sum_within, with_locality
from numalab.recording.recording import Recording

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
    "`perf stat -a -e node-loads` counts where a CPU has that event.",
)
LOAD_MISSES = _family(
    "memory_node_load_misses",
    "loads",
    NONE,
    "How many loads of any task went to another node's memory in the window: what "
    "`perf stat -a -e node-load-misses` counts where a CPU has that event.",
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
