"""One node in the middle."""

from typing import Literal

from numalab.topology.geometry import Point, circle
from numalab.topology.graph import Link
from numalab.topology.shapes.shape import Shape, register_shape


@register_shape
class Star(Shape):
    """Node 0 in the middle, linked to each other node."""

    kind: Literal["star"]

    def links(self, nodes: int) -> tuple[Link, ...]:
        """Link node 0 to each other node."""
        return tuple((0, node) for node in range(1, nodes))

    def points(self, nodes: int) -> list[Point]:
        """Place node 0 in the middle of a circle."""
        return [(0.0, 0.0), *circle(nodes - 1)]
