"""The errors that a kernel booted with sched_verbose finds in its own domains."""

from collections.abc import Iterator

from numalab.topology.predict.firmware import GuestMachine
from numalab.topology.predict.groups import Construction
from numalab.topology.predict.numa_levels import counted_nodes
from numalab.topology.predict.rules import KernelRules
from numalab.topology.sched_domains import CpuDomains, SchedDomain

NOT_SYMMETRIC = "ERROR: Node-distance not symmetric"
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
    cpus: tuple[CpuDomains, ...],
    construction: Construction,
) -> tuple[str, ...]:
    """Return the different `ERROR:` lines of a boot with sched_verbose, in order of appearance.

    Follows `sched_numa_warn()` and `sched_domain_debug_one()`, 6.12, kernel/sched/topology.c. With
    `BEFORE_4_13` the first group is not compared with the child domain, as before 4.13.
    """
    before_fix = construction is Construction.BEFORE_4_13
    errors: dict[str, None] = {}
    nodes = counted_nodes(machine, rules)
    table = machine.distances
    if any(table[a][b] != table[b][a] for a in nodes for b in nodes):
        errors[NOT_SYMMETRIC] = None
    for cpu in cpus:
        child: SchedDomain | None = None
        for place, domain in enumerate(cpu.domains):
            parent = cpu.domains[place + 1] if place + 1 < len(cpu.domains) else None
            for text in _domain_errors(cpu.cpu, child, domain, parent):
                if not (before_fix and text == _OTHER_THAN_CHILD):
                    errors[text] = None
            child = domain
    return tuple(errors)


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
    together: set[int] = set()
    for place, group in enumerate(domain.groups):
        # Until 7.0 the kernel looks for SD_OVERLAP, which the same domains have.
        if "SD_NUMA" not in domain.flags and together & set(group.span):
            yield "ERROR: repeated CPUs"
            break
        together |= set(group.span)
        if place == 0 and child is not None and child.span != group.span:
            yield _OTHER_THAN_CHILD
    if together != set(domain.span):
        yield "ERROR: groups don't span domain->span"
    if parent is not None and not together <= set(parent.span):
        yield "ERROR: parent span is not a superset of domain->span"
