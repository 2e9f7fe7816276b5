"""Who ran where in one run, for the report's drawing."""

from collections.abc import Sequence

import polars as pl

from numalab.analysis.tables.on_cpu import IDLE_PID, spans
from numalab.analysis.tables.window import find_window, marks
from numalab.analysis.tasks import of_interest
from numalab.report.model import Mark, Span, Timeline
from numalab.results.reader import load_events
from numalab.run_dir import RunDir

MARKER = "numalab: "
MOST_MARKS = 50


def run_timeline(
    directory: RunDir, variant: str, run: str, tasks: Sequence[str]
) -> Timeline | None:
    """Return the spans of every CPU in a run's window, in milliseconds from its begin.

    None for a recording without sched_switch, which does not tell who ran.
    """
    events = load_events(directory)
    if not (events["event"] == "sched_switch").any():
        return None
    window = find_window(events)
    ran = spans(events, window).filter(pl.col("pid") != IDLE_PID)

    def ms(time: int) -> float:
        return (time - window.start_ns) / 1e6

    return Timeline(
        variant=variant,
        run=run,
        length_ms=window.length_ns / 1e6,
        spans=tuple(
            Span(cpu, node, ms(start), ms(end), f"{comm}/{pid}", mine)
            for cpu, node, start, end, pid, comm, mine in ran.select(
                "cpu", "node", "start_ns", "end_ns", "pid", "comm", mine=of_interest(tasks)
            ).iter_rows()
        ),
        marks=tuple(
            Mark(ms(time), text.removeprefix(MARKER))
            for time, text in marks(events).iter_rows()
            if window.start_ns <= time <= window.end_ns
        )[:MOST_MARKS],
    )
