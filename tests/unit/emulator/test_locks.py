"""The stored rates of locks at three distances: the order and the crossing that the page names."""

from pathlib import Path

import pytest

TABLES = (Path(__file__).parents[2] / "data" / "timed" / "locks-distances.txt").read_text()
PLACES = ("90 ns", "180 ns", "270 ns")


def rates(place: str) -> dict[str, dict[int, float]]:
    """Acquisitions in a microsecond by kind and threads."""
    lines = TABLES[TABLES.index(place) :].splitlines()
    rows = [line.split() for line in lines[2:7]]
    kinds = lines[1].split()[1:]
    return {
        kind: {int(row[0]): float(row[1 + column]) for row in rows}
        for column, kind in enumerate(kinds)
    }


@pytest.mark.parametrize("place", PLACES)
def test_the_mcs_lock_overtakes_the_ticket_lock_when_many_wait(place: str) -> None:
    lock = rates(place)
    assert all(lock["ticket"][count] > lock["mcs"][count] for count in (1, 2, 4))
    assert lock["mcs"][16] > 1.4 * lock["ticket"][16]
    assert lock["ticket"][16] < 0.5 * lock["ticket"][4]
    assert lock["mcs"][16] > 0.94 * lock["mcs"][4]


@pytest.mark.parametrize("place", PLACES)
def test_every_lock_loses_by_the_first_contender_and_test_and_set_most(place: str) -> None:
    lock = rates(place)
    assert all(lock[kind][2] < lock[kind][1] / 2 for kind in lock)
    assert min(lock, key=lambda kind: lock[kind][16]) == "spin"


def test_a_handover_costs_more_the_farther_the_cpus_are() -> None:
    near, hop, two = (rates(place) for place in PLACES)
    for kind in near:
        assert near[kind][2] > hop[kind][2] > two[kind][2]
