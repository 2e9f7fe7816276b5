"""The least cost of an assignment: what a slot lacks comes before distances."""

import pytest

from numalab.placement.assignment import cheapest
from numalab.placement.correspond import Table, compare

RING = [[10, 20, 30, 20], [20, 10, 20, 30], [30, 20, 10, 20], [20, 30, 20, 10]]


def test_what_a_slot_lacks_comes_before_distances_and_preferences_after() -> None:
    renumbered = [[RING[a][b] for b in (0, 2, 1, 3)] for a in (0, 2, 1, 3)]
    assert cheapest(RING, renumbered, None, None) == (0, 2, 1, 3)
    lacks = [[1, 0, 0, 0], *[[0] * 4] * 3]
    assert cheapest(RING, renumbered, lacks, None) == (1, 2, 0, 3)
    assert cheapest(RING, renumbered, None, lacks) == (1, 2, 0, 3)
    flat = [[10 if a == b else 20 for b in range(4)] for a in range(4)]
    assert cheapest(RING, flat, None, lacks) == (1, 0, 2, 3)


def pairs_of_pairs(nodes: int) -> Table:
    """Distances of pairs of nodes, four to a board, eight to a cabinet."""
    groups = {1: 0, 2: 6, 4: 5, 8: 3, 16: 4}  # what each larger group adds
    return [
        [
            10 + sum(add for size, add in groups.items() if a // size != b // size)
            for b in range(nodes)
        ]
        for a in range(nodes)
    ]


@pytest.mark.parametrize("part", [(3, 8, 13, 12, 6, 10), (0, 7, 4, 13, 5, 10), (15, 2, 9, 6, 3, 8)])
@pytest.mark.parametrize("lacks", [0, 1])
def test_a_part_of_a_large_host_is_recognised(part: tuple[int, ...], lacks: int) -> None:
    host = pairs_of_pairs(16)
    guest = [[host[a][b] for b in part] for a in part]
    needs = [[lacks * (slot == part[0]) for slot in range(16)]] + [[0] * 16] * 5
    chosen = cheapest(guest, host, needs, None)
    fit = compare(guest, host, chosen)
    assert (fit.reversed, fit.levelled) == (0, 0)
    assert not lacks or chosen[0] != part[0]
