"""Writes the table of events as a Parquet file, a group of rows at a time.

Most cells of that table are null, because an event has only its own fields. This writer takes the
values that there are and a bit for each row, so nulls cost almost nothing (apache/parquet-format
2.10: parquet.thrift, Encodings.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Final

import numpy as np
import polars as pl
import zstandard

from numalab.capture.columns import Cells, Numbers
from numalab.capture.ring_buffer import Ints
from numalab.capture.texts import Texts
from numalab.parquet import (
    BINARY,
    BYTE_STREAM_SPLIT,
    DATA_PAGE,
    DICTIONARY_PAGE,
    I32,
    I64,
    LIST,
    PLAIN,
    RLE,
    RLE_DICTIONARY,
    STRUCT,
)

_MAGIC = b"PAR1"
_BOOLEAN, _INT32, _INT64, _BYTE_ARRAY = 0, 1, 2, 6  # physical types
_UNCOMPRESSED, _ZSTD = 0, 6
_OPTIONAL = 1
_TYPES: Final[Mapping[pl.DataType, tuple[int, int | None]]] = {
    # Physical type and ConvertedType.
    pl.Boolean(): (_BOOLEAN, None),
    pl.UInt8(): (_INT32, 11),
    pl.UInt16(): (_INT32, 12),
    pl.UInt32(): (_INT32, 13),
    pl.UInt64(): (_INT64, 14),
    pl.Int8(): (_INT32, 15),
    pl.Int16(): (_INT32, 16),
    pl.Int32(): (_INT32, 17),
    pl.Int64(): (_INT64, 18),
    pl.String(): (_BYTE_ARRAY, 0),
}
_WIDEST_RANGE = 1 << 16  # of numbers that are written as indices of their different values
_LEAST_PACKED = 128  # bytes of a page that are worth packing
_LEVEL = 1  # of zstd


@dataclass(frozen=True)
class _Chunk:
    """A column of a group of rows that has been written."""

    packed: int
    plain: int
    codec: int
    encoding: int
    data_at: int
    dictionary_at: int | None


@dataclass(frozen=True)
class _Values:
    """The values of a column: their encoding, and their different values if these have a page."""

    data: bytes
    encoding: int
    different: bytes = b""
    different_count: int = 0


class EventTable:
    """A Parquet file being written; `close` makes it readable."""

    def __init__(self, file: IO[bytes], schema: Mapping[str, pl.DataType]) -> None:
        self._file, self._schema = file, schema
        self._at = file.write(_MAGIC)
        self._groups: list[tuple[int, list[_Chunk]]] = []
        self._packer = zstandard.ZstdCompressor(level=_LEVEL)

    def write(self, columns: Mapping[str, Cells], rows: int) -> None:
        """Write a group of rows; a column that is missing is null in all of them."""
        if not rows:
            return
        levels = _Levels(rows)
        chunks = []
        for name, kind in self._schema.items():
            cells = columns.get(name)
            if cells is None:
                chunks.append(self._column(levels.none, _NOTHING, rows))
            else:
                values = _encoded(cells.values, _TYPES[kind][0])
                chunks.append(self._column(levels.of(cells.rows), values, rows))
        self._groups.append((rows, chunks))

    def close(self) -> None:
        """Write the footer."""
        footer = _footer(self._schema, self._groups)
        self._put(footer + len(footer).to_bytes(4, "little") + _MAGIC)

    def _column(self, levels: bytes, values: _Values, rows: int) -> _Chunk:
        """Write the pages of a column: its different values if it has such, and its data."""
        start, plain, dictionary_at = self._at, 0, None
        data = levels + values.data
        codec = _ZSTD if len(data) + len(values.different) >= _LEAST_PACKED else _UNCOMPRESSED
        if values.different_count:
            dictionary_at = start
            about = _ints((1, values.different_count), (2, PLAIN))
            plain += self._page(values.different, codec, DICTIONARY_PAGE, 7, about)
        data_at = self._at
        about = _ints((1, rows), (2, values.encoding), (3, RLE), (4, RLE))
        plain += self._page(data, codec, DATA_PAGE, 5, about)
        return _Chunk(self._at - start, plain, codec, values.encoding, data_at, dictionary_at)

    def _page(self, data: bytes, codec: int, kind: int, key: int, about: bytes) -> int:
        """Write a page whose header has `about` as field `key`; return its size before packing."""
        packed = self._packer.compress(data) if codec == _ZSTD else data
        sizes = _ints((1, kind), (2, len(data)), (3, len(packed)))
        head = sizes + _field(key - 3, STRUCT) + about + b"\0\0"
        self._put(head)
        self._put(packed)
        return len(head) + len(data)

    def _put(self, data: bytes) -> None:
        self._at += self._file.write(data)


class _Levels:
    """The definition levels of a group of rows: a bit for each that has a value."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._every = _sized(_run(rows, 1))
        self.none = _sized(_run(rows, 0))
        self._packed: dict[int, tuple[Ints, bytes]] = {}

    def of(self, rows: Ints | None) -> bytes:
        """Return the levels for values in these rows; the columns of an event share them."""
        if rows is None or len(rows) == self._rows:
            return self._every
        if id(rows) not in self._packed:
            present = np.zeros(self._rows, np.bool_)
            present[rows] = True
            bits = np.packbits(present, bitorder="little").tobytes()
            # The array is kept beside them, or another one could get its id.
            self._packed[id(rows)] = rows, _sized(_varint(len(bits) << 1 | 1) + bits)
        return self._packed[id(rows)][1]


def _encoded(values: Numbers | Texts, physical: int) -> _Values:
    if isinstance(values, Texts):
        return _encoded_texts(values)
    if physical == _BOOLEAN:
        return _Values(np.packbits(values != 0, bitorder="little").tobytes(), PLAIN)
    return _encoded_numbers(values.astype(np.int32) if values.dtype.itemsize < 4 else values)


def _encoded_texts(texts: Texts) -> _Values:
    if not len(texts.which):
        return _NOTHING
    which, used = _numbered(texts.which, len(texts.different))
    different = [text.encode() for text in texts.different.gather(used).to_list()]
    page = b"".join(len(text).to_bytes(4, "little") + text for text in different)
    return _Values(_indices(which, len(used)), RLE_DICTIONARY, page, len(used))


def _encoded_numbers(values: Numbers) -> _Values:
    """Number the different values if they are close to each other, else write all of them."""
    if not len(values):
        return _NOTHING
    least, span = values.min(), int(values.max()) - int(values.min()) + 1
    if span <= min(_WIDEST_RANGE, 4 * len(values)):
        which, used = _numbered((values - least).astype(np.uint16), span)
        page = (used.astype(values.dtype) + least).tobytes()
        return _Values(_indices(which, len(used)), RLE_DICTIONARY, page, len(used))
    parts = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    return _Values(parts.T.tobytes(), BYTE_STREAM_SPLIT)


def _numbered(which: Numbers, count: int) -> tuple[Numbers, Ints]:
    """Number anew the indices that occur of 0 to `count`; return them and the old numbers."""
    met = np.zeros(count, np.bool_)
    met[which] = True
    used = np.flatnonzero(met)
    numbers = np.zeros(count, _index_type(len(used)))
    numbers[used] = np.arange(len(used))
    return numbers[which], used


def _index_type(different: int) -> type[np.unsignedinteger]:
    return np.uint8 if different <= 1 << 8 else np.uint16 if different <= 1 << 16 else np.uint32


def _indices(which: Numbers, different: int) -> bytes:
    """Encode indices as one run: the width in bits, and values that are packed as they are."""
    if different == 1:
        return b"\x08" + _run(len(which), 0)
    groups = -(-len(which) // 8)
    filled = b"\0" * ((groups * 8 - len(which)) * which.itemsize)
    return bytes([8 * which.itemsize]) + _varint(groups << 1 | 1) + which.tobytes() + filled


def _run(length: int, value: int) -> bytes:
    """Encode one value of at most 8 bits, repeated."""
    return _varint(length << 1) + bytes([value])


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _number(number: int) -> bytes:
    return _varint(number << 1)  # zigzag of a number that is not negative


def _field(step: int, kind: int) -> bytes:
    """The head of a field of a struct, `step` after the field before it."""
    return bytes([step << 4 | kind])


def _ints(*fields: tuple[int, int], kind: int = I32) -> bytes:
    """The fields of a struct that are numbers."""
    out, last = b"", 0
    for key, number in fields:
        out += _field(key - last, kind) + _number(number)
        last = key
    return out


def _text(text: str) -> bytes:
    return _varint(len(text.encode())) + text.encode()


def _list(kind: int, items: list[bytes]) -> bytes:
    size = len(items)
    head = bytes([size << 4 | kind]) if size < 15 else bytes([0xF0 | kind]) + _varint(size)
    return head + b"".join(items)


def _footer(schema: Mapping[str, pl.DataType], groups: list[tuple[int, list[_Chunk]]]) -> bytes:
    """FileMetaData: version, schema, rows, groups of rows, writer."""
    root = _field(4, BINARY) + _text("root") + _field(1, I32) + _number(len(schema)) + b"\0"
    elements = [root, *(_element(name, kind) for name, kind in schema.items())]
    rows = sum(count for count, _ in groups)
    return (
        _ints((1, 1))
        + (_field(1, LIST) + _list(STRUCT, elements))
        + (_field(1, I64) + _number(rows))
        + (_field(1, LIST) + _list(STRUCT, [_group(schema, *group) for group in groups]))
        + (_field(2, BINARY) + _text("numalab"))
        + b"\0"
    )


def _element(name: str, kind: pl.DataType) -> bytes:
    physical, converted = _TYPES[kind]
    element = _ints((1, physical), (3, _OPTIONAL)) + _field(1, BINARY) + _text(name)
    return element + (b"" if converted is None else _field(2, I32) + _number(converted)) + b"\0"


def _group(schema: Mapping[str, pl.DataType], rows: int, chunks: list[_Chunk]) -> bytes:
    columns = [
        _chunk(name, _TYPES[kind][0], rows, chunk)
        for (name, kind), chunk in zip(schema.items(), chunks, strict=True)
    ]
    size = sum(chunk.plain for chunk in chunks)
    return _field(1, LIST) + _list(STRUCT, columns) + _ints((1, size), (2, rows), kind=I64) + b"\0"


def _chunk(name: str, physical: int, rows: int, chunk: _Chunk) -> bytes:
    """ColumnChunk, with its ColumnMetaData."""
    encodings = sorted({PLAIN, RLE, chunk.encoding})
    sizes = [(5, rows), (6, chunk.plain), (7, chunk.packed), (9, chunk.data_at)]
    start = chunk.data_at
    if chunk.dictionary_at is not None:
        sizes.append((11, chunk.dictionary_at))
        start = chunk.dictionary_at
    meta = (
        _ints((1, physical))
        + (_field(1, LIST) + _list(I32, [_number(code) for code in encodings]))
        + (_field(1, LIST) + _list(BINARY, [_text(name)]))
        + (_field(1, I32) + _number(chunk.codec))
        + _ints(*((key - 4, number) for key, number in sizes), kind=I64)
        + b"\0"
    )
    return _ints((2, start), kind=I64) + _field(1, STRUCT) + meta + b"\0"


_NOTHING = _Values(b"", PLAIN)
