"""A long recording in chunks, so that memory does not grow with its length.

A chunk starts with the state at the end of the last one: the task on each CPU, and the place and
state of every task. The chunks give the spans and stays of the whole table, except that a task
renamed while it runs across a border keeps its old name up to there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from numalab.recording.spans import spans
from numalab.recording.stays import sightings, stays
from numalab.recording.window import Window, clip, gaps

ROWS = 500_000
_HELD = ("pid", "comm", "cpu", "runnable")


@dataclass(frozen=True)
class EventChunk:
    """Consecutive events and their tables, each within `window`: spans, stays, and lost events."""

    events: pl.DataFrame
    window: Window
    spans: pl.DataFrame
    stays: pl.DataFrame
    lost: pl.DataFrame


def event_chunks(
    events: pl.DataFrame | pl.LazyFrame, window: Window, cpus: Sequence[int], rows: int = ROWS
) -> Iterator[EventChunk]:
    """Yield the parts of the table that lie in the window, at most `rows` events each."""
    whole = events.lazy()
    count = whole.select(pl.len()).collect().item()
    if count <= rows:
        table = whole.collect()
        yield _chunk(table, window, cpus, stays(table, window))
        return
    starts = range(0, count, rows)
    running, held = _at_the_beginning(whole, starts, rows)
    for start in starts:
        part = whole.slice(start, rows + 1).collect()
        until = window.end_ns if start + rows >= count else int(part["time_ns"][-1])
        part = part.head(rows)
        since = int(part["time_ns"][0])
        part = _with_running(part, running)
        inside = Window(max(window.start_ns, since), max(min(window.end_ns, until), since))
        # A nanosecond longer, so that the last state of every task has a length.
        stayed = stays(part, Window(since, until + 1), held)
        yield _chunk(part, inside, cpus, clip(stayed, inside))
        running = _running_after(part)
        held = stayed.group_by("pid").agg(pl.all().last()).select(_HELD)


def _chunk(
    events: pl.DataFrame, window: Window, cpus: Sequence[int], stayed: pl.DataFrame
) -> EventChunk:
    return EventChunk(
        events, window, spans(events, window, cpus), stayed, clip(gaps(events), window)
    )


def _with_running(events: pl.DataFrame, running: pl.DataFrame) -> pl.DataFrame:
    """Put in front of the events a switch on each CPU from its task to the same task."""
    first = events.select(pl.col("time_ns").first()).item()
    switched = running.select(
        "cpu",
        "node",
        time_ns=pl.lit(first, pl.Int64),
        event=pl.lit("sched_switch"),
        pid="next_pid",
        comm="next_comm",
        prev_pid="next_pid",
        prev_comm="next_comm",
        prev_state=pl.lit(0).cast(events.schema.get("prev_state", pl.Int64())),
        next_pid="next_pid",
        next_comm="next_comm",
    )
    return pl.concat([switched, events], how="diagonal").select(events.columns)


def _running_after(events: pl.DataFrame) -> pl.DataFrame:
    """Return the task on each CPU after the events: cpu, node, next_pid, next_comm.

    A CPU that lost events after its last sched_switch is left out.
    """
    if "next_pid" not in events.columns:
        return pl.DataFrame(schema={"cpu": pl.Int16, "node": pl.Int16})
    switches = events.filter(pl.col("event").is_in(["sched_switch", "lost_events"]))
    last = switches.group_by("cpu").agg(pl.col("node", "event", "next_pid", "next_comm").last())
    return last.filter(pl.col("event") == "sched_switch").drop("event")


def _at_the_beginning(
    whole: pl.LazyFrame, starts: range, rows: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the state before the first event, as the first mention of each CPU and task proves it.

    The tables are those of `_running_after` (cpu, node, next_pid, next_comm) and of `stays` (pid,
    comm, cpu, runnable).
    """
    running = tasks = pl.DataFrame()
    for start in starts:
        part = whole.slice(start, rows).collect()
        if "prev_pid" in part.columns:
            switches = part.filter(pl.col("event").is_in(["sched_switch", "lost_events"]))
            now = switches.group_by("cpu").agg(
                pl.col("node", "event", "prev_pid", "prev_comm").first()
            )
            running = _earliest(running, now, "cpu")
        mentioned = sightings(part)
        if not mentioned.is_empty():
            proved = mentioned.sort("time_ns", "order").group_by("pid", maintain_order=True)
            now = proved.agg(
                pl.col("comm").first(),
                pl.col("from_cpu").first(),
                runnable=pl.col("before").drop_nulls().first(),
            )
            tasks = _earliest(tasks, now, "pid")
    if not running.is_empty():
        running = running.filter(pl.col("event") == "sched_switch").select(
            "cpu", "node", next_pid="prev_pid", next_comm="prev_comm"
        )
    held = tasks.select(
        "pid", "comm", cpu="from_cpu", runnable=pl.col("runnable").fill_null(value=False)
    )
    return running, held


def _earliest(first: pl.DataFrame, now: pl.DataFrame, key: str) -> pl.DataFrame:
    return now if first.is_empty() else pl.concat([first, now.join(first, on=key, how="anti")])
