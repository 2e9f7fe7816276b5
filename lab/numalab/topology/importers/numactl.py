"""Imports the output of `numactl -H` (or `--hardware`), in the spacing of any version."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from numalab.cpulist import parse_ascending
from numalab.errors import UserError
from numalab.topology.importers.imported import (
    SOURCES,
    Imported,
    ImportedNode,
    Location,
    imported_topology,
)
from numalab.units import counted

# hardware() and print_distances() of numactl 2.0.16 print these lines, in this order.
_AVAILABLE = re.compile(r"available: ([0-9]{1,4}) nodes?(?: \(([0-9,-]*)\))?")
_CPUS = re.compile(r"node ([0-9]{1,4}) cpus:(.*)")
_SIZE = re.compile(r"node ([0-9]{1,4}) (size|free): *(.*)")
_MEGABYTES = re.compile(r"([0-9]{1,12}) MB")
_TITLE = re.compile(r"node distances:")
_NO_TABLE = re.compile(r"No distance information available\.")
_HEADER = re.compile(r"node((?:[ \t]+[0-9]{1,4})+)")
_ROW = re.compile(r"([0-9]{1,4}):(.*)")
_MORE = re.compile(r"[0-9][0-9 \t,-]*")  # the rest of a wrapped line
_WRAPS = re.compile(r"node [0-9]{1,4} cpus:|node[ \t]+[0-9]|[0-9]{1,4}:")
_BLANK = " \t\r"  # not the blanks of Unicode: a kernel prints none
_WORD = re.compile(r"[^ \t,]+")
_DISTANCE = re.compile(r"[0-9]{1,4}")
MAX_LINE = 1 << 16  # characters; 8192 CPUs need 40,000


class _Part(IntEnum):
    """The parts of the output, in their order."""

    AVAILABLE = 1
    NODES = 2
    TITLE = 3
    HEADER = 4
    ROWS = 5


@dataclass
class _Line:
    """A line of the output, joined where it was wrapped.

    `breaks` are the places in `text` of line breaks without a blank, which may split a number.
    `first` and `last` are the numbers of its lines; `end` tells whether the last ends in a blank.
    """

    first: int
    last: int
    pieces: list[str]
    breaks: list[int] = field(default_factory=list)
    length: int = 0
    end: bool = False

    @property
    def text(self) -> str:
        return " ".join(self.pieces)

    def at(self, file: Path | str) -> Location:
        line = f"line {self.first}"
        return Location(file, line if self.last == self.first else f"{line} to {self.last}")


@dataclass
class _Output:
    """The values of the output, with their locations."""

    file: Path | str
    part: _Part = _Part.AVAILABLE
    cpus: dict[int, tuple[tuple[int, ...], Location]] = field(default_factory=dict)
    sizes: dict[tuple[str, int], tuple[int, Location]] = field(default_factory=dict)
    rows: dict[int, tuple[list[int], Location]] = field(default_factory=dict)
    available: tuple[int, tuple[int, ...] | None, Location] | None = None
    columns: tuple[list[int], Location] | None = None
    without_table: bool = False


def parse_numactl(text: str, *, name: str, source: str, file: Path | str) -> Imported:
    """Read the output of `numactl -H`.

    Accepts CPUs as numbers or ranges, lines wrapped between two numbers, nodes without CPUs or
    memory, and node numbers with gaps. Raises UserError, with the line, for any line that numactl
    does not print, and for contradictory lines.
    """
    output = _Output(file)
    last = None
    for last in _unwrapped(text, file):
        _read_line(output, last)
    if not output.cpus or last is None:
        reason = "this is not the output of numactl -H: no line `node N cpus:`"
        raise UserError(reason, file=file, choices=SOURCES)
    nodes = sorted(output.cpus)
    _check_nodes(output, nodes)
    table, rows_at = _table(output, nodes, last.at(file))
    described = []
    for node in nodes:
        cpus, cpus_at = output.cpus[node]
        memory, memory_at = output.sizes["size", node]
        described.append(ImportedNode(node, cpus, memory, cpus_at, memory_at))
    return imported_topology(described, table, name=name, source=source, file=file, rows_at=rows_at)


def _unwrapped(text: str, file: Path | str) -> Iterator[_Line]:
    """Yield the lines that are not empty; a line of numbers alone continues the line before it."""
    before: _Line | None = None
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip(_BLANK)
        if before and _MORE.fullmatch(line) and _WRAPS.match(before.pieces[0]):
            if not before.end and not raw.startswith((" ", "\t")):
                before.breaks.append(before.length)
            before.pieces.append(line)
            before.length += len(line) + 1
            before.last = number
        else:
            if before:
                yield before
            before = _Line(number, number, [line], length=len(line)) if line else None
        if before and before.length > MAX_LINE:
            raise before.at(file).error(f"longer than {MAX_LINE} characters")
        if before:
            before.end = raw.rstrip("\r").endswith((" ", "\t"))
    if before:
        yield before


def _read_line(output: _Output, line: _Line) -> None:
    text, at = line.text, line.at(output.file)
    if match := _AVAILABLE.fullmatch(text):
        _enter(output, _Part.AVAILABLE, text, at)
        if output.available:
            raise at.error(f"nodes are counted twice, first in {output.available[2]}")
        numbers = None if match[2] is None else at.parsed(parse_ascending, match[2])
        output.available = (int(match[1]), numbers, at)
    elif match := _CPUS.fullmatch(text):
        _enter(output, _Part.NODES, text, at)
        _once(f"node {int(match[1])}", output.cpus.get(int(match[1])), at)
        output.cpus[int(match[1])] = (_cpu_numbers(line, match.start(2), at), at)
    elif match := _SIZE.fullmatch(text):
        _enter(output, _Part.NODES, text, at)
        node, kind = int(match[1]), match[2]
        _once(f"the {kind} of node {node}", output.sizes.get((kind, node)), at)
        if kind == "size" or match[3] != "<not available>":
            output.sizes[kind, node] = (_megabytes(match[3], at), at)
    elif _TITLE.fullmatch(text):
        _enter(output, _Part.TITLE, text, at)
    elif _NO_TABLE.fullmatch(text):
        _enter(output, _Part.TITLE, text, at)
        output.without_table = True
    elif match := _HEADER.fullmatch(text):
        _enter(output, _Part.HEADER, text, at)
        _once("the table of node distances", output.columns, at)
        output.columns = ([int(word) for word in match[1].split()], at)
    elif match := _ROW.fullmatch(text):
        _enter(output, _Part.ROWS, text, at)
        _once(f"the row of node {int(match[1])}", output.rows.get(int(match[1])), at)
        output.rows[int(match[1])] = (_row(match[2], at), at)
    else:
        reason = f"numactl -H prints no such line: {text[:60]!r}"
        began = output.cpus or output.available
        raise at.error(reason, choices=() if began else SOURCES)


def _enter(output: _Output, part: _Part, text: str, at: Location) -> None:
    if part < output.part or part is output.part is _Part.TITLE:
        raise at.error(f"this line comes too late: {text[:60]!r}")
    if part is _Part.ROWS and output.columns is None:
        raise at.error("a row of the table of node distances, and no line `node 0 1 ...` before it")
    output.part = part


def _once(subject: str, before: tuple[object, Location] | None, at: Location) -> None:
    if before is not None:
        raise at.error(f"{subject} is given twice, first in {before[1]}")


def _cpu_numbers(line: _Line, start: int, at: Location) -> tuple[int, ...]:
    """Parse CPUs that ascend. Refuses a line break that may split a number."""
    words = list(_WORD.finditer(line.text, start))
    cpus = [at.parsed(parse_ascending, word[0]) for word in words]
    whole = at.parsed(parse_ascending, ",".join(word[0] for word in words))
    ends = {word.end(): place for place, word in enumerate(words)}
    for place in (ends[end] for end in line.breaks if end in ends):
        joined = words[place][0] + words[place + 1][0]
        try:
            new = parse_ascending(joined)
        except ValueError:
            continue
        after = place + 2 == len(words) or new[-1] < cpus[place + 2][0]
        if after and (place == 0 or cpus[place - 1][-1] < new[0]):
            raise at.error(
                f"a line break between {words[place][0]} and {words[place + 1][0]} may split "
                f"{joined}; write the CPUs of a node in one line"
            )
    return whole


def _megabytes(text: str, at: Location) -> int:
    match = _MEGABYTES.fullmatch(text)
    if match is None:
        raise at.error(f"not a size in MB: {text[:40]!r}")
    return int(match[1])


def _row(text: str, at: Location) -> list[int]:
    words = text.split()
    for word in words:
        if not _DISTANCE.fullmatch(word):
            raise at.error(f"not a distance: {word[:40]!r}; distances are 10 to 255")
    return [int(word) for word in words]


def _check_nodes(output: _Output, nodes: list[int]) -> None:
    """Check that each node has a size, and that the first line has the number of nodes."""
    for node in nodes:
        if ("size", node) not in output.sizes:
            raise output.cpus[node][1].error(f"no line `node {node} size: N MB`")
    for (kind, node), (size, at) in output.sizes.items():
        if node not in output.cpus:
            raise at.error(f"no line `node {node} cpus:`")
        if kind == "free" and size > output.sizes["size", node][0]:
            raise at.error(f"node {node} has {size} MB free, more than its size")
    if output.available is None:
        return
    count, numbers, at = output.available
    if count != len(nodes) or (numbers is not None and list(numbers) != nodes):
        raise at.error(
            f"{counted(count, 'node')} announced, {len(nodes)} described: "
            f"{', '.join(map(str, nodes[:64]))}"
        )


def _table(
    output: _Output, nodes: list[int], end: Location
) -> tuple[list[list[int]] | None, list[Location]]:
    """Return the rows of the distance table in the order of `nodes`, and their locations."""
    if output.columns is None:
        if len(nodes) == 1 or output.without_table:
            return None, []
        raise end.error("there is no table of node distances after this line")
    columns, at = output.columns
    if output.without_table:
        raise at.error("a table, after the line that there is none")
    if columns != nodes:
        described = ", ".join(map(str, nodes[:64]))
        raise at.error(f"the table of node distances is not of the nodes above: {described}")
    for node, (row, row_at) in output.rows.items():
        if node not in nodes:
            raise row_at.error(f"a row of node {node}, which is not described above")
        if len(row) != len(columns):
            distances = counted(len(row), "distance")
            raise row_at.error(f"row of node {node}: {distances} for {len(columns)} nodes")
    if missing := [node for node in nodes if node not in output.rows]:
        raise at.error(f"the table of node distances lacks the row of node {missing[0]}")
    return (
        [output.rows[node][0] for node in nodes],
        [output.rows[node][1] for node in nodes],
    )
