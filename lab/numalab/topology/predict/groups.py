"""Builds the groups of every sched domain (kernel/sched/topology.c)."""

from collections.abc import Iterator
from enum import StrEnum

from numalab.topology.predict.domains import Domain, DomainTree, Group


class Construction(StrEnum):
    """The construction of groups in overlapping NUMA domains.

    `NOW`: each CPU has its own groups, and only the CPUs that arrive at a group balance for it.
    `POST_2017` (the series groups-of-the-post): each CPU has its own groups, balanced by all their
    CPUs. `BEFORE_4_13` (the series undo-group-construction): every CPU has the same groups,
    balanced by all their CPUs.
    """

    NOW = "now"
    POST_2017 = "post-2017"
    BEFORE_4_13 = "before-4.13"


class GroupBuilder:
    """Builds the groups of one tree of domains; `warnings` gathers those of the kernel."""

    def __init__(
        self, tree: DomainTree, *, construction: Construction, descended_sibling: bool
    ) -> None:
        self.tree = tree
        self.construction = construction
        self.descended_sibling = descended_sibling
        self.warnings: dict[str, None] = {}
        self._capacities: dict[tuple[int, int], int] = {}
        self._plain: dict[tuple[int, int], Group] = {}
        self._arriving = [_by_child_span(domains) for domains in tree.by_level]
        self._present = [sum(1 << cpu for cpu in domains) for domains in tree.by_level]

    def build(self) -> None:
        """Give every domain its groups: the second loop of `build_sched_domains()`."""
        for lowest in self.tree.lowest:
            domain: Domain | None = lowest
            while domain is not None:
                if domain.overlaps:
                    self._build_overlapping(domain)
                else:
                    self._link_plain(domain)
                domain = domain.parent
        # All CPUs of a domain share plain groups, so the links of the last CPU count.
        for domains in self.tree.by_level:
            for domain in domains.values():
                if not domain.overlaps:
                    domain.groups = _walk(domain.groups[0])

    def _link_plain(self, domain: Domain) -> None:
        """Link the groups of a domain that do not overlap: `build_sched_groups()`, 6.12."""
        covered = [0]
        groups = []
        for cpu in uncovered(domain.span, domain.cpu, covered):
            group = self._plain_group(domain.level, cpu)
            covered[0] |= group.span
            groups.append(group)
        for group, following in zip(groups, groups[1:] + groups[:1], strict=True):
            group.next = following
        domain.groups = groups[:1]

    def _plain_group(self, level: int, cpu: int) -> Group:
        """Return the group that a CPU's domain below makes up: `get_group()`, 6.12."""
        child = self.tree.by_level[level][cpu].child
        span = child.span if child is not None else 1 << cpu
        return self._plain.setdefault((level, first(span)), Group(span, span))

    def _build_overlapping(self, domain: Domain) -> None:
        """Collect overlapping groups: `build_overlap_sched_groups()`, 6.12.

        Each CPU that is not yet covered adds its own child domain as a group, from the domain's
        own CPU on (`for_each_cpu_wrap`). The patch of 2017 went on from the first CPU of the span.
        Before 4.13 the walk began there, for every CPU alike, and the list then started at the
        local group.
        """
        before = self.construction is Construction.BEFORE_4_13
        siblings = self.tree.by_level[domain.level]
        covered = [0]
        groups: list[Group] = []
        local = 0
        for cpu in self._builders(domain, covered):
            sibling = siblings.get(cpu)
            if sibling is None:
                continue  # its domains ended earlier: they already span everything
            child = sibling.child
            if child is not None and child.span & ~domain.span and self.descended_sibling:
                sibling = _descended_sibling(domain, sibling)
            span = sibling.child.span if sibling.child is not None else sibling.span
            covered[0] |= span
            level = sibling.level if self.descended_sibling else domain.level
            group = Group(span, self._balance_mask(level, span, cpu))
            if before and self._is_local(group, domain.cpu, groups, local):
                local = len(groups)
            groups.append(group)
        domain.groups = groups[local:] + groups[:local]

    def _builders(self, domain: Domain, covered: list[int]) -> Iterator[int]:
        """Yield the CPUs whose child domains become groups, as `covered` grows."""
        if self.construction is Construction.POST_2017:
            yield domain.cpu
        start = domain.cpu if self.construction is Construction.NOW else 0
        yield from uncovered(domain.span, start, covered)

    @staticmethod
    def _is_local(group: Group, cpu: int, before: list[Group], local: int) -> bool:
        """Tell whether the list starts at this group: before 4.13, a rule of 74a5ce20e6ee."""
        covered = bool(before) and bool(before[local].span >> cpu & 1)
        balances = bool(group.mask) and first(group.mask) == cpu
        return (not covered and bool(group.span >> cpu & 1)) or balances

    def _balance_mask(self, level: int, span: int, cpu: int) -> int:
        """Return the CPUs that arrive at a group: `build_balance_mask()`, 6.12.

        The mask is kept with the group's capacity, which all groups with the same first arriving
        CPU share (`init_overlap_sched_group()`); the first one to be built sets it. Before 4.13
        and with the patch of 2017 it was every CPU of the group that has this domain, kept with
        the CPU that built it.
        """
        if self.construction is not Construction.NOW:
            mask = span & self._present[level]
            return self._capacities.setdefault((level, cpu), mask)
        mask = span & self._arriving[level].get(span, 0)
        if not mask:
            self.warnings["a group has an empty balance mask"] = None
            return 0
        kept = self._capacities.setdefault((level, first(mask)), mask)
        if kept != mask:
            self.warnings["groups that share their capacity have different balance masks"] = None
        return kept


def _descended_sibling(domain: Domain, sibling: Domain) -> Domain:
    """Find the domain whose child fits into `domain`: `find_descended_sibling()`, 5.13 on."""
    while sibling.child is not None and sibling.child.span & ~domain.span:
        sibling = sibling.child
    while sibling.child is not None and sibling.child.span == sibling.span:
        sibling = sibling.child
    return sibling


def _by_child_span(domains: dict[int, Domain]) -> dict[int, int]:
    """Gather the CPUs of one level by the span of the domain below."""
    spans: dict[int, int] = {}
    for cpu, domain in domains.items():
        if domain.child is not None:
            spans[domain.child.span] = spans.get(domain.child.span, 0) | 1 << cpu
    return spans


def _walk(start: Group) -> list[Group]:
    groups = [start]
    following = start.next
    while following is not None and following is not start:
        groups.append(following)
        following = following.next
    return groups


def first(mask: int) -> int:
    """Return the smallest CPU of a set that is not empty (`cpumask_first`)."""
    return (mask & -mask).bit_length() - 1


def uncovered(span: int, start: int, covered: list[int]) -> Iterator[int]:
    """Yield the CPUs of `span` from `start` on and around, as `for_each_cpu_wrap` does.

    CPUs in `covered[0]`, to which the caller adds, are skipped.
    """
    for part in (span >> start << start, span & ((1 << start) - 1)):
        left = part & ~covered[0]
        while left:
            low = left & -left
            yield low.bit_length() - 1
            left &= ~(covered[0] | low)
