"""What the kernel learns from QEMU's firmware tables: node numbers, distances, shared caches."""

from dataclasses import dataclass
from typing import Literal

from lab.topology.model import LOCAL_DISTANCE, Topology
from lab.topology.predict.bits import mask_of
from lab.topology.predict.rules import RECLAIM_DISTANCE, ZEN_RECLAIM_DISTANCE

REMOTE_DISTANCE = 20  # include/linux/topology.h

Vendor = Literal["amd", "zen", "intel"]


@dataclass(frozen=True)
class GuestMachine:
    """A machine as the guest's kernel numbers and sees it.

    `node_of_topology[n]` is the guest's number of the topology's node n. `nodes` are the CPU sets
    of the guest's nodes, `distances` the table that `node_distance()` reads. `smt`, `llc` are, for
    each CPU, the set of CPUs that share its core and its last-level cache. Domains wider than
    `reclaim_distance` do not balance new tasks. `warnings` are what the kernel prints.
    """

    node_of_topology: tuple[int, ...]
    nodes: tuple[int, ...]
    distances: tuple[tuple[int, ...], ...]
    slit_used: bool
    cpu_count: int
    node_of_cpu: tuple[int, ...]
    smt: tuple[int, ...]
    llc: tuple[int, ...]
    numa_in_package: bool
    reclaim_distance: int
    warnings: tuple[str, ...]


def guest_machine(topology: Topology, vendor: Vendor) -> GuestMachine:
    """Work out what the guest's kernel sees, for a QEMU CPU model of that vendor.

    `amd` is qemu64, and `max` under TCG; `zen` is an AMD CPU of family 17h or later (QEMU's EPYC).
    For both, the kernel takes the whole socket for the last-level cache (6.12,
    arch/x86/kernel/cpu/topology_amd.c, checked by boots). `intel` says which cores share one.
    """
    numbers = node_numbers(topology)
    count = len(topology.nodes)
    order = sorted(range(count), key=lambda node: numbers[node])
    nodes = tuple(mask_of(topology.nodes[node].cpus) for node in order)
    valid = slit_valid(topology)
    distances = tuple(
        tuple(
            topology.distances[a][b] if valid else (LOCAL_DISTANCE if a == b else REMOTE_DISTANCE)
            for b in order
        )
        for a in order
    )
    owner = tuple(numbers[topology.node_of_cpu(cpu)] for cpu in range(topology.cpu_count))
    smt, llc, in_package, warnings = _sibling_maps(topology, owner, vendor)
    return GuestMachine(
        node_of_topology=numbers,
        nodes=nodes,
        distances=distances,
        slit_used=valid,
        cpu_count=topology.cpu_count,
        node_of_cpu=owner,
        smt=smt,
        llc=llc,
        numa_in_package=in_package,
        reclaim_distance=ZEN_RECLAIM_DISTANCE if vendor == "zen" else RECLAIM_DISTANCE,
        warnings=warnings,
    )


def node_numbers(topology: Topology) -> tuple[int, ...]:
    """Return the number that the kernel gives to each node of the topology.

    `acpi_map_pxm_to_node()` (6.12, drivers/acpi/numa/srat.c) gives the next free number to each
    proximity domain when it first sees it, and `acpi_numa_init()` reads the CPUs of the SRAT before
    its memory. QEMU lists CPUs in order of their number.
    """
    seen = dict.fromkeys(topology.node_of_cpu(cpu) for cpu in range(topology.cpu_count))
    seen |= dict.fromkeys(node.id for node in topology.nodes)
    place = {node: number for number, node in enumerate(seen)}
    return tuple(place[node.id] for node in topology.nodes)


def slit_valid(topology: Topology) -> bool:
    """Tell whether the kernel takes the SLIT: `slit_valid()`, 6.12, drivers/acpi/numa/srat.c."""
    return all(
        (distance == LOCAL_DISTANCE) if a == b else (distance > LOCAL_DISTANCE)
        for a, row in enumerate(topology.distances)
        for b, distance in enumerate(row)
    )


def _sibling_maps(
    topology: Topology, owner: tuple[int, ...], vendor: Vendor
) -> tuple[tuple[int, ...], tuple[int, ...], bool, tuple[str, ...]]:
    """Follow `set_cpu_sibling_map()` (6.12, arch/x86/kernel/smpboot.c) for every CPU.

    CPUs of one core, or of one cache, that are on different nodes are not linked:
    `topology_sane()` warns, once for each name, except about caches of an Intel socket that spans
    nodes (sub-NUMA clustering).
    """
    shape = topology.packaging
    cpus = range(topology.cpu_count)
    several = shape.cpus > shape.sockets  # has_mp: a package has more than one CPU
    shared = shape.socket_of
    if vendor == "intel":
        shared = shape.die_of if topology.llc == "die" else shape.core_of
    cores: dict[tuple[int, int], int] = {}
    caches: dict[tuple[int, int], int] = {}
    for cpu in cpus:
        core, cache = (shape.core_of(cpu), owner[cpu]), (shared(cpu), owner[cpu])
        cores[core] = cores.get(core, 0) | 1 << cpu
        caches[cache] = caches.get(cache, 0) | 1 << cpu
    nodes_of_socket: dict[int, set[int]] = {}
    for cpu in cpus:
        nodes_of_socket.setdefault(shape.socket_of(cpu), set()).add(owner[cpu])
    in_package = several and any(len(held) > 1 for held in nodes_of_socket.values())
    warnings = []
    for name, groups in (("smt", cores), ("llc", caches)):
        split = len({key for key, _ in groups}) < len(groups)
        if split and not (name == "llc" and vendor == "intel"):
            warnings.append(f"sched: CPUs that share {name} are not on the same node")
    return (
        tuple(cores[(shape.core_of(cpu), owner[cpu])] for cpu in cpus),
        tuple(caches[(shared(cpu), owner[cpu])] for cpu in cpus),
        in_package,
        tuple(warnings),
    )
