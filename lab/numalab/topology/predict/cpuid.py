"""What the CPUs of a QEMU guest say of themselves: who is in one package, core and cache."""

from dataclasses import dataclass
from typing import Literal

from numalab.topology.model import Topology
from numalab.topology.predict.rules import KernelRules

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
