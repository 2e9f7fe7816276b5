"""Who ran where in the window of a recording, for a drawing of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from numalab.recording.events import IDLE_PID, of_interest
from numalab.recording.spans import SCHEMA, spans
from numalab.recording.window import Window, find_window, marks

_TASK = {name: kind for name, kind in SCHEMA.items() if name != "known"}
SPANS = {**_TASK, "of_interest": pl.Boolean}
MARKER = "numalab: "
MOST_MARKS = 50


@dataclass(frozen=True)
class Mark:
    """A moment worth a line across the timeline, such as a change of the tasks' affinity."""

    at_ms: float
    text: str


@dataclass(frozen=True)
class RunTimeline:
    """`spans` has the columns of `SPANS`, a row for each time that a task was on a CPU, idle and
    unknown time left out. All times are since the window's begin."""

    length_ns: int
    spans: pl.DataFrame
    marks: tuple[Mark, ...] = ()


def timeline_of(events: pl.DataFrame, tasks: Sequence[str]) -> RunTimeline | None:
    """Return who ran where in the window of a table of events; None without sched_switch."""
    window = find_window(events)
    return run_timeline(events, spans(events, window), window, tasks)


def run_timeline(
    events: pl.DataFrame, ran: pl.DataFrame, window: Window, tasks: Sequence[str]
) -> RunTimeline | None:
    """Return what `timeline_of` does; `ran` are the `spans` of the events in the window."""
    if not ran["known"].any():
        return None
    inside = pl.col("time_ns").is_between(window.start_ns, window.end_ns)
    inside_marks = marks(events).filter(inside).head(MOST_MARKS)
    return RunTimeline(
        window.length_ns,
        ran.filter(pl.col("pid") != IDLE_PID)
        .with_columns(
            pl.col("start_ns", "end_ns") - window.start_ns,
            of_interest=of_interest(tasks).fill_null(value=False),
        )
        .select(*SPANS),
        tuple(
            Mark((time - window.start_ns) / 1e6, text.removeprefix(MARKER))
            for time, text in inside_marks.iter_rows()
        ),
    )
