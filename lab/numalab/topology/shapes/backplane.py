"""Groups of nodes that a backplane joins."""

from typing import Literal

from pydantic import Field

from numalab.topology.broken_rule import RuleBroken
from numalab.topology.geometry import Point, circles
from numalab.topology.graph import Lengths, Link, hops
from numalab.topology.shapes.circles import full_links
from numalab.topology.shapes.shape import Count, Shape, register_shape


@register_shape
class Backplane(Shape):
    """Groups of directly connected nodes; the backplane is one hop more than a direct link."""

    kind: Literal["backplane"]
    groups: Count = Field(default=2, description="How many groups of directly connected nodes.")

    def check(self, nodes: int) -> None:
        """Check that the nodes divide into the groups."""
        if nodes % self.groups:
            raise RuleBroken(
                "shape.groups", f"{nodes} nodes do not divide into {self.groups} groups"
            )

    def links(self, nodes: int) -> tuple[Link, ...]:
        """Link the nodes of each group; the backplane is no link, and is drawn as a bar."""
        size = nodes // self.groups
        return tuple((a, b) for a, b in full_links(nodes) if a // size == b // size)

    def hops(self, nodes: int) -> Lengths:
        """Count two hops over the backplane."""
        inside = hops(nodes, self.links(nodes))
        return [[2 if hop is None else hop for hop in row] for row in inside]

    def points(self, nodes: int) -> list[Point]:
        """Place each group as a circle."""
        return circles(self.clusters(nodes))

    def clusters(self, nodes: int) -> tuple[tuple[int, ...], ...]:
        """Frame the groups, unless each is a single node."""
        size = nodes // self.groups
        if size == 1:
            return (tuple(range(nodes)),)
        return tuple(tuple(range(first, first + size)) for first in range(0, nodes, size))
