"""The machine that the guest's kernel reads from firmware tables and CPUID."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from numalab.cpulist import mask_of
from numalab.topology.predict.rules import RECLAIM_DISTANCE, ZEN_RECLAIM_DISTANCE, KernelRules
from numalab.topology.topology import Topology

Vendor = Literal["amd", "zen", "intel"]


@dataclass(frozen=True)
class CpuIds:
    """What the kernel compares of each CPU to find its siblings, by CPU number.

    CPUs with one `package`, `core` or `cache` share that. `has_threads` and `has_cores` say whether
    the kernel looks for siblings at all (`has_smt` and `has_mp` in `set_cpu_sibling_map()`).
    `cache_on_one_node`: the kernel knows that a cache of a package that spans nodes is one for each
    node (sub-NUMA clustering), and does not warn. `bring_up`: the order in which CPUs come up.
    """

    package: tuple[int, ...]
    core: tuple[int, ...]
    cache: tuple[int, ...]
    has_threads: bool
    has_cores: bool
    cache_on_one_node: bool
    bring_up: tuple[int, ...]


def cpu_ids(topology: Topology, vendor: Vendor, rules: KernelRules) -> CpuIds:
    """Work out what CPUID says to a kernel, for a QEMU CPU model of that vendor.

    `amd` is qemu64, and `max` under TCG; `zen` is an AMD CPU of family 17h or later (QEMU's EPYC).
    For both, the kernel takes the whole socket for the last-level cache (`legacy_set_llc()`, 6.12,
    arch/x86/kernel/cpu/topology_amd.c, checked by boots). `intel` says which cores share one.
    """
    shape = topology.packaging
    cpus = range(topology.cpu_count)
    if vendor == "amd" and not rules.amd_threads:
        return _legacy_amd(topology)
    cache_of = shape.socket_of
    if vendor == "intel":
        cache_of = shape.die_of if topology.llc == "die" else shape.core_of
    return CpuIds(
        package=tuple(map(shape.socket_of, cpus)),
        core=tuple(map(shape.core_of, cpus)),
        cache=tuple(map(cache_of, cpus)),
        has_threads=shape.threads > 1,
        has_cores=shape.cpus > shape.sockets,
        cache_on_one_node=vendor == "intel",
        bring_up=_bring_up(topology, rules),
    )


def _bring_up(topology: Topology, rules: KernelRules) -> tuple[int, ...]:
    """Order CPUs as `cpuhp_bringup_cpus_parallel()` does (6.12, kernel/cpu.c)."""
    threads = topology.packaging.threads
    cpus = range(topology.cpu_count)
    if not rules.first_threads_first:
        return tuple(cpus)
    return tuple(sorted(cpus, key=lambda cpu: (cpu % threads != 0, cpu)))


def _legacy_amd(topology: Topology) -> CpuIds:
    """Follow `early_init_amd_mc()` of kernels before 6.9 (5.10, arch/x86/kernel/cpu/amd.c).

    To an AMD CPU without TOPOEXT every thread is a core. How many bits of the APIC id number the
    cores of a package says leaf 0x80000008: all below the socket's (QEMU 7.2, target/i386/cpu.c),
    or none, where a die has one thread. The package has one last-level cache.
    """
    shape = topology.packaging
    cpus = range(topology.cpu_count)
    ids = tuple(map(shape.apic_id, cpus))
    has_cores = shape.cores * shape.threads > 1
    package = tuple(map(shape.socket_of, cpus)) if has_cores else ids
    return CpuIds(
        package=package,
        core=ids,
        cache=package,
        has_threads=False,
        has_cores=has_cores,
        cache_on_one_node=False,
        bring_up=tuple(range(topology.cpu_count)),
    )


@dataclass(frozen=True)
class Siblings:
    """For each CPU the set of those that share its core and its cache; and what the kernel says."""

    smt: tuple[int, ...]
    llc: tuple[int, ...]
    warnings: tuple[str, ...]


def sibling_maps(ids: CpuIds, node_of_cpu: Sequence[int]) -> Siblings:
    """Link the CPUs (6.12; 5.10, 6.1 and 7.0 do the same).

    CPUs of one core, or of one cache, that are on different nodes are not linked.
    """
    cpus = range(len(node_of_cpu))
    alone = tuple(1 << cpu for cpu in cpus)
    if not ids.has_cores:
        return Siblings(alone, alone, ())
    return Siblings(
        smt=_linked(ids.core, node_of_cpu) if ids.has_threads else alone,
        llc=_linked(ids.cache, node_of_cpu),
        warnings=_first_warning(ids, node_of_cpu),
    )


def numa_in_package(ids: CpuIds, node_of_cpu: Sequence[int], rules: KernelRules) -> bool:
    """Say whether the kernel takes its packages to hold several nodes each.

    Before 7.0 one package with CPUs of several nodes is enough (`x86_has_numa_in_package`). Since
    then nodes with CPUs are divided by packages and rounded up (`topology_init_possible_cpus()`,
    7.3, arch/x86/kernel/cpu/topology.c).
    """
    packages = len(set(ids.package))
    if rules.nodes_per_package:
        return len(set(node_of_cpu)) > packages
    return len(set(zip(ids.package, node_of_cpu, strict=True))) > packages


def _linked(shared: Sequence[int], node_of_cpu: Sequence[int]) -> tuple[int, ...]:
    keys = tuple(zip(shared, node_of_cpu, strict=True))
    masks: dict[tuple[int, int], int] = {}
    for cpu, key in enumerate(keys):
        masks[key] = masks.get(key, 0) | 1 << cpu
    return tuple(masks[key] for key in keys)


def _first_warning(ids: CpuIds, node_of_cpu: Sequence[int]) -> tuple[str, ...]:
    """Return what `topology_sane()` prints: once, of the first pair that is on two nodes.

    As CPUs come up, each is compared with all that are up: its core first, then its cache.
    """
    for place, cpu in enumerate(ids.bring_up):
        for other in sorted(ids.bring_up[:place]):
            if node_of_cpu[cpu] == node_of_cpu[other]:
                continue
            smt = ids.has_threads and ids.core[cpu] == ids.core[other]
            llc = not ids.cache_on_one_node and ids.cache[cpu] == ids.cache[other]
            if smt or llc:
                return (
                    f"sched: CPU #{cpu}'s {'smt' if smt else 'llc'}-sibling CPU #{other} is not "
                    f"on the same node! [node: {node_of_cpu[cpu]} != {node_of_cpu[other]}]. "
                    "Ignoring dependency.",
                )
    return ()


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
