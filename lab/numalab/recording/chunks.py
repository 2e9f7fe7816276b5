"""A recording in chunks, so that memory does not grow with its length.

A chunk starts with the state at the end of the last one: the task on each CPU, and the place and
state of every task. It ends with what the next events prove: that a CPU loses events across the
border, which task it runs, and whether a task was runnable. So the chunks give the spans and stays
of the whole table, except that a task renamed while it runs across a border keeps its old name up
to there, that each chunk guesses by itself what ran between two losses without a switch, and that a
task that fell asleep within a loss sleeps from a border on, in the whole table from its next event.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import polars as pl

from numalab.progress import Progress, no_progress
from numalab.recording.events import rows_like
from numalab.recording.spans import spans
from numalab.recording.stays import FIRST_MENTION, first_mentions, stays, wakeups
from numalab.recording.window import OFFLINE, Window, clip, gaps, with_parked_stoppers

ROWS = 500_000
_HELD = ("pid", "comm", "cpu", "runnable")
_FIRST = {"cpu": pl.Int16, "node": pl.Int16, "event": pl.String}
_SWITCH = {**_FIRST, "prev_pid": pl.Int32, "prev_comm": pl.String}
_TASK = {"cpu": pl.Int16, "node": pl.Int16, "pid": pl.Int32, "comm": pl.String}


@dataclass(frozen=True)
class EventChunk:
    """Consecutive events and their tables, each within `window`: spans, stays, and lost events."""

    events: pl.DataFrame
    window: Window
    spans: pl.DataFrame
    stays: pl.DataFrame
    lost: pl.DataFrame


@dataclass(frozen=True)
class _Ahead:
    """What the events from a border on prove, by the first of each CPU and task.

    `events` are each CPU's first, `switches` its first switch or loss. `tasks` are the first
    mentions.
    """

    events: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_FIRST))
    switches: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_SWITCH))
    tasks: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=FIRST_MENTION))

    def before(self, part: pl.DataFrame) -> "_Ahead":
        """Return what holds where this part begins, which ends at this border."""
        first = part.group_by("cpu").agg(pl.col("node", "event").first())
        switches = self.switches
        if "prev_pid" in part.columns:
            now = part.filter(pl.col("event").is_in(["sched_switch", "lost_events"]))
            columns = pl.col("node", "event", "prev_pid", "prev_comm")
            switches = _earliest(switches, now.group_by("cpu").agg(columns.first()), "cpu")
        # A migration proves nothing: the next mention decides, perhaps in a later part.
        proved = self.tasks.select("pid", "before", "born")
        mentions = first_mentions(part).join(proved, on="pid", how="left", suffix="_later")
        mentions = mentions.with_columns(
            pl.col(name).fill_null(pl.col(f"{name}_later")) for name in ("before", "born")
        )
        tasks = _earliest(self.tasks, mentions, "pid")
        return _Ahead(_earliest(self.events, first, "cpu"), switches, tasks)

    @property
    def lost(self) -> pl.DataFrame:
        """The CPUs that lose events across the border: cpu, node, event."""
        return self.events.filter(pl.col("event") == "lost_events")

    @property
    def running(self) -> pl.DataFrame:
        """The task on each CPU at the border: cpu, node, pid, comm."""
        runs = self.switches.filter(pl.col("event") == "sched_switch")
        return runs.select("cpu", "node", pid="prev_pid", comm="prev_comm")


def _earliest(later: pl.DataFrame, now: pl.DataFrame, key: str) -> pl.DataFrame:
    same = now.select(pl.col(name).cast(kind) for name, kind in later.schema.items())
    return pl.concat([same, later.join(same, on=key, how="anti")])


def event_chunks(
    events: pl.DataFrame | pl.LazyFrame,
    window: Window,
    cpus: Sequence[int],
    rows: int = ROWS,
    on_progress: Progress = no_progress,
    *,
    away: pl.DataFrame | None = None,
) -> Iterator[EventChunk]:
    """Yield the parts of the table that lie in the window, at most `rows` events each.

    `away` is when CPUs were off line (`offline`), None for never.
    """
    whole = events.lazy()
    away = pl.DataFrame(schema=OFFLINE) if away is None else away
    count = whole.select(pl.len()).collect().item()
    if count <= rows:
        table = with_parked_stoppers(whole.collect(), away)
        yield _chunk(table, window, cpus, stays(table, window))
        return
    ahead, woken = {count: _Ahead()}, wakeups(whole)
    for start in reversed(range(0, count, rows)):
        on_progress("find the tasks", 1 - start / count)
        end = min(start + rows, count)
        part = with_parked_stoppers(whole.slice(start, rows).collect(), away, start)
        ahead[start] = ahead[end].before(part)
    running = ahead[0].running
    held = (
        ahead[0]
        .tasks.filter(~pl.col("born").fill_null(value=False))
        .select("pid", "comm", cpu="from_cpu", runnable=pl.col("before").fill_null(value=False))
    )
    for start in range(0, count, rows):
        on_progress(f"measure, {start:,} of {count:,} events", start / count)
        part = whole.slice(start, rows + 1).collect()
        until = window.end_ns if start + rows >= count else int(part["time_ns"][-1])
        part = with_parked_stoppers(part.head(rows), away, start)
        since = int(part["time_ns"][0])
        if since > window.end_ns:
            return
        after = ahead[min(start + rows, count)]
        part = pl.concat([part, _losses(part, until, after)])
        # A nanosecond longer, so that the last state of every task has a length.
        stayed = stays(part, Window(since, until + 1), held, after.tasks, woken)
        held = stayed.filter(pl.col("end_ns") > until).select(_HELD)
        part = pl.concat([_switches(running, since, part), part])
        running = _running_after(part)
        # After a loss, only the next switch tells which task runs.
        later = after.running.join(after.lost, on="cpu", how="anti")
        later = later.join(running, on="cpu", how="anti")
        part = pl.concat([part, _switches(later, until, part)])
        running = pl.concat([running, later])
        inside = Window(max(window.start_ns, since), max(min(window.end_ns, until), since))
        yield _chunk(part, inside, cpus, clip(stayed, inside))


def _chunk(
    events: pl.DataFrame, window: Window, cpus: Sequence[int], stayed: pl.DataFrame
) -> EventChunk:
    return EventChunk(
        events, window, spans(events, window, cpus), stayed, clip(gaps(events), window)
    )


def _switches(running: pl.DataFrame, time_ns: int, like: pl.DataFrame) -> pl.DataFrame:
    """Return a switch on each CPU from its task to the same task, in the columns of `like`."""
    return rows_like(
        like,
        running.select(
            *_TASK,
            time_ns=pl.lit(time_ns, pl.Int64),
            event=pl.lit("sched_switch"),
            prev_pid="pid",
            prev_comm="comm",
            prev_state=pl.lit(0).cast(like.schema.get("prev_state", pl.Int64())),
            next_pid="pid",
            next_comm="comm",
        ),
    )


def _losses(part: pl.DataFrame, until: int, ahead: _Ahead) -> pl.DataFrame:
    """Return a loss at the end of a part for each CPU that loses events across the border.

    The next part has the loss from its beginning on.
    """
    time = pl.lit(until, pl.Int64)
    return rows_like(part, ahead.lost.select("cpu", "node", "event", time_ns=time))


def _running_after(events: pl.DataFrame) -> pl.DataFrame:
    """Return the task on each CPU after the events: cpu, node, pid, comm.

    A CPU that lost events after its last sched_switch is left out.
    """
    if "next_pid" not in events.columns:
        return pl.DataFrame(schema=_TASK)
    switches = events.filter(pl.col("event").is_in(["sched_switch", "lost_events"]))
    last = switches.group_by("cpu").agg(pl.col("node", "event", "next_pid", "next_comm").last())
    runs = last.filter(pl.col("event") == "sched_switch")
    tasks = runs.select("cpu", "node", pid="next_pid", comm="next_comm")
    return tasks.select(pl.col(name).cast(kind) for name, kind in _TASK.items())
