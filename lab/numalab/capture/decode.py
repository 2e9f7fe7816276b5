"""Decodes a trace.dat into Parquet, in bounded memory.

Pages are read as arrays (see `ring_buffer`), not through the text of `trace-cmd report`: there a
task named `x prev_pid=1` looks like a field, and the text alone takes longer than decoding. Tests
compare the two, field by field.
"""

import mmap
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from numalab.capture import pages
from numalab.capture.columns import (
    LOST_COLUMN,
    LOST_EVENT,
    Cells,
    Chunk,
    EventFormat,
    Numbers,
    place,
    read_fields,
    read_pids,
    schema_of,
)
from numalab.capture.event_table import EventTable
from numalab.capture.pages import MAX_KINDS, PageChunk, PageSource
from numalab.capture.ring_buffer import Ints, page_times
from numalab.capture.spec import TRACE_INSTANCE
from numalab.capture.texts import KnownTexts, Texts
from numalab.capture.trace_file import MAX_CPUS, TraceFile, open_trace
from numalab.errors import UserError
from numalab.files import open_regular, replacing
from numalab.progress import Progress, no_progress
from numalab.run_dir import RunDir
from numalab.topology.topology import Topology
from numalab.units import counted

MAX_COLUMNS = 8192  # all events of a kernel have about half of it
_HEADER_BYTES = 8  # struct trace_entry
# `in_ns` is 0 in trace_clocks[] (kernel/trace/trace.c); tsc2nsec is x86-tsc in trace-cmd.
_TICKS = ("counter", "uptime", "x86-tsc", "ppc-tb", "tsc2nsec")
_MOST_BUFFERS = 8  # that are looked through, and named
_PIECE_BYTES = 12 << 20  # of records: texts of four times this size fit in a page of the table


@dataclass
class Decoded:
    """Counts of a decoded recording.

    `events` are the rows without those for lost events, `counts` the rows by event. `lost` events
    are missing at `gaps` places (some places have no number). `unsound` pages are cut short or
    damaged; `unreadable` records fit no event format. `problems` are messages for the user, `notes`
    those about a recording that may be whole.
    """

    clock: str = ""
    events: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    first_ns: int | None = None
    last_ns: int | None = None
    lost: int = 0
    gaps: int = 0
    unsound: int = 0
    unreadable: int = 0
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether the recording is complete as far as its counts show."""
        return not (self.gaps or self.faults)

    @property
    def faults(self) -> tuple[str, ...]:
        """Messages for the user: why the recording lacks events at places that nobody knows."""
        if not (self.unsound or self.unreadable):
            return self.problems
        damage = f"{self.unsound} pages are damaged, {self.unreadable} records fit no event format"
        return (*self.problems, damage)


def decode_trace(
    trace_dat: Path,
    topology: Topology | None,
    events_parquet: Path,
    on_progress: Progress = no_progress,
) -> Decoded:
    """Decode `trace_dat` into `events_parquet`: a row for each event, by time.

    `node` is the CPU's in the topology, else null. Damaged parts are left out and counted. Of
    several buffers the main one is read, or the first with events of the scheduler where it has
    none. Raises UserError when nothing in the file can be decoded, or its times are no nanoseconds.
    """
    data = _mapped(trace_dat)
    trace = open_trace(data, trace_dat, _buffer_of_scheduler(data, trace_dat, on_progress))
    trace.problems += _describe_left_out(trace)
    return _decode(trace, trace_dat, topology, events_parquet, on_progress)


def decode_guest(directory: RunDir, topology: Topology | None) -> Decoded:
    """Decode what a guest recorded into its table of events, as `decode_trace` does.

    numalab records into an instance of its own, and only that is read: patched kernels and
    programs write into other buffers what they like.
    """
    trace = open_trace(_mapped(directory.trace), directory.trace, TRACE_INSTANCE)
    decoded = _decode(trace, directory.trace, topology, directory.events, no_progress)
    decoded.notes = tuple(_describe_left_out(trace))
    return decoded


def _buffer_of_scheduler(data: memoryview, path: Path, on_progress: Progress) -> str | None:
    """Return the first buffer with events of the scheduler, None for the one to prefer."""
    first = open_trace(data, path)
    numbers = {number for number, text in first.formats.items() if text.system == "sched"}
    for name in (None, *list(first.left_out)[:_MOST_BUFFERS]) if first.left_out else ():
        with suppress(UserError):
            trace = open_trace(data, path, name)
            with closing(PageSource(trace, on_progress)) as source:
                if not numbers.isdisjoint(np.flatnonzero(source.kinds).tolist()):
                    return name
    return None


def _describe_left_out(trace: TraceFile) -> Iterator[str]:
    """Yield a message about the buffers that were not read, if any."""
    texts = []
    for name, events in list(trace.left_out.items())[:_MOST_BUFFERS]:
        count = f" ({counted(events, 'event')})" if events else ""
        buffer = (
            f"instance {name[:60]!r}" if name else "the main buffer, where trace_printk() writes"
        )
        texts.append(f"{buffer}{count}")
    if texts:
        texts += ["..."] * (len(trace.left_out) > _MOST_BUFFERS)
        kept = next((f"instance {data.buffer[:60]!r}" for data in trace.cpus if data.buffer), "")
        rest = f"`trace-cmd report` of the trace.dat prints the rest: {', '.join(texts)}"
        yield f"only {kept or 'the main buffer'} was read; {rest}"


def _decode(
    trace: TraceFile,
    trace_dat: Path,
    topology: Topology | None,
    events_parquet: Path,
    on_progress: Progress,
) -> Decoded:
    if trace.clock in _TICKS and trace.conversion is None:
        reason = f"its clock, {trace.clock}, does not count nanoseconds: record with -C mono"
        raise UserError(reason, file=trace_dat)
    with closing(PageSource(trace, on_progress)) as source:
        decoder = _Decoder(trace, source, topology)
        columns = len(decoder.schema)
        if columns > MAX_COLUMNS or not source.at_once(columns):
            raise UserError(f"its events have {columns} columns", file=trace_dat)
        with replacing(events_parquet) as temporary:
            decoder.write(temporary)
    decoder.result.problems = tuple(trace.problems)
    return decoder.result


def _mapped(path: Path) -> memoryview:
    """Map a file; the mapping ends with the last array that uses it."""
    try:
        with open_regular(path) as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", file=path) from None
    except ValueError:
        raise UserError("the file is empty", file=path) from None


class _Decoder:
    """One recording being decoded; `result` is filled as the frames are taken."""

    def __init__(self, trace: TraceFile, pages: PageSource, topology: Topology | None) -> None:
        self.trace, self.pages = trace, pages
        self.result = Decoded(clock=trace.clock)
        met = np.flatnonzero(pages.kinds).tolist()
        self.formats = tuple(
            trace.formats[number].parsed() for number in met if number in trace.formats
        )
        self.schema = schema_of(self.formats)
        self.names = _names(self.formats)
        self.code = np.full(MAX_KINDS, -1, np.int64)
        self.code[[event.id for event in self.formats]] = np.arange(len(self.formats))
        self.least = np.array([e.least_bytes for e in self.formats] or [0], np.int64)
        self.nodes = _node_table(topology)
        comms = {**trace.comms, 0: "<idle>"}
        self.pids = np.array(sorted(comms), np.int64)
        self.texts = KnownTexts()
        self.comms = pl.Series([*(comms[pid] for pid in sorted(comms)), None], dtype=pl.String)

    def write(self, path: Path) -> None:
        """Write the table piece by piece, counting in `result`."""
        self.result = Decoded(clock=self.trace.clock)
        with path.open("wb") as file:
            table = EventTable(file, self.schema)
            for chunk in self.pages.chunks(len(self.schema)):
                for cells, rows in self._pieces(chunk):
                    table.write(cells, rows)
            table.close()

    def _pieces(self, chunk: PageChunk) -> Iterator[tuple[dict[str, Cells], int]]:
        """Yield the events of a chunk, in several pieces if they are too many for one.

        A damaged recording, whose pages do not follow each other in time, may have the late events
        of all pages in one chunk.
        """
        records, result = chunk.records, self.result
        result.unsound += int(np.count_nonzero(records.unsound & chunk.fresh))
        latest = self.trace.latest
        at_page = page_times(chunk.words, latest)
        # Of a page whose time is out of range nobody knows when the events before it were lost.
        until = min(chunk.until, latest)
        gap = np.flatnonzero((records.missed != 0) & (at_page >= chunk.since) & (at_page < until))
        now = np.flatnonzero((records.time >= chunk.since) & (records.time < chunk.until))
        most = max(1, pages.MOST_CELLS // len(self.schema))
        size = np.cumsum(records.bytes[now])
        if len(now) <= most and (not len(now) or size[-1] <= _PIECE_BYTES):
            yield self._piece(chunk, gap, now)
            return
        now = now[np.lexsort((chunk.cpu[records.page[now]], records.time[now]))]
        size = np.cumsum(records.bytes[now])
        start = 0
        while start < len(now):
            full = size[start] - records.bytes[now[start]] + _PIECE_BYTES
            end = start + min(most, max(1, int(np.searchsorted(size[start:], full, "right"))))
            until = records.time[now[end]] if end < len(now) else chunk.until
            due = at_page[gap] < until
            yield self._piece(chunk, gap[due], now[start:end])
            gap = gap[~due]
            start = end

    def _piece(self, chunk: PageChunk, gap: Ints, now: Ints) -> tuple[dict[str, Cells], int]:
        """Return the cells and the number of rows of the records at `now`, and of what was lost
        before the pages `gap`."""
        records, result = chunk.records, self.result
        at_page = page_times(chunk.words, self.trace.latest)
        body = Chunk(chunk.words.reshape(-1), records.word[now], records.bytes[now])
        code = self._codes(body)
        fit = code >= 0
        if not fit.all():
            result.unreadable += int(np.count_nonzero(~fit))
            now, code, body = now[fit], code[fit], body.select(np.flatnonzero(fit))
        # The rows for lost events come first, so that at the same time they stay before the event.
        time = np.concatenate([at_page[gap], records.time[now]])
        cpu = np.concatenate([chunk.cpu[gap], chunk.cpu[records.page[now]]])
        order = np.lexsort((cpu, time)) if len(gap) else np.argsort(time, kind="stable")
        time, cpu, is_gap = time[order], cpu[order], order < len(gap)
        rows, gap_rows = np.flatnonzero(~is_gap), np.flatnonzero(is_gap)
        missed = records.missed[gap][order[gap_rows]]
        by_time = order[rows] - len(gap)
        code, body = code[by_time], body.select(by_time)
        self._count(time, code, missed)
        node = self.nodes[cpu]
        on_node = np.flatnonzero(node >= 0)
        cells = place(self._values(body, code, rows, missed, gap_rows), self.schema, len(order))
        cells["time_ns"] = Cells(None, self._nanoseconds(time))
        cells["cpu"] = Cells(None, cpu.astype(np.int16))
        if len(on_node):
            cells["node"] = Cells(on_node, node[on_node])
        return cells, len(order)

    def _codes(self, body: Chunk) -> Ints:
        """Return the index in `formats` of each record, -1 for a record that fits none."""
        if not len(body.at):
            return np.empty(0, np.int64)
        long_enough = body.length >= _HEADER_BYTES
        kinds = np.where(long_enough, body.words[body.at] & np.uint32(MAX_KINDS - 1), 0)
        code: Ints = np.where(long_enough, self.code[kinds], -1)
        return np.where(body.length >= self.least[code], code, -1)

    def _values(
        self, body: Chunk, code: Ints, rows: Ints, missed: Ints, gap_rows: Ints
    ) -> dict[str, list[tuple[Ints, Numbers | Texts]]]:
        """Read every field of every record: for each column, rows and their values."""
        counted = missed >= 0
        lost_event = Texts(pl.Series([LOST_EVENT]), np.zeros(len(missed), np.int64))
        values: dict[str, list[tuple[Ints, Numbers | Texts]]] = {
            "event": [
                (rows, Texts(pl.Series(self.names, dtype=pl.String), code)),
                (gap_rows, lost_event),
            ],
            LOST_COLUMN: [(gap_rows[counted], missed[counted])],
        }
        if len(body.at):
            pids = read_pids(body)
            values["pid"] = [(rows, pids)]
            values["comm"] = [(rows, self._comms(pids))]
        for number, event in enumerate(self.formats):
            mine = np.flatnonzero(code == number)
            if not len(mine):
                continue
            name = self.names[number]
            self.result.counts[name] = self.result.counts.get(name, 0) + len(mine)
            places = rows[mine]
            for column, read in read_fields(body.select(mine), event, self.texts):
                values.setdefault(column, []).append((places, read))
        return values

    def _comms(self, pids: npt.NDArray[np.int32]) -> Texts:
        places = np.searchsorted(self.pids, pids)
        named = self.pids[np.minimum(places, len(self.pids) - 1)] == pids
        return Texts(self.comms, np.where(named, places, len(self.pids)))

    def _count(self, time: Ints, code: Ints, missed: Ints) -> None:
        result = self.result
        result.events += len(code)
        result.gaps += len(missed)
        result.lost += int(missed[missed > 0].sum())
        if len(time):
            ends = self._nanoseconds(time[[0, -1]]).tolist()
            result.first_ns = ends[0] if result.first_ns is None else result.first_ns
            result.last_ns = ends[1]

    def _nanoseconds(self, time: Ints) -> Ints:
        """Convert the clock's units, as tsc2nsec() in trace-cmd's trace-input.c does."""
        if self.trace.conversion is None:
            return time
        multiplier, shift, offset = self.trace.conversion
        whole, part = time >> shift, time & ((1 << shift) - 1)
        return whole * multiplier + (part * multiplier >> shift) + np.int64(offset)


def _names(formats: Sequence[EventFormat]) -> list[str]:
    """Name the events as trace-cmd does: events with the same name get their system in front."""
    times = Counter(event.name for event in formats)
    return [e.name if times[e.name] == 1 else f"{e.system}:{e.name}" for e in formats]


def _node_table(topology: Topology | None) -> npt.NDArray[np.int16]:
    table = np.full(MAX_CPUS + 1, -1, np.int16)
    for node in topology.nodes if topology is not None else ():
        table[list(node.cpus)] = node.id
    return table
