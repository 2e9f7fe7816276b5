"""Reads Parquet files of untrusted origin within bounds that are checked before polars opens them.

Rows of equal values take almost no space in a file, and its footer may claim anything. So the
headers of all pages are read first (parquet.thrift, apache/parquet-format 2.10), and a file with
other types, encodings or codecs than those of our tables is refused.
"""

import mmap
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from numalab.errors import explain_panic
from numalab.files import open_regular, utf8_path

MOST_BYTES: Final = 512 << 20  # of the columns that are read, in memory
MOST_ROWS: Final = 1 << 26
MOST_COLUMNS = 8192
_MAGIC = b"PAR1"
_FOOTER_BYTES = 8 << 20
_PAGE_BYTES = 64 << 20
_PAGES = 1 << 20
_CHUNKS = 1 << 17  # a column of a row group each
_DEEPEST = 16

# Kinds of values in the compact protocol of Thrift (apache/thrift, thrift-compact-protocol.md).
I16, I32, I64, BINARY = 4, 5, 6, 8
LIST, SET, STRUCT = 9, 10, 12
_TEXT_TYPE = 6
# Bytes of a value in memory by physical type: BOOLEAN, INT32, INT64, FLOAT, DOUBLE, BYTE_ARRAY.
# Texts are views of 16 bytes beside their bytes.
_IN_MEMORY = {0: 1, 1: 4, 2: 8, 4: 4, 5: 8, _TEXT_TYPE: 16}
# Least bytes of a value in a page of distinct values; a text has a length of four bytes.
_IN_DICTIONARY = {1: 4, 2: 8, 4: 4, 5: 8, _TEXT_TYPE: 4}
_CODECS = (0, 6, 7)  # none, zstd, LZ4_RAW
# Types of pages, and encodings (apache/parquet-format 2.10, parquet.thrift).
DATA_PAGE, DICTIONARY_PAGE = 0, 2
PLAIN, _DICTIONARY, RLE, RLE_DICTIONARY, BYTE_STREAM_SPLIT = 0, 2, 3, 8, 9
_DATA_ENCODINGS = (PLAIN, _DICTIONARY, RLE, RLE_DICTIONARY, BYTE_STREAM_SPLIT)

_Spec = Mapping[int, Any]  # by field: None for a number or bytes, else the fields of a struct
_ELEMENT: _Spec = {1: None, 3: None, 4: None, 5: None}
_META: _Spec = {1: None, 4: None, 5: None, 7: None, 9: None, 11: None}
_PAGE_HEADER: _Spec = {1: None, 2: None, 3: None, 5: {1: None, 2: None}, 7: {1: None, 2: None}}


@dataclass(frozen=True)
class TableSize:
    """How many rows a table has, and how many bytes of memory each column takes at most."""

    rows: int
    columns: Mapping[str, int]

    def of(self, names: Collection[str] | None) -> int:
        """Return the bytes of these columns, None for all."""
        return sum(size for name, size in self.columns.items() if names is None or name in names)


def read_parquet(path: Path, most: int = MOST_BYTES, most_rows: int = MOST_ROWS) -> pl.DataFrame:
    """Read a table of at most so many bytes of memory and rows.

    Raises ValueError for a larger one and for what is no table of ours, and OSError or PolarsError.
    """
    return collect(scan_parquet(path, most=most, most_rows=most_rows))


def scan_parquet(
    path: Path,
    columns: Collection[str] | None = None,
    most: int = MOST_BYTES,
    most_rows: int = MOST_ROWS,
) -> pl.LazyFrame:
    """Scan columns of a table, None for all, of at most so many bytes of memory and rows.

    A column that the table lacks is left out. Raises what `read_parquet` raises.
    """
    size = table_size(path)
    if size.rows > most_rows:
        raise ValueError(f"{size.rows} rows, and at most {most_rows} are read")
    if size.of(columns) > most:
        raise ValueError(f"values of {size.of(columns)} bytes, and at most {most} are read")
    table = pl.scan_parquet(utf8_path(path), glob=False)
    for name, kind in table.collect_schema().items():
        if not (kind.is_integer() or kind.is_float() or kind in (pl.Boolean, pl.String, pl.Null)):
            raise ValueError(f"a column {name[:80]!r} of type {str(kind)[:80]}")
    return table if columns is None else table.select(n for n in size.columns if n in columns)


def collect(table: pl.LazyFrame) -> pl.DataFrame:
    """Read the values of scanned tables. Raises ValueError where a damaged page stops polars.

    Some damage is a panic of polars, whose text on standard error is not for people.
    """
    try:
        with _quiet_errors():
            return table.collect()
    except pl.exceptions.PanicException as panic:  # no Exception
        if no_thread := explain_panic(panic):
            raise no_thread from None
        raise ValueError("its pages are damaged") from None


@contextmanager
def _quiet_errors() -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def table_size(path: Path) -> TableSize:
    """Return the size of a table in memory, without reading its values.

    Raises ValueError for a file with other contents than polars writes for our tables, or OSError.
    """
    with open_regular(path, follow=False) as file:
        if file.seek(0, 2) < 12:
            raise ValueError("no Parquet file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _FileCheck(data).run()


@dataclass
class _Thrift:
    """Reads the compact protocol of Thrift from `at` up to `end`; ValueError for damage."""

    data: mmap.mmap
    at: int
    end: int

    def byte(self) -> int:
        if self.at >= self.end:
            raise ValueError("its headers are cut short")
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("a number without end in its headers")

    def number(self) -> int:
        number = self.varint()
        return (number >> 1) ^ -(number & 1)

    def move(self, size: int) -> None:
        if size > self.end - self.at:
            raise ValueError("its headers are cut short")
        self.at += size

    def bytes(self) -> bytes:
        size = self.varint()
        self.move(size)
        return self.data[self.at - size : self.at]

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and kind of each field of a struct, whose value is to be read then."""
        key, keys = 0, set[int]()
        while head := self.byte():
            key = key + (head >> 4) if head >> 4 else self.number()
            if key in keys:
                raise ValueError("a field twice in its headers")
            keys.add(key)
            yield key, head & 15

    def items(self, kind: int) -> Iterator[int]:
        """Yield the kind of each item of a list, which is to be read then."""
        if kind not in (LIST, SET):
            raise ValueError("no list where its headers have one")
        head = self.byte()
        count = self.varint() if head >> 4 == 15 else head >> 4
        for _ in range(count):
            yield head & 15

    def struct(self, spec: _Spec, kind: int = STRUCT) -> dict[int, Any]:
        """Read the fields of `spec`, and skip the others."""
        if kind != STRUCT:
            raise ValueError("no struct where its headers have one")
        values: dict[int, Any] = {}
        for key, value_kind in self.fields():
            if key not in spec:
                self.skip(value_kind)
            elif spec[key] is not None:
                values[key] = self.struct(spec[key], value_kind)
            elif value_kind in (I16, I32, I64):
                values[key] = self.number()
            elif value_kind == BINARY:
                values[key] = self.bytes()
            else:
                raise ValueError("a field of another type in its headers")
        return values

    def skip(self, kind: int, depth: int = 0, *, listed: bool = False) -> None:
        if depth > _DEEPEST:
            raise ValueError("headers in each other without end")
        match kind:
            case 1 | 2:  # true and false: in a struct the kind is the value
                self.move(listed)
            case 3:
                self.move(1)
            case 4 | 5 | 6:
                self.varint()
            case 7:
                self.move(8)
            case 8:
                self.move(self.varint())
            case 9 | 10:
                for inner in self.items(kind):
                    self.skip(inner, depth + 1, listed=True)
            case 12:
                for _, inner in self.fields():
                    self.skip(inner, depth + 1)
            case _:
                raise ValueError("a field of no known type in its headers")


@dataclass(frozen=True)
class _Leaf:
    """A column: its name and physical type."""

    name: str
    type: int


@dataclass
class _FileCheck:
    """One file that is checked."""

    data: mmap.mmap
    leaves: list[_Leaf] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    pages: int = 0
    chunks: int = 0
    packed: int = 0

    def run(self) -> TableSize:
        """Check the footer and all pages; return the table's size."""
        data, size = self.data, len(self.data)
        footer = int.from_bytes(data[size - 8 : size - 4], "little")
        if data[:4] != _MAGIC or data[size - 4 :] != _MAGIC or footer > size - 12:
            raise ValueError("no Parquet file")
        if footer > _FOOTER_BYTES:
            raise ValueError(f"a footer of {footer} bytes, and at most {_FOOTER_BYTES} are read")
        reader = _Thrift(data, size - 8 - footer, size - 8)
        rows, grouped = None, 0
        for key, kind in reader.fields():
            if key == 2:
                self._schema([reader.struct(_ELEMENT, item) for item in reader.items(kind)])
            elif key == 3 and kind == I64:
                rows = reader.number()
            elif key == 4:
                grouped = sum(self._row_group(reader) for _ in reader.items(kind))
            else:
                reader.skip(kind)
        if rows != grouped:
            raise ValueError(f"{rows} rows, and {grouped} in its row groups")
        names = (leaf.name for leaf in self.leaves)
        return TableSize(grouped, dict(zip(names, self.sizes, strict=True)))

    def _schema(self, elements: list[dict[int, Any]]) -> None:
        if not 1 <= len(elements) <= MOST_COLUMNS + 1:
            raise ValueError(f"{len(elements)} columns, and at most {MOST_COLUMNS} are read")
        root, *leaves = elements
        if root.get(5) != len(leaves) or any(
            leaf.get(5) or leaf.get(3) not in (0, 1) or leaf.get(1) not in _IN_MEMORY
            for leaf in leaves
        ):
            raise ValueError("columns in each other, or of a type that no table of ours has")
        names = [bytes(leaf.get(4, b"")).decode("utf-8") for leaf in leaves]
        if len(set(names)) < len(names):
            raise ValueError("two columns of one name")
        self.leaves = [_Leaf(name, leaf[1]) for name, leaf in zip(names, leaves, strict=True)]
        self.sizes = [0] * len(leaves)

    def _row_group(self, reader: _Thrift) -> int:
        """Check a row group; return its rows."""
        columns: list[dict[int, Any]] = []
        rows = -1
        for key, kind in reader.fields():
            if key == 1:
                for item in reader.items(kind):
                    columns.append(reader.struct({3: _META}, item).get(3, {}))
                    self.chunks += 1
                    if self.chunks > _CHUNKS or len(columns) > len(self.leaves):
                        raise ValueError("more columns and row groups than are read")
            elif key == 3 and kind == I64:
                rows = reader.number()
            else:
                reader.skip(kind)
        if rows < 0 or len(columns) != len(self.leaves):
            raise ValueError("a row group without its rows or columns")
        for place, (leaf, meta) in enumerate(zip(self.leaves, columns, strict=True)):
            self.sizes[place] += rows * _IN_MEMORY[leaf.type] + self._chunk(leaf, meta, rows)
        return rows

    def _chunk(self, leaf: _Leaf, meta: dict[int, Any], rows: int) -> int:
        """Check a column's pages in a row group; return the bytes of its texts."""
        if meta.get(1) != leaf.type or meta.get(4) not in _CODECS or meta.get(5) != rows:
            raise ValueError(f"column {leaf.name[:80]!r} is of another type, codec or length")
        start, size = meta.get(9, -1), meta.get(7, -1)
        if 11 in meta:
            start, first_data = meta[11], start
            if not start < first_data:
                raise ValueError(f"pages of column {leaf.name[:80]!r} in no order")
        end = start + size
        self.packed += size
        if start < len(_MAGIC) or size < 0 or max(end, self.packed) > len(self.data):
            raise ValueError(f"pages of column {leaf.name[:80]!r} that are not in the file")
        reader, values, plain = _Thrift(self.data, start, end), 0, 0
        while reader.at < end:
            self.pages += 1
            if self.pages > _PAGES:
                raise ValueError(f"more than {_PAGES} pages")
            is_first = reader.at == start
            header = reader.struct(_PAGE_HEADER)
            values += _page_values(leaf, header, is_first=is_first and 11 in meta)
            plain += header[2]
            if values > rows:
                break
            reader.move(header[3])
        if values != rows:
            raise ValueError(f"pages of column {leaf.name[:80]!r} with more or fewer rows")
        return plain if leaf.type == _TEXT_TYPE else 0


def _page_values(leaf: _Leaf, header: dict[int, Any], *, is_first: bool) -> int:
    """Check the header of a page; return how many rows it has."""
    plain, packed = header.get(2, -1), header.get(3, -1)
    if not 0 <= plain <= _PAGE_BYTES or packed < 0:
        raise ValueError(f"a page of {plain} bytes, and at most {_PAGE_BYTES} are read")
    if is_first and header.get(1) == DICTIONARY_PAGE:
        about = header.get(7, {})
        least = _IN_DICTIONARY.get(leaf.type, plain + 1)
        if about.get(2) in (PLAIN, _DICTIONARY) and 0 <= about.get(1, -1) * least <= plain:
            return 0
    elif not is_first and header.get(1) == DATA_PAGE:
        about = header.get(5, {})
        if about.get(2) in _DATA_ENCODINGS and (values := about.get(1, -1)) >= 0:
            return int(values)
    raise ValueError(f"a page of column {leaf.name[:80]!r} as no table of ours has")
