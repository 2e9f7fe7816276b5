"""The shapes on their own, against links and rules written by hand."""

import pytest

from numalab.topology.limits import RuleBroken
from numalab.topology.shapes.kinds import (
    Backplane,
    Full,
    Hypercube,
    Line,
    Mesh,
    Ring,
    Star,
    Torus,
)
from numalab.topology.shapes.shape import SHAPES, Shape

PAIRS = {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}
SLIT = (10, 20, 30, 40)
GRID = {(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)}


@pytest.mark.parametrize(
    ("shape", "nodes", "links"),
    [
        (Line(kind="line", distances=SLIT), 4, {(0, 1), (1, 2), (2, 3)}),
        (Ring(kind="ring", distances=SLIT), 4, {(0, 1), (1, 2), (2, 3), (0, 3)}),
        (Ring(kind="ring", distances=SLIT), 2, {(0, 1)}),
        (Full(kind="full", distances=SLIT), 4, PAIRS),
        (Star(kind="star", distances=SLIT), 4, {(0, 1), (0, 2), (0, 3)}),
        (Hypercube(kind="hypercube", distances=SLIT), 4, {(0, 1), (0, 2), (1, 3), (2, 3)}),
        (Backplane(kind="backplane", distances=SLIT, groups=2), 4, {(0, 1), (2, 3)}),
        (Mesh(kind="mesh", distances=SLIT, rows=2, columns=3), 6, GRID),
        (Torus(kind="torus", distances=SLIT, rows=2, columns=3), 6, GRID | {(0, 2), (3, 5)}),
    ],
)
def test_who_is_linked(shape: Shape, nodes: int, links: set[tuple[int, int]]) -> None:
    shape.check(nodes)
    pairs = shape.links(nodes)
    assert set(pairs) == links and len(pairs) == len(links)
    assert len(shape.points(nodes)) == nodes


@pytest.mark.parametrize(
    ("shape", "nodes", "message"),
    [
        (
            Hypercube(kind="hypercube", distances=SLIT),
            6,
            "a hypercube has 2, 4, 8, 16, 32 or 64 nodes",
        ),
        (
            Backplane(kind="backplane", distances=SLIT, groups=3),
            4,
            "4 nodes do not divide into 3 groups",
        ),
        (Torus(kind="torus", distances=SLIT, rows=2, columns=2), 6, "2 x 2 is not 6 nodes"),
    ],
)
def test_a_number_of_nodes_that_it_cannot_have(shape: Shape, nodes: int, message: str) -> None:
    with pytest.raises(RuleBroken, match=message):
        shape.check(nodes)


def test_a_backplane_is_two_hops_and_frames_its_groups() -> None:
    shape = Backplane(kind="backplane", distances=SLIT, groups=2)
    assert shape.hops(4) == [[0, 1, 2, 2], [1, 0, 2, 2], [2, 2, 0, 1], [2, 2, 1, 0]]
    assert shape.clusters(4) == ((0, 1), (2, 3))
    assert shape.clusters(2) == ((0, 1),)


def test_all_of_them_can_be_named() -> None:
    names = ["line", "ring", "full", "backplane", "mesh", "torus", "hypercube", "star"]
    assert [name for name in SHAPES.built_in() if name in names] == names
