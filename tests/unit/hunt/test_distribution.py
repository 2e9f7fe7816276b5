"""Over how many nodes and CPUs a load is distributed."""

import pytest

from numalab.hunt.properties.distribution import (
    effective_cpus,
    effective_nodes,
    effective_nodes_of_children,
)
from unit.hunt.recordings import Row, recording

HOGS = "time ms=1000;hog n=2 cpus=0-3"
FORKER = "time ms=1000;forker n=1 run=3000 sleep=500 burst=1 cpus=0-3"


@pytest.mark.parametrize(
    ("cpus", "of_nodes", "of_cpus"),
    [
        ((0, 0), 1.0, 1.0),
        ((0, 1), 1.0, 2.0),
        ((0, 2), 2.0, 2.0),
    ],
)
def test_equal_shares_count_as_many_as_there_are(
    cpus: tuple[int, int], of_nodes: float, of_cpus: float
) -> None:
    rows: list[Row] = [(pid, f"hog0.{pid - 1}", cpus[pid - 1], 0, 800) for pid in (1, 2)]
    run = recording(HOGS, rows)
    assert effective_nodes(run) == pytest.approx(of_nodes)
    assert effective_cpus(run) == pytest.approx(of_cpus)


def test_unequal_shares_count_as_fewer() -> None:
    """By Simpson's index, 3/4 and 1/4 are 1 / (9/16 + 1/16) = 1.6."""
    run = recording(HOGS, [(1, "hog0.0", 0, 0, 900), (2, "hog0.1", 3, 0, 300)])
    assert effective_nodes(run) == effective_cpus(run) == pytest.approx(1.6)


def test_too_little_time_says_nothing() -> None:
    short = recording(HOGS, [(1, "hog0.0", 0, 0, 20)])
    assert effective_nodes(short) is effective_cpus(short) is None


def test_children_count_where_they_first_run() -> None:
    """24 children start on node 0, and 8 on node 1: 1.6 nodes; where they move later is left."""
    rows: list[Row] = [(1, "forker0.0", 0, 0, 1)]
    for number in range(32):
        begin = 10 + 20 * number
        rows.append((100 + number, f"child0.{number}", 0 if number % 4 else 2, begin, begin + 3))
        rows.append((100 + number, f"child0.{number}", 3, begin + 4, begin + 15))
    assert effective_nodes_of_children(recording(FORKER, rows)) == pytest.approx(1.6)
    assert effective_nodes_of_children(recording(FORKER, rows[:12])) is None
