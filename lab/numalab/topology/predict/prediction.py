"""Predicts the sched domains, groups and messages of a kernel for a topology."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from numalab.cpulist import cpus_of
from numalab.errors import UserError
from numalab.topology.distances import Matrix
from numalab.topology.predict.domains import (
    Domain,
    Group,
    NumaLevels,
    NumaType,
    attached_domains,
    build_domains,
    counted_nodes,
    numa_levels,
    set_numa_imbalance,
    topology_levels,
)
from numalab.topology.predict.firmware import GuestMachine, Vendor, guest_machine
from numalab.topology.predict.groups import Construction, GroupBuilder
from numalab.topology.predict.rules import FLAG_ORDER, KernelRules, rules_for
from numalab.topology.sched_domains import SCHED_CAPACITY_SCALE, CpuDomains, SchedDomain, SchedGroup
from numalab.topology.topology import Topology

DEFAULT_KERNEL = "6.12"


@dataclass(frozen=True)
class Prediction:
    """The predicted sched domains and messages of a kernel.

    `rules` have a remark where the kernel version is not known. `cpus` are the sched domains of
    each CPU. `imb_numa_nr[cpu]` is the imbalance that each of these domains allows between nodes,
    in tasks (empty before 6.0). `warnings` are the kernel's while it builds domains, `errors` its
    `ERROR:` lines under sched_verbose.
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
    qemu: tuple[int, ...] = (),
) -> Prediction:
    """Predict sched domains and groups, following `sched_init_smp()` of that kernel version.

    `kernel` is a version such as `6.12` or `6.12.117`, or its rules. `vendor` is that of the
    guest's CPU model, `qemu` the major and minor version of its QEMU, () for the newest. A kernel
    before 4.13 has the groups of then. Raises UserError for a kernel before 4.4.
    """
    rules = rules_for(kernel) if isinstance(kernel, str) else kernel
    for key, value, choices in (
        ("vendor", vendor, get_args(Vendor)), ("construction", construction, Construction),
    ):  # fmt: skip
        if value not in choices:  # a caller need not check types
            raise UserError(f"{value!r} is unknown", key=key, choices=map(str, choices))
    if construction is Construction.NOW and not rules.own_groups:
        construction = Construction.BEFORE_4_13
    machine = guest_machine(topology, vendor, rules, qemu)
    numa = numa_levels(machine, rules)
    tree = build_domains(machine.cpu_count, topology_levels(machine, numa, rules), rules)
    builder = GroupBuilder(
        tree, construction=construction, descended_sibling=rules.descended_sibling
    )
    builder.build()
    if rules.imbalance:
        set_numa_imbalance(tree, rules.llc_flag)
    warnings = [*machine.warnings, *tree.broken, *builder.warnings]
    attached = [attached_domains(lowest, rules) for lowest in tree.lowest]
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
        errors=expected_errors(machine, rules, numa, cpus, construction),
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


NOT_SYMMETRIC = "ERROR: Node-distance not symmetric"
_NOT_REPRESENTATIVE = "ERROR: Node-0 not representative"
_FLAG = "ERROR: flag "
_OTHER_THAN_CHILD = "ERROR: domain->groups does not match domain->child"

# Meta flags of include/linux/sched/sd_flags.h (5.10 to 7.0), for flags that a guest can have.
SHARED_CHILD = frozenset(
    {
        "SD_BALANCE_NEWIDLE",
        "SD_BALANCE_EXEC",
        "SD_BALANCE_FORK",
        "SD_WAKE_AFFINE",
        "SD_SHARE_CPUCAPACITY",
        "SD_SHARE_LLC",
        "SD_SHARE_PKG_RESOURCES",
    }
)
SHARED_PARENT = frozenset({"SD_SERIALIZE", "SD_OVERLAP", "SD_NUMA"})


def expected_errors(
    machine: GuestMachine,
    rules: KernelRules,
    numa: NumaLevels,
    cpus: tuple[CpuDomains, ...],
    construction: Construction,
) -> tuple[str, ...]:
    """Return the different `ERROR:` lines of a boot with sched_verbose, in order of appearance.

    Follows `sched_numa_warn()` and `sched_domain_debug_one()`, 6.12, kernel/sched/topology.c. With
    `BEFORE_4_13` the first group is not compared with the child domain, as before 4.13.
    """
    before_fix = construction is Construction.BEFORE_4_13
    nodes, table = counted_nodes(machine, rules), machine.distances
    errors: dict[str, None] = {}
    if not rules.all_distances:
        errors = dict.fromkeys(_first_distance_error(table, numa.distances))
    elif any(table[a][b] != table[b][a] for a in nodes for b in nodes):
        errors[NOT_SYMMETRIC] = None
    for cpu in cpus:
        child: SchedDomain | None = None
        for place, domain in enumerate(cpu.domains):
            parent = cpu.domains[place + 1] if place + 1 < len(cpu.domains) else None
            for text in _domain_errors(cpu.cpu, child, domain, parent):
                skipped = before_fix and text == _OTHER_THAN_CHILD
                if not skipped and (rules.flag_masks or not text.startswith(_FLAG)):
                    errors[text] = None
            child = domain
    return tuple(errors)


def _first_distance_error(table: Matrix, levels: Sequence[int]) -> tuple[str, ...]:
    """Return the one line of `sched_numa_warn()`, if any: `sched_init_numa()` before 5.12."""
    largest = 0
    for node, row in enumerate(table):
        for other, distance in enumerate(row):
            if table[other][node] != distance:
                return (NOT_SYMMETRIC,)
            if node and not (distance in levels and distance <= largest):
                return (_NOT_REPRESENTATIVE,)
        largest = max(largest, *row)
    return ()


def _domain_errors(
    cpu: int, child: SchedDomain | None, domain: SchedDomain, parent: SchedDomain | None
) -> Iterator[str]:
    if cpu not in domain.span:
        yield f"ERROR: domain->span does not contain CPU{cpu}"
    if domain.groups and cpu not in domain.groups[0].span:
        yield f"ERROR: domain->groups does not contain CPU{cpu}"
    for flag in domain.flags:
        if flag in SHARED_CHILD and child is not None and flag not in child.flags:
            yield f"ERROR: flag {flag} set here but not in child"
        if flag in SHARED_PARENT and parent is not None and flag not in parent.flags:
            yield f"ERROR: flag {flag} set here but not in parent"
    covered: set[int] = set()
    for place, group in enumerate(domain.groups):
        # Until 7.0 the kernel tests SD_OVERLAP, a flag of the same domains.
        if "SD_NUMA" not in domain.flags and covered & set(group.span):
            yield "ERROR: repeated CPUs"
            break
        covered |= set(group.span)
        if place == 0 and child is not None and child.span != group.span:
            yield _OTHER_THAN_CHILD
    if covered != set(domain.span):
        yield "ERROR: groups don't span domain->span"
    if parent is not None and not covered <= set(parent.span):
        yield "ERROR: parent span is not a superset of domain->span"
