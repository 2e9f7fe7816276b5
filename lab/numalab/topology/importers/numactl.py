"""Imports what `numactl -H` (or `--hardware`) printed, in the spacing of any version."""

import re
from collections.abc import Iterator
from pathlib import Path

from numalab.cpulist import parse_cpulist
from numalab.errors import UserError
from numalab.topology.importers.common import FoundNode, Imported, imported_topology

_CPUS = re.compile(r"node (\d{1,4}) cpus:(.*)")
_SIZE = re.compile(r"node (\d{1,4}) size: (\d{1,12}) MB")
_HEADER = re.compile(r"node((?:\s+\d{1,4})+)$")
_ROW = re.compile(r"(\d{1,4}):((?:\s+\d{1,4})+)$")
_MORE = re.compile(r"[\d\s,-]*\d[\d\s,-]*")  # what a wrapped line goes on with
_GOES_ON = re.compile(r"node \d{1,4} cpus:|node\s+\d|\d{1,4}:")


def parse_numactl(text: str, *, name: str, source: str, file: Path | str) -> Imported:
    """Read the output of `numactl -H`.

    Takes CPUs as numbers or ranges, lines that were wrapped between two numbers, nodes without CPUs
    or memory, and node numbers with gaps. Raises UserError, with the line where there is one, for
    anything that is not such output.
    """
    cpus: dict[int, tuple[int, ...]] = {}
    memory: dict[int, int] = {}
    columns: list[int] | None = None
    rows: dict[int, list[int]] = {}
    for number, line in _unwrapped(text):
        if found := _CPUS.match(line):
            cpus[int(found[1])] = _cpu_numbers(found[2], number, file)
        elif found := _SIZE.match(line):
            memory[int(found[1])] = int(found[2])
        elif found := _HEADER.match(line):
            columns = [int(word) for word in found[1].split()]
        elif columns is not None and (found := _ROW.match(line)):
            rows[int(found[1])] = [int(word) for word in found[2].split()]
    if not cpus:
        raise UserError("this is not the output of numactl -H: no line `node N cpus:`", file=file)
    nodes = sorted(cpus)
    if missing := [node for node in nodes if node not in memory]:
        raise UserError(f"no line `node {missing[0]} size: N MB`", file=file)
    table = _table(nodes, columns, rows, file)
    found_nodes = [FoundNode(node, cpus[node], memory[node]) for node in nodes]
    return imported_topology(found_nodes, table, name=name, source=source, file=file)


def _unwrapped(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers; one of numbers alone belongs to the line before it."""
    before: tuple[int, str] | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if before is not None and _MORE.fullmatch(line) and _GOES_ON.match(before[1]):
            before = (before[0], f"{before[1]} {line}")
            continue
        if before is not None:
            yield before
        before = (number, line)
    if before is not None:
        yield before


def _cpu_numbers(text: str, line: int, file: Path | str) -> tuple[int, ...]:
    try:
        return parse_cpulist(",".join(text.replace(",", " ").split()))
    except ValueError as error:
        raise UserError(str(error), file=file, key=f"line {line}") from None


def _table(
    nodes: list[int], columns: list[int] | None, rows: dict[int, list[int]], file: Path | str
) -> list[list[int]]:
    """Put the rows of the distance table in the order of `nodes`."""
    if columns is None or not rows:
        if len(nodes) == 1:
            return [[10]]
        raise UserError("there is no table of node distances", file=file)
    for node in nodes:
        if node not in columns or node not in rows:
            raise UserError(f"the table of node distances lacks node {node}", file=file)
        if len(rows[node]) != len(columns):
            raise UserError(
                f"{len(rows[node])} distances for {len(columns)} nodes",
                file=file,
                key=f"row of node {node}",
            )
    place = {node: columns.index(node) for node in nodes}
    return [[rows[a][place[b]] for b in nodes] for a in nodes]
