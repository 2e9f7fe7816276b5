"""Nodes in a row."""

from typing import Literal

from numalab.topology.geometry import Point, snake
from numalab.topology.graph import Link
from numalab.topology.shapes.shape import Shape, register_shape


@register_shape
class Line(Shape):
    """Nodes in a row: the widest machine there is."""

    kind: Literal["line"]

    def links(self, nodes: int) -> tuple[Link, ...]:
        """Link each node to the next."""
        return line_links(nodes)

    def points(self, nodes: int) -> list[Point]:
        """Place them in rows that turn at their ends."""
        return snake(nodes)


def line_links(nodes: int) -> tuple[Link, ...]:
    """Links of nodes in a row."""
    return tuple((node, node + 1) for node in range(nodes - 1))
