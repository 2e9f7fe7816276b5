"""Works out the machine that a topology file describes, and says which rules it breaks."""

from collections.abc import Callable, Sequence
from typing import Any

from numalab.cpulist import parse_cpulist
from numalab.topology.broken_rule import RuleBroken, check_by_hop, check_remote
from numalab.topology.file_format import CpuTable, TopologyFile
from numalab.topology.graph import (
    Link,
    Matrix,
    diameter,
    distances_by_hop,
    distances_by_weight,
    hops,
    shortest_paths,
)
from numalab.topology.limits import LOCAL_DISTANCE, MAX_APIC_ID, MAX_CPUS, MAX_DISTANCE
from numalab.topology.memory.model import check_memory
from numalab.topology.model import CpuShape, Interconnect, Node, Topology


def build_topology(name: str, document: TopologyFile) -> Topology:
    """Work out the machine that a document describes. Raises the first RuleBroken."""
    nodes = _nodes(document)
    distances, links = _distances(document)
    topology = Topology(
        name=name,
        summary=document.summary,
        source=document.source,
        nodes=nodes,
        distances=distances,
        cpu_shape=_cpu_shape([node.cpus for node in nodes], document.cpu),
        llc=document.cpu.llc,
        interconnects=_interconnects(document),
        shape=document.shape,
        drawn_links=links,
        memory=document.memory,
    )
    check_memory(topology)
    return topology


def broken_rules(document: TopologyFile) -> tuple[RuleBroken, ...]:
    """Return every rule between keys that a document breaks, one for each part of the file."""
    parts: tuple[Callable[[], object], ...] = (
        lambda: _memory(document),
        lambda: _cpus(document),
        lambda: _cpu_shape(_cpus(document), document.cpu),
        lambda: _check_not_empty(_cpus(document), _memory(document)),
        lambda: _distances(document),
        lambda: _interconnects(document),
        lambda: build_topology("", document),
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
    shape = _packaged(nodes, table)
    cpus = sum(map(len, nodes))
    last = (shape or CpuShape(cpus, 1, 1, 1)).apic_id(cpus - 1)
    if last > MAX_APIC_ID:
        raise RuleBroken(
            "cpus",
            f"the last of {cpus} CPUs so packaged has APIC id {last}; a guest without interrupt "
            f"remapping ends at {MAX_APIC_ID}",
        )
    return shape


def _packaged(nodes: Sequence[Sequence[int]], table: CpuTable) -> CpuShape | None:
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


def _distances(document: TopologyFile) -> tuple[Matrix, tuple[Link, ...]]:
    """Return the SLIT, and the links to draw."""
    given = [key for key in ("shape", "links", "matrix") if getattr(document, key) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise RuleBroken("shape", f"give exactly one of shape, links and matrix, found {found}")
    if document.distances is not None and document.links is None:
        raise RuleBroken("distances", "this key goes with links; a shape has its own distances")
    if document.shape is not None:
        return document.shape.matrix(document.nodes), document.shape.links(document.nodes)
    if document.links is not None:
        return _from_links(document.nodes, document.links, document.distances)
    assert document.matrix is not None
    return _checked_matrix(document.nodes, document.matrix), ()


def _from_links(
    nodes: int, links: tuple[tuple[int, ...], ...], by_hop: tuple[int, ...] | None
) -> tuple[Matrix, tuple[Link, ...]]:
    pairs: list[Link] = []
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
        return _by_weight(nodes, links), tuple(pairs)
    counts = hops(nodes, pairs)
    check_by_hop("distances", by_hop, diameter(counts))
    return distances_by_hop(counts, by_hop), tuple(pairs)


def _by_weight(nodes: int, links: tuple[tuple[int, ...], ...]) -> Matrix:
    """Add up the distances of links. Raises RuleBroken for a path that no SLIT can hold."""
    above = [(a, b, distance - LOCAL_DISTANCE) for a, b, distance in links]
    lengths = shortest_paths(nodes, above)
    for a, row in enumerate(lengths):
        for b, length in enumerate(row):
            if length is not None and LOCAL_DISTANCE + length > MAX_DISTANCE:
                raise RuleBroken(
                    "links",
                    f"from node {a} to node {b} the links add up to a distance of "
                    f"{LOCAL_DISTANCE + length}; a SLIT ends at {MAX_DISTANCE}",
                )
    return distances_by_weight(lengths)


def _checked_matrix(nodes: int, matrix: Matrix) -> Matrix:
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
        for other, distance in enumerate(row):
            if other != number:
                check_remote(f"matrix[{number}][{other}]", distance)
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
