"""Moments worth a line across the timeline: marks of the command, and events of sched_ext."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from numalab.recording.window import Window, marks

MARKER = "numalab: "
MOST_MARKS = 50
_LONGEST = 200
_BURST_NS = 1_000_000_000  # a dump prints its lines at once


@dataclass(frozen=True)
class Mark:
    """A moment worth a line across the timeline, such as a change of the tasks' affinity."""

    at_ms: float
    text: str


def timeline_marks(events: pl.DataFrame, window: Window) -> tuple[Mark, ...]:
    """Return the marks in a window in order, the first `MOST_MARKS` of them.

    They are what was written to trace_marker; the first lines of each dump of sched_ext
    (sched_ext_dump, Linux 6.12); and the first event of each kind that sched_ext counts
    (sched_ext_event, Linux 6.15), with the number of events of that kind.
    """
    inside = pl.col("time_ns").is_between(window.start_ns, window.end_ns)
    written = marks(events).filter(inside).head(MOST_MARKS)
    moments = [(time, text.removeprefix(MARKER)) for time, text in written.iter_rows()]
    near = events.filter(inside)
    moments += [*_dumps(near), *_counted(near)]
    moments.sort(key=lambda moment: moment[0])
    return tuple(Mark((time - window.start_ns) / 1e6, text) for time, text in moments[:MOST_MARKS])


def _dumps(events: pl.DataFrame) -> Iterator[tuple[int, str]]:
    """Yield the time and the first lines of each dump: who triggered it, and why."""
    if "line" not in events.columns:
        return
    lines = events.filter(pl.col("event") == "sched_ext_dump").select(
        "time_ns", pl.col("line").cast(pl.String)
    )
    bursts: list[tuple[int, list[str]]] = []
    last = -_BURST_NS
    for time, line in lines.drop_nulls().iter_rows():
        if time - last >= _BURST_NS:
            bursts.append((time, []))
        last, first = time, bursts[-1][1]
        if len(first) < 2 and line.strip():
            first.append(line.strip())
    for time, first in bursts:
        yield time, f"sched_ext dump: {' '.join(first)}"[:_LONGEST]


def _counted(events: pl.DataFrame) -> Iterator[tuple[int, str]]:
    """Yield the first event of each kind, with the sum of its counts."""
    if not {"name", "delta"} <= set(events.columns):
        return
    counted = events.filter((pl.col("event") == "sched_ext_event") & pl.col("name").is_not_null())
    kinds = (
        counted.with_columns(
            pl.col("name").cast(pl.String), pl.col("delta").cast(pl.Int64, strict=False)
        )
        .group_by("name", maintain_order=True)
        .agg(pl.col("time_ns").first(), pl.col("delta").sum(), number=pl.len())
        .head(MOST_MARKS)
    )
    for name, time, delta, number in kinds.iter_rows():
        yield time, f"sched_ext: {name}, the first of {number} (in all {delta})"[:_LONGEST]
