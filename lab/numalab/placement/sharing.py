"""Chooses host nodes for more guest nodes than there are host nodes, so that some share. Pure."""

from collections.abc import Iterator, Sequence
from itertools import combinations, product

from numalab.placement.correspond import Table, assign

_MOST_COMPARED = 50_000
_MOST_DEALT = 1000  # assignments of nodes without CPUs, compared at once
_IMPOSSIBLE = 1 << 30  # more vCPUs than any guest has

_Sizes = Sequence[tuple[int, int]]
_Places = tuple[int, ...]


def share(guest: Table, hosts: Table, needs: _Sizes, rooms: _Sizes) -> _Places:
    """Return the host node of each guest node.

    `guest` and `hosts` are square tables of distances; `needs` and `rooms` the CPUs and MiB of each
    guest and host node. Guest nodes are dealt out in proportion to CPUs; those without CPUs may lie
    on host nodes without CPUs, and leave no host node unused. If vCPUs then share CPUs, or memory
    is short, another assignment is taken that is better in this respect, and of those the most
    even: all are compared, or on large machines those that moves and swaps reach.
    """
    if len(rooms) == 1:
        return (0,) * len(guest)
    dealt = _dealt(guest, hosts, needs, rooms)
    before = _crowding(dealt, needs, rooms)
    if before[:2] == (1, 0):
        return dealt

    def best(candidates: Sequence[_Places]) -> _Places:
        costs = [_crowding(places, needs, rooms) for places in candidates]
        return _nearest_of_cheapest(guest, hosts, candidates, costs)

    if len(rooms) ** len(guest) <= _MOST_COMPARED:
        chosen = best(list(product(range(len(rooms)), repeat=len(guest))))
    else:
        chosen = best([dealt, _packed(needs, rooms)])
        while (better := best([chosen, *_changes(chosen, len(rooms))])) != chosen:
            chosen = better
    return chosen if _crowding(chosen, needs, rooms)[:2] < before[:2] else dealt


def _crowding(places: Sequence[int], needs: _Sizes, rooms: _Sizes) -> tuple[int, int, int, int]:
    """Return the most vCPUs on one CPU, the MiB that lack, the vCPUs that lack a CPU, and the most
    vCPUs on 1000 CPUs of a host node."""
    cpus, memory = [0] * len(rooms), [0] * len(rooms)
    for place, (count, mib) in zip(places, needs, strict=False):
        cpus[place] += count
        memory[place] += mib
    most = short = excess = fullest = 0
    for has, here, mib in zip(rooms, cpus, memory, strict=True):
        if here:
            most = max(most, -(-here // has[0]) if has[0] else _IMPOSSIBLE)
        short += max(0, mib - has[1])
        excess += max(0, here - has[0])
        fullest = max(fullest, 1000 * here // (has[0] or 1))
    return most, short, excess, fullest


def _dealt(guest: Table, hosts: Table, needs: _Sizes, rooms: _Sizes) -> _Places:
    """Deal guest nodes with CPUs out to host nodes with CPUs, then place those without.

    Every host node with CPUs comes once before any comes again; then the one with the most room.
    """
    taken = [0] * len(rooms)
    candidates = [place for place, (cpus, _) in enumerate(rooms) if cpus]
    staffed = [node for node, (cpus, _) in enumerate(needs) if cpus]
    for _ in range(max(len(staffed), len(candidates))):
        place = min(
            candidates,
            key=lambda place: (taken[place] > 0, (taken[place] + 1) / rooms[place][0], place),
        )
        taken[place] += 1
    slots = [place for place, many in enumerate(taken) for _ in range(many)]
    table = [[hosts[a][b] for b in slots] for a in slots]
    chosen = assign([[guest[a][b] for b in staffed] for a in staffed], table)
    places = {node: slots[slot] for node, slot in zip(staffed, chosen, strict=True)}
    bare = [node for node in range(len(guest)) if node not in places]
    many = max(n for n in range(1, 11) if n == 1 or len(rooms) ** n <= _MOST_DEALT)
    for first in range(0, len(bare), many):
        part = bare[first : first + many]
        places = _with_memory(guest, hosts, needs, rooms, places=places, bare=part)
    return tuple(places[node] for node in range(len(guest)))


def _with_memory(
    guest: Table,
    hosts: Table,
    needs: _Sizes,
    rooms: _Sizes,
    *,
    places: dict[int, int],
    bare: Sequence[int],
) -> dict[int, int]:
    """Return `places` with the best host nodes of the guest nodes `bare`, which have no CPUs."""
    nodes = [*places, *bare]
    sizes = [needs[node] for node in nodes]
    candidates = [
        (*places.values(), *added) for added in product(range(len(rooms)), repeat=len(bare))
    ]
    costs = [
        (*_crowding(candidate, sizes, rooms)[:3], -len(set(candidate))) for candidate in candidates
    ]
    table = [[guest[a][b] for b in nodes] for a in nodes]
    best = _nearest_of_cheapest(table, hosts, candidates, costs)
    return dict(zip(nodes, best, strict=True))


def _nearest_of_cheapest(
    guest: Table,
    hosts: Table,
    candidates: Sequence[_Places],
    costs: Sequence[tuple[int, ...]],
) -> _Places:
    """Return the candidate that keeps distances best, of those with the least cost."""
    # It takes 0.2 s to load.
    from numalab.placement.assignment import nearest  # noqa: PLC0415

    least = min(costs)
    equal = [places for places, cost in zip(candidates, costs, strict=True) if cost == least]
    return nearest(guest, hosts, equal)


def _packed(needs: _Sizes, rooms: _Sizes) -> _Places:
    """Put the largest guest node first, each on the first host node where it crowds least."""
    order = sorted(range(len(needs)), key=lambda node: (*needs[node], -node), reverse=True)
    sizes = [needs[node] for node in order]
    places: list[int] = []
    for _ in order:
        costs = [_crowding([*places, place], sizes, rooms) for place in range(len(rooms))]
        places.append(costs.index(min(costs)))
    return tuple(places[order.index(node)] for node in range(len(needs)))


def _changes(places: _Places, hosts: int) -> Iterator[_Places]:
    """Yield all assignments in which one guest node moves, or two swap host nodes."""
    for node in range(len(places)):
        for place in range(hosts):
            yield (*places[:node], place, *places[node + 1 :])
    for a, b in combinations(range(len(places)), 2):
        swapped = list(places)
        swapped[a], swapped[b] = swapped[b], swapped[a]
        yield tuple(swapped)
