"""Links between nodes, and the hops, routes and distances that follow from them."""

from collections import deque
from collections.abc import Iterable, Sequence

from numalab.topology.limits import LOCAL_DISTANCE, UNREACHABLE

Link = tuple[int, int]
Matrix = tuple[tuple[int, ...], ...]
Lengths = list[list[int | None]]  # None where there is no path


def hops(nodes: int, links: Iterable[Link]) -> Lengths:
    """Count the links on the shortest path between any two nodes."""
    return shortest_paths(nodes, [(a, b, 1) for a, b in links])


def shortest_paths(nodes: int, links: Iterable[tuple[int, int, int]]) -> Lengths:
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


def diameter(counts: Sequence[Sequence[int | None]]) -> int:
    """Return the largest number of hops between two nodes that can reach each other."""
    return max((hop for row in counts for hop in row if hop is not None), default=0)


def distances_by_hop(counts: Sequence[Sequence[int | None]], by_hop: Sequence[int]) -> Matrix:
    """Turn hops into distances: `by_hop[hops]`, or 255 (unreachable) where there is no path."""
    return tuple(
        tuple(UNREACHABLE if hop is None else by_hop[hop] for hop in row) for row in counts
    )


def distances_by_weight(lengths: Sequence[Sequence[int | None]]) -> Matrix:
    """Turn sums of (link distance - 10) into distances, which may be above 254."""
    return tuple(
        tuple(UNREACHABLE if length is None else LOCAL_DISTANCE + length for length in row)
        for row in lengths
    )


def routes_over(nodes: int, links: Iterable[Link]) -> dict[Link, tuple[Link, ...]]:
    """Return the directed links from each node to each other node, on a shortest path.

    Of several paths, the path over the lowest node numbers is used, as by fixed routing tables.
    Two nodes that no path joins (the groups of a backplane) have a link of their own.
    """
    neighbours: dict[int, list[int]] = {node: [] for node in range(nodes)}
    for a, b in sorted(links):
        neighbours[a].append(b)
        neighbours[b].append(a)
    routes: dict[Link, tuple[Link, ...]] = {}
    for start in range(nodes):
        ways: dict[int, tuple[Link, ...]] = {start: ()}
        waiting = deque([start])
        while waiting:
            node = waiting.popleft()
            for neighbour in sorted(neighbours[node]):
                if neighbour not in ways:
                    ways[neighbour] = (*ways[node], (node, neighbour))
                    waiting.append(neighbour)
        for end in range(nodes):
            routes[start, end] = ways.get(end, ((start, end),))
    return routes
