"""How two topologies differ."""

from collections.abc import Iterator
from itertools import zip_longest

from numalab.cpulist import format_cpulist
from numalab.topology.model import (
    Interconnect,
    Topology,
    describe_bandwidth,
    describe_shape,
)
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
    for node, other in zip_longest(a.nodes, b.nodes):
        if node is None or other is None:
            number = (node or other).id
            yield Difference(f"node {number}", _presence(node), _presence(other))
            continue
        if node.cpus != other.cpus:
            yield Difference(
                f"node {node.id}, CPUs",
                format_cpulist(node.cpus) or "none",
                format_cpulist(other.cpus) or "none",
            )
        if node.memory_mib != other.memory_mib:
            yield Difference(
                f"node {node.id}, memory", f"{node.memory_mib} MiB", f"{other.memory_mib} MiB"
            )


def _presence(node: object) -> str:
    return "is not there" if node is None else "is there"


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


def _memory(a: Topology, b: Topology) -> Iterator[Difference]:
    values = vars(b.memory)
    for key, value in vars(a.memory).items():
        if value != values[key]:
            name, unit = _named(key)
            yield Difference(
                f"{name} in timed mode", _parameter(value, unit), _parameter(values[key], unit)
            )


def _named(key: str) -> tuple[str, str]:
    """Return a key of `[memory]` without its unit, and the unit."""
    for suffix, unit in (("_ns", " ns"), ("_mb_s", " MB/s"), ("_kib", " KiB")):
        if key.endswith(suffix):
            return f"memory.{key.removesuffix(suffix)}", unit
    return f"memory.{key}", ""


def _parameter(value: object, unit: str) -> str:
    if value is None:
        return "the default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return (
            "; ".join(
                " ".join(map(str, row)) if isinstance(row, tuple) else str(row) for row in value
            )
            + unit
        )
    return f"{value}{unit}"


def _interconnects(a: Topology, b: Topology) -> Iterator[Difference]:
    """Compare the HMAT in the units of `show`, or the file's where these are too coarse."""
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
