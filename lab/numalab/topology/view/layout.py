"""Where each node goes in a drawing, so that the drawing shows the machine."""

from numalab.topology.topology import Topology
from numalab.topology.view.placement import Point, circle, circles


def layout(topology: Topology) -> dict[int, Point]:
    """Place every node of a topology: as its shape says, else in clusters or a circle."""
    count = len(topology.nodes)
    if topology.shape is not None:
        points = topology.shape.points(count)
    else:
        groups = clusters(topology)
        points = circles(groups) if len(groups) > 1 else circle(count)
    left = min(x for x, _ in points)
    top = min(y for _, y in points)
    return {node: (round(x - left, 1), round(y - top, 1)) for node, (x, y) in enumerate(points)}


def clusters(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """Return the groups of nodes that get a frame: those of the shape, or of the table."""
    if topology.shape is not None:
        return topology.shape.clusters(len(topology.nodes))
    return _nearest(topology)


def _nearest(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """Group the nodes that are nearest to each other, where that divides the machine.

    Nodes belong together when no other node is nearer, in either direction, and when that holds
    for all pairs of the group alike. A machine that does not divide is one group.
    """
    count = len(topology.nodes)
    everyone = tuple(range(count))
    apart = [
        min(topology.distances[a][b], topology.distances[b][a])
        for a in everyone
        for b in everyone
        if a < b
    ]
    if not apart:
        return (everyone,)
    near = min(apart)
    groups: dict[tuple[int, ...], None] = {}
    for a in everyone:
        group = tuple(b for b in everyone if a == b or _near(topology, a, b, near))
        groups[group] = None
    nearest = tuple(groups)
    if sum(len(group) for group in nearest) != count or len({len(group) for group in nearest}) > 1:
        return (everyone,)
    return nearest if len(nearest[0]) > 1 else (everyone,)


def _near(topology: Topology, a: int, b: int, near: int) -> bool:
    return max(topology.distances[a][b], topology.distances[b][a]) <= near
