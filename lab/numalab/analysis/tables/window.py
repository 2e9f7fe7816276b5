"""The part of a recording that is measured, and the parts of it in which events were lost."""

from dataclasses import dataclass

import polars as pl

BEGIN, END = "numalab: begin", "numalab: end"


@dataclass(frozen=True)
class Window:
    """A time span in nanoseconds of the trace clock.

    `begun` and `ended` say whether its ends are markers; an end that is not is the recording's own,
    because the marker was never written or was lost with the guest or in an overwritten buffer.
    """

    start_ns: int
    end_ns: int
    begun: bool = True
    ended: bool = True

    @property
    def length_ns(self) -> int:
        """The window's length in nanoseconds."""
        return self.end_ns - self.start_ns


def find_window(events: pl.DataFrame | pl.LazyFrame) -> Window:
    """Find the window between the first `numalab: begin` and the first `numalab: end` after it.

    Without a marker, the first or the last event takes its place. An empty table gives an empty
    window at 0.
    """
    ends = (
        events.lazy()
        .select(start=pl.col("time_ns").first(), end=pl.col("time_ns").last())
        .collect()
    )
    start, end = ends.row(0)
    if start is None:
        return Window(0, 0, begun=False, ended=False)
    text = marks(events)
    begin = text.filter(pl.col("text") == BEGIN)["time_ns"]
    if len(begin):
        start = int(begin[0])
    over = text.filter((pl.col("text") == END) & (pl.col("time_ns") >= start))["time_ns"]
    if len(over):
        end = int(over[0])
    return Window(start, end, begun=len(begin) > 0, ended=len(over) > 0)


def marks(events: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """Return what was written to trace_marker: time_ns and text, without the line break."""
    if "buf" not in events.lazy().collect_schema():
        return pl.DataFrame(schema={"time_ns": pl.Int64, "text": pl.String})
    written = events.lazy().filter(pl.col("event") == "print")
    return (
        written.select("time_ns", text=pl.col("buf").str.strip_chars("\n")).drop_nulls().collect()
    )


def gaps(events: pl.DataFrame) -> pl.DataFrame:
    """Return where events were lost: cpu, start_ns (its last event before), end_ns.

    Where a CPU's recording begins with lost events (an overwritten buffer), the gap starts with the
    whole recording.
    """
    first = pl.col("time_ns").min()
    return (
        events.select(
            "cpu",
            "event",
            start_ns=pl.col("time_ns").shift(1).over("cpu").fill_null(first),
            end_ns="time_ns",
        )
        .filter(pl.col("event") == "lost_events")
        .drop("event")
        .sort("cpu", "start_ns")
    )


def clip(spans: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Cut spans (start_ns, end_ns) to the window; those outside it, or empty, are left out."""
    return spans.with_columns(
        pl.col("start_ns").clip(lower_bound=window.start_ns),
        pl.col("end_ns").clip(upper_bound=window.end_ns),
    ).filter(pl.col("end_ns") > pl.col("start_ns"))
