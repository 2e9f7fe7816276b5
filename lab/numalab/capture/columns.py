"""Event formats of the kernel, and records of the ring buffer as typed columns.

f_show() in kernel/trace/trace_events.c writes the texts `events/<system>/<event>/format`. Each
recording has its own, so fields are read in the layout of the kernel that wrote them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from numalab.capture.ring_buffer import Ints, Words
from numalab.capture.texts import CPUS, Bytes, KnownTexts, Texts, read_arrays

Kind = Literal["int", "bool", "text", "located text", "located array", "open text", "bytes"]
# int: a number; text: char[N]; open text: char[] that ends with the record; bytes: any other array,
# kept as hexadecimal. The field of located data is a word with their offset in its lower 16 bits
# and their size in the upper ones: __data_loc counts from the start of the record, __rel_loc from
# the end of the field (include/trace/stages, Linux 5.17).

MAX_FIELD_BYTES = 4096
_FIELD = re.compile(
    r"^\tfield:(?P<decl>[^;]+);\toffset:(?P<offset>\d+);\tsize:(?P<size>\d+);"
    r"(?:\tsigned:(?P<signed>\d);)?"
)
_NAME = re.compile(r"^name: (\S+)$", re.MULTILINE)
_NUMBER = re.compile(r"^ID: (\d{1,9})$", re.MULTILINE)
_DECLARATION = re.compile(r"^(?P<type>.*?)\s*(?P<name>\w+)(?P<array>\[[^\]]*\])?$")


@dataclass(frozen=True)
class Field:
    """One field of a record: byte offset and size in the record, and how to read it."""

    name: str
    kind: Kind
    offset: int
    size: int
    signed: bool
    relative: bool = False  # __rel_loc
    items: str = ""  # of a located array, see `read_arrays`


@dataclass(frozen=True)
class EventFormat:
    """An event: the number that its records carry, its names, its own fields (no `common_*`)."""

    id: int
    system: str
    name: str
    fields: tuple[Field, ...]

    @property
    def least_bytes(self) -> int:
        """The smallest size of a record that holds every field."""
        return max((field.offset + field.size for field in self.fields), default=8)


@dataclass(frozen=True)
class FormatText:
    """A format text of which only the number is known yet: a kernel has hundreds of events."""

    text: str
    system: str

    @property
    def number(self) -> int:
        """The number of the event. Raises ValueError for a text without name or number."""
        return _heads(self.text)[1]

    def parsed(self) -> EventFormat:
        """Parse the text."""
        return parse_event_format(self.text, self.system)


def _heads(text: str) -> tuple[str, int]:
    name, number = _NAME.search(text), _NUMBER.search(text)
    if name is None or number is None:
        raise ValueError(f"not an event format: {text[:60]!r}")
    return name[1], int(number[1])


def parse_event_format(text: str, system: str) -> EventFormat:
    """Parse a format text. Raises ValueError for a text without name or number."""
    name, number = _heads(text)
    fields = filter(None, map(_field, text.partition("print fmt:")[0].splitlines()))
    own = tuple(field for field in fields if not field.name.startswith("common_"))
    return EventFormat(number, system, name, own)


def _field(line: str) -> Field | None:
    match = _FIELD.match(line)
    if match is None:
        return None
    declaration = match["decl"].strip()
    located = declaration.startswith(("__data_loc ", "__rel_loc "))
    # `__data_loc char[] comm` has the brackets before the name.
    parts = _DECLARATION.match(declaration.replace("[]", "", 1) if located else declaration)
    size, offset = int(match["size"]), int(match["offset"])
    if parts is None or size > MAX_FIELD_BYTES or offset > 1 << 16:
        return None
    name, signed = parts["name"], match["signed"] == "1"
    if located and size == 4:
        where, _, items = parts["type"].partition(" ")
        kind: Kind = "located text" if re.search(r"\bchar\b", items) else "located array"
        relative = where == "__rel_loc"
        return Field(name, kind, offset, size, signed, relative, _items(items, signed=signed))
    return Field(name, _kind(declaration, parts["array"], size), offset, size, signed)


def _items(declared: str, *, signed: bool) -> str:
    """Return what `read_arrays` calls items of this type of C, `u32`, `uint16_t` or `long`."""
    declared = declared.removeprefix("const ")
    words = set(declared.split())
    if "cpumask_t" in words:
        return CPUS
    size = 0
    if sized := re.fullmatch(r"_*(?:u|s|uint|int)(8|16|32|64)(?:_t)?", declared):
        size = int(sized[1]) // 8
    elif words <= {"unsigned", "signed", "short", "int", "long"}:
        size = 8 if "long" in words else 2 if "short" in words else 4
    return f"<{'i' if signed else 'u'}{size}" if size else ""


def _kind(declaration: str, array: str | None, size: int) -> Kind:
    is_char = re.search(r"\bchar\b", declaration) is not None
    if array is not None and is_char:
        return "open text" if size == 0 else "text"
    if array is None and size in (1, 2, 4, 8):
        return "bool" if declaration.startswith("bool ") else "int"
    return "bytes"


LOST_EVENT = "lost_events"  # the row that stands where events were lost; `lost` says how many
LOST_COLUMN = "lost"
COMMON: dict[str, pl.DataType] = {
    "time_ns": pl.Int64(),
    "cpu": pl.Int16(),
    "node": pl.Int16(),
    "event": pl.String(),
    "pid": pl.Int32(),
    "comm": pl.String(),
    LOST_COLUMN: pl.Int64(),
}
MAX_TEXT = 4096

_INTEGERS: dict[tuple[int, bool], pl.DataType] = {
    (1, True): pl.Int8(),
    (2, True): pl.Int16(),
    (4, True): pl.Int32(),
    (8, True): pl.Int64(),
    (1, False): pl.UInt8(),
    (2, False): pl.UInt16(),
    (4, False): pl.UInt32(),
    (8, False): pl.UInt64(),
}
_DTYPES = {
    kind: np.dtype(f"{'i' if signed else 'u'}{size}") for (size, signed), kind in _INTEGERS.items()
} | {pl.Boolean(): np.dtype(np.bool_)}
Numbers = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Chunk:
    """Records and their bytes: `words` is the pages' memory, `at` the first word of each record,
    `length` its size in bytes.
    """

    words: Words
    at: Ints
    length: Ints

    def select(self, rows: Ints) -> "Chunk":
        """Return the records at `rows`."""
        return Chunk(self.words, self.at[rows], self.length[rows])

    def first_bytes(self, size: int) -> Bytes:
        """Return a row with the first `size` bytes of each record; all must be that long."""
        words = -(-size // 4)
        starts = max(len(self.words) - words + 1, 0)
        # A view in which a record can begin at every word: one copy then fetches a whole record.
        everywhere = np.ndarray(starts, f"V{words * 4}", self.words, strides=(4,))
        rows: Bytes = everywhere[self.at].view(np.uint8).reshape(len(self.at), words * 4)
        return rows


def column_name(field: str) -> str:
    """Return the column of an event's own field.

    A field with the name of a common column (sched_wakeup's `pid` is the task woken, not the task
    running) becomes `event_<field>`.
    """
    return f"event_{field}" if field in COMMON else field


def schema_of(formats: Sequence[EventFormat]) -> dict[str, pl.DataType]:
    """Return the table's columns for these events, the common ones first.

    Fields of one name share a column whose type holds all their values. Numbers become texts where
    a text shares their column; of unsigned ones of 64 bits, those past 2^63 - 1 are null where a
    signed one does.
    """
    schema = dict(COMMON)
    for name, fields in _by_column(formats).items():
        schema[name] = _common_type([_type_of(field) for field in fields])
    return schema


def _by_column(formats: Sequence[EventFormat]) -> dict[str, list[Field]]:
    columns: dict[str, list[Field]] = {}
    for event in formats:
        for field in event.fields:
            columns.setdefault(column_name(field.name), []).append(field)
    return columns


def _type_of(field: Field) -> pl.DataType:
    if field.kind == "bool":
        return pl.Boolean()
    return _INTEGERS[field.size, field.signed] if field.kind == "int" else pl.String()


def _common_type(types: Sequence[pl.DataType]) -> pl.DataType:
    kinds = set(types)
    if len(kinds) == 1:
        return types[0]
    if not all(kind.is_integer() for kind in kinds):
        return pl.String()
    if not any(kind.is_signed_integer() for kind in kinds):
        return max(kinds, key=lambda kind: str(kind).rjust(8))
    widest = max(
        int(str(kind).removeprefix("U")[3:]) * 2 ** str(kind).startswith("U") for kind in kinds
    )
    return {8: pl.Int8(), 16: pl.Int16(), 32: pl.Int32()}.get(widest, pl.Int64())


def read_fields(
    chunk: Chunk, event: EventFormat, texts: KnownTexts
) -> Iterator[tuple[str, Numbers | Texts]]:
    """Yield the column of each field of an event, and its values.

    Each record has at least `least_bytes` of the event.
    """
    first = chunk.first_bytes(event.least_bytes)
    for field in event.fields:
        yield column_name(field.name), _read_field(chunk, first, field, texts)


def _read_field(chunk: Chunk, first: Bytes, field: Field, texts: KnownTexts) -> Numbers | Texts:
    raw = first[:, field.offset : field.offset + field.size]
    match field.kind:
        case "int":
            numbers: Numbers = raw.view(f"<{'i' if field.signed else 'u'}{field.size}")[:, 0]
            return numbers
        case "bool":
            truths: Numbers = raw[:, 0] != 0
            return truths
        case "text":
            return texts.read(raw)
        case "located text" | "located array":
            return _read_located(chunk, raw.view("<u4")[:, 0].astype(np.int64), field, texts)
        case "open text":
            start = np.full(len(chunk.at), field.offset, np.int64)
            return _located_texts(chunk, start, chunk.length - field.offset, texts)
    names = pl.Series([row.tobytes().hex() for row in raw], dtype=pl.String)
    return Texts(names, np.arange(len(names)))


def _read_located(chunk: Chunk, where: Ints, field: Field, texts: KnownTexts) -> Texts:
    """Read the data that a field of each record locates; what lies outside its record is null."""
    start, size = where & 0xFFFF, where >> 16
    if field.relative:
        start += field.offset + field.size
    if field.kind == "located text":
        return _located_texts(chunk, start, size, texts)
    size = np.where(start + size <= chunk.length, size, -1)
    return read_arrays(chunk.words.view(np.uint8), chunk.at * 4 + start, size, field.items)


def read_pids(chunk: Chunk) -> npt.NDArray[np.int32]:
    """Return `common_pid` of each record (struct trace_entry)."""
    return chunk.words[chunk.at + 1].view(np.int32)


def _located_texts(chunk: Chunk, start: Ints, size: Ints, texts: KnownTexts) -> Texts:
    """Read texts whose place differs between records; a text outside its record is null."""
    sound = (size >= 0) & (start + size <= chunk.length)
    size = np.where(sound, np.minimum(size, MAX_TEXT), 0)
    span = np.arange(int(size.max(initial=0)))
    flat = chunk.words.view(np.uint8)
    where = (chunk.at * 4 + start)[:, None] + span
    inside = span < size[:, None]
    read = texts.read(np.where(inside, flat[np.where(inside, where, 0)], np.uint8(0)))
    different = pl.concat([read.different, pl.Series([None], dtype=pl.String)])
    return Texts(different, np.where(sound, read.which, len(read.different)))


@dataclass(frozen=True)
class Cells:
    """The cells of a column that hold a value: their rows, ascending (None: all), and the values.

    No text among them is null.
    """

    rows: Ints | None
    values: Numbers | Texts


def place(
    values: Mapping[str, list[tuple[Ints, Numbers | Texts]]],
    schema: Mapping[str, pl.DataType],
    rows: int,
) -> dict[str, Cells]:
    """Put the values of each column in the order of their rows; the rows of each part ascend."""
    cells: dict[str, Cells] = {}
    joined = dict[tuple[int, ...], Ints]()
    for name, parts in values.items():
        some = [(at, part) for at, part in parts if len(at)]
        if not some:
            continue
        # The columns of one event go to the same rows.
        key = tuple(id(at) for at, _ in some)
        if key not in joined:
            joined[key] = _joined([at for at, _ in some], rows)
        if schema[name] == pl.String():
            cells[name] = _placed_texts(some, joined[key], rows)
        else:
            cells[name] = _placed_numbers(some, joined[key], _DTYPES[schema[name]], rows)
    return cells


def _joined(places: Sequence[Ints], rows: int) -> Ints:
    if len(places) == 1:
        return places[0]
    present = np.zeros(rows, np.bool_)
    for at in places:
        present[at] = True
    return np.flatnonzero(present)


def _placed_numbers(
    parts: Sequence[tuple[Ints, Numbers | Texts]],
    where: Ints,
    dtype: np.dtype[np.generic],
    rows: int,
) -> Cells:
    """Put numbers in order. An unsigned number of 64 bits may not fit among signed ones."""
    numbers = [(at, values) for at, values in parts if isinstance(values, np.ndarray)]
    placed = numbers[0][1].astype(dtype)
    if len(numbers) > 1:
        scattered = np.zeros(rows, dtype)
        for at, values in numbers:
            scattered[at] = values
        placed = scattered[where]
    if dtype != np.int64 or all(values.dtype != np.uint64 for _, values in numbers):
        return Cells(where, placed)
    fits = np.ones(rows, np.bool_)
    for at, values in numbers:
        if values.dtype == np.uint64:
            fits[at] = values <= np.uint64(np.iinfo(np.int64).max)
    return Cells(where[fits[where]], placed[fits[where]])


def _placed_texts(parts: Sequence[tuple[Ints, Numbers | Texts]], where: Ints, rows: int) -> Cells:
    texts = [(at, _as_texts(v) if isinstance(v, np.ndarray) else v) for at, v in parts]
    which, different = texts[0][1].which, texts[0][1].different
    if len(texts) > 1:
        scattered, filled = np.zeros(rows, np.int64), 0
        for at, part in texts:
            scattered[at] = part.which + filled
            filled += len(part.different)
        which = scattered[where]
        different = pl.concat([part.different for _, part in texts], rechunk=True)
    if different.null_count():
        present = different.is_not_null().to_numpy()[which]
        where, which = where[present], which[present]
    return Cells(where, Texts(different, which))


def _as_texts(numbers: Numbers) -> Texts:
    return Texts(pl.Series(np.ascontiguousarray(numbers)).cast(pl.String), np.arange(len(numbers)))
