"""Writes Parquet files by hand: footers and pages that polars would not write."""

import struct
from dataclasses import dataclass, field
from typing import Any

import zstandard

I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
TEXT, INT64 = 6, 2


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def zigzag(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def struct_of(fields: dict[int, tuple[int, Any]]) -> bytes:
    """Write a struct of Thrift's compact protocol; values by field: kind and value."""
    out, last = b"", 0
    for key, (kind, value) in sorted(fields.items()):
        out += bytes([(key - last) << 4 | kind]) if key - last < 16 else bytes([kind]) + zigzag(key)
        out += value_of(kind, value)
        last = key
    return out + b"\0"


def value_of(kind: int, value: Any) -> bytes:
    match kind:
        case 5 | 6:
            return zigzag(value)
        case 8:
            return varint(len(value)) + bytes(value)
        case 9:
            inner, items = value
            head = bytes([15 << 4 | inner]) + varint(len(items))
            return head + b"".join(value_of(inner, item) for item in items)
    assert isinstance(value, bytes)
    return value


@dataclass
class Page:
    """A page: its bytes as packed, and what its header claims."""

    data: bytes
    plain: int
    values: int
    dictionary: bool = False
    encoding: int = 0

    def packed(self) -> bytes:
        about = {1: (I32, self.values), 2: (I32, self.encoding)}
        if not self.dictionary:
            about |= {3: (I32, 3), 4: (I32, 3)}
        header = {
            1: (I32, 2 if self.dictionary else 0),
            2: (I32, self.plain),
            3: (I32, len(self.data)),
            7 if self.dictionary else 5: (STRUCT, struct_of(about)),
        }
        return struct_of(header) + self.data


@dataclass
class Column:
    """A column: its pages; `values` of the footer where they are to differ from the rows."""

    name: str
    pages: list[Page]
    type: int = INT64
    codec: int = 6
    values: int | None = None
    repetition: int = 0


@dataclass
class File:
    """A file with one row group, written as often as `groups` says."""

    columns: list[Column]
    rows: int
    groups: int = 1
    rows_of_file: int | None = None
    keys: dict[bytes, bytes] = field(default_factory=dict)

    def write(self) -> bytes:
        out = b"PAR1"
        elements = [struct_of({4: (BINARY, b"root"), 5: (I32, len(self.columns))})]
        metas = []
        for column in self.columns:
            name = column.name.encode()
            leaf = {1: (I32, column.type), 3: (I32, column.repetition), 4: (BINARY, name)}
            if column.type == TEXT:
                leaf[6] = (I32, 0)
            elements.append(struct_of(leaf))
            start, places = len(out), []
            for page in column.pages:
                places.append(len(out))
                out += page.packed()
            plain = sum(page.plain for page in column.pages)
            meta = {
                1: (I32, column.type),
                2: (LIST, (I32, [0, 3, 8])),
                3: (LIST, (BINARY, [name])),
                4: (I32, column.codec),
                5: (I64, self.rows if column.values is None else column.values),
                6: (I64, plain),
                7: (I64, len(out) - start),
                9: (I64, places[-1] if places else start),
            }
            if column.pages and column.pages[0].dictionary:
                meta[9], meta[11] = (I64, places[1]), (I64, places[0])
            metas.append(struct_of({2: (I64, start), 3: (STRUCT, struct_of(meta))}))
        total = self.rows * self.groups
        group = struct_of({1: (LIST, (STRUCT, metas)), 2: (I64, 0), 3: (I64, self.rows)})
        footer = {
            1: (I32, 1),
            2: (LIST, (STRUCT, elements)),
            3: (I64, total if self.rows_of_file is None else self.rows_of_file),
            4: (LIST, (STRUCT, [group] * self.groups)),
        }
        if self.keys:
            pairs = [struct_of({1: (BINARY, k), 2: (BINARY, v)}) for k, v in self.keys.items()]
            footer[5] = (LIST, (STRUCT, pairs))
        end = struct_of(footer)
        return out + end + struct.pack("<I", len(end)) + b"PAR1"


def zstd(data: bytes) -> bytes:
    return zstandard.compress(data, 3)


def numbers(rows: int, value: int = 0) -> list[Page]:
    """Pages of a dictionary of one number and `rows` references to it."""
    word = struct.pack("<q", value)
    runs = b"\0" + varint(rows << 1)  # of no bits: RLE, `rows` times the first entry
    return [
        Page(zstd(word), 8, 1, dictionary=True),
        Page(zstd(runs), len(runs), rows, encoding=8),
    ]


def texts(rows: int, text: bytes) -> list[Page]:
    """The same of one text."""
    word = struct.pack("<I", len(text)) + text
    runs = b"\0" + varint(rows << 1)
    return [
        Page(zstd(word), len(word), 1, dictionary=True),
        Page(zstd(runs), len(runs), rows, encoding=8),
    ]
