"""Writes a topology as a file that reads back as the same machine."""

import json
from collections.abc import Sequence

from numalab.cpulist import format_cpulist
from numalab.topology.distances import distances_by_hop, hops
from numalab.topology.topology import Topology


def render_topology_file(topology: Topology) -> str:
    """Render a topology file: its shape or links where they give the same table, else the table."""
    lines = [f"summary = {_string(topology.summary)}"]
    if topology.source:
        lines.append(f"source = {_string(topology.source)}")
    lines += ["", f"nodes = {len(topology.nodes)}", f"cpus = {_cpus(topology)}"]
    lines.append(f"memory_mib = {_same_or_list([node.memory_mib for node in topology.nodes])}")
    lines += _distances(topology)
    lines += _cpu_table(topology)
    lines += _memory_table(topology)
    for access in topology.interconnects:
        lines += ["", "[[interconnects]]"]
        lines += [f"{key} = {value}" for key, value in vars(access).items() if value is not None]
    return "\n".join(lines) + "\n"


def _memory_table(topology: Topology) -> list[str]:
    keys = [
        f"{key} = {json.dumps(value)}"
        for key, value in vars(topology.memory).items()
        if value not in (None, False)
    ]
    return ["", "[memory]", *keys] if keys else []


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
    if topology.shape is not None:
        keys = topology.shape.model_dump(mode="json", exclude_defaults=True)
        return ["", "[shape]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    if topology.drawn_links:
        return _links(topology)
    rows = [f"    {json.dumps(list(row))}," for row in topology.distances]
    return ["", "matrix = [", *rows, "]"]


def _by_hop(topology: Topology, counts: list[list[int | None]]) -> list[int]:
    distances = {
        hop: topology.distances[a][b]
        for a, row in enumerate(counts)
        for b, hop in enumerate(row)
        if hop is not None
    }
    return [distances[hop] for hop in range(max(distances) + 1)]


def _links(topology: Topology) -> list[str]:
    """Write links by hop where that gives the table, else with the distance of each link."""
    counts = hops(len(topology.nodes), topology.drawn_links)
    by_hop = _by_hop(topology, counts)
    table = distances_by_hop(counts, by_hop)
    if table == topology.distances and by_hop == sorted(by_hop):
        pairs = [list(link) for link in topology.drawn_links]
        return ["", f"links = {json.dumps(pairs)}", f"distances = {json.dumps(by_hop)}"]
    weighted = [[a, b, topology.distances[a][b]] for a, b in topology.drawn_links]
    return ["", f"links = {json.dumps(weighted)}"]


def _cpu_table(topology: Topology) -> list[str]:
    """Write `[cpu]` where it is not what a reader would work out by itself."""
    keys = []
    shape = topology.cpu_shape
    holders = [node for node in topology.nodes if node.cpus]
    size = len(holders[0].cpus)
    blocks = all(
        node.cpus == tuple(range(place * size, (place + 1) * size))
        for place, node in enumerate(holders)
    )
    if shape is None and blocks and size > 1:
        keys.append(f"sockets = {topology.cpu_count}")
    if shape is not None:
        if shape.sockets != len(holders) or not blocks:
            keys.append(f"sockets = {shape.sockets}")
        if shape.dies != 1:
            keys.append(f"dies = {shape.dies}")
        if shape.threads != 1:
            keys.append(f"threads = {shape.threads}")
    if topology.llc != "die":
        keys.append(f'llc = "{topology.llc}"')
    return ["", "[cpu]", *keys] if keys else []
