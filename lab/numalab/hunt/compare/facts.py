"""Facts about a machine that a kernel computes when it builds its sched domains."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

from numalab.cpulist import format_cpulist
from numalab.hunt.compare.kernel_memory import KernelMemory
from numalab.topology.differences import Difference, MachinePart
from numalab.topology.guest_view import GuestView
from numalab.topology.predict.domains import NUMA_TYPES
from numalab.topology.predict.prediction import Prediction
from numalab.topology.sched_domains import SchedLog

TYPE, LARGEST, LEVELS = (
    "sched_numa_topology_type",
    "sched_max_numa_distance",
    "sched_domains_numa_levels",
)
_RECLAIM, _DISTANCES, _LOWEST_NUMA = (
    "node_reclaim_distance",
    "sched_domains_numa_distance",
    "sd_numa",
)
# The variables of kernel/sched/topology.c (6.12) that facts are read from.
SYMBOLS = (TYPE, LARGEST, LEVELS, _RECLAIM, _DISTANCES, _LOWEST_NUMA)
Source = Literal["variables", "kernel log", "domains in memory", "debugfs"]
_SOURCES: tuple[Source, ...] = get_args(Source)  # the most telling first
_MOST_LEVELS = 16
_MOST_GROUPS = 64
_MOST_FACTS = 20_000
# Offsets in struct sched_domain, 5.18 to 7.x (include/linux/sched/topology.h): parent, child,
# groups, min_interval and max_interval have 8 bytes each; the numbers that follow have 4.
_PARENT, _CHILD, _GROUPS = 0, 8, 16
_NUMBERS = (
    ("min_interval", 24, 8),
    ("max_interval", 32, 8),
    ("busy_factor", 40, 4),
    ("imbalance_pct", 44, 4),
    ("cache_nice_tries", 48, 4),
    ("imb_numa_nr", 52, 4),
)
_WEIGHT = 12  # of group_weight in struct sched_group (kernel/sched/sched.h)
_FILE = re.compile(
    r"cpu(\d{1,5})/domain(\d{1,2})/(name|flags|min_interval|max_interval|busy_factor"
    r"|imbalance_pct|cache_nice_tries):(.{0,1000})$"
)


@dataclass(frozen=True, order=True)
class Fact:
    """A value that the kernel computed, as text: what it is of, and where it was read."""

    source: Source
    name: str
    value: str


def facts_of_guest(
    guest: GuestView, domain_files: str, *, capacities: bool = True
) -> tuple[Fact, ...]:
    """Return the facts in a guest's report: debugfs before the loads, and the last domains built.

    `domain_files` are lines `path:value` of /sys/kernel/debug/sched/domains. `capacities` of groups
    are facts unless loads rebuild the domains: tasks of other policies than fair lower them.
    """
    facts = [*_of_files(domain_files.splitlines()), *_of_log(guest.sched_log, capacities)]
    return tuple(facts[:_MOST_FACTS])


def _of_files(lines: Iterable[str]) -> Iterator[Fact]:
    for line in lines:
        if match := _FILE.search(line[:4096]):
            name = f"CPU {match[1]}, domain {match[2]}, {match[3]}"
            yield Fact("debugfs", name, " ".join(match[4].split()))


def _of_log(log: SchedLog, capacities: bool) -> Iterator[Fact]:
    for cpu in log.cpus:
        for domain in cpu.domains:
            name = f"CPU {cpu.cpu}, domain {domain.level}"
            yield Fact("kernel log", name, f"{domain.name} {format_cpulist(domain.span)}")
            groups = ", ".join(
                f"{format_cpulist(group.span)} (mask {format_cpulist(group.mask)})"
                for group in domain.groups
            )
            yield Fact("kernel log", f"{name}, groups", groups)
            if not capacities:
                continue
            # Interrupts of a busy boot lower a capacity by some per cent.
            rounded = [
                round(4 * group.capacity / (1024 * max(1, len(group.span)))) / 4
                for group in domain.groups
            ]
            text = ", ".join(f"{value:g}" for value in rounded)
            yield Fact("kernel log", f"{name}, capacity of groups for each CPU", text)


def facts_in_memory(
    kernel: KernelMemory | None, cpus: int, *, domains: bool = True
) -> tuple[Fact, ...]:
    """Return the facts in the memory of a kernel that has ended, so after hotplug and all loads.

    None has no facts. Without `domains` (before 6.0, where struct sched_domain has another layout)
    only variables are read.
    """
    if kernel is None:
        return ()
    values = {name: kernel.variable(name) for name in (TYPE, LARGEST, LEVELS, _RECLAIM)}
    facts = [Fact("variables", name, _shown(name, value))
             for name, value in values.items() if value is not None]  # fmt: skip
    table, levels = kernel.variable(_DISTANCES, 8), values[LEVELS]
    if table and levels and levels <= _MOST_LEVELS:
        read = [kernel.number(table + 4 * level) for level in range(levels)]
        if None not in read:
            facts.append(Fact("variables", _DISTANCES, " ".join(map(str, read))))
    of_domains: list[Fact] = []
    for cpu in range(cpus if domains else 0):
        chain = _chain(kernel, cpu)
        if chain is None:
            return tuple(facts)
        for level, domain in enumerate(chain):
            of_domains += _of_domain(kernel, domain, f"CPU {cpu}, domain {level}")
    return tuple([*facts, *of_domains][:_MOST_FACTS])


def _shown(name: str, value: int) -> str:
    return NUMA_TYPES[value] if name == TYPE and value < len(NUMA_TYPES) else str(value)


def _chain(kernel: KernelMemory, cpu: int) -> list[int] | None:
    """Return the addresses of a CPU's domains, lowest first; none if no domain has SD_NUMA.

    None if parents and children do not fit to each other.
    """
    domain = kernel.per_cpu(_LOWEST_NUMA, cpu)
    if not domain:
        return []
    for _ in range(_MOST_LEVELS):
        child = kernel.number(domain + _CHILD, 8)
        if not child:
            break
        if kernel.number(child + _PARENT, 8) != domain:
            return None
        domain = child
    chain = [domain]
    while len(chain) < _MOST_LEVELS and (parent := kernel.number(chain[-1] + _PARENT, 8)):
        if kernel.number(parent + _CHILD, 8) != chain[-1]:
            return None
        chain.append(parent)
    return chain


def _of_domain(kernel: KernelMemory, domain: int, name: str) -> Iterator[Fact]:
    for field, offset, size in _NUMBERS:
        value = kernel.number(domain + offset, size)
        yield Fact("domains in memory", f"{name}, {field}", str(value))
    first = group = kernel.number(domain + _GROUPS, 8)
    weights: list[str] = []
    while group and len(weights) < _MOST_GROUPS:
        weights.append(str(kernel.number(group + _WEIGHT)))
        group = kernel.number(group, 8)
        if group == first:
            break
    yield Fact("domains in memory", f"{name}, group_weight of groups", ", ".join(weights))


def with_facts(guest: GuestView, facts: Iterable[Fact]) -> GuestView:
    """Return a guest's report with the NUMA type and `imb_numa_nr` from its kernel's memory.

    So they are compared with the prediction as if the kernel had printed them.
    """
    imbalance: dict[tuple[int, int], int] = {}
    numa_type = guest.sched_log.numa_type
    for fact in facts:
        match = re.fullmatch(r"CPU (\d{1,5}), domain (\d{1,2}), imb_numa_nr", fact.name)
        if match and fact.value.isdecimal():
            imbalance[int(match[1]), int(match[2])] = int(fact.value)
        elif fact.name == TYPE:
            numa_type = next((kind for kind in NUMA_TYPES if kind == fact.value), numa_type)
    log = replace(
        guest.sched_log,
        numa_type=numa_type,
        imb_numa_nr={**imbalance, **guest.sched_log.imb_numa_nr},
    )
    return replace(guest, sched_log=log)


def differing_levels(prediction: Prediction, facts: Iterable[Fact]) -> tuple[Difference, ...]:
    """Return where the number of NUMA levels or the largest distance is not the predicted one."""
    distances = prediction.levels.distances
    expected = {
        LEVELS: str(len(distances)),
        LARGEST: str(distances[-1]),
        _DISTANCES: " ".join(map(str, distances)),
    }
    return tuple(
        Difference(fact.name, expected[fact.name], fact.value, MachinePart.DOMAINS)
        for fact in facts
        if fact.name in expected and fact.value != expected[fact.name]
    )


def differing_facts(mine: Iterable[Fact], theirs: Iterable[Fact]) -> tuple[Difference, ...]:
    """Return the facts of a kernel that differ from those of its reference kernel.

    A source that one of the kernels does not offer at all is left out.
    """
    left = {(fact.source, fact.name): fact.value for fact in mine}
    right = {(fact.source, fact.name): fact.value for fact in theirs}
    sources = {source for source, _ in left} & {source for source, _ in right}
    keys = [key for key in dict.fromkeys([*left, *right]) if key[0] in sources]
    keys.sort(key=lambda key: _SOURCES.index(key[0]))
    return tuple(
        Difference(key[1], right.get(key, "nothing"), left.get(key, "nothing"), MachinePart.DOMAINS)
        for key in keys
        if left.get(key) != right.get(key)
    )
