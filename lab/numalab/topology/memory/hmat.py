"""Reads latencies and bandwidths of a machine from its interconnects, the values of the HMAT.

An access is a pair of nodes: of the CPUs that make it, and of the memory.
"""

from collections.abc import Sequence

from numalab.topology.distances import Link
from numalab.topology.topology import Topology


def hmat_latencies(topology: Topology) -> dict[Link, int]:
    """Return the latency of each access in ns; a single direction counts for both."""
    latencies = {
        (access.initiator, access.target): access.latency_ns
        for access in topology.interconnects
        if access.latency_ns is not None
    }
    return {(b, a): ns for (a, b), ns in latencies.items()} | latencies


def memory_shares(topology: Topology) -> tuple[float, ...]:
    """Return the bandwidth of each memory as a share of the fastest memory's.

    That of a memory is its largest, and where the HMAT has none, that of the fastest.
    """
    best = _best(topology)
    most = max(best.values(), default=1)
    return tuple(best.get(node.id, most) / most for node in topology.nodes)


def access_speeds(topology: Topology, speeds: Sequence[float]) -> dict[Link, float]:
    """Return the bandwidth of each access, by the nodes the data goes from and to.

    `speeds` are those of the memories, which are in proportion. A single direction counts for both
    between nodes with CPUs. Bandwidths of links in the file come before those of the HMAT.
    """
    if topology.memory.link_bandwidth_mb_s is not None:
        return {}
    best, bandwidths = _best(topology), _bandwidths(topology)
    both = {(b, a): kib_s for (a, b), kib_s in bandwidths.items() if topology.nodes[b].cpus}
    most = max(best.values(), default=1)
    return {
        (memory, reader): speeds[memory] * min(1.0, kib_s / best.get(memory, most))
        for (reader, memory), kib_s in (both | bandwidths).items()
    }


def _bandwidths(topology: Topology) -> dict[Link, int]:
    return {
        (access.initiator, access.target): access.bandwidth_kib_s
        for access in topology.interconnects
        if access.bandwidth_kib_s is not None
    }


def _best(topology: Topology) -> dict[int, int]:
    best: dict[int, int] = {}
    for (_, memory), kib_s in _bandwidths(topology).items():
        best[memory] = max(best.get(memory, 0), kib_s)
    return best
