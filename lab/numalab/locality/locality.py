"""Where the memory accesses of one guest went, by thread and by node, from one mark to another.

The counts are those of the memory model of mode timed; marks are lines of the trace_marker.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from numalab.analysis.findings import TaskMemory
from numalab.analysis.measures.memory import sum_within, task_memory, with_locality
from numalab.capture.decode import decode_trace
from numalab.capture.guest_time import JoinedTables, keep_memory_tables, read_memory_tables
from numalab.recording.recording import Recording
from numalab.recording.window import BEGIN, END, Window, marks
from numalab.results.run_files import scan_events
from numalab.run_dir import RunDir
from numalab.topology.topology import Topology

Marks = tuple[str, str]
COMMAND: Marks = (BEGIN, END)  # what /usr/lib/numalab/marked writes
EVENTS = ("sched:sched_switch",)  # names the threads, and joins the model's clock to the trace's


@dataclass(frozen=True)
class NodeAccesses:
    """What the CPUs of a node waited for in the window, in ms of all of them, and the lines (of
    64 bytes) that they fetched, by the node of the memory or cache."""

    node: int
    stalled_ms: float
    queued_ms: float
    local: float
    lines: tuple[float, ...]


@dataclass(frozen=True)
class Locality:
    """Accesses to memory within `window_ms`: by thread, the longest wait first, and by node.

    Both are empty where `notes` say why.
    """

    window_ms: float
    threads: tuple[TaskMemory, ...]
    nodes: tuple[NodeAccesses, ...]
    notes: tuple[str, ...] = ()


def read_locality(directory: RunDir, topology: Topology, between: Marks = COMMAND) -> Locality:
    """Decode the recording of a guest of mode timed, and count within the two marks.

    The window is from the first of the one to the last of the other. Raises UserError for an
    unreadable recording and HostError for damaged counts.
    """
    decode_trace(directory.trace, topology, directory.events)
    switches = scan_events(directory).filter(pl.col("event") == "sched_switch").collect()
    notes = keep_memory_tables(directory, topology, switches)
    events = scan_events(directory).collect()
    return locality(events, topology, read_memory_tables(directory), between, notes)


def locality(
    events: pl.DataFrame,
    topology: Topology,
    memory: JoinedTables | None,
    between: Marks = COMMAND,
    notes: tuple[str, ...] = (),
) -> Locality:
    """Count the accesses of a recording within two marks; nothing where a mark is missing."""
    window = _window(marks(events), between)
    if isinstance(window, str):
        return Locality(0.0, (), (), (*notes, window))
    run = Recording(events, topology, memory=memory, part=window)
    threads = task_memory(run)
    nodes = () if memory is None or memory.counts["start_ns"].null_count() else _nodes(run, memory)
    return Locality(window.length_ns / 1e6, threads, tuple(nodes), notes)


def _window(written: pl.DataFrame, between: Marks) -> Window | str:
    """Return the window, or why there is none."""
    first, last = between
    begun = written.filter(pl.col("text") == first)["time_ns"]
    if not len(begun):
        return f"nothing wrote the mark {first!r}; {_written(written['text'].to_list())}"
    start = int(begun[0])
    ended = written.filter((pl.col("text") == last) & (pl.col("time_ns") > start))["time_ns"]
    if not len(ended):
        return f"nothing wrote the mark {last!r} after {first!r}"
    return Window(start, int(ended[-1]))


def _written(texts: Sequence[str]) -> str:
    names = [repr(text[:60]) for text in dict.fromkeys(texts) if text not in COMMAND][:8]
    return f"written were {', '.join(names)}" if names else "the command wrote none"


def _nodes(run: Recording, memory: JoinedTables) -> Iterator[NodeAccesses]:
    nodes, window = run.machine.nodes, run.window
    names = [f"from_{node}" for node in nodes]
    counts = with_locality(memory.counts, nodes)
    values = ("stalled_ps", "waited_ps", "local", *names)
    sums = sum_within(counts, window.start_ns, window.end_ns, ("node",), values)
    for node, stalled_ps, waited_ps, local, *lines in sums.sort("node").iter_rows():
        yield NodeAccesses(
            node,
            stalled_ps / 1e9,
            waited_ps / 1e9,
            round(local, 1),
            tuple(round(count, 1) for count in lines),
        )


def locality_lines(accesses: Locality) -> Iterator[str]:
    """Lay out the two tables, and the notes below them."""
    if accesses.nodes:
        yield f"memory accesses in {accesses.window_ms:.1f} ms (modelled; lines of 64 bytes)"
        heads = "".join(f"{f'node {row}':>12}" for row in range(len(accesses.nodes[0].lines)))
        yield f"{'':24}{'waited ms':>11}{'in queues':>11}{'local %':>9}{heads}"
        rows: list[tuple[str, TaskMemory | NodeAccesses]] = [
            *((f"{task.name[:15]}/{task.pid}", task) for task in accesses.threads),
            *((f"CPUs of node {row.node}", row) for row in accesses.nodes),
        ]
        yield from (f"{name:<24}{_cells(row)}" for name, row in rows)
    yield from accesses.notes


def _cells(row: TaskMemory | NodeAccesses) -> str:
    total = sum(row.lines)
    share = f"{100 * row.local / total:.1f}" if total else ""
    lines = "".join(f"{count:>12,.0f}" for count in row.lines)
    return f"{row.stalled_ms:>11,.1f}{row.queued_ms:>11,.1f}{share:>9}{lines}"
