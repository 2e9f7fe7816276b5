"""Records of the ring buffer into typed columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from lab.capture.event_format import EventFormat, Field
from lab.capture.ring_buffer import Ints, Words

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
_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Chunk:
    """Records with their bytes: `words` is the pages' memory, `at` each record's first word in it,
    `length` its size in bytes."""

    words: Words
    at: Ints
    length: Ints

    def select(self, rows: Ints) -> "Chunk":
        """Return the records at `rows`."""
        return Chunk(self.words, self.at[rows], self.length[rows])


def column_name(field: str) -> str:
    """Return the column of an event's own field.

    A field with the name of a common column (sched_wakeup's `pid` is the task woken, not the task
    running) becomes `event_<field>`.
    """
    return f"event_{field}" if field in COMMON else field


def schema_of(formats: Sequence[EventFormat]) -> dict[str, pl.DataType]:
    """Return the table's columns for these events, the common ones first.

    Events share a column when their fields have the same name. Its type holds the values of all of
    them; numbers that share a column with texts are written as texts.
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


def read_field(chunk: Chunk, field: Field) -> pl.Series:
    """Read one field of records that are all at least as long as their format says."""
    match field.kind:
        case "int":
            return pl.Series(_integers(chunk, field.offset, field.size, signed=field.signed))
        case "bool":
            return pl.Series(_integers(chunk, field.offset, 1, signed=False) != 0)
        case "text":
            return _texts(_fixed_bytes(chunk, field.offset, field.size))
        case "located text":
            where = _integers(chunk, field.offset, 4, signed=False).astype(np.int64)
            return _located_texts(chunk, where & 0xFFFF, where >> 16)
        case "open text":
            start = np.full(len(chunk.at), field.offset, np.int64)
            return _located_texts(chunk, start, chunk.length - field.offset)
    return _hexadecimal(chunk, field)


def read_header(chunk: Chunk) -> tuple[Ints, npt.NDArray[np.int32]]:
    """Return `common_type` and `common_pid` of each record (struct trace_entry)."""
    kinds = chunk.words[chunk.at] & np.uint32(0xFFFF)
    return kinds.astype(np.int64), chunk.words[chunk.at + 1].view(np.int32)


def _integers(chunk: Chunk, offset: int, size: int, *, signed: bool) -> npt.NDArray[np.generic]:
    wanted = np.dtype(f"<{'i' if signed else 'u'}{size}")
    if size < 4 or offset % 4:
        return np.ascontiguousarray(_bytes_at(chunk, offset, size)).view(wanted).reshape(-1)
    words = chunk.words[chunk.at + offset // 4]
    if size == 4:
        return words.view(wanted)
    high = chunk.words[chunk.at + offset // 4 + 1].astype(np.uint64)
    return (words.astype(np.uint64) | high << np.uint64(32)).view(wanted)


def _bytes_at(chunk: Chunk, offset: int, size: int) -> _Bytes:
    flat = chunk.words.view(np.uint8)
    found: _Bytes = flat[(chunk.at * 4 + offset)[:, None] + np.arange(size)]
    return found


def _fixed_bytes(chunk: Chunk, offset: int, size: int) -> _Bytes:
    if offset % 4 or size % 4:
        return _bytes_at(chunk, offset, size)
    words = chunk.words[(chunk.at + offset // 4)[:, None] + np.arange(size // 4)]
    found: _Bytes = words.view(np.uint8)
    return found


def _located_texts(chunk: Chunk, start: Ints, size: Ints) -> pl.Series:
    """Read texts whose place differs between records; one outside its record is null."""
    sound = (size >= 0) & (start + size <= chunk.length)
    size = np.where(sound, np.minimum(size, MAX_TEXT), 0)
    span = np.arange(int(size.max(initial=0)))
    flat = chunk.words.view(np.uint8)
    where = (chunk.at * 4 + start)[:, None] + span
    inside = span < size[:, None]
    texts = _texts(np.where(inside, flat[np.where(inside, where, 0)], np.uint8(0)))
    return texts.zip_with(
        pl.Series(sound), pl.Series([None], dtype=pl.String).new_from_index(0, len(texts))
    )


def _texts(raw: _Bytes) -> pl.Series:
    """Turn rows of bytes into texts that end at the first NUL.

    A task's name is any bytes but NUL, so bytes that are not UTF-8 are written as `\\xNN`, and
    nothing else is changed: a newline in a name is a newline here. Names repeat, so each different
    row is decoded once: rows are told apart by a 64-bit mix of their words, checked afterwards.
    """
    if not raw.size:
        return pl.Series([""] * len(raw), dtype=pl.String)
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
    return pl.Series(names, dtype=pl.String).gather(pl.Series(codes.reshape(-1)))


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")


def _hexadecimal(chunk: Chunk, field: Field) -> pl.Series:
    raw = _bytes_at(chunk, field.offset, field.size)
    return pl.Series([row.tobytes().hex() for row in raw], dtype=pl.String)


def place(
    values: Mapping[str, list[tuple[Ints, pl.Series]]], schema: Mapping[str, pl.DataType], rows: int
) -> dict[str, pl.Series]:
    """Put the values that each event gave to a column in their rows; other rows are null."""
    columns, known = {}, dict[tuple[int, ...], pl.Series]()
    for name, kind in schema.items():
        given = values.get(name, [])
        nothing = pl.Series([None], dtype=kind)
        if not given:
            columns[name] = nothing.new_from_index(0, rows)
            continue
        # The columns of one event go to the same rows.
        key = tuple(id(at) for at, _ in given)
        if key not in known:
            known[key] = pl.Series(_index([at for at, _ in given], rows))
        parts = [nothing, *(series.cast(kind, strict=False) for _, series in given)]
        columns[name] = pl.concat(parts, rechunk=True).gather(known[key])
    return columns


def _index(places: Sequence[Ints], rows: int) -> npt.NDArray[np.uint32]:
    """Return for each row the place of its value among all, put behind each other; 0 for none."""
    index, filled = np.zeros(rows, np.uint32), 1
    for at in places:
        index[at] = np.arange(filled, filled + len(at), dtype=np.uint32)
        filled += len(at)
    return index
