"""Sets of time spans: sorted, apart from each other, as pairs of arrays of nanoseconds."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]
Spans = tuple[Ints, Ints]
NOTHING: Spans = (np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: Ints, end: Ints) -> Spans:
    """Return the time that some span covers; spans come in any order, and may be empty."""
    full = end > start
    start, end = start[full], end[full]
    if not len(start):
        return NOTHING
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.flatnonzero(np.append(True, start[1:] > reach[:-1]))
    last = np.append(first[1:] - 1, len(start) - 1)
    return start[first], reach[last]


def covered(table: pl.DataFrame) -> Spans:
    """Return the time that some row of a table covers (start_ns, end_ns)."""
    return union(table["start_ns"].to_numpy(), table["end_ns"].to_numpy())


def joined(sets: Iterable[Spans]) -> Spans:
    """Return the time that any of several sets covers."""
    parts = list(sets)
    if not parts:
        return NOTHING
    return union(np.concatenate([s[0] for s in parts]), np.concatenate([s[1] for s in parts]))


def met(spans: Spans, other: Spans) -> Spans:
    """Return the time that both sets cover."""
    _, start, end = _pieces(spans, other)
    return start, end


def rows_without(table: pl.DataFrame, holes: Spans) -> pl.DataFrame:
    """Cut the rows of a table (start_ns, end_ns) to the time that `holes` do not cover."""
    if table.is_empty() or not len(holes[0]):
        return table
    rows = table["start_ns"].to_numpy(), table["end_ns"].to_numpy()
    whole = (rows[0].min(keepdims=True), rows[1].max(keepdims=True))
    row, start, end = _pieces(rows, minus(whole, holes))
    return table[row].with_columns(start_ns=start, end_ns=end)


def _pieces(spans: Spans, other: Spans) -> tuple[Ints, Ints, Ints]:
    """Return each piece that `other` covers of a span: the row of the span, start and end."""
    if not len(spans[0]) or not len(other[0]):
        return NOTHING[0], *NOTHING
    first = np.searchsorted(other[1], spans[0], "right")
    count = np.maximum(np.searchsorted(other[0], spans[1], "left") - first, 0)
    row = np.repeat(np.arange(len(spans[0])), count)
    which = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + first[row]
    start = np.maximum(spans[0][row], other[0][which])
    end = np.minimum(spans[1][row], other[1][which])
    full = end > start
    return row[full], start[full], end[full]


def within(spans: Spans, at: Ints) -> npt.NDArray[np.bool_]:
    """Return for each time whether the set covers it."""
    start, end = spans
    if not len(start):
        return np.zeros(len(at), np.bool_)
    place = np.searchsorted(start, at, "right") - 1
    inside: npt.NDArray[np.bool_] = (place >= 0) & (at < end[np.maximum(place, 0)])
    return inside


def without(spans: Spans, holes: Spans, low: int, high: int) -> Spans:
    """Return the time that `spans` cover and `holes` do not, between `low` and `high`."""
    edges = np.concatenate([[low], holes[1]]), np.concatenate([holes[0], [high]])
    return met(spans, union(edges[0].astype(np.int64), edges[1].astype(np.int64)))


def minus(spans: Spans, holes: Spans) -> Spans:
    """Return the time that `spans` cover and `holes` do not."""
    if not len(spans[0]):
        return NOTHING
    return without(spans, holes, int(spans[0][0]), int(spans[1][-1]))


def between(spans: Spans, low: int, high: int) -> Spans:
    """Cut spans to a range."""
    return met(spans, (np.array([low], np.int64), np.array([high], np.int64)))


def overlaps(spans: Spans, other: Spans) -> Ints:
    """Return for each span how much of it `other` covers."""
    if not len(other[0]):
        return np.zeros(len(spans[0]), np.int64)
    before = np.append(0, np.cumsum(other[1] - other[0]))

    def until(at: Ints) -> Ints:
        place = np.searchsorted(other[0], at, "right")
        last = np.maximum(place - 1, 0)
        inside = np.minimum(at, other[1][last]) - other[0][last]
        return np.where(place > 0, before[last] + inside, 0)

    return until(spans[1]) - until(spans[0])


def total(spans: Spans) -> int:
    """Return how long all spans are together."""
    return int((spans[1] - spans[0]).sum())


def longest(spans: Spans) -> tuple[int, int]:
    """Return the longest span's length and start; two zeros for none."""
    if not len(spans[0]):
        return 0, 0
    length = spans[1] - spans[0]
    place = int(np.argmax(length))
    return int(length[place]), int(spans[0][place])
