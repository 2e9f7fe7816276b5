"""The machine that the guest's kernel reads from firmware tables and CPUID."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from numalab.cpulist import mask_of
from numalab.topology.distances import Matrix
from numalab.topology.predict.rules import RECLAIM_DISTANCE, ZEN_RECLAIM_DISTANCE, KernelRules
from numalab.topology.topology import Topology, renumbered

Vendor = Literal["amd", "zen", "intel"]
# Of set_cpu_sibling_map(), since 7.0 (717b64d58cff); the kernel does not print the condition.
PACKAGE_WARNING = "WARN_ON_ONCE(topology_num_nodes_per_package() == 1)"
_COUNTS_DIES = (8, 2)  # QEMU: system/cpus: Fix CPUState.nr_cores' calculation (958ac3c42b68)


@dataclass(frozen=True)
class GuestMachine:
    """A machine with the node numbers and the siblings of the guest's kernel.

    `node_of_topology[n]` is the guest's number of the topology's node n. `nodes` are the CPU sets
    of the guest's nodes, `distances` is the table of `node_distance()`. `smt` and `llc` are, for
    each CPU, the set of CPUs that share its core and its last-level cache. Domains wider than
    `reclaim_distance` do not balance new tasks. `warnings` are those of the kernel;
    `warnings_by_model` replace them with some CPU models of this vendor, and are empty without any.
    """

    node_of_topology: tuple[int, ...]
    nodes: tuple[int, ...]
    distances: Matrix
    cpu_count: int
    node_of_cpu: tuple[int, ...]
    smt: tuple[int, ...]
    llc: tuple[int, ...]
    numa_in_package: bool
    reclaim_distance: int
    warnings: tuple[str, ...]
    warnings_by_model: tuple[str, ...]


def guest_machine(
    topology: Topology, vendor: Vendor, rules: KernelRules, qemu: tuple[int, ...] = ()
) -> GuestMachine:
    """Work out the machine of the guest's kernel, for a QEMU CPU model of that vendor.

    `qemu` is the major and minor version, () for the newest.
    """
    numbers = node_numbers(topology)
    order = sorted(range(len(numbers)), key=lambda node: numbers[node])
    cpus = range(topology.cpu_count)
    owner = tuple(numbers[topology.node_of_cpu(cpu)] for cpu in cpus)
    ids = _cpu_ids(topology, vendor, rules, qemu)
    alone = tuple(1 << cpu for cpu in cpus)
    package = _package_warning(ids, owner, rules)
    warnings, with_caches = (
        (*package, *_sibling_warning(ids, owner, caches=caches))
        for caches in (vendor != "intel", True)
    )
    return GuestMachine(
        node_of_topology=numbers,
        nodes=tuple(mask_of(topology.nodes[node].cpus) for node in order),
        distances=tuple(tuple(topology.distances[a][b] for b in order) for a in order),
        cpu_count=topology.cpu_count,
        node_of_cpu=owner,
        smt=_siblings(ids.core, owner) if ids.has_cores and ids.has_threads else alone,
        llc=_siblings(ids.cache, owner) if ids.has_cores else alone,
        numa_in_package=_numa_in_package(ids, owner, rules),
        reclaim_distance=_reclaim_distance(vendor, rules),
        warnings=warnings,
        warnings_by_model=with_caches if with_caches != warnings else (),
    )


def cache_of_cpus(machine: GuestMachine) -> dict[int, int]:
    """Return the last-level cache of each CPU, named by the lowest of the CPUs that share it."""
    return {cpu: (mask & -mask).bit_length() - 1 for cpu, mask in enumerate(machine.llc)}


def _reclaim_distance(vendor: Vendor, rules: KernelRules) -> int:
    return ZEN_RECLAIM_DISTANCE if vendor == "zen" and rules.zen_reclaim else RECLAIM_DISTANCE


def node_numbers(topology: Topology) -> tuple[int, ...]:
    """Return the kernel's number of each node of the topology.

    `acpi_map_pxm_to_node()` (6.12, drivers/acpi/numa/srat.c) gives each proximity domain the next
    free number on first sight, and `acpi_numa_init()` reads the CPUs of the SRAT before its memory.
    QEMU lists CPUs in order of their number.
    """
    nodes = dict.fromkeys(topology.node_of_cpu(cpu) for cpu in range(topology.cpu_count))
    nodes |= dict.fromkeys(node.id for node in topology.nodes)
    place = {node: number for number, node in enumerate(nodes)}
    return tuple(place[node.id] for node in topology.nodes)


def as_guest_numbers(topology: Topology) -> Topology:
    """Return the machine with the node numbers of its guest's kernel.

    Events, samples and counters of a guest have these numbers, and so has what is measured.
    """
    numbers = node_numbers(topology)
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    return topology if order == sorted(order) else renumbered(topology, order)


def describe_numbers(topology: Topology) -> str:
    """Write which nodes of a machine have another number in its guest; empty for none."""
    numbers = enumerate(node_numbers(topology))
    moved = [f"{node} becomes {number}" for node, number in numbers if node != number]
    what = "the kernel's node numbers differ from this file"
    return f"{what}: {', '.join(moved)}" if moved else ""


@dataclass(frozen=True)
class _CpuIds:
    """CPUID values by CPU number, which the kernel compares to find siblings.

    CPUs with the same `package`, `core` or `cache` share it. `has_threads` and `has_cores` are
    `has_smt` and `has_mp` in `set_cpu_sibling_map()`. CPUs come up in the order of `bring_up`.
    """

    package: tuple[int, ...]
    core: tuple[int, ...]
    cache: tuple[int, ...]
    has_threads: bool
    has_cores: bool
    bring_up: tuple[int, ...]


def _cpu_ids(
    topology: Topology, vendor: Vendor, rules: KernelRules, qemu: tuple[int, ...]
) -> _CpuIds:
    """Work out CPUID for a QEMU CPU model of that vendor.

    `amd` is qemu64, and `max` under TCG; `zen` is an AMD host of family 17h or later under KVM.
    Neither has TOPOEXT: with `host-passthrough` QEMU and libvirt add it only on request
    (`no_autoenable_flags`, QEMU 7.2 and 10.0, target/i386/cpu.c). So the kernel takes the whole
    socket for the last-level cache (`legacy_set_llc()`, 6.12, arch/x86/kernel/cpu/topology_amd.c,
    checked by boots of `amd`). `intel` lists the cores of each cache.
    """
    shape = topology.packaging
    cpus = range(topology.cpu_count)
    if vendor != "intel" and not rules.amd_threads:
        return _legacy_amd(topology, qemu)
    cache_of = shape.socket_of
    if vendor == "intel":
        cache_of = shape.die_of if topology.llc == "die" else shape.core_of
    bring_up = tuple(cpus)
    if rules.first_threads_first:  # cpuhp_bringup_cpus_parallel(), 6.12, kernel/cpu.c
        bring_up = tuple(sorted(cpus, key=lambda cpu: (cpu % shape.threads != 0, cpu)))
    return _CpuIds(
        package=tuple(map(shape.socket_of, cpus)),
        core=tuple(map(shape.core_of, cpus)),
        cache=tuple(map(cache_of, cpus)),
        has_threads=shape.threads > 1,
        has_cores=shape.cpus > shape.sockets,
        bring_up=bring_up,
    )


def _legacy_amd(topology: Topology, qemu: tuple[int, ...]) -> _CpuIds:
    """Follow `early_init_amd_mc()` of kernels before 6.9 (5.10, arch/x86/kernel/cpu/amd.c).

    Every thread of an AMD CPU without TOPOEXT is a core. Leaf 0x80000008 holds how many bits of
    the APIC id number the cores of a package: all below the socket's (QEMU 10.0,
    target/i386/cpu.c), or none where a socket has one thread; before QEMU 8.2, where a die has one.
    The package has one last-level cache.
    """
    shape = topology.packaging
    cpus = range(topology.cpu_count)
    ids = tuple(map(shape.apic_id, cpus))
    counted = shape.cores * shape.threads
    has_cores = counted * (1 if qemu and qemu < _COUNTS_DIES else shape.dies) > 1
    package = tuple(map(shape.socket_of, cpus)) if has_cores else ids
    return _CpuIds(
        package=package,
        core=ids,
        cache=package,
        has_threads=False,
        has_cores=has_cores,
        bring_up=tuple(cpus),
    )


def _siblings(shared: Sequence[int], node_of_cpu: Sequence[int]) -> tuple[int, ...]:
    """Link CPUs of the same core or cache: `set_cpu_sibling_map()`, arch/x86/kernel/smpboot.c.

    CPUs on different nodes are not linked (6.12; 5.10, 6.1 and 7.0 do the same).
    """
    keys = tuple(zip(shared, node_of_cpu, strict=True))
    masks: dict[tuple[int, int], int] = {}
    for cpu, key in enumerate(keys):
        masks[key] = masks.get(key, 0) | 1 << cpu
    return tuple(masks[key] for key in keys)


def _numa_in_package(ids: _CpuIds, node_of_cpu: Sequence[int], rules: KernelRules) -> bool:
    """Tell whether packages hold several nodes each.

    Before 7.0 one package with CPUs of several nodes is enough (`x86_has_numa_in_package`). Since
    then nodes with CPUs are divided by packages and rounded up (`topology_init_possible_cpus()`,
    7.3, arch/x86/kernel/cpu/topology.c).
    """
    if rules.nodes_per_package:
        return len(set(node_of_cpu)) > len(set(ids.package))
    return _has_split_package(ids, node_of_cpu)


def _has_split_package(ids: _CpuIds, node_of_cpu: Sequence[int]) -> bool:
    """Tell whether a package has CPUs of several nodes."""
    return len(set(zip(ids.package, node_of_cpu, strict=True))) > len(set(ids.package))


def _package_warning(
    ids: _CpuIds, node_of_cpu: Sequence[int], rules: KernelRules
) -> tuple[str, ...]:
    """Return the warning of a package with CPUs of several nodes, where each should have one."""
    each_has_one = rules.nodes_per_package and not _numa_in_package(ids, node_of_cpu, rules)
    return (PACKAGE_WARNING,) if each_has_one and _has_split_package(ids, node_of_cpu) else ()


def _sibling_warning(ids: _CpuIds, node_of_cpu: Sequence[int], *, caches: bool) -> tuple[str, ...]:
    """Return the warning of `topology_sane()`: once, for the first pair that is on two nodes.

    Each CPU that comes up is compared with all that are up: its core first, then its cache. Of
    Intel's CPUs `match_llc()` accepts a cache on several nodes (sub-NUMA clustering): of Skylake-X
    since 4.17 (1340ccfa9a9a), of all but Haswell-X and Broadwell-X since 5.13 (2c88d45edbb8).
    """
    if not ids.has_cores:
        return ()
    for place, cpu in enumerate(ids.bring_up):
        for other in sorted(ids.bring_up[:place]):
            if node_of_cpu[cpu] == node_of_cpu[other]:
                continue
            smt = ids.has_threads and ids.core[cpu] == ids.core[other]
            llc = caches and ids.cache[cpu] == ids.cache[other]
            if smt or llc:
                return (
                    f"sched: CPU #{cpu}'s {'smt' if smt else 'llc'}-sibling CPU #{other} is not "
                    f"on the same node! [node: {node_of_cpu[cpu]} != {node_of_cpu[other]}]. "
                    "Ignoring dependency.",
                )
    return ()
