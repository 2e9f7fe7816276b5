"""The page of one guest's memory accesses: threads by nodes, regions with their pages, lines."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from numalab.analysis.findings import TaskMemory
from numalab.locality.address_names import titled
from numalab.locality.locality import Locality, NodeAccesses
from numalab.locality.region_accesses import RegionAccesses, region_titles
from numalab.report.page.page import data_uri, render_template
from numalab.topology.predict.firmware import as_guest_numbers
from numalab.topology.topology import Topology
from numalab.topology.view.drawing import render_svg


@dataclass(frozen=True)
class NodeCell:
    """The lines fetched from or by a node, their share of the row, and whether they are local."""

    lines: float
    share: float
    local: bool


@dataclass(frozen=True)
class AccessRow:
    """A row of a table: what fetched or was fetched, its waiting time, and a cell for each node."""

    name: str
    stalled_ms: float
    queued_ms: float | None
    local_share: float | None
    cells: tuple[NodeCell, ...]


@dataclass(frozen=True)
class RegionRow:
    """A region: its row, the node of its pages as text, and its runs of pages."""

    row: AccessRow
    pages: str
    region: RegionAccesses


def render_locality(words: Sequence[str], machine: Topology, accesses: Locality) -> str:
    """Render the accesses of a command as one HTML page without scripts or requests.

    The picture has the node numbers of the guest, as the accesses do. All names may come from a
    guest, and are escaped.
    """
    machine = as_guest_numbers(machine)
    places = accesses.places
    values = {
        "command": shlex.join(words),
        "machine": machine.name,
        "picture": data_uri(render_svg(machine)),
        "window_ms": accesses.window_ms,
        "nodes": [node.id for node in machine.nodes],
        "threads": [_row(f"{task.name}/{task.pid}", task) for task in accesses.threads],
        "by_node": [_row(f"CPUs of node {row.node}", row) for row in accesses.nodes],
        "regions": [
            _region(f"{name}{process}", region)
            for region, (name, process) in zip(
                places.regions, region_titles(places.regions), strict=True
            )
        ],
        "more_regions": places.regions_in_all - len(places.regions),
        "contended": places.contended,
        "more_lines": places.lines_in_all - len(places.contended),
        "notes": accesses.notes,
        "titled": titled,
    }
    return render_template("locality.html", (), values)


def _row(name: str, of: TaskMemory | NodeAccesses) -> AccessRow:
    home = of.node if isinstance(of, NodeAccesses) else None
    return AccessRow(
        name, of.stalled_ms, of.queued_ms, _share(of.local, of.lines), _cells(of.lines, home)
    )


def _region(name: str, region: RegionAccesses) -> RegionRow:
    home = region.pages.index(max(region.pages)) if any(region.pages) else None
    row = AccessRow(
        name, region.stalled_ms, None,
        _share(region.local, region.lines), _cells(region.lines, home),
    )  # fmt: skip
    pages = ", ".join(f"{count} on node {node}" for node, count in enumerate(region.pages) if count)
    return RegionRow(row, pages, region)


def _cells(lines: Sequence[float], home: int | None) -> tuple[NodeCell, ...]:
    total = sum(lines) or 1.0
    return tuple(NodeCell(count, count / total, node == home) for node, count in enumerate(lines))


def _share(local: float, lines: Sequence[float]) -> float | None:
    total = sum(lines)
    return 100 * local / total if total else None
