"""Writes a topology as a file that reads back as the same machine."""

import json
from collections.abc import Sequence

from lab.cpulist import format_cpulist
from lab.topology.model import LOCAL_DISTANCE, MAX_DISTANCE, UNREACHABLE, Topology
from lab.topology.shapes import group_links, hops


def render_topology_file(topology: Topology) -> str:
    """Render a topology file: its shape or links where they give the same table, else the table."""
    lines = [f"summary = {_string(topology.summary)}"]
    if topology.source:
        lines.append(f"source = {_string(topology.source)}")
    lines += ["", f"nodes = {len(topology.nodes)}", f"cpus = {_cpus(topology)}"]
    lines.append(f"memory_mib = {_same_or_list([node.memory_mib for node in topology.nodes])}")
    lines += _distances(topology)
    lines += _cpu_table(topology)
    for each in topology.interconnects:
        lines += ["", "[[interconnects]]"]
        lines += [f"{key} = {value}" for key, value in vars(each).items() if value is not None]
    return "\n".join(lines) + "\n"


def _string(text: str) -> str:
    """Write a TOML basic string; JSON's escapes are TOML's, but DEL must be escaped as well."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _cpus(topology: Topology) -> str:
    """Write CPU counts where nodes hold CPUs in order, else CPU lists."""
    start = 0
    for node in topology.nodes:
        if node.cpus != tuple(range(start, start + len(node.cpus))):
            return json.dumps([format_cpulist(node.cpus) for node in topology.nodes])
        start += len(node.cpus)
    return _same_or_list([len(node.cpus) for node in topology.nodes])


def _same_or_list(values: Sequence[int]) -> str:
    return str(values[0]) if len(set(values)) == 1 else json.dumps(list(values))


def _distances(topology: Topology) -> list[str]:
    kind = topology.layout.get("kind")
    if kind:
        extra = [
            f"{key} = {json.dumps(value)}"
            for key, value in topology.layout.items()
            if key != "kind"
        ]
        by_hop = _by_hop(topology, _links_with_backplane(topology))
        return ["", "[shape]", f'kind = "{kind}"', *extra, f"distances = {json.dumps(by_hop)}"]
    if topology.drawn_links:
        return _links(topology)
    rows = [f"    {json.dumps(list(row))}," for row in topology.distances]
    return ["", "matrix = [", *rows, "]"]


def _links_with_backplane(topology: Topology) -> list[list[int | None]]:
    count = len(topology.nodes)
    groups = topology.layout.get("groups")
    if groups is None:
        return hops(count, topology.drawn_links)
    inside = hops(count, group_links(count, groups))
    return [[2 if hop is None else hop for hop in row] for row in inside]


def _by_hop(topology: Topology, counts: list[list[int | None]]) -> list[int]:
    found = {
        hop: topology.distances[a][b]
        for a, row in enumerate(counts)
        for b, hop in enumerate(row)
        if hop is not None
    }
    by_hop = [found[0]]
    for hop in range(1, max(found) + 1):
        # No pair is this far apart in a backplane whose groups are single nodes.
        by_hop.append(found.get(hop, by_hop[-1]))
    return by_hop


def _links(topology: Topology) -> list[str]:
    """Write links by hop where that gives the table, else with the distance of each link."""
    counts = hops(len(topology.nodes), topology.drawn_links)
    by_hop = _by_hop(topology, counts)
    table = tuple(
        tuple(UNREACHABLE if hop is None else by_hop[hop] for hop in row) for row in counts
    )
    if table == topology.distances and by_hop == sorted(by_hop):
        pairs = [list(link) for link in topology.drawn_links]
        return ["", f"links = {json.dumps(pairs)}", f"distances = {json.dumps(by_hop)}"]
    weighted = [
        [a, b, min(max(topology.distances[a][b], LOCAL_DISTANCE + 1), MAX_DISTANCE)]
        for a, b in topology.drawn_links
    ]
    return ["", f"links = {json.dumps(weighted)}"]


def _cpu_table(topology: Topology) -> list[str]:
    """Write `[cpu]` where it is not what a reader would work out by itself."""
    keys = []
    shape = topology.cpu_shape
    holders = [node for node in topology.nodes if node.cpus]
    if shape is not None:
        size = len(holders[0].cpus)
        blocks = all(
            node.cpus == tuple(range(place * size, (place + 1) * size))
            for place, node in enumerate(holders)
        )
        if shape.sockets != len(holders) or not blocks:
            keys.append(f"sockets = {shape.sockets}")
        if shape.dies != 1:
            keys.append(f"dies = {shape.dies}")
        if shape.threads != 1:
            keys.append(f"threads = {shape.threads}")
    if topology.llc != "die":
        keys.append(f'llc = "{topology.llc}"')
    return ["", "[cpu]", *keys] if keys else []
