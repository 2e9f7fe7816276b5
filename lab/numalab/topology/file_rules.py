"""Works out the machine that a topology file describes, and the rules it breaks."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any

from numalab.cpulist import parse_cpu_order
from numalab.topology.distances import (
    Link,
    Matrix,
    diameter,
    distances_by_hop,
    distances_by_weight,
    hops,
    shortest_paths,
)
from numalab.topology.file_format import CpuTable, TopologyFile
from numalab.topology.limits import (
    LOCAL_DISTANCE,
    MAX_APIC_ID,
    MAX_CPUS,
    MAX_DISTANCE,
    RuleBroken,
    broken_by_hop,
    broken_memory,
    broken_remote,
    refuse,
)
from numalab.topology.memory.timing import check_memory, unmodelled_bandwidths
from numalab.topology.topology import LARGEST_IN_HMAT, CpuShape, Interconnect, Node, Topology
from numalab.units import counted


def build_topology(name: str, document: TopologyFile) -> Topology:
    """Work out the machine of a document. Raises RuleBroken for the first broken part."""
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
        published=document.published,
    )
    check_memory(topology)
    _check_published(document)
    if document.published is not None and "bandwidth" in document.published.figures:
        place = document.published.figures.index("bandwidth")
        refuse(
            RuleBroken(f"published.figures[{place}]", f"not modelled in timed mode: {text}")
            for text in unmodelled_bandwidths(topology)
        )
    return topology


def broken_rules(document: TopologyFile, unread: Set[str] = frozenset()) -> tuple[RuleBroken, ...]:
    """Return every rule between keys that a document breaks.

    Rules about the keys in `unread`, whose values could not be read, are left out.
    """
    machine = ("nodes", "cpus", "memory_mib", "cpu", "shape", "links", "matrix", "distances")
    parts: tuple[tuple[tuple[str, ...], Callable[[], object]], ...] = (
        (("nodes", "memory_mib"), lambda: _memory(document)),
        (("nodes", "cpus"), lambda: _cpus(document)),
        (("nodes", "cpus", "cpu"), lambda: _cpu_shape(_cpus(document), document.cpu)),
        (
            ("nodes", "cpus", "memory_mib"),
            lambda: refuse(broken_memory(_cpus(document), _memory(document))),
        ),
        (machine[4:], lambda: _check_forms(document)),
        (("nodes", *machine[4:]), lambda: _distances(document)),
        (("nodes", "interconnects"), lambda: _interconnects(document)),
        ((*machine[:4], "memory"), lambda: _check_memory(document, unread)),
        (("source", "published", "memory", "interconnects"), lambda: _check_published(document)),
        ((*machine, "interconnects", "memory"), lambda: build_topology("", document)),
    )
    rules: dict[str, RuleBroken] = {}
    for keys, part in parts:
        if unread.isdisjoint(keys):
            try:
                part()
            except RuleBroken as broken:
                for rule in (broken, *broken.more):
                    rules.setdefault(str(rule), rule)
    return tuple(rules.values())


def _check_published(document: TopologyFile) -> None:
    """Check that published figures have a source and are in the file."""
    if document.published is None:
        return
    if not document.source:
        raise RuleBroken("source", "published figures need a source: a URL, a paper, a mail")
    memory, interconnects = document.memory, document.interconnects
    figures = {
        "distances": True,
        "latency": memory.latency_ns is not None
        or any(access.latency_ns is not None for access in interconnects),
        "bandwidth": memory.bandwidth_mb_s is not None
        or any(access.bandwidth_kib_s is not None for access in interconnects),
    }
    refuse(
        RuleBroken(
            f"published.figures[{place}]",
            f"the file gives no {figure}; write it in [memory] or [[interconnects]]",
        )
        for place, figure in enumerate(document.published.figures)
        if not figures[figure]
    )


def _check_memory(document: TopologyFile, unread: Set[str]) -> None:
    """Check the rules of `[memory]`; those about distances only where these have no errors."""
    nodes = _nodes(document)
    shape = _cpu_shape([node.cpus for node in nodes], document.cpu)
    has_distances = unread.isdisjoint(("shape", "links", "matrix", "distances", "interconnects"))
    distances: Matrix = ()
    interconnects: tuple[Interconnect, ...] = ()
    try:
        if has_distances:
            distances, interconnects = _distances(document)[0], _interconnects(document)
    except RuleBroken:  # reported with another part
        has_distances = False
    topology = Topology(
        name="", summary="", source="", nodes=nodes, distances=distances, cpu_shape=shape,
        llc=document.cpu.llc, interconnects=interconnects, memory=document.memory,
    )  # fmt: skip
    check_memory(topology, known_distances=has_distances)


def _nodes(document: TopologyFile) -> tuple[Node, ...]:
    memory, cpus = _memory(document), _cpus(document)
    refuse(broken_memory(cpus, memory))
    return tuple(
        Node(number, held, mib) for number, (held, mib) in enumerate(zip(cpus, memory, strict=True))
    )


def _memory(document: TopologyFile) -> Sequence[int]:
    memory: Sequence[int] = _for_each_node("memory_mib", document.memory_mib, document.nodes)
    if sum(memory) == 0:
        raise RuleBroken("memory_mib", "no node has memory")
    return memory


def _cpus(document: TopologyFile) -> list[tuple[int, ...]]:
    values = _for_each_node("cpus", document.cpus, document.nodes)
    cpus: list[tuple[int, ...]] = []
    broken: list[RuleBroken] = []
    for number, value in enumerate(values):
        if isinstance(value, str):
            try:
                listed = parse_cpu_order(value)
                cpus.append(tuple(sorted(set(listed))))
                broken += _listed_twice(f"cpus[{number}]", listed)
            except ValueError as error:
                broken.append(RuleBroken(f"cpus[{number}]", str(error)))
        else:
            first = sum(len(held) for held in cpus)
            cpus.append(tuple(range(first, first + value)))
    refuse(broken)
    counts = Counter(sorted(cpu for held in cpus for cpu in held))
    if not counts:
        raise RuleBroken("cpus", "no node has a CPU")
    if counts.total() > MAX_CPUS:
        raise RuleBroken("cpus", f"{counts.total()} CPUs in all; at most {MAX_CPUS} are possible")
    refuse(
        RuleBroken("cpus", f"CPU {cpu} {problem}; CPUs are numbered from 0 without gaps")
        for cpu, count in counts.items()
        for wrong, problem in (
            (cpu > 0 and cpu - 1 not in counts, "comes after a gap"),
            (count > 1, "is in two nodes"),
        )
        if wrong
    )
    return cpus


def _listed_twice(key: str, cpus: Sequence[int]) -> Iterator[RuleBroken]:
    for cpu, count in Counter(cpus).items():
        if count > 1:
            yield RuleBroken(key, f"CPU {cpu} is listed twice")


def _for_each_node(key: str, value: Any, nodes: int) -> Sequence[Any]:
    if not isinstance(value, tuple):
        return [value] * nodes
    if len(value) != nodes:
        raise RuleBroken(
            key,
            f"{counted(len(value), 'value')} for {counted(nodes, 'node')}; give one for each, or "
            "one number",
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
    per_socket = sockets * table.dies * table.threads
    if cpus % per_socket:
        raise RuleBroken(
            "cpu",
            f"{counted(cpus, 'CPU')} do not divide into {counted(sockets, 'socket')} x "
            f"{counted(table.dies, 'die')} x {counted(table.threads, 'thread')}",
        )
    return CpuShape(sockets, table.dies, cpus // per_socket, table.threads)


def _distances(document: TopologyFile) -> tuple[Matrix, tuple[Link, ...]]:
    """Return the SLIT, and the links to draw."""
    _check_forms(document)
    if document.shape is not None:
        # A plug-in may yield its links.
        return document.shape.matrix(document.nodes), tuple(document.shape.links(document.nodes))
    if document.links is not None:
        return _from_links(document.nodes, document.links, document.distances)
    assert document.matrix is not None
    refuse(_broken_matrix(document.nodes, document.matrix))
    return document.matrix, ()


def _check_forms(document: TopologyFile) -> None:
    """Check that the file has one form of the distances, and no key of another form."""
    broken = []
    forms = [key for key in ("shape", "links", "matrix") if getattr(document, key) is not None]
    if len(forms) != 1:
        listed = " and ".join(forms) or "none of them"
        message = f"give exactly one of shape, links and matrix, found {listed}"
        broken.append(RuleBroken("shape", message))
    if document.distances is not None and document.links is None:
        message = "this key goes with links; a shape and a matrix have their own distances"
        broken.append(RuleBroken("distances", message))
    refuse(broken)


def _from_links(
    nodes: int, links: tuple[tuple[int, ...], ...], by_hop: tuple[int, ...] | None
) -> tuple[Matrix, tuple[Link, ...]]:
    refuse(_broken_links(nodes, links, by_hop))
    pairs = [(min(link[:2]), max(link[:2])) for link in links]
    if by_hop is None:
        return _by_weight(nodes, links), tuple(pairs)
    counts = hops(nodes, pairs)
    refuse(broken_by_hop("distances", by_hop, diameter(counts)))
    return distances_by_hop(counts, by_hop), tuple(pairs)


def _broken_links(
    nodes: int, links: tuple[tuple[int, ...], ...], by_hop: tuple[int, ...] | None
) -> Iterator[RuleBroken]:
    pairs: set[Link] = set()
    for place, link in enumerate(links):
        key = f"links[{place}]"
        a, b = sorted(link[:2])
        if b >= nodes:
            yield RuleBroken(key, f"there is no node {b}; nodes are 0 to {nodes - 1}")
        if a == b:
            yield RuleBroken(key, f"node {a} is linked to itself")
        if (a, b) in pairs:
            yield RuleBroken(key, f"nodes {a} and {b} are linked twice")
        if (len(link) == 3) == (by_hop is not None):
            wrong = "has a distance, and the key distances" if by_hop else "has no distance"
            yield RuleBroken(key, f"{wrong}; give one distance for each link, or by hop")
        if len(link) == 3 and link[2] <= LOCAL_DISTANCE:
            yield RuleBroken(key, f"the distance of a link is above 10, found {link[2]}")
        pairs.add((a, b))


def _by_weight(nodes: int, links: tuple[tuple[int, ...], ...]) -> Matrix:
    """Add up the distances of links. Raises RuleBroken for a path that no SLIT can hold."""
    above = [(a, b, distance - LOCAL_DISTANCE) for a, b, distance in links]
    lengths = shortest_paths(nodes, above)
    refuse(
        RuleBroken(
            "links",
            f"from node {a} to node {b} the links add up to a distance of "
            f"{LOCAL_DISTANCE + length}; a SLIT ends at {MAX_DISTANCE}",
        )
        for a, row in enumerate(lengths)
        for b, length in enumerate(row)
        if a < b and length is not None and LOCAL_DISTANCE + length > MAX_DISTANCE
    )
    return distances_by_weight(lengths)


def _broken_matrix(nodes: int, matrix: Matrix) -> Iterator[RuleBroken]:
    if len(matrix) != nodes:
        yield RuleBroken("matrix", f"{counted(len(matrix), 'row')} for {counted(nodes, 'node')}")
    for number, row in enumerate(matrix):
        if len(row) != nodes:
            yield RuleBroken(
                f"matrix[{number}]",
                f"{counted(len(row), 'distance')} for {counted(nodes, 'node')}",
            )
        for column, distance in enumerate(row):
            key = f"matrix[{number}][{column}]"
            if column != number:
                yield from broken_remote(key, distance)
            elif distance != LOCAL_DISTANCE:
                yield RuleBroken(key, f"a node's distance to itself is always 10, found {distance}")


def _interconnects(document: TopologyFile) -> tuple[Interconnect, ...]:
    refuse(_broken_interconnects(document))
    return tuple(
        Interconnect(link.initiator, link.target, link.latency_ns, link.bandwidth_kib_s)
        for link in document.interconnects
    )


def _broken_interconnects(document: TopologyFile) -> Iterator[RuleBroken]:
    try:
        cpuless = {node for node, held in enumerate(_cpus(document)) if not held}
    except RuleBroken:  # reported with another part
        cpuless = set()
    ways: set[tuple[int, int]] = set()
    for place, link in enumerate(document.interconnects):
        key = f"interconnects[{place}]"
        way = (link.initiator, link.target)
        for end, node in zip(("initiator", "target"), way, strict=True):
            if node >= document.nodes:
                yield RuleBroken(f"{key}.{end}", f"there is no node {node}")
        if link.initiator in cpuless:
            yield RuleBroken(
                f"{key}.initiator", f"node {link.initiator} has no CPUs that could make an access"
            )
        if link.latency_ns is None and link.bandwidth_kib_s is None:
            yield RuleBroken(key, "give latency_ns, bandwidth_kib_s or both")
        if way in ways:
            yield RuleBroken(key, f"node {link.initiator} to {link.target} is given twice")
        # virDomainNumaDefValidate() in libvirt: "Link already defined".
        if way[0] != way[1] and (way[1], way[0]) in ways:
            yield RuleBroken(
                key,
                f"the way from node {way[1]} to node {way[0]} is given already, and libvirt takes "
                "a pair of nodes in one direction only",
            )
        ways.add(way)
    yield from _broken_hmat(document)


def _broken_hmat(document: TopologyFile) -> Iterator[RuleBroken]:
    """Check that the values fit into the HMAT: 16 bits, times a unit that all of a kind share.

    For latencies that is a power of ten (`parse_numa_hmat_lb()`, QEMU 7.2, hw/core/numa.c).
    """
    for key in ("latency_ns", "bandwidth_kib_s"):
        values = {
            place: value
            for place, link in enumerate(document.interconnects)
            if (value := getattr(link, key)) is not None
        }
        if not values:
            continue
        largest = max(values, key=lambda place: values[place])
        unit = 1
        if key == "bandwidth_kib_s":  # which are rounded
            unit = min(values.values())
        while key == "latency_ns" and not any(ns % (10 * unit) for ns in values.values()):
            unit *= 10
        if values[largest] > LARGEST_IN_HMAT * unit:
            yield RuleBroken(
                f"interconnects[{largest}].{key}",
                f"{values[largest]} beside {min(values.values())} is out of the range of the HMAT,"
                f" whose values are at most {LARGEST_IN_HMAT} times a unit that all share",
            )
