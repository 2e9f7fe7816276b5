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

Kind = Literal["int", "bool", "text", "located text", "open text", "bytes"]
# int: a number; text: char[N]; located text: __data_loc char[] (a 32-bit offset and length);
# open text: char[] that ends with the record; bytes: any other array, kept as hexadecimal.

MAX_FIELD_BYTES = 4096
_FIELD = re.compile(
    r"^\tfield:(?P<decl>[^;]+);\toffset:(?P<offset>\d+);\tsize:(?P<size>\d+);"
    r"(?:\tsigned:(?P<signed>\d);)?"
)
_DECLARATION = re.compile(r"^(?P<type>.*?)\s*(?P<name>\w+)(?P<array>\[[^\]]*\])?$")


@dataclass(frozen=True)
class Field:
    """One field of a record: byte offset and size in the record, and how to read it."""

    name: str
    kind: Kind
    offset: int
    size: int
    signed: bool


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


def parse_event_format(text: str, system: str) -> EventFormat:
    """Parse a format text. Raises ValueError for a text without name or number."""
    name = re.search(r"^name: (\S+)$", text, re.MULTILINE)
    number = re.search(r"^ID: (\d{1,9})$", text, re.MULTILINE)
    if name is None or number is None:
        raise ValueError(f"not an event format: {text[:60]!r}")
    fields = filter(None, map(_field, text.partition("print fmt:")[0].splitlines()))
    own = tuple(field for field in fields if not field.name.startswith("common_"))
    return EventFormat(int(number[1]), system, name[1], own)


def _field(line: str) -> Field | None:
    match = _FIELD.match(line)
    if match is None:
        return None
    declaration = match["decl"].strip()
    located = declaration.startswith("__data_loc")
    # `__data_loc char[] comm` has the brackets before the name.
    parts = _DECLARATION.match(declaration.replace("[]", "", 1) if located else declaration)
    size, offset = int(match["size"]), int(match["offset"])
    if parts is None or size > MAX_FIELD_BYTES or offset > 1 << 16:
        return None
    kind = _kind(declaration, parts["array"], size, located=located)
    return Field(parts["name"], kind, offset, size, match["signed"] == "1")


def _kind(declaration: str, array: str | None, size: int, *, located: bool) -> Kind:
    is_char = re.search(r"\bchar\b", declaration) is not None
    if located:
        return "located text" if is_char and size == 4 else "bytes"
    if array is not None and is_char:
        return "open text" if size == 0 else "text"
    if array is None and size in (1, 2, 4, 8):
        return "bool" if declaration.startswith("bool ") else "int"
    return "bytes"


COMMON: dict[str, pl.DataType] = {
    "time_ns": pl.Int64(),
    "cpu": pl.Int16(),
    "node": pl.Int16(),
    "event": pl.String(),
    "pid": pl.Int32(),
    "comm": pl.String(),
}
LOST_EVENT = "lost_events"  # the row that stands where events were lost; `lost` says how many
LOST_COLUMN = "lost"
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
_Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Texts:
    """Repeated texts: the different texts (or null), and for each record its index in them."""

    different: pl.Series
    which: Ints


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

    def first_bytes(self, size: int) -> _Bytes:
        """Return a row with the first `size` bytes of each record; all must be that long."""
        words = -(-size // 4)
        starts = max(len(self.words) - words + 1, 0)
        # A view in which a record can begin at every word: one copy then fetches a whole record.
        everywhere = np.ndarray(starts, f"V{words * 4}", self.words, strides=(4,))
        rows: _Bytes = everywhere[self.at].view(np.uint8).reshape(len(self.at), words * 4)
        return rows


def column_name(field: str) -> str:
    """Return the column of an event's own field.

    A field with the name of a common column (sched_wakeup's `pid` is the task woken, not the task
    running) becomes `event_<field>`.
    """
    return f"event_{field}" if field in COMMON else field


def schema_of(formats: Sequence[EventFormat]) -> dict[str, pl.DataType]:
    """Return the table's columns for these events, the common ones first.

    Fields of one name share a column whose type holds all their values; numbers become texts where
    a text shares their column.
    """
    schema = dict(COMMON) | {LOST_COLUMN: pl.Int64()}
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


def read_fields(chunk: Chunk, event: EventFormat) -> Iterator[tuple[str, Numbers | Texts]]:
    """Yield the column of each field of an event, and its values.

    Each record has at least `least_bytes` of the event.
    """
    first = chunk.first_bytes(event.least_bytes)
    for field in event.fields:
        yield column_name(field.name), _read_field(chunk, first, field)


def _read_field(chunk: Chunk, first: _Bytes, field: Field) -> Numbers | Texts:
    raw = first[:, field.offset : field.offset + field.size]
    match field.kind:
        case "int":
            numbers: Numbers = raw.view(f"<{'i' if field.signed else 'u'}{field.size}")[:, 0]
            return numbers
        case "bool":
            truths: Numbers = raw[:, 0] != 0
            return truths
        case "text":
            return _texts(raw)
        case "located text":
            where = raw.view("<u4")[:, 0].astype(np.int64)
            return _located_texts(chunk, where & 0xFFFF, where >> 16)
        case "open text":
            start = np.full(len(chunk.at), field.offset, np.int64)
            return _located_texts(chunk, start, chunk.length - field.offset)
    names = pl.Series([row.tobytes().hex() for row in raw], dtype=pl.String)
    return Texts(names, np.arange(len(names)))


def read_pids(chunk: Chunk) -> npt.NDArray[np.int32]:
    """Return `common_pid` of each record (struct trace_entry)."""
    return chunk.words[chunk.at + 1].view(np.int32)


def _located_texts(chunk: Chunk, start: Ints, size: Ints) -> Texts:
    """Read texts whose place differs between records; a text outside its record is null."""
    sound = (size >= 0) & (start + size <= chunk.length)
    size = np.where(sound, np.minimum(size, MAX_TEXT), 0)
    span = np.arange(int(size.max(initial=0)))
    flat = chunk.words.view(np.uint8)
    where = (chunk.at * 4 + start)[:, None] + span
    inside = span < size[:, None]
    texts = _texts(np.where(inside, flat[np.where(inside, where, 0)], np.uint8(0)))
    different = pl.concat([texts.different, pl.Series([None], dtype=pl.String)])
    return Texts(different, np.where(sound, texts.which, len(texts.different)))


def _texts(raw: _Bytes) -> Texts:
    """Turn rows of bytes into texts that end at the first NUL.

    Bytes that are not UTF-8 become `\\xNN`; nothing else changes, not even a newline. Each
    different row is decoded once: a 64-bit hash of the words finds equal rows, and a comparison
    confirms them.
    """
    if not raw.size:
        return Texts(pl.Series([""]), np.zeros(len(raw), np.int64))
    padded = np.zeros((len(raw), -(-raw.shape[1] // 8) * 8), np.uint8)
    padded[:, : raw.shape[1]] = raw
    words = padded.view(np.uint64)
    mixed = np.zeros(len(raw), np.uint64)
    for column in range(words.shape[1]):
        mixed = (mixed ^ words[:, column]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    different = np.sort(pl.Series(mixed).unique().to_numpy())
    codes = np.searchsorted(different, mixed)
    sample = np.empty(len(different), np.int64)
    sample[codes] = np.arange(len(raw))
    if not np.array_equal(words[sample[codes]], words):  # two rows with the same mix
        _, sample, codes = np.unique(words, axis=0, return_index=True, return_inverse=True)
    names = [_text(raw[row].tobytes()) for row in sample.tolist()]
    return Texts(pl.Series(names, dtype=pl.String), codes.reshape(-1))


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")


def place(
    values: Mapping[str, list[tuple[Ints, Numbers | Texts]]],
    schema: Mapping[str, pl.DataType],
    rows: int,
) -> dict[str, pl.Series]:
    """Put the values of each column in their rows; other rows are null."""
    kinds = set(schema.values())
    nothing = {kind: pl.Series([None], dtype=kind).new_from_index(0, rows) for kind in kinds}
    columns, masks = {}, dict[tuple[int, ...], pl.Series]()
    for name, kind in schema.items():
        parts = values.get(name, [])
        if not parts:
            columns[name] = nothing[kind]
        elif kind == pl.String():
            columns[name] = _placed_texts(parts, rows)
        else:
            # The columns of one event go to the same rows.
            key = tuple(id(at) for at, _ in parts)
            if key not in masks:
                masks[key] = _present([at for at, _ in parts], rows)
            placed, fits = _placed_numbers(parts, _DTYPES[kind], rows)
            present = masks[key] if fits is None else masks[key] & pl.Series(fits)
            columns[name] = pl.Series(placed).zip_with(present, nothing[kind])
    return columns


def _present(places: Sequence[Ints], rows: int) -> pl.Series:
    present = np.zeros(rows, np.bool_)
    for at in places:
        present[at] = True
    return pl.Series(present)


def _placed_numbers(
    parts: Sequence[tuple[Ints, Numbers | Texts]], dtype: np.dtype[np.generic], rows: int
) -> tuple[Numbers, npt.NDArray[np.bool_] | None]:
    """Return numbers in their rows, and which rows hold a number that fits (None: all).

    Only an unsigned number of 64 bits that shares a column with signed ones may not fit.
    """
    placed, fits = np.zeros(rows, dtype), None
    for at, values in parts:
        assert isinstance(values, np.ndarray)
        placed[at] = values
        if dtype == np.int64 and values.dtype == np.uint64:
            fits = np.ones(rows, np.bool_) if fits is None else fits
            fits[at] = values <= np.uint64(np.iinfo(np.int64).max)
    return placed, fits


def _placed_texts(parts: Sequence[tuple[Ints, Numbers | Texts]], rows: int) -> pl.Series:
    which, different = np.zeros(rows, np.uint32), [pl.Series([None], dtype=pl.String)]
    filled = 1
    for at, values in parts:
        texts = _as_texts(values) if isinstance(values, np.ndarray) else values
        which[at] = texts.which + filled
        different.append(texts.different)
        filled += len(texts.different)
    return pl.concat(different, rechunk=True).gather(pl.Series(which))


def _as_texts(numbers: Numbers) -> Texts:
    return Texts(pl.Series(np.ascontiguousarray(numbers)).cast(pl.String), np.arange(len(numbers)))
