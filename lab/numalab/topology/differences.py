"""How two topologies differ."""

from collections.abc import Iterator
from itertools import zip_longest

from numalab.cpulist import format_cpulist
from numalab.topology.model import CpuShape, Topology
from numalab.topology.observed.compare import Difference

MAX_DISTANCES = 200


def compare_topologies(a: Topology, b: Topology) -> tuple[Difference, ...]:
    """Return what differs between two machines; `expected` is of the first, `found` of the second.

    Names, summaries and sources are not compared: the same machine may have two names.
    """
    return (
        *_nodes(a, b),
        *_packaging(a, b),
        *_distances(a, b),
        *_interconnects(a, b),
        *_memory(a, b),
    )


def _nodes(a: Topology, b: Topology) -> Iterator[Difference]:
    for one, other in zip_longest(a.nodes, b.nodes):
        if one is None or other is None:
            number = (one or other).id
            yield Difference(f"node {number}", _there(one), _there(other))
            continue
        if one.cpus != other.cpus:
            yield Difference(
                f"node {one.id}, CPUs",
                format_cpulist(one.cpus) or "none",
                format_cpulist(other.cpus) or "none",
            )
        if one.memory_mib != other.memory_mib:
            yield Difference(
                f"node {one.id}, memory", f"{one.memory_mib} MiB", f"{other.memory_mib} MiB"
            )


def _there(node: object) -> str:
    return "is not there" if node is None else "is there"


def _packaging(a: Topology, b: Topology) -> Iterator[Difference]:
    if a.packaging != b.packaging:
        yield Difference("CPUs", _shape(a.packaging), _shape(b.packaging))
    if a.llc != b.llc:
        yield Difference("last-level cache", a.llc, b.llc)


def _shape(shape: CpuShape) -> str:
    return ", ".join(f"{count} {name}" for name, count in vars(shape).items())


def _distances(a: Topology, b: Topology) -> Iterator[Difference]:
    nodes = range(min(len(a.nodes), len(b.nodes)))
    found = [
        Difference(f"distance {i} to {j}", str(a.distances[i][j]), str(b.distances[i][j]))
        for i in nodes
        for j in nodes
        if a.distances[i][j] != b.distances[i][j]
    ]
    yield from found[:MAX_DISTANCES]


def _memory(a: Topology, b: Topology) -> Iterator[Difference]:
    others = vars(b.memory)
    for key, value in vars(a.memory).items():
        if value != others[key]:
            yield Difference(f"memory.{key}", _given(value), _given(others[key]))


def _given(value: object) -> str:
    return "the default" if value is None else str(value)


def _interconnects(a: Topology, b: Topology) -> Iterator[Difference]:
    ones = {(each.initiator, each.target): each for each in a.interconnects}
    others = {(each.initiator, each.target): each for each in b.interconnects}
    for ends in sorted(ones.keys() | others.keys()):
        one, other = ones.get(ends), others.get(ends)
        if one != other:
            old, new = (
                f"{each.latency_ns} ns, {each.bandwidth_kib_s} KiB/s" if each else "not given"
                for each in (one, other)
            )
            yield Difference(f"access {ends[0]} to {ends[1]}", old, new)
