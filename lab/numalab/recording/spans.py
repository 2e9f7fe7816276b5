"""The task on each CPU at every moment.

From one sched_switch to the next, a CPU runs the task that the first names as next. Elsewhere:

- Before a CPU's first sched_switch it ran the previous task of that switch, since the recording
  began or events were last lost.
- A CPU without sched_switch ran the task of its other events, or was idle without any event. Such
  spans are not `known`.
- A CPU that is off line is idle (`with_parked_stoppers`).
- From the last event before lost events to the first one after, pid is null.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from numalab.recording.events import IDLE_PID, of_interest
from numalab.recording.marks import Mark, timeline_marks
from numalab.recording.window import (
    ON_CPU,
    Window,
    clip,
    find_window,
    offline,
    with_parked_stoppers,
)

SCHEMA = {**ON_CPU, "known": pl.Boolean}
_PART = {name: kind for name, kind in SCHEMA.items() if name != "node"}


def spans(events: pl.DataFrame, window: Window, cpus: Iterable[int] = ()) -> pl.DataFrame:
    """Return who ran where in the window: cpu, node, start_ns, end_ns, pid, comm, known.

    The spans of a CPU follow each other without a hole, sorted by cpu and start; pid is 0 for idle,
    null for unknown time. `cpus` are in the table even without an event. A task has the name it had
    when it left the CPU: after a fork, that of the program it executed.
    """
    if events.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    first, last = events["time_ns"][0], max(events["time_ns"][-1], window.end_ns)
    rows = _numbered(events)
    stretches = _stretches(rows, first, last)
    parts = [_switched(rows, stretches), _lost(events, first), _without_switch(stretches)]
    parts.append(_without_event(events, cpus, min(first, window.start_ns), last))
    whole = pl.concat([part.select(list(_PART)) for part in parts])
    nodes = events.group_by("cpu").agg(pl.col("node").first())
    placed = whole.join(nodes, on="cpu", how="left").select(list(SCHEMA))
    return clip(placed, window).sort("cpu", "start_ns")


def _numbered(events: pl.DataFrame) -> pl.DataFrame:
    """Number the stretches of each CPU between lost events."""
    lost = events["event"] == "lost_events"
    if not lost.any():
        return events.with_columns(segment=pl.lit(0, pl.UInt32))
    return events.with_columns(segment=lost.cast(pl.UInt32).cum_sum()).with_columns(
        # Counted over all CPUs at once, the numbers of one CPU only grow with its own losses.
        segment=pl.when(pl.col("event") == "lost_events")
        .then("segment")
        .forward_fill()
        .over("cpu")
        .fill_null(0)
    )


def _stretches(rows: pl.DataFrame, first: int, last: int) -> pl.DataFrame:
    """Return a row for each stretch of a CPU: cpu, segment, from_ns, to_ns, switched, pid, comm.

    The first stretch begins with the recording, the last one ends with it.
    """
    own = rows.group_by("cpu", "segment").agg(
        from_ns=pl.col("time_ns").min(),
        to_ns=pl.col("time_ns").max(),
        switched=(pl.col("event") == "sched_switch").any(),
        pid=pl.col("pid").drop_nulls().last(),
        comm=pl.col("comm").filter(pl.col("pid").is_not_null()).last(),
    )
    return own.with_columns(
        from_ns=pl.when(pl.col("segment") == 0).then(first).otherwise("from_ns"),
        to_ns=pl.when(pl.col("segment") == pl.col("segment").max().over("cpu"))
        .then(last)
        .otherwise("to_ns"),
    )


def _switched(rows: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """Return the spans that sched_switch bounds."""
    if "prev_pid" not in rows.columns:
        return pl.DataFrame(schema=_PART)
    group = ["cpu", "segment"]
    switches = (
        rows.filter(pl.col("event") == "sched_switch")
        .select(*group, "time_ns", "prev_pid", "prev_comm", "next_pid", "next_comm")
        .join(
            stretches.select(*group, "from_ns", "to_ns"),
            on=group,
            how="left",
            maintain_order="left",
        )
        .sort(*group, "time_ns", maintain_order=True)
    )
    after = pl.struct(group) == pl.struct(group).shift(-1)
    follows = after.fill_null(value=False)
    ends = pl.when(follows).then(pl.col("time_ns").shift(-1)).otherwise("to_ns")
    renamed = follows & (pl.col("prev_pid").shift(-1) == pl.col("next_pid"))
    ran = switches.select(
        "cpu",
        start_ns="time_ns",
        end_ns=ends,
        pid="next_pid",
        comm=pl.when(renamed).then(pl.col("prev_comm").shift(-1)).otherwise("next_comm"),
        known=pl.lit(True),
    )
    before = (
        switches.group_by(group)
        .agg(pl.all().first())
        .select(
            "cpu",
            start_ns="from_ns",
            end_ns="time_ns",
            pid="prev_pid",
            comm="prev_comm",
            known=pl.lit(True),
        )
    )
    return pl.concat([before, ran])


def _lost(rows: pl.DataFrame, first: int) -> pl.DataFrame:
    """Return the spans in which events were lost."""
    before = pl.col("time_ns").shift(1).over("cpu").fill_null(first)
    return (
        rows.with_columns(start_ns=before)
        .filter(pl.col("event") == "lost_events")
        .select(
            "cpu",
            "start_ns",
            end_ns="time_ns",
            pid=pl.lit(None, pl.Int32),
            comm=pl.lit(None, pl.String),
            known=pl.lit(False),
        )
    )


def _without_switch(stretches: pl.DataFrame) -> pl.DataFrame:
    """Return one span for each stretch in which a CPU has events but no sched_switch."""
    return stretches.filter(~pl.col("switched")).select(
        "cpu", "pid", "comm", start_ns="from_ns", end_ns="to_ns", known=pl.lit(False)
    )


def _without_event(rows: pl.DataFrame, cpus: Iterable[int], first: int, last: int) -> pl.DataFrame:
    """Return an idle span for each CPU on which nothing happened."""
    silent = sorted(set(cpus) - set(rows["cpu"].unique().to_list()))
    return pl.DataFrame(
        {
            "cpu": silent,
            "start_ns": [first] * len(silent),
            "end_ns": [last] * len(silent),
            "pid": [IDLE_PID] * len(silent),
            "comm": ["<idle>"] * len(silent),
            "known": [False] * len(silent),
        },
        schema=_PART,
    )


_TASK = {name: kind for name, kind in SCHEMA.items() if name != "known"}
SPANS = {**_TASK, "of_interest": pl.Boolean}


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
    ran = spans(with_parked_stoppers(events, offline(events)), window)
    return run_timeline(events, ran, window, tasks)


def run_timeline(
    events: pl.DataFrame, ran: pl.DataFrame, window: Window, tasks: Sequence[str]
) -> RunTimeline | None:
    """Return what `timeline_of` does; `ran` are the `spans` of the events in the window."""
    if not ran["known"].any():
        return None
    return RunTimeline(
        window.length_ns,
        ran.filter(pl.col("pid") != IDLE_PID)
        .with_columns(
            pl.col("start_ns", "end_ns") - window.start_ns,
            of_interest=of_interest(tasks).fill_null(value=False),
        )
        .select(*SPANS),
        timeline_marks(events, window),
    )
