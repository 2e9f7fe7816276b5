"""Shapes of rows and columns. Node numbers run along the rows: row * columns + column."""

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from numalab.topology.broken_rule import RuleBroken
from numalab.topology.geometry import Point, grid
from numalab.topology.graph import Link
from numalab.topology.shapes.circles import full_links, ring_links
from numalab.topology.shapes.line import line_links
from numalab.topology.shapes.shape import Count, Shape, register_shape


class Grid(Shape):
    """What a mesh and a torus share: rows and columns."""

    rows: Count = Field(description="Rows of the grid.")
    columns: Count = Field(description="Columns of the grid.")

    def check(self, nodes: int) -> None:
        """Check that rows and columns make up the nodes."""
        if self.rows * self.columns != nodes:
            raise RuleBroken("shape.rows", f"{self.rows} x {self.columns} is not {nodes} nodes")

    def points(self, nodes: int) -> list[Point]:
        """Place the nodes in rows."""
        return grid(self.rows, self.columns)

    def along(self, one: Callable[[int], tuple[Link, ...]]) -> tuple[Link, ...]:
        """Link each row and each column as `one` links a row of so many nodes."""
        rows, columns = range(self.rows), range(self.columns)
        width = self.columns
        across = {(row * width + a, row * width + b) for row in rows for a, b in one(width)}
        down = {
            (a * width + column, b * width + column)
            for column in columns
            for a, b in one(self.rows)
        }
        return tuple(sorted(across | down))


@register_shape
class Mesh(Grid):
    """A grid; each node is linked to the next ones, or to all of its row and column.

    Glueless eight-socket boards are wired by `rows-and-columns`: a link to each node of the own
    half, and one to the same place in the other half.
    """

    kind: Literal["mesh"]
    wiring: Literal["neighbours", "rows-and-columns"] = Field(
        default="neighbours",
        description="Link each node to the next ones, or to every node of its row and of its "
        "column, so that no two nodes are more than two hops apart.",
    )

    def links(self, nodes: int) -> tuple[Link, ...]:
        """Link neighbours, or whole rows and columns."""
        return self.along(line_links if self.wiring == "neighbours" else full_links)


@register_shape
class Torus(Grid):
    """A grid whose rows and columns are rings."""

    kind: Literal["torus"]

    def links(self, nodes: int) -> tuple[Link, ...]:
        """Link each row and each column to a ring."""
        return self.along(ring_links)
