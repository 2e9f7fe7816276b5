"""The machine that a recording is from, as the analysis looks things up in it."""

from collections.abc import Mapping
from dataclasses import dataclass

from numalab.topology.model import Topology


@dataclass(frozen=True)
class RecordedMachine:
    """Nodes, the CPUs of each, and how far apart they are; all empty where nothing is known.

    `hops` of two nodes is how many smaller distances there are in the machine, as the kernel counts
    NUMA levels (sched_init_numa() in kernel/sched/topology.c).
    """

    nodes: tuple[int, ...]
    cpus_of: Mapping[int, tuple[int, ...]]
    node_of: Mapping[int, int]
    distance: Mapping[tuple[int, int], int]
    hops: Mapping[tuple[int, int], int]

    @property
    def cpus(self) -> tuple[int, ...]:
        """All CPUs, by node."""
        return tuple(cpu for node in self.nodes for cpu in self.cpus_of[node])

    @property
    def cpu_counts(self) -> dict[int, int]:
        """How many CPUs each node has."""
        return {node: len(cpus) for node, cpus in self.cpus_of.items()}

    def table(self, of: Mapping[tuple[int, int], int]) -> tuple[tuple[int, ...], ...]:
        """Return `distance` or `hops` as a table in the order of the nodes."""
        return tuple(tuple(of[a, b] for b in self.nodes) for a in self.nodes)

    @classmethod
    def of(cls, topology: Topology | None) -> "RecordedMachine":
        """Look up what a topology says; None gives a machine of which nothing is known."""
        if topology is None:
            return cls((), {}, {}, {}, {})
        levels = sorted({distance for row in topology.distances for distance in row})
        distance = {
            (a.id, b.id): topology.distances[i][j]
            for i, a in enumerate(topology.nodes)
            for j, b in enumerate(topology.nodes)
        }
        return cls(
            tuple(node.id for node in topology.nodes),
            {node.id: node.cpus for node in topology.nodes},
            {cpu: node.id for node in topology.nodes for cpu in node.cpus},
            distance,
            {pair: levels.index(value) for pair, value in distance.items()},
        )
