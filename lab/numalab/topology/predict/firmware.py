"""What the kernel learns from QEMU's firmware tables: node numbers, distances, shared caches."""

from dataclasses import dataclass

from numalab.topology.model import Topology
from numalab.topology.predict.bits import mask_of
from numalab.topology.predict.cpuid import Vendor, cpu_ids
from numalab.topology.predict.rules import RECLAIM_DISTANCE, ZEN_RECLAIM_DISTANCE, KernelRules
from numalab.topology.predict.siblings import numa_in_package, sibling_maps


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
    cpu_count: int
    node_of_cpu: tuple[int, ...]
    smt: tuple[int, ...]
    llc: tuple[int, ...]
    numa_in_package: bool
    reclaim_distance: int
    warnings: tuple[str, ...]


def guest_machine(topology: Topology, vendor: Vendor, rules: KernelRules) -> GuestMachine:
    """Work out what the guest's kernel sees, for a QEMU CPU model of that vendor."""
    numbers = node_numbers(topology)
    count = len(topology.nodes)
    order = sorted(range(count), key=lambda node: numbers[node])
    nodes = tuple(mask_of(topology.nodes[node].cpus) for node in order)
    distances = tuple(tuple(topology.distances[a][b] for b in order) for a in order)
    owner = tuple(numbers[topology.node_of_cpu(cpu)] for cpu in range(topology.cpu_count))
    ids = cpu_ids(topology, vendor, rules)
    siblings = sibling_maps(ids, owner)
    return GuestMachine(
        node_of_topology=numbers,
        nodes=nodes,
        distances=distances,
        cpu_count=topology.cpu_count,
        node_of_cpu=owner,
        smt=siblings.smt,
        llc=siblings.llc,
        numa_in_package=numa_in_package(ids, owner, rules),
        reclaim_distance=ZEN_RECLAIM_DISTANCE if vendor == "zen" else RECLAIM_DISTANCE,
        warnings=siblings.warnings,
    )


def node_numbers(topology: Topology) -> tuple[int, ...]:
    """Return the number that the kernel gives to each node of the topology.

    `acpi_map_pxm_to_node()` (6.12, drivers/acpi/numa/srat.c) gives the next free number to each
    proximity domain when it first sees it, and `acpi_numa_init()` reads the CPUs of the SRAT before
    its memory. QEMU lists CPUs in order of their number.
    """
    nodes = dict.fromkeys(topology.node_of_cpu(cpu) for cpu in range(topology.cpu_count))
    nodes |= dict.fromkeys(node.id for node in topology.nodes)
    place = {node: number for number, node in enumerate(nodes)}
    return tuple(place[node.id] for node in topology.nodes)
