"""Nodes on the corners of a cube of any dimension."""

from typing import Literal

from numalab.topology.broken_rule import RuleBroken
from numalab.topology.geometry import Point, circle
from numalab.topology.graph import Link
from numalab.topology.shapes.circles import full_links
from numalab.topology.shapes.shape import Shape, register_shape

# Where each dimension points in a drawing.
AXES = ((440.0, 0.0), (0.0, 300.0), (190.0, -128.0), (1130.0, 0.0))


@register_shape
class Hypercube(Shape):
    """Nodes whose numbers differ in one bit are linked."""

    kind: Literal["hypercube"]

    def check(self, nodes: int) -> None:
        """Check that the number of nodes is a power of two."""
        if nodes.bit_count() != 1:
            raise RuleBroken("nodes", f"a hypercube has 2, 4, 8, 16, 32 or 64 nodes, found {nodes}")

    def links(self, nodes: int) -> tuple[Link, ...]:
        """Link numbers that differ in one bit."""
        return tuple((a, b) for a, b in full_links(nodes) if (a ^ b).bit_count() == 1)

    def points(self, nodes: int) -> list[Point]:
        """Place each node by the bits of its number: one direction for each dimension."""
        if nodes > 1 << len(AXES):
            return circle(nodes)
        return [
            (
                sum(x for bit, (x, _) in enumerate(AXES) if node >> bit & 1),
                sum(y for bit, (_, y) in enumerate(AXES) if node >> bit & 1),
            )
            for node in range(nodes)
        ]
