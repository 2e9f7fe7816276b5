"""Rows of a table that compares the sched groups of several kernels."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace

from numalab.cpulist import format_cpulist
from numalab.report.document import CellReport
from numalab.topology.sched_domains import CpuDomains, SchedDomain

MOST_SINGLES = 4  # groups of one CPU that are listed; a node may have a hundred


@dataclass(frozen=True)
class GroupShown:
    """One sched group: its CPUs, the nodes it touches, and its balance mask where it is smaller."""

    cpus: str
    nodes: tuple[int, ...]
    mask: str


@dataclass(frozen=True)
class DomainShown:
    """One sched domain of one CPU as one variant's kernel built it.

    `spans_nodes` marks a NUMA domain. `singles` counts groups of one CPU each where there are too
    many to list. `apart` are the flags that another variant lacks.
    """

    name: str
    span: str
    flags: str
    groups: tuple[GroupShown, ...]
    spans_nodes: bool
    singles: int = 0
    apart: str = ""


@dataclass(frozen=True)
class DomainRow:
    """The same domain level of the same CPUs in each variant; None where a variant lacks it.

    `differs` names the difference: "groups" (or the domain itself), "masks" of equal groups,
    "flags", "masks and flags", or "".
    """

    cpus: tuple[int, ...]
    node: int
    level: int
    variants: tuple[DomainShown | None, ...]
    differs: str


def last_domain_rows(report: CellReport) -> list[DomainRow]:
    """Return the widest domain of the first CPU of each node, which shows group construction."""
    rows = []
    for node in report.topology.nodes:
        if node.cpus:
            levels = _rows_of_cpu(report, min(node.cpus), node.id)
            rows.extend(levels[-1:])
    return rows


def all_domain_rows(report: CellReport) -> list[DomainRow]:
    """Return every domain of every CPU, by node and then from the smallest domain up.

    CPUs of one node with the same domain share a row.
    """
    nodes = report.topology.nodes_of_cpus
    cpus = sorted({member.cpu for variant in report.sched_domains for member in variant.cpus})
    rows = [row for cpu in cpus for row in _rows_of_cpu(report, cpu, nodes.get(cpu, -1))]
    merged: dict[DomainRow, tuple[int, ...]] = {}
    for row in rows:
        key = replace(row, cpus=())
        merged[key] = (*merged.get(key, ()), *row.cpus)
    shared = [replace(row, cpus=cpus) for row, cpus in merged.items()]
    return sorted(shared, key=lambda row: (row.node, row.level, row.cpus))


def has_flags(report: CellReport) -> bool:
    """Whether the flags of all domains of all variants are known."""
    cpus = (cpu for variant in report.sched_domains for cpu in variant.cpus)
    return all(domain.flags for cpu in cpus for domain in cpu.domains)


def domain_text(domain: DomainShown | None) -> str:
    """Write a domain's groups as text: `{0-1,6-7} {2-5}`, for a mail."""
    if domain is None:
        return "none"
    listed = " ".join(f"{{{group.cpus}}}" for group in domain.groups)
    groups = f"{domain.singles} groups of one CPU" if domain.singles else listed
    return f"{groups} {domain.apart}".rstrip()


def _rows_of_cpu(report: CellReport, cpu: int, node: int) -> list[DomainRow]:
    nodes = report.topology.nodes_of_cpus
    variants = [_domains_of(variant.cpus, cpu) for variant in report.sched_domains]
    rows = []
    for level in range(max((len(domains) for domains in variants), default=0)):
        here = [domains[level] if level < len(domains) else None for domains in variants]
        flags = [set(domain.flags) for domain in here if domain]
        common = set.intersection(*flags) if all(flags) else set().union(*flags)
        shown = tuple(_shown(domain, nodes, common) if domain else None for domain in here)
        differs = _difference(here)
        rows.append(DomainRow((cpu,), node, level, shown, differs))
    return rows


def _domains_of(cpus: tuple[CpuDomains, ...], cpu: int) -> tuple[SchedDomain, ...]:
    return next((member.domains for member in cpus if member.cpu == cpu), ())


def _shown(domain: SchedDomain, nodes: dict[int, int], common: Container[str]) -> DomainShown:
    groups = tuple(
        GroupShown(
            format_cpulist(group.span),
            tuple(sorted({nodes[cpu] for cpu in group.span if cpu in nodes})),
            "" if set(group.mask) == set(group.span) else format_cpulist(group.mask),
        )
        for group in domain.groups
    )
    single = len(groups) > MOST_SINGLES and all(len(group.span) == 1 for group in domain.groups)
    return DomainShown(
        name=domain.name,
        span=format_cpulist(domain.span),
        flags=" ".join(domain.flags),
        groups=() if single else groups,
        spans_nodes=len({nodes.get(cpu) for cpu in domain.span}) > 1,
        singles=len(groups) if single else 0,
        apart=" ".join(flag for flag in domain.flags if flag not in common),
    )


def _difference(domains: Sequence[SchedDomain | None]) -> str:
    """Return the difference between the same domain of several kernels.

    The order of groups is ignored: each CPU's list starts with its local group in every kernel.
    Flags count where all are known: runs of earlier versions of numalab stored none.
    """

    def differ(of: Callable[[SchedDomain], object]) -> bool:
        return len({of(domain) if domain else None for domain in domains}) > 1

    if differ(lambda d: (d.name, d.span, frozenset(group.span for group in d.groups))):
        return "groups"
    parts = {
        "masks": differ(lambda d: frozenset((group.span, group.mask) for group in d.groups)),
        "flags": all(d.flags for d in domains if d) and differ(lambda d: frozenset(d.flags)),
    }
    return " and ".join(part for part, is_other in parts.items() if is_other)
