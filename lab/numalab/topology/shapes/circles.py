"""Shapes that are drawn as a circle."""

from itertools import combinations
from typing import Literal

from numalab.topology.graph import Link
from numalab.topology.shapes.line import line_links
from numalab.topology.shapes.shape import Shape, register_shape


@register_shape
class Ring(Shape):
    """Nodes in a circle, each linked to the next; two nodes have one link."""

    kind: Literal["ring"]

    def links(self, nodes: int) -> tuple[Link, ...]:
        """Link each node to the next, and the last to the first."""
        return ring_links(nodes)


@register_shape
class Full(Shape):
    """Nodes that are all directly connected."""

    kind: Literal["full"]

    def links(self, nodes: int) -> tuple[Link, ...]:
        """Link each node to every other."""
        return full_links(nodes)


def ring_links(nodes: int) -> tuple[Link, ...]:
    """Links of nodes in a circle; two nodes have one link."""
    closing = ((0, nodes - 1),) if nodes > 2 else ()
    return line_links(nodes) + closing


def full_links(nodes: int) -> tuple[Link, ...]:
    """Links of nodes that are all directly connected."""
    return tuple(combinations(range(nodes), 2))
