"""The NUMA levels of a machine: which distances there are, and who is within each."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from numalab.topology.predict.firmware import GuestMachine
from numalab.topology.predict.rules import KernelRules

NumaType = Literal["direct", "glueless mesh", "backplane"]
NUMA_TYPES: tuple[NumaType, ...] = get_args(NumaType)  # as `enum numa_topology_type` numbers them


@dataclass(frozen=True)
class NumaLevels:
    """`distances` ascending, local first; `masks[level][node]` are the CPUs within that distance.

    A node that the kernel leaves out (a CPU-less one) has the mask 0.
    """

    distances: tuple[int, ...]
    masks: tuple[tuple[int, ...], ...]
    type: NumaType


def numa_levels(machine: GuestMachine, rules: KernelRules) -> NumaLevels:
    """Find the NUMA levels: `sched_init_numa()`, 6.12, kernel/sched/topology.c.

    5.10 (with the sort by bitmap that stable took from 5.12) looks at CPU-less nodes as well.
    """
    counted = counted_nodes(machine, rules)
    distances = tuple(sorted({machine.distances[a][b] for a in counted for b in counted}))
    masks = []
    for limit in distances:
        level = [0] * len(machine.nodes)
        for a in counted:
            for b in counted:
                if machine.distances[a][b] <= limit:
                    level[a] |= machine.nodes[b]
        masks.append(tuple(level))
    return NumaLevels(distances, tuple(masks), numa_type(machine, distances, counted))


def counted_nodes(machine: GuestMachine, rules: KernelRules) -> list[int]:
    """Return the nodes whose distances make levels."""
    everyone = range(len(machine.nodes))
    return [node for node in everyone if machine.nodes[node] or not rules.only_nodes_with_cpus]


def numa_type(machine: GuestMachine, levels: tuple[int, ...], nodes: Iterable[int]) -> NumaType:
    """Name the machine's type: `init_numa_topology_type()`, 6.12, kernel/sched/topology.c.

    The answer rests on the first pair of nodes that is farthest apart: it is a mesh if some node
    is nearer to both, else a backplane.
    """
    if len(levels) <= 2:
        return "direct"
    farthest = levels[-1]
    nodes = list(nodes)
    table = machine.distances
    for a in nodes:
        for b in nodes:
            if table[a][b] < farthest:
                continue
            if any(table[a][c] < farthest and table[b][c] < farthest for c in nodes):
                return "glueless mesh"
            return "backplane"
    return "direct"
