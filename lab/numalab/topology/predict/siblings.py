"""Links CPUs that share a core or a cache: `set_cpu_sibling_map()`, arch/x86/kernel/smpboot.c."""

from collections.abc import Sequence
from dataclasses import dataclass

from numalab.topology.predict.cpuid import CpuIds
from numalab.topology.predict.rules import KernelRules


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
