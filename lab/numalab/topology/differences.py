"""Compares two machines, or a prediction with a booted guest."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import zip_longest

from numalab.cpulist import cpus_of, format_cpulist
from numalab.topology.guest_view import GuestNode, GuestView
from numalab.topology.predict.prediction import Prediction
from numalab.topology.sched_domains import CpuDomains, SchedDomain, SchedGroup
from numalab.topology.topology import (
    Interconnect,
    Topology,
    describe_bandwidth,
    describe_shape,
)

# Of a node's memory: the hole below 1 MiB, the ACPI tables, and rounding.
FIRMWARE_MIB = 2
# Without the firmware's ranges in the log: the kernel's image, the 64 MiB of its SWIOTLB, page
# structs (1.6 % of all memory, and they may all be on one node).
KERNEL_MIB = 128
PAGE_STRUCTS_SHARE = 0.05
MAX_SHOWN = 20
MAX_DISTANCES = 200


class MachinePart(StrEnum):
    """The part of a machine that differs: its nodes, its sched domains, or the warnings."""

    NODES = "nodes"
    DOMAINS = "domains"
    WARNINGS = "warnings"


@dataclass(frozen=True)
class Difference:
    """A difference: where it is, the expected value and the actual value."""

    subject: str
    expected: str
    actual: str
    part: MachinePart = MachinePart.NODES

    def __str__(self) -> str:
        """Write it in one line."""
        return f"{self.subject}: expected {self.expected}, found {self.actual}"


_of_domains = partial(Difference, part=MachinePart.DOMAINS)


def compare_guest(
    topology: Topology, prediction: Prediction, guest: GuestView, *, reserved_mib: int = 32
) -> tuple[Difference, ...]:
    """Return all differences of a guest from the topology and the prediction for its kernel.

    Compares node numbers, CPUs, distances and memory of every node; the sched domains, flags,
    groups and balance masks of every CPU, in the kernel's order; the kernel's errors and warnings;
    and the values that only a kernel with the series `show-predicted` prints. Group capacities are
    left out, because a busy boot lowers them; so are domains that the log lost. The trace reserves
    `reserved_mib` of the first node that has memory.
    """
    return (
        *_guest_nodes(topology, prediction, guest, reserved_mib),
        *_domains(prediction, guest),
        *_errors(prediction, guest),
        *_warnings(prediction, guest),
        *_shown(prediction, guest),
    )


def format_differences(differences: tuple[Difference, ...]) -> str:
    """Write the first differences for people, with both sides of each."""
    lines = []
    for difference in differences[:MAX_SHOWN]:
        lines += [
            difference.subject,
            f"  expected: {difference.expected}",
            f"  found:    {difference.actual}",
        ]
    if len(differences) > MAX_SHOWN:
        lines.append(f"and {len(differences) - MAX_SHOWN} more")
    return "\n".join(lines)


def _guest_nodes(
    topology: Topology, prediction: Prediction, guest: GuestView, reserved_mib: int
) -> Iterator[Difference]:
    machine = prediction.machine
    actual = {node.id: node for node in guest.nodes}
    expected = range(len(machine.nodes))
    if list(actual) != list(expected):
        yield Difference("nodes", format_cpulist(expected), _cpus(actual))
    first = next(node for node in topology.nodes if node.memory_mib)
    for node in topology.nodes:
        number = machine.node_of_topology[node.id]
        if number not in actual:
            continue
        name = f"node {number}"
        if number != node.id:
            name += f" (node {node.id} of the topology)"
        cpus, distances = actual[number].cpus, actual[number].distances
        own = cpus_of(machine.nodes[number])
        if cpus is None or {*cpus, *guest.offline.intersection(own)} != {*own}:
            yield Difference(f"{name}, CPUs", _cpus(own), _cpus(cpus))
        if distances != machine.distances[number]:
            shown = "unreadable" if distances is None else " ".join(map(str, distances))
            want = " ".join(map(str, machine.distances[number]))
            yield Difference(f"{name}, distances", want, shown)
        reserved = reserved_mib if node is first else 0
        yield from _guest_memory(name, actual[number], node.memory_mib, reserved)


def _guest_memory(
    name: str, node: GuestNode, expected: int, reserved_mib: int
) -> Iterator[Difference]:
    actual, slack = node.given_mib, FIRMWARE_MIB + reserved_mib
    if actual is None:
        actual = node.memory_mib
        slack = KERNEL_MIB + int(PAGE_STRUCTS_SHARE * expected) + reserved_mib
    if actual is None or not expected - slack <= actual <= expected:
        shown = "unreadable" if actual is None else f"{actual} MiB"
        yield Difference(f"{name}, memory", f"{expected} MiB, less what firmware keeps", shown)


def _domains(prediction: Prediction, guest: GuestView) -> Iterator[Difference]:
    if guest.cut:
        return
    if not guest.sched_log.cpus:
        yield _of_domains(
            "sched domains", f"{len(prediction.cpus)} CPUs", "no sched_verbose lines in the log"
        )
        return
    actual = {domains.cpu: domains for domains in guest.sched_log.cpus}
    for expected in prediction.cpus:
        if expected.cpu not in actual:
            yield _of_domains(f"CPU {expected.cpu}, sched domains", _listed(expected), "none")
        else:
            masks = prediction.rules.own_groups
            yield from _cpu_domains(expected, actual.pop(expected.cpu), guest, masks=masks)
    for cpu, extra in sorted(actual.items()):
        yield _of_domains(f"CPU {cpu}, sched domains", "no such CPU", _listed(extra))


def _cpu_domains(
    expected: CpuDomains, actual: CpuDomains, guest: GuestView, *, masks: bool
) -> Iterator[Difference]:
    """Compare the domains of a CPU; `masks`: the log has the groups' balance masks."""
    cpu = f"CPU {expected.cpu}"
    if _listed(expected) != _listed(actual):
        yield _of_domains(f"{cpu}, sched domains", _listed(expected), _listed(actual))
        return
    for want, got in zip(expected.domains, actual.domains, strict=True):
        name = f"{cpu}, domain {want.level} ({want.name} {format_cpulist(want.span)})"
        groups = _groups(want) if masks else _spans(want)
        if groups != _groups(got):
            yield _of_domains(f"{name}, groups", groups, _groups(got))
        files = guest.domain_files.get((expected.cpu, want.level))
        if files is not None and files.name != want.name:
            yield _of_domains(f"{name}, name in debugfs", want.name, files.name)
        if files is not None and files.flags is not None and set(files.flags) != set(want.flags):
            yield _of_domains(f"{name}, flags", " ".join(want.flags), " ".join(files.flags))
        if files is None and guest.domain_files:
            yield _of_domains(f"{name}, debugfs", "a directory", "nothing")


def _errors(prediction: Prediction, guest: GuestView) -> Iterator[Difference]:
    """Compare the kernel's ERROR lines with the predicted lines."""
    actual = dict.fromkeys(guest.sched_log.errors)
    for text in actual:
        if text not in prediction.errors:
            yield _of_domains("sched_verbose", "no such error", text)
    for text in prediction.errors if guest.sched_log.cpus else ():
        if text not in actual:
            yield _of_domains("sched_verbose", text, "no such error")


def _warnings(prediction: Prediction, guest: GuestView) -> Iterator[Difference]:
    """Compare warnings about siblings by their text, other warnings by their file."""
    siblings, by_model = prediction.machine.warnings, prediction.machine.warnings_by_model
    if by_model and set(by_model) <= set(guest.warnings):
        siblings = by_model
    for text in siblings:
        if text not in guest.warnings:
            yield Difference("kernel log", text, "no such warning", MachinePart.WARNINGS)
    predicted = [text for text in prediction.warnings if text not in prediction.machine.warnings]
    actual = [text for text in guest.warnings if text not in siblings]
    if bool(predicted) != bool(actual):
        nothing = "no warning of kernel/sched/topology.c"
        want, got = ("; ".join(texts) or nothing for texts in (predicted, actual))
        yield Difference("kernel log", want, got, MachinePart.WARNINGS)


def _shown(prediction: Prediction, guest: GuestView) -> Iterator[Difference]:
    """Compare the NUMA type and each domain's `imb_numa_nr`, where the kernel prints them."""
    log = guest.sched_log
    if log.numa_type is not None and log.numa_type != prediction.numa_type:
        yield _of_domains("sched_numa_topology_type", prediction.numa_type, log.numa_type)
    for (cpu, level), printed in sorted(log.imb_numa_nr.items()):
        predicted = prediction.imb_numa_nr[cpu] if cpu < len(prediction.imb_numa_nr) else ()
        if level < len(predicted) and printed != predicted[level]:
            subject = f"CPU {cpu}, domain {level}, imb_numa_nr"
            yield _of_domains(subject, str(predicted[level]), str(printed))


def _listed(cpu: CpuDomains) -> str:
    named = (f"{domain.name} {format_cpulist(domain.span)}" for domain in cpu.domains)
    return ", ".join(named) or "none"


def _groups(domain: SchedDomain) -> str:
    return ", ".join(format_group(group) for group in domain.groups)


def _spans(domain: SchedDomain) -> str:
    return ", ".join(format_cpulist(group.span) for group in domain.groups)


def format_group(group: SchedGroup) -> str:
    """Write a group as `0-3`, and its balance mask where it differs: `0-3 (balanced by 0-1)`."""
    span = format_cpulist(group.span)
    return span if group.mask == group.span else f"{span} (balanced by {_cpus(group.mask)})"


def _cpus(cpus: Iterable[int] | None) -> str:
    return "unreadable" if cpus is None else format_cpulist(cpus) or "none"


def compare_topologies(a: Topology, b: Topology) -> tuple[Difference, ...]:
    """Return the differences of two machines; `expected` is of the first, `actual` of the second.

    Names, summaries and sources are not compared: the same machine may have two names.
    """
    return (
        *_nodes(a, b),
        *_packaging(a, b),
        *_distances(a, b),
        *_links(a, b),
        *_interconnects(a, b),
        *_memory(a, b),
    )


def _nodes(a: Topology, b: Topology) -> Iterator[Difference]:
    for number, (first, second) in enumerate(zip_longest(a.nodes, b.nodes)):
        if first is None or second is None:
            before = "is there" if first else "is not there"
            yield Difference(f"node {number}", before, "is there" if second else "is not there")
            continue
        if first.cpus != second.cpus:
            yield Difference(f"node {number}, CPUs", _cpus(first.cpus), _cpus(second.cpus))
        if first.memory_mib != second.memory_mib:
            sizes = f"{first.memory_mib} MiB", f"{second.memory_mib} MiB"
            yield Difference(f"node {number}, memory", *sizes)


def _packaging(a: Topology, b: Topology) -> Iterator[Difference]:
    if a.packaging != b.packaging:
        yield Difference("packaging", describe_shape(a.packaging), describe_shape(b.packaging))
    if a.llc != b.llc:
        yield Difference("last-level cache", a.llc, b.llc)


def _distances(a: Topology, b: Topology) -> Iterator[Difference]:
    nodes = range(min(len(a.nodes), len(b.nodes)))
    differing = [
        Difference(
            f"distance, node {i} to node {j}", str(a.distances[i][j]), str(b.distances[i][j])
        )
        for i in nodes
        for j in nodes
        if a.distances[i][j] != b.distances[i][j]
    ]
    yield from differing[:MAX_DISTANCES]
    if more := len(differing[MAX_DISTANCES:]):
        yield Difference(f"{more} more distances", "differ", "differ")


def _links(a: Topology, b: Topology) -> Iterator[Difference]:
    """Compare the links between nodes, over which data goes in timed mode."""
    if set(a.links) != set(b.links):
        yield Difference("links, where they differ", _without(a, b), _without(b, a))


def _without(a: Topology, b: Topology) -> str:
    """List the links of the first machine that the second lacks."""
    links = [f"{low}-{high}" for low, high in sorted(set(a.links) - set(b.links))]
    more = [f"and {len(links) - MAX_SHOWN} more"] if len(links) > MAX_SHOWN else []
    return ", ".join(links[:MAX_SHOWN] + more) or "none"


def _memory(a: Topology, b: Topology) -> Iterator[Difference]:
    values = vars(b.memory)
    for key, value in vars(a.memory).items():
        if value != values[key]:
            endings = (("_ns", " ns"), ("_mb_s", " MB/s"), ("_kib", " KiB"), ("", ""))
            suffix, unit = next(ending for ending in endings if key.endswith(ending[0]))
            yield Difference(
                f"memory.{key.removesuffix(suffix)} in timed mode",
                _parameter(value, unit),
                _parameter(values[key], unit),
            )


def _parameter(value: object, unit: str) -> str:
    if value is None:
        return "the default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        rows = (" ".join(map(str, row)) if isinstance(row, tuple) else str(row) for row in value)
        return "; ".join(rows) + unit
    return f"{value}{unit}"


def _interconnects(a: Topology, b: Topology) -> Iterator[Difference]:
    """Compare the HMAT in the units of `show`, or in the file's where those are too coarse."""
    of_a = {(link.initiator, link.target): link for link in a.interconnects}
    of_b = {(link.initiator, link.target): link for link in b.interconnects}
    for ends in sorted(of_a.keys() | of_b.keys()):
        first, second = of_a.get(ends), of_b.get(ends)
        if first == second:
            continue
        before, after = _access(first), _access(second)
        if before == after:
            before, after = _access(first, exact=True), _access(second, exact=True)
        yield Difference(f"access, node {ends[0]} to node {ends[1]}", before, after)


def _access(link: Interconnect | None, *, exact: bool = False) -> str:
    if link is None:
        return "none"
    parts = [] if link.latency_ns is None else [f"{link.latency_ns} ns"]
    if link.bandwidth_kib_s is not None:
        kib_s = link.bandwidth_kib_s
        parts.append(f"{kib_s} KiB/s" if exact else describe_bandwidth(kib_s))
    return ", ".join(parts)
