"""Reads the structure of a trace.dat, versions 6 and 7: event formats, task names, pages.

The layouts are those of trace-cmd.dat.v6(5) and trace-cmd.dat.v7(5). A guest wrote the
file, and it may be cut short, so every number is checked before it is used.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import zstandard

from numalab.capture.columns import FormatText
from numalab.capture.counters import BufferStats, parse_trace_stats
from numalab.capture.ring_buffer import LATEST, PageLayout
from numalab.errors import UserError

MAGIC = b"\x17\x08\x44tracing"
MAX_SECTION_BYTES = 64 << 20
MAX_CPUS = 8192
_MAX_BUFFERS = 4 * MAX_CPUS  # of all CPUs and instances
_MAX_SYSTEMS, _MAX_EVENTS = 4096, 65536  # a record has 16 bits for the number of its event
_MAX_PROBLEMS = 1000  # with formats of events
_MAX_COMMS_BYTES = 16 << 20
_MAX_SHIFT = 31  # as in struct clock_data: the rest times a multiplier of 32 bits has room
_OPTION_BUFFER, _OPTION_CPUSTAT, _OPTION_CPUCOUNT, _OPTION_TSC2NSEC = 3, 2, 8, 14
_OPTION_SECTIONS = {16: "header", 17: "ftrace", 18: "events", 21: "cmdlines"}
_COMPRESSED = 1
_STAT_BUFFER = re.compile(r"\s*Buffer: (.+?)\s*")


class Damaged(Exception):
    """A part of the file is cut short or invalid."""


@dataclass(frozen=True)
class CpuData:
    """The pages of one CPU: their place in the file and their compression."""

    buffer: str
    cpu: int
    offset: int
    size: int
    compressed: bool


@dataclass
class TraceFile:
    """The contents of a trace.dat except its pages; `problems` are messages for the user.

    `buffers` are the clock and layout of each, `stats` the kernel's counts by buffer and CPU, from
    the texts of `per_cpu/cpuN/stats` that trace-cmd stores; the buffer of no instance is "".
    `left_out` are the buffers whose pages are not in `cpus`, and how many events each has (0 where
    the file has no count).
    """

    data: memoryview
    version: int
    layout: PageLayout
    compression: str = "none"
    formats: dict[int, FormatText] = field(default_factory=dict)
    comms: dict[int, str] = field(default_factory=dict)
    cpus: list[CpuData] = field(default_factory=list)
    buffers: dict[str, tuple[str, PageLayout]] = field(default_factory=dict)
    stats: dict[tuple[str, int], BufferStats] = field(default_factory=dict)
    stats_of: str = ""
    clock: str = ""
    tsc: tuple[int, int, int] | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def conversion(self) -> tuple[int, int, int] | None:
        """Multiplier, shift and offset from the clock's units to ns; None for a clock of ns."""
        return self.tsc if self.clock in ("x86-tsc", "tsc2nsec") else None

    @property
    def latest(self) -> int:
        """The first time, in the clock's units, whose nanoseconds exceed 64 bits."""
        if self.conversion is None:
            return LATEST
        multiplier, shift, offset = self.conversion
        return min(LATEST, (LATEST - offset << shift) // max(1, multiplier))


@dataclass
class Cursor:
    """Reads numbers and texts from bytes, one after the other. Raises Damaged past the end."""

    data: memoryview
    at: int = 0

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes."""
        if size < 0 or self.at < 0 or self.at + size > len(self.data):
            raise Damaged(f"ends at byte {len(self.data)}, {size} more were expected at {self.at}")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        """Return the next little-endian number of `size` bytes."""
        return int.from_bytes(self.take(size), "little")

    def text(self) -> str:
        """Return the text up to the next NUL (at most 64 KiB)."""
        window = bytes(self.data[self.at : self.at + (1 << 16)])
        end = window.find(b"\0")
        if end < 0:
            raise Damaged(f"no end of the text at byte {self.at}")
        self.at += end + 1
        return window[:end].decode("utf-8", "backslashreplace")

    def expect(self, word: bytes) -> None:
        """Skip `word`. Raises Damaged for other bytes."""
        if bytes(self.take(len(word))) != word:
            raise Damaged(f"{word!r} was expected at byte {self.at - len(word)}")

    def blob(self) -> memoryview:
        """Return the bytes that follow their 64-bit size."""
        return self.take(self.number(8))


def open_trace(data: memoryview, path: Path, buffer: str | None = None) -> TraceFile:
    """Read everything but the pages themselves, of one buffer: None prefers the main one.

    `problems` lists unreadable parts. Raises UserError when nothing can be decoded: not a
    trace.dat, an unknown version or byte order, or damage before the event formats; or where
    only other buffers have pages.
    """
    cursor = Cursor(data)
    try:
        if bytes(cursor.take(len(MAGIC))) != MAGIC:
            raise UserError("not a trace.dat (its first bytes are not trace-cmd's)", file=path)
        version = cursor.text()
        if version not in ("6", "7"):
            raise UserError(f"version {version[:20]!r} of trace.dat", file=path, choices=("6", "7"))
        if cursor.number(1) != 0:
            raise UserError("a recording of a big-endian machine cannot be read yet", file=path)
        long_bytes, page_bytes = cursor.number(1), cursor.number(4)
        layout = PageLayout(page_bytes, long_bytes, 8 + long_bytes)
        trace = TraceFile(data, int(version), layout)
        (_read_v7 if trace.version == 7 else _read_v6)(trace, cursor)
        _keep_one_buffer(trace, buffer)
    except Damaged as error:
        raise UserError(f"cut short or damaged: {error}", file=path) from None
    size = trace.layout.page_bytes
    if size % 8 or not 64 <= size <= 1 << 20 or trace.layout.data_offset not in (12, 16):
        raise UserError(f"its ring buffer has pages of {size} bytes", file=path)
    return trace


def _keep_one_buffer(trace: TraceFile, wanted: str | None) -> None:
    """Leave out all buffers but the wanted one. None: the main one, or without its pages the first.

    Several may hold the same events, and each has losses and a clock of its own.
    """
    counts: dict[str, int] = {}
    names = sorted(dict.fromkeys(data.buffer for data in trace.cpus if data.size), key=bool)
    kept = (names or [""])[0] if wanted is None else wanted
    if names and kept not in names:
        raise Damaged(f"nothing is in its buffer {kept!r}")
    trace.cpus = [data for data in trace.cpus if data.buffer == kept]
    trace.clock, trace.layout = trace.buffers.get(kept, ("", trace.layout))
    for (name, _), stats in trace.stats.items():
        counts[name] = counts.get(name, 0) + (stats.read or 0)
    trace.left_out = {name: counts.get(name, 0) for name in names if name != kept}
    trace.stats = {key: stats for key, stats in trace.stats.items() if key[0] not in trace.left_out}


def _read_v6(trace: TraceFile, cursor: Cursor) -> None:
    _header(trace, cursor)
    _ftrace_formats(trace, cursor)
    _system_formats(trace, cursor)
    cursor.take(cursor.number(4))  # kallsyms
    cursor.take(cursor.number(4))  # trace_printk formats
    _comms(trace, cursor)
    cpus = _bounded(cursor.number(4), MAX_CPUS, "CPUs")
    instances: list[tuple[int, str, int]] = []
    kind = bytes(cursor.take(10))
    if kind == b"options  \0":
        for option, body in _options_v6(cursor):
            if option == _OPTION_BUFFER:
                inner = Cursor(body)
                if len(instances) <= _MAX_BUFFERS:
                    instances.append((inner.number(8), inner.text(), cpus))
            elif option == _OPTION_CPUCOUNT:
                cpus = _bounded(Cursor(body).number(4), MAX_CPUS, "CPUs")
            else:
                _option(trace, option, body)
        kind = bytes(cursor.take(10))
    if kind != b"flyrecord\0":
        raise Damaged(f"no ring buffer in it ({kind!r})")
    _flyrecord_v6(trace, cursor, "", cpus)
    for offset, name, count in instances:
        if max(len(trace.cpus), len(instances) - 1) >= _MAX_BUFFERS:
            trace.problems.append(f"more than {_MAX_BUFFERS} buffers of CPUs")
            break
        try:
            inner = Cursor(trace.data, offset)
            inner.expect(b"flyrecord\0")
            _flyrecord_v6(trace, inner, name, count)
        except Damaged as error:
            trace.problems.append(f"instance {name!r}: {error}")


def _options_v6(cursor: Cursor) -> Iterator[tuple[int, memoryview]]:
    while option := cursor.number(2):
        yield option, cursor.take(cursor.number(4))


def _flyrecord_v6(trace: TraceFile, cursor: Cursor, name: str, cpus: int) -> None:
    for cpu in range(cpus):
        offset, size = cursor.number(8), cursor.number(8)
        _add_cpu(trace, CpuData(name, cpu, offset, size, compressed=False))
    clock = re.search(r"\[(\w[\w-]*)\]", bytes(cursor.blob()[:512]).decode("ascii", "replace"))
    trace.buffers.setdefault(name, (clock[1] if clock else "", trace.layout))


def _read_v7(trace: TraceFile, cursor: Cursor) -> None:
    trace.compression = cursor.text()
    cursor.text()  # the compression's version
    where, places = cursor.number(8), set[int]()
    sections: dict[str, int] = {}
    buffers: list[memoryview] = []
    while where and where not in places:
        places.add(where)
        try:
            where = _options_v7(trace, where, sections, buffers)
        except Damaged as error:
            trace.problems.append(f"options: {error}")
            break
    _header(trace, Cursor(_section(trace, sections, "header")))
    _ftrace_formats(trace, Cursor(_section(trace, sections, "ftrace")))
    _system_formats(trace, Cursor(_section(trace, sections, "events")))
    try:
        _comms(trace, Cursor(_section(trace, sections, "cmdlines")))
    except Damaged as error:
        trace.problems.append(f"names of tasks: {error}")
    for body in buffers:
        try:
            _buffer_v7(trace, Cursor(body))
        except Damaged as error:
            trace.problems.append(f"a ring buffer: {error}")
    if not trace.cpus and trace.problems:
        # The options that say where the ring buffer is come last in the file.
        raise Damaged(f"nothing says where its ring buffer is ({'; '.join(trace.problems[:3])})")


def _options_v7(
    trace: TraceFile, where: int, sections: dict[str, int], buffers: list[memoryview]
) -> int:
    """Read one section of options; return the offset of the next, 0 after the last."""
    cursor = Cursor(_section_at(trace, where, 0))
    while option := cursor.number(2):
        body = cursor.take(cursor.number(4))
        if option in _OPTION_SECTIONS:
            sections[_OPTION_SECTIONS[option]] = Cursor(body).number(8)
        elif option == _OPTION_BUFFER:
            _bounded(len(buffers) + 1, _MAX_BUFFERS, "ring buffers")
            buffers.append(body)
        else:
            _option(trace, option, body)
    return Cursor(cursor.take(cursor.number(4))).number(8)


def _option(trace: TraceFile, option: int, body: memoryview) -> None:
    if option == _OPTION_CPUSTAT:
        _cpu_stat(trace, bytes(body[:4096]).rstrip(b"\0").decode("utf-8", "backslashreplace"))
    elif option == _OPTION_TSC2NSEC and len(body) >= 16:
        multiplier, shift, offset = struct.unpack_from("<IIQ", body)
        if shift <= _MAX_SHIFT and offset < LATEST:
            trace.tsc = multiplier, shift, offset
        else:
            trace.problems.append(f"times: shifted by {shift} bits from {offset}")


def _cpu_stat(trace: TraceFile, text: str) -> None:
    """Read one text: the name of an instance, or the counts of a CPU of the last named buffer."""
    if match := _STAT_BUFFER.fullmatch(text):
        trace.stats_of = match[1]
    for stats in parse_trace_stats(text):
        trace.stats[trace.stats_of, stats.cpu] = stats


def _buffer_v7(trace: TraceFile, cursor: Cursor) -> None:
    section = cursor.number(8)
    name, clock, page_bytes = cursor.text(), cursor.text(), cursor.number(4)
    flags = Cursor(trace.data, section + 2).number(2)
    count = _bounded(cursor.number(4), MAX_CPUS, "CPUs")
    cpus = [(cursor.number(4), cursor.number(8), cursor.number(8)) for _ in range(count)]
    if not any(size for _, _, size in cpus):
        return
    trace.buffers[name] = clock, replace(trace.layout, page_bytes=page_bytes)
    for cpu, offset, size in cpus:
        compressed = bool(flags & _COMPRESSED)
        number = _bounded(cpu, MAX_CPUS, "CPUs")
        _add_cpu(trace, CpuData(name, number, offset, size, compressed))


def _add_cpu(trace: TraceFile, data: CpuData) -> None:
    _bounded(len(trace.cpus) + 1, _MAX_BUFFERS, "buffers of CPUs")
    trace.cpus.append(data)


def _section(trace: TraceFile, sections: dict[str, int], name: str) -> memoryview:
    if name not in sections:
        raise Damaged(f"it has no section for {name}")
    number = next(key for key, value in _OPTION_SECTIONS.items() if value == name)
    return _section_at(trace, sections[name], number)


def _section_at(trace: TraceFile, where: int, number: int) -> memoryview:
    cursor = Cursor(trace.data, where)
    section_id, flags = cursor.number(2), cursor.number(2)
    if section_id != number:
        raise Damaged(f"section {number} was expected at byte {where}, found {section_id}")
    cursor.number(4)  # its description
    size = cursor.number(8)
    if not flags & _COMPRESSED:
        return cursor.take(size)
    packed, plain = cursor.number(4), cursor.number(4)
    return memoryview(unpack(cursor.take(packed), plain, trace.compression))


def unpack(packed: memoryview, plain: int, compression: str) -> bytes:
    """Unpack one block of `plain` bytes. Raises Damaged for another size."""
    if plain > MAX_SECTION_BYTES:
        raise Damaged(f"a block of {plain} bytes")
    try:
        if compression == "zstd":
            with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
                data = reader.read(plain + 1)
        elif compression == "zlib":
            data = zlib.decompressobj().decompress(packed, plain + 1)
        else:
            raise Damaged(f"compression {compression[:20]!r}")
    except (zstandard.ZstdError, zlib.error) as error:
        raise Damaged(f"a packed block: {error}") from None
    if len(data) != plain:
        raise Damaged(f"a packed block holds {len(data)} bytes, not {plain}")
    return data


def _header(trace: TraceFile, cursor: Cursor) -> None:
    cursor.expect(b"header_page\0")
    text = bytes(cursor.blob()).decode("ascii", "replace")
    commit = re.search(r"commit;\s*offset:8;\s*size:(\d);", text)
    data = re.search(r"data;\s*offset:(\d{1,9});\s*size:(\d{1,9});", text)
    if commit is None or data is None:
        raise Damaged("no layout of the ring buffer's pages")
    offset, size = int(data[1]), int(data[2])
    trace.layout = PageLayout(offset + size, int(commit[1]), offset)
    cursor.expect(b"header_event\0")
    cursor.blob()


def _ftrace_formats(trace: TraceFile, cursor: Cursor) -> None:
    for _ in range(_bounded(cursor.number(4), _MAX_EVENTS, "events")):
        _add_format(trace, cursor.blob(), "ftrace")


def _system_formats(trace: TraceFile, cursor: Cursor) -> None:
    events = 0
    for _ in range(_bounded(cursor.number(4), _MAX_SYSTEMS, "event systems")):
        system, more = cursor.text(), cursor.number(4)
        events = _bounded(events + more, _MAX_EVENTS, "events")
        for _ in range(more):
            _add_format(trace, cursor.blob(), system)


def _add_format(trace: TraceFile, blob: memoryview, system: str) -> None:
    text = FormatText(bytes(blob).decode("utf-8", "replace"), system)
    try:
        trace.formats[text.number] = text
    except ValueError as error:
        if len(trace.problems) < _MAX_PROBLEMS:
            trace.problems.append(str(error))


def _comms(trace: TraceFile, cursor: Cursor) -> None:
    """Read `saved_cmdlines`: a line for each task, its pid, a blank, its name.

    A name may hold a newline; the rest of such a name is left out.
    """
    blob = cursor.blob()
    _bounded(len(blob), _MAX_COMMS_BYTES, "bytes of names of tasks")
    text = bytes(blob).rstrip(b"\0").decode("utf-8", "backslashreplace")
    for line in text.split("\n"):
        pid, blank, comm = line.partition(" ")
        if blank and pid.isdecimal() and len(pid) <= 10:
            trace.comms.setdefault(int(pid), comm)


def _bounded(number: int, limit: int, what: str) -> int:
    if number > limit:
        raise Damaged(f"{number} {what}")
    return number
