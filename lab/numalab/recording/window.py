"""The part of a recording that is measured, and the parts of it in which events were lost."""

from dataclasses import dataclass

import polars as pl

from numalab.recording.events import IDLE_PID, NEEDED, PARKED, rows_like

BEGIN, END = "numalab: begin", "numalab: end"


@dataclass(frozen=True)
class Window:
    """A time span in nanoseconds of the trace clock.

    `begun` and `ended`: whether its ends are markers. A marker may be missing, lost with the guest,
    or overwritten in the buffer; then the recording's own end takes its place.
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
    """Find the window from the first `numalab: begin` to the first `numalab: end` after it.

    The first or last event replaces a missing marker. An empty table gives an empty window at 0.
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
    text = pl.col("buf").cast(pl.String).str.strip_chars("\n")
    return written.select("time_ns", text=text).drop_nulls().collect()


def gaps(events: pl.DataFrame) -> pl.DataFrame:
    """Return where events were lost: cpu, start_ns (the CPU's last event before), end_ns.

    A gap before the first event of a CPU starts with the whole recording.
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


# A task on a CPU for a time.
ON_CPU = {
    "cpu": pl.Int16,
    "node": pl.Int16,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "pid": pl.Int32,
    "comm": pl.String,
}
OFFLINE = {"row": pl.UInt32, **ON_CPU}
# Not pl.format(), which panics in polars 2.1 where nothing is left of a table in several pieces.
_OWN_STOPPER = pl.lit("migration/") + pl.col("cpu").cast(pl.String)


def offline(events: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """Return when CPUs were off line, in the columns of `OFFLINE`.

    The last task of a CPU is its stopper (take_cpu_down() in kernel/cpu.c): `pid` and `comm`. The
    stopper's last event is at `start_ns` in `row` of the table, the CPU's next one at `end_ns`, the
    largest number for none. That the stopper parks is not traced: tracepoints need a CPU that is on
    line (include/linux/tracepoint.h). So a CPU went off line where its next event is not of the
    stopper, and no event was lost in between.
    """
    table, event = events.lazy(), pl.col("event")
    if not {"prev_comm", "next_comm", "next_pid"} <= set(table.collect_schema().names()):
        return pl.DataFrame(schema=OFFLINE)
    comes, goes = (pl.col(name) == _OWN_STOPPER for name in ("next_comm", "prev_comm"))
    turns = table.filter((event == "sched_switch") & (comes | goes)).select("cpu", comes=comes)
    stays = pl.col("comes") & pl.col("comes").shift(-1).over("cpu").fill_null(value=True)
    cpus = turns.collect().filter(stays)["cpu"].unique().to_list()
    if not cpus:  # as nearly always: the events need not be read again
        return pl.DataFrame(schema=OFFLINE)
    rows = (
        table.with_row_index("row")
        .filter(pl.col("cpu").is_in(cpus) & event.is_in([*NEEDED, "lost_events"]))
        .select("row", "cpu", "node", "time_ns", "event", "pid", "next_comm", "next_pid")
        .collect()
    )
    runs = pl.when(comes).then("next_pid").otherwise(IDLE_PID)
    later = rows.with_columns(
        comm=_OWN_STOPPER,
        stopper=pl.when(event == "sched_switch").then(runs)
        .when(event == "lost_events").then(IDLE_PID)
        .forward_fill().over("cpu"),
        next_event=event.shift(-1).over("cpu"),
        next_of=pl.col("pid").shift(-1).over("cpu"),
        end_ns=pl.col("time_ns").shift(-1).over("cpu").fill_null((1 << 63) - 1),
    )  # fmt: skip
    another = (pl.col("next_event") != "lost_events") & (pl.col("next_of") != pl.col("stopper"))
    own = (event == "sched_switch") | (pl.col("pid") == pl.col("stopper"))
    left = (pl.col("stopper") != IDLE_PID) & (pl.col("next_event").is_null() | another)
    away = later.filter(own & left).drop("pid").rename({"time_ns": "start_ns", "stopper": "pid"})
    return away.select(pl.col(name).cast(kind) for name, kind in OFFLINE.items())


def with_parked_stoppers(events: pl.DataFrame, away: pl.DataFrame, first: int = 0) -> pl.DataFrame:
    """Return events with the switch from its stopper to idle of each CPU that went off line.

    `away` is from `offline`; `events` begin with row `first` of the table that it describes.
    """
    inside = pl.col("row").is_between(first, first + events.height, closed="left")
    mine = away.filter(inside)
    if mine.is_empty():
        return events
    switches = mine.select(
        *("row", "cpu", "node", "pid", "comm"),
        time_ns="start_ns",
        event=pl.lit("sched_switch"),
        prev_pid="pid",
        prev_comm="comm",
        prev_state=pl.lit(PARKED),
        next_pid=pl.lit(IDLE_PID),
        next_comm=pl.format("swapper/{}", "cpu"),
    )
    rows = events.with_row_index("row", offset=first)
    return pl.concat([rows, rows_like(rows, switches)]).sort("row", maintain_order=True).drop("row")


def clip(spans: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Cut spans (start_ns, end_ns) to the window; those outside it, or empty, are left out."""
    return spans.with_columns(
        pl.col("start_ns").clip(lower_bound=window.start_ns),
        pl.col("end_ns").clip(upper_bound=window.end_ns),
    ).filter(pl.col("end_ns") > pl.col("start_ns"))


MAX_SLICES = 120
_LEAST_NS = 10_000_000  # shorter slices would show the clock tick, not the scheduler


@dataclass(frozen=True)
class Slices:
    """`count` slices of `step_ns` from `start_ns` on; the last one ends with the window."""

    start_ns: int
    end_ns: int
    step_ns: int
    count: int

    @property
    def ends_ms(self) -> tuple[float, ...]:
        """The end of each slice in milliseconds since the window's begin."""
        ends = [min((i + 1) * self.step_ns, self.end_ns - self.start_ns) for i in range(self.count)]
        return tuple(end / 1e6 for end in ends)

    def lengths_ns(self) -> list[int]:
        """Return the length of each slice; only the last one may be shorter."""
        whole = self.end_ns - self.start_ns
        return [min(self.step_ns, whole - i * self.step_ns) for i in range(self.count)]


def cut(window: Window, most: int = MAX_SLICES) -> Slices:
    """Cut a window into at most `most` slices of 10 ms or more."""
    step = max(_LEAST_NS, -(-window.length_ns // most), 1)
    return Slices(window.start_ns, window.end_ns, step, -(-window.length_ns // step))


def by_slice(spans: pl.DataFrame, slices: Slices, *keys: str, weight: str = "") -> pl.DataFrame:
    """Sum the lengths of spans (start_ns, end_ns) by `keys` and slice: keys, slice, ns.

    A span counts in each slice with its part in it, `weight` times if given.
    """
    start, end = (pl.col(name) - slices.start_ns for name in ("start_ns", "end_ns"))
    step = slices.step_ns
    numbered = spans.select(
        *keys,
        *([weight] if weight else []),
        start=start,
        end=end,
        first=start // step,
        last=(end - 1) // step,
    ).filter(pl.col("end") > pl.col("start"))
    inside = numbered.filter(pl.col("first") == pl.col("last")).rename({"first": "slice"})
    across = (
        numbered.filter(pl.col("first") < pl.col("last"))
        .with_columns(slice=pl.int_ranges("first", pl.col("last") + 1))
        .explode("slice")
        .with_columns(
            start=pl.max_horizontal("start", pl.col("slice") * step),
            end=pl.min_horizontal("end", (pl.col("slice") + 1) * step),
        )
    )
    length = (pl.col("end") - pl.col("start")) * (pl.col(weight) if weight else 1)
    names = [*keys, "slice"]
    parts = [part.select(*names, ns=length) for part in (inside, across)]
    return pl.concat(parts).group_by(names).agg(pl.col("ns").sum())
