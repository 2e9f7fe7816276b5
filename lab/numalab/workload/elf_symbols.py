"""Variables and functions of a program or library, from the bytes of its ELF file (elf(5)).

Nothing is executed. A file may hold anything: what does not fit the format is left out.
"""

import re
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

_DAMAGED = (struct.error, ValueError, OverflowError)  # the last for an offset beyond 63 bits
_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER, _SECTION, _SEGMENT, _SYMBOL = 64, 64, 56, 24
_LOAD, _SYMTAB, _DYNSYM = 1, 2, 11
_OBJECT, _FUNCTION = 1, 2
_MOST_SYMBOLS, _MOST_HEADERS, _LONGEST = 2_000_000, 10_000, 400


@dataclass(frozen=True)
class ElfSegment:
    """A part of the file that is mapped (PT_LOAD)."""

    offset: int
    vaddr: int
    file_size: int
    memory_size: int


@dataclass(frozen=True)
class ElfSymbol:
    """A variable or function: where it begins (without the load bias), and how long it is."""

    vaddr: int
    size: int
    name: str


@dataclass(frozen=True)
class ElfFile:
    """The segments, and the variables in order of their address."""

    segments: tuple[ElfSegment, ...]
    variables: tuple[ElfSymbol, ...]

    def bias(self, mappings: Iterable[tuple[int, int]]) -> int | None:
        """Return the load bias that most mappings (start, offset) of the file have in common.

        A page of the file may be mapped for two segments; None for mappings of no segment.
        """
        counts: Counter[int] = Counter()
        for start, offset in mappings:
            counts.update(
                {
                    start - (segment.vaddr + offset - segment.offset)
                    for segment in self.segments
                    if segment.offset & -4096 <= offset < segment.offset + segment.file_size
                }
            )
        return max(counts, key=lambda bias: (counts[bias], bias), default=None)

    @property
    def ends(self) -> tuple[int, int]:
        """Return where the first segment begins and the last one ends, in whole pages."""
        first = min((segment.vaddr for segment in self.segments), default=0)
        last = max((part.vaddr + part.memory_size for part in self.segments), default=0)
        return first & -4096, -(-last // 4096) * 4096

    def variables_within(self, start: int, end: int) -> Iterator[ElfSymbol]:
        """Yield the variables that lie in a range at least in part."""
        place = bisect_right(self.variables, start, key=lambda symbol: symbol.vaddr)
        # One that begins before may reach into the range; a few may overlap (aliases).
        for symbol in self.variables[max(0, place - 8) : place]:
            if symbol.vaddr + symbol.size > start:
                yield symbol
        for symbol in self.variables[place:]:
            if symbol.vaddr >= end:
                return
            yield symbol


def read_elf(data: bytes) -> ElfFile | None:
    """Return the segments and variables of a file; None if it is no ELF file of x86-64."""
    if data[:6] != _MAGIC:
        return None
    try:
        segments = tuple(_segments(data))
        chosen = {
            (symbol.vaddr, symbol.size): symbol
            for kind, symbol in _symbols(data)
            if kind == _OBJECT and symbol.size
        }
    except _DAMAGED:
        return None
    return ElfFile(segments, tuple(sorted(chosen.values(), key=lambda symbol: symbol.vaddr)))


def code_of(data: bytes, names: Collection[str], size: int) -> dict[str, tuple[int, bytes]]:
    """Return where functions begin, and their first bytes, at most `size`; without absent ones."""
    if data[:6] != _MAGIC:
        return {}
    functions: dict[str, tuple[int, bytes]] = {}
    try:
        segments = tuple(_segments(data))
        for kind, symbol in _symbols(data):
            if kind != _FUNCTION or symbol.name not in names:
                continue
            for part in segments:
                if part.vaddr <= symbol.vaddr < part.vaddr + part.file_size:
                    start = symbol.vaddr - part.vaddr + part.offset
                    length = min(size, symbol.size or size)
                    functions.setdefault(symbol.name, (symbol.vaddr, data[start : start + length]))
    except _DAMAGED:
        return {}
    return functions


def symbols_of(data: bytes, names: Collection[str]) -> dict[str, ElfSymbol]:
    """Return functions and variables by their names, the first of each; without absent ones."""
    if data[:6] != _MAGIC:
        return {}
    symbols: dict[str, ElfSymbol] = {}
    try:
        for _, symbol in _symbols(data):
            if symbol.name in names:
                symbols.setdefault(symbol.name, symbol)
    except _DAMAGED:
        return {}
    return symbols


def functions_of(data: bytes) -> list[ElfSymbol]:
    """Return all functions with code, in the order of the file; several may have one name."""
    if data[:6] != _MAGIC:
        return []
    try:
        functions = [symbol for kind, symbol in _symbols(data) if kind == _FUNCTION and symbol.size]
    except _DAMAGED:
        return []
    return list(dict.fromkeys(functions))


def _segments(data: bytes) -> Iterator[ElfSegment]:
    (start,) = struct.unpack_from("<Q", data, 32)
    (count,) = struct.unpack_from("<H", data, 56)
    for place in range(min(count, _MOST_HEADERS)):
        kind, _, offset, vaddr, _, file_size, memory_size = struct.unpack_from(
            "<IIQQQQQ", data, start + place * _SEGMENT
        )
        if kind == _LOAD:
            yield ElfSegment(offset, vaddr, file_size, memory_size)


def _symbols(data: bytes) -> Iterator[tuple[int, ElfSymbol]]:
    """Yield the kind and symbol of both tables, first the full one."""
    (start,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    sections = [
        struct.unpack_from("<IIQQQQII", data, start + place * _SECTION)
        for place in range(min(count, _MOST_HEADERS))
    ]
    for wanted in (_SYMTAB, _DYNSYM):
        for _, kind, _, _, offset, size, link, _ in sections:
            if kind != wanted or link >= len(sections):
                continue
            strings = sections[link][4]
            length = min(size, len(data) - offset, _MOST_SYMBOLS * _SYMBOL) // _SYMBOL * _SYMBOL
            if length > 0:
                table = data[offset : offset + length]
                for name, info, _, section, value, extent in struct.iter_unpack("<IBBHQQ", table):
                    if name and section and info & 15 in (_OBJECT, _FUNCTION):
                        yield info & 15, ElfSymbol(value, extent, _text(data, strings + name))


def _text(data: bytes, start: int) -> str:
    end = data.find(b"\0", start, start + _LONGEST)
    text = data[start : end if end >= 0 else start + _LONGEST]
    return plain_name(text.decode("utf-8", "backslashreplace").partition("@")[0])


def plain_name(name: str) -> str:
    """Return a variable of C++ or Rust as its source has it, such as `pool::counters`.

    Names with templates or arguments stay as they are (Itanium C++ ABI, 5.1: `<nested-name>` and
    `<source-name>`). Rust adds a hash, which is left out.
    """
    match = re.fullmatch(r"_Z(?:N(\w+)E|L?(\d\w+))", name, re.ASCII)
    if match is None:
        return name
    rest, parts = match[1] or match[2], list[str]()
    while part := re.match(r"L?(\d{1,3})", rest):
        length = int(part[1])
        parts.append(rest[part.end() : part.end() + length])
        if len(parts[-1]) != length:
            return name
        rest = rest[part.end() + length :]
    if rest or not all(parts):
        return name
    if len(parts) > 1 and re.fullmatch(r"h[0-9a-f]{16}", parts[-1]):
        parts.pop()
    return "::".join(parts).replace("_GLOBAL__N_1", "(anonymous)")
