"""Hazards of a machine to the scheduler of current and older kernels."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from numalab.topology.distances import Matrix
from numalab.topology.limits import LOCAL_DISTANCE, UNREACHABLE
from numalab.topology.predict.firmware import PACKAGE_WARNING, describe_numbers
from numalab.topology.predict.prediction import NOT_SYMMETRIC, Prediction, predict
from numalab.topology.topology import Topology
from numalab.units import counted

MAX_LISTED = 6  # listed in one message


@dataclass(frozen=True)
class Hazard:
    """A hazard: a short name, a sentence about this machine, and a reference."""

    name: str
    text: str
    reference: str


def hazards(topology: Topology, prediction: Prediction) -> tuple[Hazard, ...]:
    """Return the hazards of a machine for the kernel of `prediction` and for older kernels."""
    return (
        *_firmware(topology, prediction),
        *_distances(topology, prediction),
        *_packaging(topology, prediction),
        *_groups(topology, prediction),
        *_domains(topology, prediction),
    )


def _firmware(topology: Topology, prediction: Prediction) -> Iterator[Hazard]:
    if moved := describe_numbers(topology):
        yield Hazard(
            "renumbered nodes",
            moved,
            "acpi_map_pxm_to_node(): nodes with CPUs come first, in order of their CPUs",
        )
    cpuless = [node.id for node in topology.nodes if not node.cpus]
    if cpuless and not prediction.rules.only_nodes_with_cpus:
        yield Hazard(
            "CPU-less nodes count",
            f"before 5.18 the distances of nodes without CPUs ({_numbers(cpuless)}) make NUMA "
            "levels of their own",
            "0fb3978b0aac, sched/numa: Fix NUMA topology for systems with CPU-less nodes",
        )


def _distances(topology: Topology, prediction: Prediction) -> Iterator[Hazard]:
    table = topology.distances
    nodes = range(len(table))
    unreachable = [(a, b) for a in nodes for b in nodes if table[a][b] == UNREACHABLE]
    if unreachable:
        yield Hazard(
            "unreachable nodes",
            f"distance 255 means no path ({_pairs(unreachable)}); the scheduler takes it for "
            "a distance like any other",
            "ACPI 6.5, 5.2.17; sched_init_numa()",
        )
    every = not prediction.rules.only_nodes_with_cpus
    counted = [node.id for node in topology.nodes if node.cpus or every]
    oneway = [(a, b) for a, b in combinations(counted, 2) if table[a][b] != table[b][a]]
    if oneway:
        yield Hazard(
            "asymmetric distances",
            f"one way is longer than the other ({_pairs(oneway)}); sched domains then differ "
            "between the two ends, and sched_verbose prints an ERROR",
            'sched_init_numa(): "Node-distance not symmetric"',
        )
    detours = [
        (a, b)
        for a, b in combinations(nodes, 2)
        if _has_shorter_detour(table, a, b) or _has_shorter_detour(table, b, a)
    ]
    if detours:
        yield Hazard(
            "triangle inequality",
            f"another node's detour is shorter than the direct way ({_pairs(detours)})",
            "distances above 10 should not exceed the sum over a node in between",
        )


def _has_shorter_detour(table: Matrix, a: int, b: int) -> bool:
    between = (c for c in range(len(table)) if c not in (a, b))
    return table[a][b] != UNREACHABLE and any(
        table[a][c] + table[c][b] - LOCAL_DISTANCE < table[a][b] for c in between
    )


def _packaging(topology: Topology, prediction: Prediction) -> Iterator[Hazard]:
    machine = prediction.machine
    if machine.numa_in_package:
        level = prediction.rules.package_level
        yield Hazard(
            "nodes in a package",
            f"a socket holds several nodes, so there is no {level} level",
            "x86_has_numa_in_package, arch/x86/kernel/smpboot.c",
        )
    for warning in machine.warnings:
        if warning == PACKAGE_WARNING:
            yield Hazard(
                "a package on two nodes",
                "a socket has CPUs of several nodes, though there is a socket for each node; the "
                "kernel warns and takes each socket for one node",
                f"{PACKAGE_WARNING}, arch/x86/kernel/smpboot.c",
            )
            continue
        yield Hazard(
            "siblings on two nodes",
            f'the kernel warns "{warning}" and splits all such siblings',
            "topology_sane(), arch/x86/kernel/smpboot.c",
        )
    if topology.cpu_shape is None and topology.cpu_count > 1:
        yield Hazard(
            "a socket for each CPU",
            "CPUs are not in blocks of one size, as QEMU's sockets must be; so no CPUs share a core"
            " or a cache, and the imbalance allowed between nodes is that of single CPUs",
            "sd->imb_numa_nr, build_sched_domains(), kernel/sched/topology.c",
        )
    unlike = topology.llc == "none" or topology.packaging.dies > 1
    several = topology.packaging.dies * topology.packaging.cores > 1
    if prediction.vendor != "intel" and unlike and several:
        yield Hazard(
            "caches not seen",
            "on QEMU's AMD models the kernel takes the whole socket for the last-level cache and "
            "ignores dies and llc; an Intel model (KVM on such a host) has them",
            "arch/x86/kernel/cpu/topology_amd.c",
        )


def _groups(topology: Topology, prediction: Prediction) -> Iterator[Hazard]:
    is_new = prediction.rules.own_groups
    old = predict(topology, "4.12", vendor=prediction.vendor) if is_new else prediction
    if stuck := inseparable_nodes(topology, old):
        yield Hazard(
            "group construction",
            f"before 4.13 no load could move directly between nodes {_pairs(stuck)}: they "
            "were in the same sched groups",
            "Lozi et al., The Linux Scheduler: a Decade of Wasted Cores, 2016, 3.2",
        )
    if is_new and (now := inseparable_nodes(topology, prediction)):
        yield Hazard(
            "nodes that are never balanced",
            f"no sched domain has nodes {_pairs(now)} in different groups",
            "build_overlap_sched_groups(), kernel/sched/topology.c",
        )
    outside = _cpus_with_groups_outside(prediction)
    reaches = "a sched group reaches"
    if not outside and prediction.rules.descended_sibling:
        outside = _cpus_with_groups_outside(predict(topology, "5.12", vendor=prediction.vendor))
        reaches = "before 5.13 a sched group reached"
    if outside:
        yield Hazard(
            "groups out of their domain",
            f"{reaches} out of its domain on {counted(outside, 'CPU')}",
            "585b6d2723dc, sched/topology: fix the issue groups don't span domain->span for "
            "NUMA diameter > 2",
        )


def _cpus_with_groups_outside(prediction: Prediction) -> int:
    return sum(
        any(
            not set(group.span) <= set(domain.span)
            for domain in cpu.domains
            for group in domain.groups
        )
        for cpu in prediction.cpus
    )


def _domains(topology: Topology, prediction: Prediction) -> Iterator[Hazard]:
    alone = [cpu.cpu for cpu in prediction.cpus if not cpu.domains]
    if alone and topology.cpu_count > 1:
        yield Hazard(
            "no sched domain",
            f"the kernel attaches no sched domain to CPU {_numbers(alone)}: no load is ever "
            "balanced there",
            "sd_degenerate(), kernel/sched/topology.c",
        )
    for text in prediction.errors:
        if text != NOT_SYMMETRIC:
            message = f'sched_verbose prints "{text}"'
            yield Hazard("kernel error", message, "sched_domain_debug_one()")
    for warning in prediction.warnings:
        if warning not in prediction.machine.warnings:
            yield Hazard("kernel warning", warning, "kernel/sched/topology.c")


def inseparable_nodes(topology: Topology, prediction: Prediction) -> list[tuple[int, int]]:
    """Return the pairs of nodes between which no load balancing moves tasks directly.

    A CPU of node a pulls from node b in a domain whose local group has no CPU of b and another
    group has. If no CPU of either node has such a domain, the two are inseparable.
    """
    pulls = {
        node.id: _pulled_from(topology, prediction, node.cpus)
        for node in topology.nodes
        if node.cpus
    }
    return [(a, b) for a, b in combinations(pulls, 2) if b not in pulls[a] and a not in pulls[b]]


def _pulled_from(topology: Topology, prediction: Prediction, cpus: tuple[int, ...]) -> set[int]:
    nodes: set[int] = set()
    for cpu in cpus:
        for domain in prediction.cpus[cpu].domains:
            if len(domain.groups) < 2:
                continue
            local = {topology.node_of_cpu(other) for other in domain.groups[0].span}
            remote = {
                topology.node_of_cpu(other) for group in domain.groups[1:] for other in group.span
            }
            nodes |= remote - local
    return nodes


def _pairs(pairs: list[tuple[int, int]]) -> str:
    return _first([f"{a} and {b}" for a, b in pairs])


def _numbers(numbers: list[int]) -> str:
    return _first(list(map(str, numbers)))


def _first(texts: list[str]) -> str:
    """Join the first texts, and say how many more there are."""
    more = len(texts) - MAX_LISTED
    return ", ".join(texts[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
