"""The same machine with its nodes in another order."""

from collections.abc import Sequence
from dataclasses import replace

from numalab.topology.model import Topology


def memory_first(topology: Topology) -> tuple[int, ...]:
    """Return the nodes in an order in which the first one has memory, else as they are.

    A PC's memory begins at address 0, where its kernel lies, and QEMU lays memory out by node. The
    kernel numbers nodes by their CPUs, and nodes without CPUs keep their order, so that the guest's
    numbers do not change.
    """
    first = next(node.id for node in topology.nodes if node.memory_mib)
    return (first, *(node.id for node in topology.nodes if node.id != first))


def renumbered(topology: Topology, order: Sequence[int]) -> Topology:
    """Return the machine in which node `order[n]` is node n."""
    new = {old: number for number, old in enumerate(order)}
    return replace(
        topology,
        nodes=tuple(replace(topology.nodes[old], id=new[old]) for old in order),
        distances=tuple(tuple(topology.distances[a][b] for b in order) for a in order),
        interconnects=tuple(
            replace(access, initiator=new[access.initiator], target=new[access.target])
            for access in topology.interconnects
        ),
        shape=None,
        drawn_links=(),
    )
