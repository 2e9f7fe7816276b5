"""The built-in shapes, and their links.

Node numbers of a shape of rows and columns run along the rows: row * columns + column.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Literal

from pydantic import Field

from numalab.topology.distances import Lengths, Link, hops
from numalab.topology.limits import RuleBroken
from numalab.topology.shapes.shape import Count, Shape, register_shape
from numalab.topology.view.placement import Point, circle, circles, grid, snake


@register_shape("line")
class Line(Shape):
    """Nodes in a row."""

    def links(self, nodes: int) -> tuple[Link, ...]:
        """Link each node to the next."""
        return line_links(nodes)

    def points(self, nodes: int) -> list[Point]:
        """Place them in rows that turn at their ends."""
        return snake(nodes)


def line_links(nodes: int) -> tuple[Link, ...]:
    """Links of nodes in a row."""
    return tuple((node, node + 1) for node in range(nodes - 1))


@register_shape("ring")
class Ring(Shape):
    """Nodes in a circle, each linked to the next; two nodes have one link."""

    def links(self, nodes: int) -> tuple[Link, ...]:
        """Link each node to the next, and the last to the first."""
        return ring_links(nodes)


@register_shape("full")
class Full(Shape):
    """Nodes that are all directly connected."""

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


@register_shape("backplane")
class Backplane(Shape):
    """Groups of directly connected nodes; the backplane is one hop more than a direct link."""

    groups: Count = Field(default=2, description="Number of groups of directly connected nodes.")

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


class Grid(Shape):
    """Base of a mesh and a torus: rows and columns."""

    rows: Count = Field(description="Rows of the grid.")
    columns: Count = Field(description="Columns of the grid.")

    def check(self, nodes: int) -> None:
        """Check that rows x columns is the number of nodes."""
        if self.rows * self.columns != nodes:
            raise RuleBroken("shape.rows", f"{self.rows} x {self.columns} is not {nodes} nodes")

    def points(self, nodes: int) -> list[Point]:
        """Place the nodes in rows."""
        return grid(self.rows, self.columns)

    def along(self, line: Callable[[int], tuple[Link, ...]]) -> tuple[Link, ...]:
        """Link each row and each column with the links `line(length)`."""
        rows, columns = range(self.rows), range(self.columns)
        width = self.columns
        across = {(row * width + a, row * width + b) for row in rows for a, b in line(width)}
        down = {
            (a * width + column, b * width + column)
            for column in columns
            for a, b in line(self.rows)
        }
        return tuple(sorted(across | down))


@register_shape("mesh")
class Mesh(Grid):
    """A grid; each node is linked to the next ones, or to all of its row and column.

    Glueless eight-socket boards are wired by `rows-and-columns`: a link to each node of the own
    half, and one to the same place in the other half.
    """

    wiring: Literal["neighbours", "rows-and-columns"] = Field(
        default="neighbours",
        description="Link each node to the next ones, or to every node of its row and of its "
        "column, so that no two nodes are more than two hops apart.",
    )

    def links(self, nodes: int) -> tuple[Link, ...]:
        """Link neighbours, or whole rows and columns."""
        return self.along(line_links if self.wiring == "neighbours" else full_links)


@register_shape("torus")
class Torus(Grid):
    """A grid whose rows and columns are rings."""

    def links(self, nodes: int) -> tuple[Link, ...]:
        """Link each row and each column to a ring."""
        return self.along(ring_links)


# Where each dimension points in a drawing.
AXES = ((440.0, 0.0), (0.0, 300.0), (190.0, -128.0), (1130.0, 0.0))


@register_shape("hypercube")
class Hypercube(Shape):
    """Nodes whose numbers differ in one bit are linked."""

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


@register_shape("star")
class Star(Shape):
    """Node 0 in the middle, linked to each other node."""

    def links(self, nodes: int) -> tuple[Link, ...]:
        """Link node 0 to each other node."""
        return tuple((0, node) for node in range(1, nodes))

    def points(self, nodes: int) -> list[Point]:
        """Place node 0 in the middle of a circle."""
        return [(0.0, 0.0), *circle(nodes - 1)]
