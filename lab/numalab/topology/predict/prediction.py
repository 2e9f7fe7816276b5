"""Predicts what a kernel will make of a topology, for every CPU."""

from collections.abc import Sequence
from dataclasses import dataclass

from numalab.topology.model import Topology
from numalab.topology.predict.bits import cpus_of
from numalab.topology.predict.cpuid import Vendor
from numalab.topology.predict.domains import (
    Domain,
    Group,
    attached_domains,
    build_domains,
    set_numa_imbalance,
    topology_levels,
)
from numalab.topology.predict.firmware import GuestMachine, guest_machine
from numalab.topology.predict.groups import Construction, GroupBuilder
from numalab.topology.predict.numa_levels import NumaLevels, NumaType, numa_levels
from numalab.topology.predict.rules import FLAG_ORDER, KernelRules, rules_for
from numalab.topology.predict.verbose import expected_errors
from numalab.topology.sched_domains import SCHED_CAPACITY_SCALE, CpuDomains, SchedDomain, SchedGroup

DEFAULT_KERNEL = "6.12"


@dataclass(frozen=True)
class Prediction:
    """What a kernel will say about a machine.

    `rules` are those of the kernel version, with a remark where that is not known. `cpus` are the
    sched domains of each CPU. `imb_numa_nr[cpu]` is the imbalance that each of these domains allows
    between nodes, in tasks (empty before 6.0). `warnings` are what the kernel warns about while it
    builds them, `errors` its `ERROR:` lines under sched_verbose.
    """

    topology: str
    rules: KernelRules
    construction: Construction
    vendor: Vendor
    machine: GuestMachine
    levels: NumaLevels
    cpus: tuple[CpuDomains, ...]
    imb_numa_nr: tuple[tuple[int, ...], ...]
    warnings: tuple[str, ...]
    errors: tuple[str, ...]

    @property
    def numa_type(self) -> NumaType:
        """The kernel's `sched_numa_topology_type`."""
        return self.levels.type


def predict(
    topology: Topology,
    kernel: str | KernelRules = DEFAULT_KERNEL,
    *,
    construction: Construction = Construction.NOW,
    vendor: Vendor = "amd",
) -> Prediction:
    """Predict sched domains and groups, following `sched_init_smp()` of that kernel version.

    `kernel` is a version such as `6.12` or `6.12.117`, or its rules. `construction` says how groups
    are built. `vendor` is that of the guest's CPU model. Raises UserError for a kernel before 5.10.
    """
    rules = rules_for(kernel) if isinstance(kernel, str) else kernel
    machine = guest_machine(topology, vendor, rules)
    numa = numa_levels(machine, rules)
    tree = build_domains(machine.cpu_count, topology_levels(machine, numa, rules))
    builder = GroupBuilder(
        tree, construction=construction, descended_sibling=rules.descended_sibling
    )
    builder.build()
    if rules.imbalance:
        set_numa_imbalance(tree, rules.llc_flag)
    warnings = [*machine.warnings, *tree.broken, *builder.warnings]
    attached = [attached_domains(lowest) for lowest in tree.lowest]
    shared: dict[tuple[int, int], SchedGroup] = {}
    names = [name for name in FLAG_ORDER if rules.overlap_flag or name != "SD_OVERLAP"]
    cpus = tuple(
        CpuDomains(cpu, tuple(_public(d, place, names, shared) for place, d in enumerate(domains)))
        for cpu, domains in enumerate(attached)
    )
    return Prediction(
        topology=topology.name,
        rules=rules,
        construction=construction,
        vendor=vendor,
        machine=machine,
        levels=numa,
        cpus=cpus,
        imb_numa_nr=tuple(
            tuple(domain.imb_numa_nr for domain in domains) if rules.imbalance else ()
            for domains in attached
        ),
        warnings=tuple(dict.fromkeys(warnings)),
        errors=expected_errors(machine, rules, cpus, construction),
    )


def _public(
    domain: Domain,
    level: int,
    flag_names: Sequence[str],
    shared: dict[tuple[int, int], SchedGroup],
) -> SchedDomain:
    flags = tuple(name for name in (*flag_names, "SD_SHARE_PKG_RESOURCES") if name in domain.flags)
    groups = tuple(_group(group, shared) for group in domain.groups)
    return SchedDomain(level, domain.name, cpus_of(domain.span), flags, groups)


def _group(group: Group, shared: dict[tuple[int, int], SchedGroup]) -> SchedGroup:
    key = (group.span, group.mask)
    if key not in shared:
        capacity = SCHED_CAPACITY_SCALE * group.span.bit_count()
        shared[key] = SchedGroup(cpus_of(group.span), cpus_of(group.mask), capacity)
    return shared[key]
