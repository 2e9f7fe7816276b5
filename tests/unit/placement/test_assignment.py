"""The least cost of an assignment: what a slot lacks comes before distances."""

from numalab.placement.assignment import cheapest

RING = [[10, 20, 30, 20], [20, 10, 20, 30], [30, 20, 10, 20], [20, 30, 20, 10]]


def test_what_a_slot_lacks_comes_before_distances_and_preferences_after() -> None:
    renumbered = [[RING[a][b] for b in (0, 2, 1, 3)] for a in (0, 2, 1, 3)]
    assert cheapest(RING, renumbered, None, None) == (0, 2, 1, 3)
    lacks = [[1, 0, 0, 0], *[[0] * 4] * 3]
    assert cheapest(RING, renumbered, lacks, None) == (1, 2, 0, 3)
    assert cheapest(RING, renumbered, None, lacks) == (1, 2, 0, 3)
    flat = [[10 if a == b else 20 for b in range(4)] for a in range(4)]
    assert cheapest(RING, flat, None, lacks) == (1, 0, 2, 3)
