"""Where the memory accesses of one guest went, in a window: by thread, node, region and line.

The counts are those of the memory model of mode timed. A window lies between two marks (lines of
the trace_marker) or between the first and last barrier of the command's threads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import polars as pl

from numalab.analysis.findings import TaskMemory
from numalab.analysis.measures.memory import memory_by_task, sum_within, with_locality
from numalab.capture.decode import decode_guest
from numalab.capture.joined_tables import JoinedTables, keep_memory_tables, read_memory_tables
from numalab.capture.maps import MAX_TEXT, ProcessMaps, parse_maps
from numalab.files import left_by_guest
from numalab.locality.address_names import AddressNames, ThreadNames
from numalab.locality.count_places import BARRIERS as BARRIER_FUNCTIONS
from numalab.locality.count_places import RECORDER
from numalab.locality.region_accesses import (
    Places,
    barrier_window,
    read_places,
    rows_within,
)
from numalab.recording.recording import Recording
from numalab.recording.window import BEGIN, END, Window, marks
from numalab.results.run_files import scan_events
from numalab.run_dir import RunDir
from numalab.topology.predict.firmware import as_guest_numbers, describe_numbers
from numalab.topology.topology import Topology

Marks = tuple[str, str]
COMMAND: Marks = (BEGIN, END)  # what /usr/lib/numalab/marked writes
BARRIERS: Marks = ("first barrier", "last barrier")  # no marks: where threads wait for each other
_NO_END = (
    "the end of the command is not in the recording (was it ended by --timeout or a signal?): the "
    "end of the recording is taken for it"
)
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
    """Accesses to memory within `window_ms`: by thread, the longest wait first, by node, by region
    and by contended line. All are empty where `notes` say why."""

    window_ms: float
    threads: tuple[TaskMemory, ...]
    nodes: tuple[NodeAccesses, ...]
    notes: tuple[str, ...] = ()
    places: Places = field(default_factory=Places)


@dataclass(frozen=True)
class CommandMemory:
    """What lay in the memory of the command's processes, and the files that it took along."""

    processes: tuple[ProcessMaps, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))


def read_locality(
    directory: RunDir,
    topology: Topology,
    between: Marks = COMMAND,
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> Locality:
    """Decode the recording of a guest of mode timed, and count within the two marks.

    The window is from the first of the one to the last of the other, or for a command that was
    ended, to the end of the recording. `files` are those that the
    command took along; their variables name the regions. Raises UserError for an unreadable
    recording and HostError for damaged counts.
    """
    machine = as_guest_numbers(topology)
    decoded = decode_guest(directory, machine)
    switches = scan_events(directory).filter(pl.col("event") == "sched_switch").collect()
    kept = keep_memory_tables(directory, machine, switches)
    notes = (*decoded.faults, *decoded.notes, *kept)
    events = scan_events(directory).collect()
    text = left_by_guest(directory.maps)[:MAX_TEXT].decode("utf-8", "backslashreplace")
    memory = CommandMemory(parse_maps(text), files)
    return locality(events, topology, read_memory_tables(directory), between, notes, command=memory)


def locality(
    events: pl.DataFrame,
    topology: Topology,
    memory: JoinedTables | None,
    between: Marks = COMMAND,
    notes: tuple[str, ...] = (),
    *,
    command: CommandMemory | None = None,
) -> Locality:
    """Count the accesses of a recording within two marks; nothing where a mark is missing.

    Nodes have the numbers of the guest; a note says where those of `topology` are others.
    """
    notes = (*filter(None, (describe_numbers(topology),)), *notes)
    written, over_ns = marks(events), None
    if BEGIN in written["text"] and END not in written["text"]:
        over_ns = events["time_ns"].max()
        last = {"time_ns": [over_ns], "text": [END]}
        written = pl.concat([written, pl.DataFrame(last, schema=written.schema)])
    window = _window(written, between, None if memory is None else memory.places)
    if isinstance(window, str) and between == BARRIERS:
        notes = (*notes, f"{window}: these are the accesses of the whole command")
        window = _window(written, COMMAND, None)
    if isinstance(window, str):
        return Locality(0.0, (), (), (*notes, window))
    if window.end_ns == over_ns:
        notes = (*notes, _NO_END)
    notes = (*notes, *_repeated(written, between, window))
    if memory is None or memory.counts["start_ns"].null_count():
        return Locality(0.0, (), (), notes)
    run = Recording(events, as_guest_numbers(topology), memory=memory, part=window)
    tasks = _tasks_of_command(events)
    threads = tuple(task for task in memory_by_task(run) if task.pid in tasks)
    names = ThreadNames(tasks, len(run.machine.nodes))
    places, more = _places(run.window, memory, command or CommandMemory(), names)
    nodes = tuple(_nodes(run, memory))
    return Locality(window.length_ns / 1e6, threads, nodes, (*notes, *more), places)


def _tasks_of_command(events: pl.DataFrame) -> dict[int, str]:
    """Return the last names of the command's tasks by pid: of those that began after what wrote the
    mark at its start, or if that is lost, after the recorder of mappings, without that, what wrote
    the mark at its end and the kernel's workers.

    A task gets its name as it executes a program, so it may leave a CPU by another one than it came
    by, and a short one never comes again. Its first name is that of its parent, but a worker's own
    one, or before Linux 6.4, kthreadd's.
    """
    switches = events.filter(pl.col("event") == "sched_switch")
    first: dict[int, str] = {}
    names: dict[int, str] = {}
    columns = ("prev_pid", "prev_comm", "next_pid", "next_comm")
    for left, left_name, came, came_name in switches.select(columns).iter_rows():
        for pid, name in ((left, left_name), (came, came_name)):
            first.setdefault(pid, name)
            names[pid] = name
    text = pl.col("buf").str.strip_chars("\n")
    begun, ended = (
        events.filter((pl.col("event") == "print") & (text == mark))["pid"].to_list()
        for mark in COMMAND
    )
    before = min(begun, default=max((pid for pid in first if first[pid] == RECORDER), default=0))
    return {
        pid: name
        for pid, name in names.items()
        if pid > before
        and pid not in ended
        and first[pid] not in (RECORDER, "kthreadd")
        and not first[pid].startswith("kworker/")
    }


def _places(
    window: Window, memory: JoinedTables, command: CommandMemory, threads: ThreadNames
) -> tuple[Places, tuple[str, ...]]:
    """Return the regions and lines, and notes."""
    if memory.places is None:
        return Places(), ()
    notes = list[str]()
    rows = rows_within(memory.places, window.start_ns, window.end_ns)
    if rows is None:
        notes.append(
            "regions and lines are those of the whole run: the memory model did not see the marks"
        )
        rows = memory.places
    if not command.processes:
        notes.append("regions have no names: the mappings of the command were not recorded")
    processes = tuple(part for part in command.processes if part.tgid in threads.names)
    names = AddressNames(processes, command.files, window.end_ns, threads.names)
    mine = rows.filter(pl.col("pid").is_in(list(threads.names)))
    return read_places(mine, names, threads), tuple(notes)


def _window(written: pl.DataFrame, between: Marks, places: pl.DataFrame | None) -> Window | str:
    """Return the window, or why there is none."""
    if between == BARRIERS:
        return _between_barriers(written, places)
    first, last = between
    begun = written.filter(pl.col("text") == first)["time_ns"]
    if not len(begun):
        return f"nothing wrote the mark {first!r}; {_written(written['text'].to_list())}"
    start = int(begun[0])
    ended = written.filter((pl.col("text") == last) & (pl.col("time_ns") > start))["time_ns"]
    if not len(ended):
        marks_there = _written(written["text"].to_list())
        return f"nothing wrote the mark {last!r} after {first!r}; {marks_there}"
    return Window(start, int(ended[-1]))


def _repeated(written: pl.DataFrame, between: Marks, window: Window) -> Iterator[str]:
    """Yield a note if one window has several pairs of marks."""
    first, last = between
    begun = (pl.col("text") == first) & (pl.col("time_ns") < window.end_ns)
    if (times := written.filter(begun).height) > 1:
        yield f"{first!r} was written {times} times: counted is from the first to the last {last!r}"


def _between_barriers(written: pl.DataFrame, places: pl.DataFrame | None) -> Window | str:
    moments = None if places is None else barrier_window(places)
    if moments is None:
        functions = ", ".join(BARRIER_FUNCTIONS)
        return f"no thread of the command called a barrier ({functions})"
    start, end = moments
    if end is None:
        over = written.filter((pl.col("text") == END) & (pl.col("time_ns") > start))["time_ns"]
        if not len(over):
            return "there is one barrier only, and the command did not end"
        end = int(over[-1])
    return Window(start, end)


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
