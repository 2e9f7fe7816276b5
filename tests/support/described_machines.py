"""Machines as sysfs and hwloc describe them, for the importers."""

from collections.abc import Iterable

from numalab.cpulist import format_cpulist
from numalab.topology.topology import Topology


def sysfs_files(topology: Topology) -> dict[str, str]:
    """Return the files of /sys/devices/system: nodes, and topology and cache of each CPU."""
    files = {
        "node/online": f"{format_cpulist(range(len(topology.nodes)))}\n",
        "cpu/online": f"{format_cpulist(range(topology.cpu_count))}\n",
    }
    for node in topology.nodes:
        at, kib = f"node/node{node.id}", node.memory_mib * 1024
        files |= {
            f"{at}/cpulist": f"{format_cpulist(node.cpus)}\n",
            f"{at}/cpumap": f"{mask(node.cpus):08x}\n",
            f"{at}/distance": f"{' '.join(map(str, topology.distances[node.id]))}\n",
            f"{at}/meminfo": f"Node {node.id} MemTotal:       {kib} kB\n"
            f"Node {node.id} MemFree:        {kib - 64} kB\nNode {node.id} MemUsed:        64 kB\n",
        }
    shape = topology.packaging
    for cpu in range(topology.cpu_count):
        at = f"cpu/cpu{cpu}"
        core = [c for c in range(topology.cpu_count) if shape.core_of(c) == shape.core_of(cpu)]
        die = [c for c in range(topology.cpu_count) if shape.die_of(c) == shape.die_of(cpu)]
        files |= {
            f"{at}/topology/physical_package_id": f"{shape.socket_of(cpu)}\n",
            f"{at}/topology/thread_siblings_list": f"{format_cpulist(core)}\n",
            f"{at}/topology/thread_siblings": f"{mask(core):08x}\n",
            f"{at}/cache/index3/level": "3\n",
            f"{at}/cache/index3/type": "Unified\n",
            f"{at}/cache/index3/shared_cpu_list": f"{format_cpulist(die)}\n",
            f"{at}/cache/index3/shared_cpu_map": f"{mask(die):08x}\n",
        }
    return files


def mask(cpus: Iterable[int]) -> int:
    """Return the mask of CPUs."""
    return sum(1 << cpu for cpu in cpus)


def cpuset(cpus: Iterable[int]) -> str:
    """Write a CPU set as hwloc does, the most significant word first."""
    words: list[str] = []
    number = mask(cpus)
    while number or not words:
        words.append(f"0x{number & 0xFFFFFFFF:08x}")
        number >>= 32
    return ",".join(reversed(words))


def render_hwloc(topology: Topology) -> str:
    """Render hwloc 2's XML; a node's objects stand in the machine, and its NUMANode beside them."""
    everyone = range(topology.cpu_count)
    lines = [
        '<topology version="2.0">',
        f'<object type="Machine" os_index="0" cpuset="{cpuset(everyone)}" gp_index="1">',
    ]
    for node in topology.nodes:
        size = node.memory_mib << 20
        lines += [
            f'<object type="NUMANode" os_index="{node.id}" cpuset="{cpuset(node.cpus)}" '
            f'nodeset="{cpuset([node.id])}" gp_index="{100 + node.id}" local_memory="{size}">',
            f'<page_type size="4096" count="{size // 4096}"/>',
            "</object>",
        ]
    lines += _packages(topology)
    count = len(topology.nodes)
    numbers = " ".join(map(str, range(count)))
    values = " ".join(str(distance) for row in topology.distances for distance in row)
    lines += [
        "</object>",
        f'<distances2 type="NUMANode" nbobjs="{count}" kind="5" name="NUMALatency" indexing="os">',
        f"<indexes>{numbers}</indexes>",
        f"<u64values>{values}</u64values>",
        "</distances2>",
        "</topology>",
    ]
    return "\n".join(lines) + "\n"


def _packages(topology: Topology) -> list[str]:
    shape, lines, cpus = topology.packaging, [], range(topology.cpu_count)
    for socket in range(shape.sockets):
        held = [cpu for cpu in cpus if shape.socket_of(cpu) == socket]
        lines.append(f'<object type="Package" os_index="{socket}" cpuset="{cpuset(held)}">')
        for die in sorted({shape.die_of(cpu) for cpu in held}):
            of_die = [cpu for cpu in held if shape.die_of(cpu) == die]
            lines.append(f'<object type="L3Cache" depth="3" cpuset="{cpuset(of_die)}">')
            for core in sorted({shape.core_of(cpu) for cpu in of_die}):
                threads = [cpu for cpu in of_die if shape.core_of(cpu) == core]
                lines.append(f'<object type="Core" os_index="{core}" cpuset="{cpuset(threads)}">')
                for cpu in threads:
                    node = cpuset([topology.node_of_cpu(cpu)])
                    lines.append(f'<object type="PU" os_index="{cpu}" cpuset="{cpuset([cpu])}" '
                                 f'nodeset="{node}"/>')  # fmt: skip
                lines.append("</object>")
            lines.append("</object>")
        lines.append("</object>")
    return lines
