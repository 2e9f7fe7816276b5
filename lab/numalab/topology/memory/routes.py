"""Which links data passes on its way from one node to another."""

from collections import deque

from numalab.topology.topology import Topology

Hop = tuple[int, int]


def route_links(topology: Topology) -> dict[tuple[int, int], tuple[Hop, ...]]:
    """Return for each pair (from, to) the directed links on the way: the fewest, in order.

    Of several ways the one over the lowest node numbers is taken, as fixed routing tables do. Two
    nodes that no links join (the groups of a backplane) have a link of their own.
    """
    count = len(topology.nodes)
    neighbours: dict[int, list[int]] = {node: [] for node in range(count)}
    for a, b in sorted(topology.links):
        neighbours[a].append(b)
        neighbours[b].append(a)
    routes: dict[tuple[int, int], tuple[Hop, ...]] = {}
    for start in range(count):
        before = _search(neighbours, start)
        for end in range(count):
            routes[start, end] = _way(before, start, end)
    return routes


def _search(neighbours: dict[int, list[int]], start: int) -> dict[int, int]:
    """Return for each node that can be reached the one before it, breadth first."""
    before = {start: start}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        for neighbour in sorted(neighbours[here]):
            if neighbour not in before:
                before[neighbour] = here
                waiting.append(neighbour)
    return before


def _way(before: dict[int, int], start: int, end: int) -> tuple[Hop, ...]:
    if start == end:
        return ()
    if end not in before:
        return ((start, end),)
    way: list[Hop] = []
    while end != start:
        way.append((before[end], end))
        end = before[end]
    return tuple(reversed(way))
