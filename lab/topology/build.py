"""Works out the machine that a topology file describes, and says which rules it breaks."""

from collections.abc import Callable, Sequence
from typing import Any

from lab.cpulist import parse_cpulist
from lab.topology import shapes
from lab.topology.file_format import CpuTable, ShapeTable, TopologyFile
from lab.topology.model import (
    LOCAL_DISTANCE,
    MAX_CPUS,
    CpuShape,
    Interconnect,
    Node,
    Topology,
)


class RuleBroken(ValueError):
    """A rule between keys that a document breaks: the key and what is wrong with it."""

    def __init__(self, key: str, message: str) -> None:
        self.key, self.message = key, message
        super().__init__(f"{key}: {message}")


def build_topology(name: str, document: TopologyFile) -> Topology:
    """Work out the machine that a document describes. Raises the first RuleBroken."""
    nodes = _nodes(document)
    distances, links, layout = _distances(document)
    return Topology(
        name=name,
        summary=document.summary,
        source=document.source,
        nodes=nodes,
        distances=distances,
        cpu_shape=_cpu_shape([node.cpus for node in nodes], document.cpu),
        llc=document.cpu.llc,
        interconnects=_interconnects(document),
        layout=layout,
        drawn_links=links,
    )


def broken_rules(document: TopologyFile) -> tuple[RuleBroken, ...]:
    """Return every rule between keys that a document breaks, one for each part of the file."""
    parts: tuple[Callable[[], object], ...] = (
        lambda: _memory(document),
        lambda: _cpus(document),
        lambda: _cpu_shape(_cpus(document), document.cpu),
        lambda: _check_not_empty(_cpus(document), _memory(document)),
        lambda: _distances(document),
        lambda: _interconnects(document),
    )
    found: dict[str, RuleBroken] = {}
    for part in parts:
        try:
            part()
        except RuleBroken as broken:
            found.setdefault(str(broken), broken)
    return tuple(found.values())


def _nodes(document: TopologyFile) -> tuple[Node, ...]:
    memory, cpus = _memory(document), _cpus(document)
    _check_not_empty(cpus, memory)
    return tuple(
        Node(number, held, mib) for number, (held, mib) in enumerate(zip(cpus, memory, strict=True))
    )


def _memory(document: TopologyFile) -> Sequence[int]:
    memory: Sequence[int] = _for_each_node("memory_mib", document.memory_mib, document.nodes)
    if sum(memory) == 0:
        raise RuleBroken("memory_mib", "no node has memory")
    return memory


def _check_not_empty(cpus: Sequence[Sequence[int]], memory: Sequence[int]) -> None:
    for number, (held, mib) in enumerate(zip(cpus, memory, strict=True)):
        if not held and mib == 0:
            raise RuleBroken(
                f"memory_mib[{number}]",
                f"node {number} has neither CPUs nor memory; no kernel would see it",
            )


def _cpus(document: TopologyFile) -> list[tuple[int, ...]]:
    given = _for_each_node("cpus", document.cpus, document.nodes)
    cpus: list[tuple[int, ...]] = []
    for number, value in enumerate(given):
        if isinstance(value, str):
            try:
                cpus.append(parse_cpulist(value))
            except ValueError as error:
                raise RuleBroken(f"cpus[{number}]", str(error)) from None
        else:
            first = sum(len(held) for held in cpus)
            cpus.append(tuple(range(first, first + value)))
    everyone = sorted(cpu for held in cpus for cpu in held)
    if not everyone:
        raise RuleBroken("cpus", "no node has a CPU")
    if len(everyone) > MAX_CPUS:
        raise RuleBroken("cpus", f"{len(everyone)} CPUs in all; at most {MAX_CPUS} are possible")
    for expected, cpu in enumerate(everyone):
        if cpu != expected:
            problem = "is in two nodes" if cpu < expected else "comes after a gap"
            raise RuleBroken("cpus", f"CPU {cpu} {problem}; CPUs are numbered from 0 without gaps")
    return cpus


def _for_each_node(key: str, value: Any, nodes: int) -> Sequence[Any]:
    if not isinstance(value, tuple):
        return [value] * nodes
    if len(value) != nodes:
        raise RuleBroken(
            key, f"{len(value)} values for {nodes} nodes; give one for each, or one number"
        )
    return value


def _cpu_shape(nodes: Sequence[Sequence[int]], table: CpuTable) -> CpuShape | None:
    cpus = sum(map(len, nodes))
    sockets = table.sockets
    if sockets is None:
        holders = [tuple(held) for held in nodes if held]
        size = len(holders[0])
        even = all(
            held == tuple(range(place * size, (place + 1) * size))
            for place, held in enumerate(holders)
        )
        if not even and (table.dies, table.threads) == (1, 1):
            return None
        sockets = len(holders)
    each = sockets * table.dies * table.threads
    if cpus % each:
        raise RuleBroken(
            "cpu",
            f"{cpus} CPUs do not divide into {sockets} sockets x {table.dies} dies x "
            f"{table.threads} threads",
        )
    return CpuShape(sockets, table.dies, cpus // each, table.threads)


def _distances(
    document: TopologyFile,
) -> tuple[shapes.Matrix, tuple[shapes.Link, ...], dict[str, Any]]:
    """Return the SLIT, the links to draw, and how to lay the drawing out."""
    given = [key for key in ("shape", "links", "matrix") if getattr(document, key) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise RuleBroken("shape", f"give exactly one of shape, links and matrix, found {found}")
    if document.distances is not None and document.links is None:
        raise RuleBroken("distances", "this key goes with links; a shape has its own distances")
    if document.shape is not None:
        return _from_shape(document.nodes, document.shape)
    if document.links is not None:
        return _from_links(document.nodes, document.links, document.distances)
    assert document.matrix is not None
    return _checked_matrix(document.nodes, document.matrix), (), {}


def _from_shape(
    nodes: int, shape: ShapeTable
) -> tuple[shapes.Matrix, tuple[shapes.Link, ...], dict[str, Any]]:
    for key, kinds in (
        ("rows", ("mesh", "torus")),
        ("columns", ("mesh", "torus")),
        ("wiring", ("mesh",)),
        ("groups", ("backplane",)),
    ):
        if getattr(shape, key) is not None and shape.kind not in kinds:
            raise RuleBroken(
                f"shape.{key}", f"a {shape.kind} has no {key}; this key is for {kinds[0]}"
            )
    layout: dict[str, Any] = {"kind": shape.kind}
    if shape.kind in ("mesh", "torus"):
        rows, columns = _grid(nodes, shape)
        layout |= {"rows": rows, "columns": columns}
        make = shapes.torus_links if shape.kind == "torus" else shapes.mesh_links
        if shape.wiring == "rows-and-columns":
            layout["wiring"] = shape.wiring
            make = shapes.row_column_links
        links = make(rows, columns)
    elif shape.kind == "backplane":
        groups = shape.groups or 2
        if nodes % groups:
            raise RuleBroken("shape.groups", f"{nodes} nodes do not divide into {groups} groups")
        layout["groups"] = groups
        links = shapes.group_links(nodes, groups)
    else:
        if shape.kind == "hypercube" and nodes.bit_count() != 1:
            raise RuleBroken("nodes", f"a hypercube has 2, 4, 8, 16, 32 or 64 nodes, found {nodes}")
        links = _SIMPLE[shape.kind](nodes)
    counts = shapes.hops(nodes, links)
    if shape.kind == "backplane":
        # The backplane is one hop more than a direct link, and is drawn as a bar, not as links.
        counts = [[2 if hop is None else hop for hop in row] for row in counts]
    _check_by_hop("shape.distances", shape.distances, shapes.diameter(counts))
    return shapes.distances_by_hop(counts, shape.distances), links, layout


_SIMPLE = {
    "ring": shapes.ring_links,
    "full": shapes.full_links,
    "line": shapes.line_links,
    "star": shapes.star_links,
    "hypercube": shapes.hypercube_links,
}


def _grid(nodes: int, shape: ShapeTable) -> tuple[int, int]:
    if shape.rows is None or shape.columns is None:
        missing = "rows" if shape.rows is None else "columns"
        raise RuleBroken(f"shape.{missing}", f"a {shape.kind} needs rows and columns")
    if shape.rows * shape.columns != nodes:
        raise RuleBroken("shape.rows", f"{shape.rows} x {shape.columns} is not {nodes} nodes")
    return shape.rows, shape.columns


def _from_links(
    nodes: int, links: tuple[tuple[int, ...], ...], by_hop: tuple[int, ...] | None
) -> tuple[shapes.Matrix, tuple[shapes.Link, ...], dict[str, Any]]:
    pairs: list[shapes.Link] = []
    for place, link in enumerate(links):
        a, b = sorted(link[:2])
        if b >= nodes:
            raise RuleBroken(f"links[{place}]", f"there is no node {b}; nodes are 0 to {nodes - 1}")
        if a == b:
            raise RuleBroken(f"links[{place}]", f"node {a} is linked to itself")
        if (a, b) in pairs:
            raise RuleBroken(f"links[{place}]", f"nodes {a} and {b} are linked twice")
        if (len(link) == 3) == (by_hop is not None):
            wrong = "has a distance, and the key distances" if by_hop else "has no distance"
            raise RuleBroken(
                f"links[{place}]", f"{wrong}; give one distance for each link, or by hop"
            )
        if len(link) == 3 and link[2] <= LOCAL_DISTANCE:
            raise RuleBroken(
                f"links[{place}]", f"the distance of a link is above 10, found {link[2]}"
            )
        pairs.append((a, b))
    if by_hop is None:
        lengths = shapes.shortest_paths(
            nodes, [(link[0], link[1], link[2] - LOCAL_DISTANCE) for link in links]
        )
        return shapes.distances_by_weight(lengths), tuple(pairs), {}
    counts = shapes.hops(nodes, pairs)
    _check_by_hop("distances", by_hop, shapes.diameter(counts))
    return shapes.distances_by_hop(counts, by_hop), tuple(pairs), {}


def _check_by_hop(key: str, by_hop: Sequence[int], diameter: int) -> None:
    if len(by_hop) != diameter + 1:
        raise RuleBroken(
            key,
            f"the machine is {diameter} hops wide, so {diameter + 1} distances are needed "
            f"(0 to {diameter} hops), found {len(by_hop)}",
        )
    if by_hop[0] != LOCAL_DISTANCE:
        raise RuleBroken(f"{key}[0]", f"the distance of 0 hops is always 10, found {by_hop[0]}")
    for hop in range(1, len(by_hop)):
        if by_hop[hop] < by_hop[hop - 1]:
            raise RuleBroken(
                f"{key}[{hop}]",
                f"distances do not shrink with hops, found {by_hop[hop]} after {by_hop[hop - 1]}",
            )


def _checked_matrix(nodes: int, matrix: shapes.Matrix) -> shapes.Matrix:
    if len(matrix) != nodes:
        raise RuleBroken("matrix", f"{len(matrix)} rows for {nodes} nodes")
    for number, row in enumerate(matrix):
        if len(row) != nodes:
            raise RuleBroken(f"matrix[{number}]", f"{len(row)} distances for {nodes} nodes")
        if row[number] != LOCAL_DISTANCE:
            raise RuleBroken(
                f"matrix[{number}][{number}]",
                f"a node's distance to itself is always 10, found {row[number]}",
            )
    return matrix


def _interconnects(document: TopologyFile) -> tuple[Interconnect, ...]:
    seen: set[tuple[int, int]] = set()
    for place, each in enumerate(document.interconnects):
        key = f"interconnects[{place}]"
        for end in ("initiator", "target"):
            if getattr(each, end) >= document.nodes:
                raise RuleBroken(f"{key}.{end}", f"there is no node {getattr(each, end)}")
        if not _cpus(document)[each.initiator]:
            raise RuleBroken(
                f"{key}.initiator", f"node {each.initiator} has no CPUs that could make an access"
            )
        if each.latency_ns is None and each.bandwidth_kib_s is None:
            raise RuleBroken(key, "give latency_ns, bandwidth_kib_s or both")
        if (each.initiator, each.target) in seen:
            raise RuleBroken(key, f"node {each.initiator} to {each.target} is given twice")
        # virDomainNumaDefValidate() in libvirt: "Link already defined".
        if each.initiator != each.target and (each.target, each.initiator) in seen:
            raise RuleBroken(
                key,
                f"the way from node {each.target} to node {each.initiator} is given already, and "
                "libvirt takes a pair of nodes in one direction only",
            )
        seen.add((each.initiator, each.target))
    return tuple(
        Interconnect(each.initiator, each.target, each.latency_ns, each.bandwidth_kib_s)
        for each in document.interconnects
    )
