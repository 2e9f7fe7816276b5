"""Links and hops of the shapes that a topology file can name.

A shape gives its links as pairs of nodes; distances follow from hops, or from link weights.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

from lab.topology.model import LOCAL_DISTANCE, MAX_DISTANCE, UNREACHABLE

Link = tuple[int, int]
Matrix = tuple[tuple[int, ...], ...]


def line_links(nodes: int) -> tuple[Link, ...]:
    """Links of nodes in a row."""
    return tuple((node, node + 1) for node in range(nodes - 1))


def ring_links(nodes: int) -> tuple[Link, ...]:
    """Links of nodes in a circle; two nodes have one link."""
    closing = ((0, nodes - 1),) if nodes > 2 else ()
    return line_links(nodes) + closing


def full_links(nodes: int) -> tuple[Link, ...]:
    """Links of nodes that are all directly connected."""
    return tuple(combinations(range(nodes), 2))


def star_links(nodes: int) -> tuple[Link, ...]:
    """Links from node 0, the centre, to each other node."""
    return tuple((0, node) for node in range(1, nodes))


def hypercube_links(nodes: int) -> tuple[Link, ...]:
    """Links between node numbers that differ in one bit; `nodes` is a power of two."""
    return tuple((a, b) for a, b in full_links(nodes) if (a ^ b).bit_count() == 1)


def mesh_links(rows: int, columns: int) -> tuple[Link, ...]:
    """Links of a grid to the next node of the row and of the column.

    Node numbers run along the rows: row * columns + column.
    """
    return _grid_links(rows, columns, line_links)


def row_column_links(rows: int, columns: int) -> tuple[Link, ...]:
    """Links of a grid to every node of the same row and of the same column: at most two hops.

    Glueless eight-socket boards are wired like this: a link to each node of the own half, and one
    to the same place in the other half.
    """
    return _grid_links(rows, columns, full_links)


def torus_links(rows: int, columns: int) -> tuple[Link, ...]:
    """Links of a grid whose rows and columns are rings."""
    return _grid_links(rows, columns, ring_links)


def group_links(nodes: int, groups: int) -> tuple[Link, ...]:
    """Links inside each of `groups` groups of directly connected nodes, none between them."""
    size = nodes // groups
    return tuple((a, b) for a, b in full_links(nodes) if a // size == b // size)


def hops(nodes: int, links: Iterable[Link]) -> list[list[int | None]]:
    """Count the links on the shortest path between any two nodes; None where there is none."""
    return shortest_paths(nodes, [(a, b, 1) for a, b in links])


def shortest_paths(nodes: int, links: Iterable[tuple[int, int, int]]) -> list[list[int | None]]:
    """Sum the weights on the shortest path between any two nodes (Floyd and Warshall)."""
    far = 1 << 30
    length = [[0 if a == b else far for b in range(nodes)] for a in range(nodes)]
    for a, b, weight in links:
        length[a][b] = length[b][a] = min(length[a][b], weight)
    for middle in range(nodes):
        through = length[middle]
        for row in length:
            start = row[middle]
            if start < far:
                row[:] = [min(old, start + rest) for old, rest in zip(row, through, strict=True)]
    return [[None if value >= far else value for value in row] for row in length]


def distances_by_hop(counts: Sequence[Sequence[int | None]], by_hop: Sequence[int]) -> Matrix:
    """Turn hops into distances: `by_hop[hops]`, or 255 (unreachable) where there is no path."""
    return tuple(
        tuple(UNREACHABLE if hop is None else by_hop[hop] for hop in row) for row in counts
    )


def distances_by_weight(lengths: Sequence[Sequence[int | None]]) -> Matrix:
    """Turn sums of (link distance - 10) into distances: 10 more, at most 254."""
    return tuple(
        tuple(
            UNREACHABLE if length is None else min(LOCAL_DISTANCE + length, MAX_DISTANCE)
            for length in row
        )
        for row in lengths
    )


def diameter(counts: Sequence[Sequence[int | None]]) -> int:
    """Return the largest number of hops between two nodes that can reach each other."""
    return max((hop for row in counts for hop in row if hop is not None), default=0)


def _grid_links(
    rows: int, columns: int, along: Callable[[int], tuple[Link, ...]]
) -> tuple[Link, ...]:
    across = [
        (row * columns + a, row * columns + b) for row in range(rows) for a, b in along(columns)
    ]
    down = [
        (a * columns + column, b * columns + column)
        for column in range(columns)
        for a, b in along(rows)
    ]
    return tuple(sorted(set(across + down)))
