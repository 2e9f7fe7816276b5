"""Writes a topology as a topology file, and for libvirt, QEMU, virtme-ng, numactl and Graphviz."""

import json
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations

from numalab.cpulist import format_cpulist
from numalab.errors import UserError
from numalab.topology.distances import (
    distances_by_hop,
    distances_by_weight,
    hops,
    shortest_paths,
)
from numalab.topology.file_format import MemoryTable
from numalab.topology.importers.packaging import pack
from numalab.topology.limits import LOCAL_DISTANCE
from numalab.topology.topology import (
    CpuShape,
    Interconnect,
    Node,
    Topology,
    describe_distance,
    describe_node,
    describe_shape,
    hmat_mib_s,
)

MIB_IN_KIB = 1024


def render_cpu_xml(topology: Topology) -> str:
    """Render a libvirt `<cpu>` element: packaging, cache and NUMA cells, on QEMU's `max` model."""
    cpu = ET.Element("cpu", mode="maximum", check="none")
    counts = {name: str(count) for name, count in vars(topology.packaging).items()}
    ET.SubElement(cpu, "topology", counts)
    if topology.llc == "none":
        ET.SubElement(cpu, "cache", mode="disable")
    cpu.append(numa_element(topology))
    ET.indent(cpu)
    return ET.tostring(cpu, encoding="unicode") + "\n"


def numa_element(topology: Topology, memory_mib: Sequence[int] = ()) -> ET.Element:
    """Return the `<numa>` element; `memory_mib` replaces the memory of each node.

    https://libvirt.org/formatdomain.html#cpu-model-and-topology
    """
    numa = ET.Element("numa")
    sizes = memory_mib or [node.memory_mib for node in topology.nodes]
    for node, size in zip(topology.nodes, sizes, strict=True):
        cpus = {"cpus": format_cpulist(node.cpus)} if node.cpus else {}
        cell = ET.SubElement(
            numa, "cell", {"id": str(node.id), **cpus, "memory": str(size)}, unit="MiB"
        )
        distances = ET.SubElement(cell, "distances")
        for other, distance in enumerate(topology.distances[node.id]):
            ET.SubElement(distances, "sibling", id=str(other), value=str(distance))
    if topology.interconnects:
        links = ET.SubElement(numa, "interconnects")
        for access, mib_s in _with_speeds(topology):
            ends = {"initiator": str(access.initiator), "target": str(access.target)}
            ends["type"] = "access"
            if access.latency_ns is not None:
                ET.SubElement(links, "latency", ends, value=str(access.latency_ns))
            if access.bandwidth_kib_s is not None:
                speed = str(mib_s * MIB_IN_KIB)
                ET.SubElement(links, "bandwidth", ends, value=speed, unit="KiB")
    return numa


def qemu_arguments(topology: Topology) -> list[list[str]]:
    """Return QEMU's arguments for this machine, one list for each line of a command.

    They have CPUs and memory only: add a kernel and devices. qemu-system-x86_64(1), `-numa`.
    """
    shape = topology.packaging
    hmat = ",hmat=on" if topology.interconnects else ""
    cache = "" if topology.llc == "die" else ",l3-cache=off"
    lines = [
        ["-machine", f"q35{hmat}"],
        ["-cpu", f"max{cache}"],
        ["-smp", f"{topology.cpu_count},{_counts(shape)}"],
        ["-m", f"{topology.memory_mib}M"],
    ]
    for node in topology.nodes:
        words = [f"node,nodeid={node.id}"]
        line = []
        if node.memory_mib:
            backend = f"memory-backend-memfd,id=mem{node.id},size={node.memory_mib}M"
            line = ["-object", backend]
            words.append(f"memdev=mem{node.id}")
        words += _cpu_ranges(node)
        if hmat:
            words.append(f"initiator={_initiator(topology, node.id)}")
        lines.append([*line, "-numa", ",".join(words)])
    lines += [["-numa", f"dist,src={a},dst={b},val={value}"] for a, b, value in _remote(topology)]
    return lines + [
        argument for access, mib_s in _with_speeds(topology) for argument in _hmat(access, mib_s)
    ]


def render_qemu(topology: Topology) -> str:
    """Render QEMU's command line for this machine, ready for a shell; see `qemu_arguments`."""
    return _command([["qemu-system-x86_64"], *qemu_arguments(topology)])


def _command(lines: Iterable[list[str]]) -> str:
    return " \\\n  ".join(shlex.join(line) for line in lines) + "\n"


def _cpu_ranges(node: Node) -> list[str]:
    return [f"cpus={part}" for part in format_cpulist(node.cpus).split(",") if part]


def _remote(topology: Topology) -> Iterator[tuple[int, int, int]]:
    for a, b in permutations(range(len(topology.nodes)), 2):
        yield a, b, topology.distances[a][b]


def _counts(shape: CpuShape) -> str:
    return ",".join(f"{name}={count}" for name, count in vars(shape).items())


def _initiator(topology: Topology, node: int) -> int:
    """Return the node with CPUs that is nearest to a node's memory, QEMU's `initiator`."""
    holders = [other.id for other in topology.nodes if other.cpus]
    return min(holders, key=lambda other: (topology.distances[other][node], other))


def _with_speeds(topology: Topology) -> Iterator[tuple[Interconnect, int]]:
    """Yield the accesses of the HMAT with their bandwidths in MiB/s, as it has them; 0 for none."""
    fast = [access for access in topology.interconnects if access.bandwidth_kib_s is not None]
    speeds = hmat_mib_s([access.bandwidth_kib_s or 0 for access in fast])
    of_access = dict(zip(fast, speeds, strict=True))
    for access in topology.interconnects:
        yield access, of_access.get(access, 0)


def _hmat(access: Interconnect, mib_s: int) -> list[list[str]]:
    ends = f"hmat-lb,initiator={access.initiator},target={access.target},hierarchy=memory"
    lines = []
    if access.latency_ns is not None:
        lines.append(["-numa", f"{ends},data-type=access-latency,latency={access.latency_ns}"])
    if access.bandwidth_kib_s is not None:
        lines.append(["-numa", f"{ends},data-type=access-bandwidth,bandwidth={mib_s}M"])
    return lines


def export_losses(topology: Topology, form: str) -> tuple[str, ...]:
    """Return a sentence for each property of the machine that another program's form lacks."""
    losses = []
    hmat = "latency and bandwidth between nodes (HMAT)"
    if form in ("vng", "numactl", "dot") and topology.interconnects:
        losses.append(f"{hmat}: this form has none")
    if form == "qemu" and any(
        (link.bandwidth_kib_s or 0) % MIB_IN_KIB for link in topology.interconnects
    ):
        losses.append("fractions of a MiB/s in bandwidths: QEMU takes whole MiB/s")
    if form == "xml" and (empty := [node.id for node in topology.nodes if not node.memory_mib]):
        numbers = format_cpulist(empty)
        losses.append(
            f"no memory on node {numbers}: libvirt gives QEMU a size of 0, which it refuses; give"
            f" {'it' if len(empty) == 1 else 'them'} some"
        )
    if form in ("vng", "numactl") and topology.llc == "none":
        lacks = "virtme-ng has no option for it" if form == "vng" else "this form has no caches"
        losses.append(f"no last-level cache: {lacks}")
    if form == "numactl":
        # What an import makes of the nodes alone.
        implied = pack({cpu: node.id for node in topology.nodes for cpu in node.cpus}, {}).shape
        shape = topology.packaging
        if shape != (implied or CpuShape(topology.cpu_count, 1, 1, 1)):
            lost = f"sockets, dies and threads ({describe_shape(shape)})"
            losses.append(f"{lost}: this form has none")
    if form not in ("text", "dot"):
        implied_links = replace(topology, drawn_links=()).links
        if set(topology.links) != set(implied_links):
            losses.append("links between nodes: this form has none, and its distances imply others")
    if form != "text" and topology.memory != MemoryTable():
        losses.append("the table [memory], the speed of memory in timed mode: only numalab has it")
    return tuple(losses)


def render_vng(topology: Topology) -> str:
    """Render virtme-ng's options for this machine (vng(1): --numa, --numa-distance).

    Raises UserError for a node without memory, which virtme-ng cannot make.
    """
    # --cpus is QEMU's -smp; without the counts all nodes would be in one socket.
    lines = [["vng", "--run"], ["--cpus", f"{topology.cpu_count},{_counts(topology.packaging)}"]]
    lines.append(["--memory", f"{topology.memory_mib}M"])
    for node in topology.nodes:
        if node.memory_mib == 0:
            raise UserError(
                f"virtme-ng cannot make node {node.id}, which has no memory", file=topology.name
            )
        lines.append(["--numa", ",".join([f"{node.memory_mib}M", *_cpu_ranges(node)])])
    lines += [["--numa-distance", f"{a},{b}={value}"] for a, b, value in _remote(topology)]
    return _command(lines)


def render_numactl(topology: Topology) -> str:
    """Render the output of `numactl -H`, with all memory free (numactl 2.0.16)."""
    count = len(topology.nodes)
    available = "0" if count == 1 else f"0-{count - 1}"
    lines = [f"available: {count} nodes ({available})"]
    for node in topology.nodes:
        lines += [
            " ".join([f"node {node.id} cpus:", *map(str, node.cpus)]),
            f"node {node.id} size: {node.memory_mib} MB",
            f"node {node.id} free: {node.memory_mib} MB",
        ]
    lines += ["node distances:", "node " + "".join(f"{node.id:3} " for node in topology.nodes)]
    for node in topology.nodes:
        row = "".join(f"{distance:3} " for distance in topology.distances[node.id])
        lines.append(f"{node.id:3}: {row}")
    return "\n".join(lines) + "\n"


def render_dot(topology: Topology) -> str:
    """Render a Graphviz graph: nodes with CPUs and memory, links with their distance."""
    name = topology.name.replace("\\", "\\\\").replace('"', '\\"')
    lines = [f'graph "{name}" {{', "  node [shape=box, style=rounded];"]
    for node in topology.nodes:
        cpus, memory = describe_node(node)
        lines.append(f'  n{node.id} [label="node {node.id}\\n{cpus}\\n{memory}"];')
    for a, b in topology.links:
        lines.append(f'  n{a} -- n{b} [label="{describe_distance(topology, a, b)}"];')
    return "\n".join([*lines, "}"]) + "\n"


def render_topology_file(topology: Topology) -> str:
    """Render a topology file, with the shape or links if they have the same table of distances."""
    lines = [f"summary = {_string(topology.summary)}"]
    if topology.source:
        lines.append(f"source = {_string(topology.source)}")
    lines += ["", f"nodes = {len(topology.nodes)}", f"cpus = {_cpu_counts(topology)}"]
    lines.append(f"memory_mib = {_same_or_list([node.memory_mib for node in topology.nodes])}")
    lines += _distance_lines(topology)
    if topology.published is not None:
        keys = topology.published.model_dump(mode="json").items()
        lines += ["", "[published]", *(f"{key} = {_toml(value)}" for key, value in keys)]
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
        if value is not None and value is not False  # 0 is no default
    ]
    return ["", "[memory]", *keys] if keys else []


def _string(text: str) -> str:
    """Write a TOML basic string; JSON's escapes are TOML's, but DEL must be escaped as well."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml(value: str | list[str]) -> str:
    return _string(value) if isinstance(value, str) else json.dumps(value)


def _cpu_counts(topology: Topology) -> str:
    """Write CPU counts where nodes hold CPUs in order, else CPU lists."""
    start = 0
    for node in topology.nodes:
        if node.cpus != tuple(range(start, start + len(node.cpus))):
            return json.dumps([format_cpulist(node.cpus) for node in topology.nodes])
        start += len(node.cpus)
    return _same_or_list([len(node.cpus) for node in topology.nodes])


def _same_or_list(values: Sequence[int]) -> str:
    return str(values[0]) if len(set(values)) == 1 else json.dumps(list(values))


def _distance_lines(topology: Topology) -> list[str]:
    if topology.shape is not None:
        keys = topology.shape.model_dump(mode="json", exclude_defaults=True)
        return ["", "[shape]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    if topology.drawn_links and (lines := _links(topology)):
        return lines
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
    """Write links by hop, else with their distances; nothing if neither gives the table."""
    counts = hops(len(topology.nodes), topology.drawn_links)
    by_hop = _by_hop(topology, counts)
    table = distances_by_hop(counts, by_hop)
    if table == topology.distances and by_hop == sorted(by_hop):
        pairs = [list(link) for link in topology.drawn_links]
        return ["", f"links = {json.dumps(pairs)}", f"distances = {json.dumps(by_hop)}"]
    weighted = [(a, b, topology.distances[a][b]) for a, b in topology.drawn_links]
    above = [(a, b, distance - LOCAL_DISTANCE) for a, b, distance in weighted]
    if distances_by_weight(shortest_paths(len(topology.nodes), above)) == topology.distances:
        return ["", f"links = {json.dumps(weighted)}"]
    return []


def _cpu_table(topology: Topology) -> list[str]:
    """Write the keys of `[cpu]` that differ from their defaults."""
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
