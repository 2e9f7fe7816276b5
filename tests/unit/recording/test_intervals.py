"""Sets of time spans against sets of single nanoseconds."""

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from numalab.recording.intervals import (
    Spans,
    between,
    covered,
    joined,
    longest,
    met,
    minus,
    overlaps,
    rows_without,
    total,
    union,
    without,
)

HIGH = 40
pieces = st.lists(st.tuples(st.integers(0, HIGH), st.integers(0, HIGH)), max_size=8)


def made(rows: list[tuple[int, int]]) -> Spans:
    return union(np.array([a for a, _ in rows], np.int64), np.array([b for _, b in rows], np.int64))


def points(spans: Spans) -> set[int]:
    ends = zip(spans[0].tolist(), spans[1].tolist(), strict=True)
    return {point for low, high in ends for point in range(low, high)}


def plain(rows: list[tuple[int, int]]) -> set[int]:
    return {point for low, high in rows for point in range(low, high)}


@settings(max_examples=40)
@given(pieces, pieces)
def test_like_sets_of_points(first: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b = made(first), made(other)
    assert points(a) == plain(first)
    assert points(met(a, b)) == plain(first) & plain(other)
    assert points(joined([a, b])) == plain(first) | plain(other)
    assert points(without(a, b, 0, HIGH)) == plain(first) - plain(other)
    assert points(minus(a, b)) == plain(first) - plain(other)
    assert points(between(a, 5, 20)) == plain(first) & set(range(5, 20))
    assert total(a) == len(plain(first))


@given(pieces)
def test_what_rows_cover_is_told_in_spans_that_do_not_touch(rows: list[tuple[int, int]]) -> None:
    table = pl.DataFrame(rows, schema={"start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
    result = covered(table)
    assert points(result) == plain(rows)
    assert (result[0][1:] > result[1][:-1]).all()


@settings(max_examples=40)
@given(pieces)
def test_the_longest(rows: list[tuple[int, int]]) -> None:
    length, start = longest(made(rows))
    assert set(range(start, start + length)) <= plain(rows)
    runs = {
        point
        for point in plain(rows)
        if all(p in plain(rows) for p in range(point, point + length + 1))
    }
    assert not runs


@settings(max_examples=40, deadline=None)
@given(pieces, pieces)
def test_overlaps_are_of_each_span(
    first: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    spans = made(first)
    expected = [
        len(set(range(low, high)) & plain(other))
        for low, high in zip(spans[0].tolist(), spans[1].tolist(), strict=True)
    ]
    assert overlaps(spans, made(other)).tolist() == expected


@settings(max_examples=40, deadline=None)
@given(pieces, pieces)
def test_rows_are_cut_where_the_holes_are(
    rows: list[tuple[int, int]], holes: list[tuple[int, int]]
) -> None:
    """Each row stays apart from others at the same time."""
    full = [(number, *row) for number, row in enumerate(rows) if row[0] < row[1]]
    schema = {"row": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
    result = rows_without(pl.DataFrame(full, schema=schema, orient="row"), made(holes))
    for number, low, high in full:
        mine = covered(result.filter(pl.col("row") == number))
        assert points(mine) == set(range(low, high)) - plain(holes)
