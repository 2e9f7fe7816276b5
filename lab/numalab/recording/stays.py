"""Where each task was, whether it was runnable, and how many were runnable on each CPU.

Events move a task from one state to the next:

- sched_wakeup makes it runnable on target_cpu; so does sched_wakeup_new, with which a task begins.
- sched_switch makes the next task runnable on the event's CPU. The previous task stays runnable if
  its state shows that it was preempted; else it sleeps or is dead, and then it has no more stays.
  With a signal pending it stays in the queue, but Linux 6.1 traces the state that it had before
  (`__schedule()` in kernel/sched/core.c); that it runs again without a wake-up proves it. Where
  kernels do not tell preempted from asleep (`with_states`), the next event decides. A task that
  cpu.max throttles is preempted in no other way, so it counts as runnable.
- sched_migrate_task moves it to dest_cpu at once, asleep or runnable. The kernel reports it in
  set_task_cpu(), between two queues: a task in flight counts as arrived, not as idle time.

The first mention of a task proves its state before: sched_switch that it was runnable on that CPU
since the recording began, sched_wakeup that it was asleep (runnable if it woke itself, as
try_to_wake_up() of kernel/sched/core.c does with a running task that is about to sleep),
sched_wakeup_new that it did not exist, a migration nothing, so the next event decides. After lost
events on its CPU a task keeps its state only if its next event confirms it.
"""

from dataclasses import dataclass

import polars as pl

from numalab.recording.events import DEAD_BITS, PREEMPTED_OR_IDLE, fell_asleep
from numalab.recording.window import Window, clip, gaps

BIRTHS = {"pid": pl.Int32, "time_ns": pl.Int64}
_STAY = {
    "pid": pl.Int32,
    "comm": pl.String,
    "cpu": pl.Int16,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "runnable": pl.Boolean,
}


def stays(
    events: pl.DataFrame,
    window: Window,
    held: pl.DataFrame | None = None,
    ahead: pl.DataFrame | None = None,
    woken: "Wakeups | None" = None,
) -> pl.DataFrame:
    """Return where each task was: pid, comm, cpu, start_ns, end_ns, runnable.

    A row ends with the task's next event or the window. Idle tasks are left out. Sorted by pid and
    start. For a part of a recording, `held` is the state before its first event (pid, comm, cpu,
    runnable), `ahead` the `first_mentions` behind its last one, and `woken` those of all of it.
    """
    mentions = sightings(events)
    if held is not None and not events.is_empty():
        before = held.select(
            "pid",
            "comm",
            "cpu",
            time_ns=pl.lit(events["time_ns"][0], pl.Int64),
            order=pl.lit(0, pl.UInt32),
            from_cpu="cpu",
            before="runnable",
            after="runnable",
            born=pl.lit(False),
            dead=pl.lit(False),
        )
        mentions = pl.concat(
            [before.select(_SIGHTING), *([] if mentions.is_empty() else [mentions])]
        )
    if mentions.is_empty():
        return pl.DataFrame(schema=_STAY)
    if ahead is not None:
        behind = ahead.join(mentions, on="pid", how="semi").with_columns(
            time_ns=pl.lit(window.end_ns, pl.Int64),
            order=pl.lit(0, pl.UInt32),
            cpu="from_cpu",
            after="before",
            dead=pl.lit(False),
        )
        mentions = pl.concat([mentions, behind.select(mentions.columns)])
    first, last = events["time_ns"][0], max(events["time_ns"][-1], window.end_ns)
    mentions = mentions.sort("pid", "time_ns", "order", maintain_order=True).with_columns(
        was=pl.col("before").backward_fill().over("pid"),
        end_ns=pl.col("time_ns").shift(-1).over("pid").fill_null(last),
    )
    queued = _still_queued(woken or wakeups(events))
    unsure = pl.col("before") & pl.col("after").is_null()
    later_was = pl.col("was").shift(-1).over("pid").fill_null(value=False)
    mentions = mentions.with_columns(
        after=pl.when(queued).then(True).when(unsure).then(later_was).otherwise("after")
    )
    mentions = _with_losses(mentions, gaps(events)).with_columns(
        runnable=_state().fill_null(value=False),
    )
    later = mentions.filter(~pl.col("dead")).select(
        "pid", "comm", "cpu", "end_ns", "runnable", start_ns="time_ns"
    )
    # Older kernels trace the migration of a fork: a task is born if the first proof says so.
    born = pl.col("born").filter(pl.col("before").is_not_null()).first().over("pid")
    first_of_each = mentions.filter(
        (pl.int_range(pl.len()).over("pid") == 0) & ~born.fill_null(value=False)
    )
    start = first_of_each.select(
        "pid",
        "comm",
        cpu="from_cpu",
        end_ns="time_ns",
        runnable=pl.col("was").fill_null(value=False),
        start_ns=pl.lit(first, pl.Int64),
    )
    whole = pl.concat([start, later]).select(list(_STAY))
    return clip(whole, window).sort("pid", "start_ns")


@dataclass(frozen=True)
class Wakeups:
    """The tasks with recorded wake-ups, and the time from which on no event was lost."""

    pids: frozenset[int]
    since_ns: int


def wakeups(events: pl.DataFrame | pl.LazyFrame) -> Wakeups:
    """Look up the wake-ups of a whole recording."""
    table, event = events.lazy(), pl.col("event")
    if "event_pid" not in table.collect_schema():
        return Wakeups(frozenset(), 0)
    pids = pl.col("event_pid").filter(event == "sched_wakeup").unique().implode()
    lost = pl.col("time_ns").filter(event == "lost_events").max() + 1
    row = table.select(pids, lost.fill_null(pl.col("time_ns").min())).collect().row(0)
    return Wakeups(frozenset(row[0]), row[1] or 0)


def _still_queued(woken: Wakeups) -> pl.Expr:
    """Whether a task that went to sleep stayed in its queue: it ran again without a wake-up."""
    slept = (pl.col("order") > 0) & ~pl.col("after") & ~pl.col("dead")
    whole = pl.col("pid").is_in(woken.pids) & (pl.col("time_ns") >= woken.since_ns)
    return slept & whole & pl.col("was").shift(-1).over("pid")


def queue_lengths(stayed: pl.DataFrame, window: Window, cpus: list[int]) -> pl.DataFrame:
    """Return the number of runnable tasks on each of `cpus`: cpu, start_ns, end_ns, runnable.

    The rows of a CPU fill the window without a hole; a CPU without a task has one row with 0.
    """
    queued = stayed.filter(pl.col("runnable") & pl.col("cpu").is_in(cpus))
    base = pl.DataFrame(
        {"cpu": cpus, "at": [window.start_ns] * len(cpus), "step": [0] * len(cpus)},
        schema={"cpu": pl.Int16, "at": pl.Int64, "step": pl.Int64},
    )
    step = pl.lit(1, pl.Int64)
    steps = pl.concat(
        [
            base,
            queued.select("cpu", at="start_ns", step=step),
            queued.select("cpu", at="end_ns", step=-step),
        ]
    )
    # Of several steps at one moment all but the last have no length, and go.
    return (
        steps.sort("cpu", "at")
        .select(
            "cpu",
            start_ns="at",
            end_ns=pl.col("at").shift(-1).over("cpu").fill_null(window.end_ns),
            runnable=pl.col("step").cum_sum().over("cpu"),
        )
        .filter(pl.col("end_ns") > pl.col("start_ns"))
    )


_SIGHTING = (
    *("time_ns", "order", "pid", "comm", "cpu", "from_cpu"),
    *("before", "after", "born", "dead"),
)


def sightings(events: pl.DataFrame) -> pl.DataFrame:
    """Return every mention of a task, in the columns of `_SIGHTING`.

    `before` and `after`: whether it was runnable up to the mention and from it on; null for
    unknown. `born` and `dead`: whether it did not exist before, or does not run any more.
    """
    # From 1 on: what was before the first event comes before it.
    rows = events.with_row_index("order", offset=1)
    cpu = pl.col("cpu")
    columns = set(events.columns)
    parts = []
    if {"prev_pid", "next_pid", "prev_state"} <= columns:
        switches = rows.filter(pl.col("event") == "sched_switch")
        state = pl.col("prev_state")
        awake, dead = pl.when(state != PREEMPTED_OR_IDLE).then(~fell_asleep()), state & DEAD_BITS
        yes = pl.lit(True)
        at = {"cpu": cpu, "from_cpu": cpu, "before": yes}
        ended = (dead != 0).fill_null(value=False)
        parts.append(_mention(switches, "prev", **at, after=awake, dead=ended))
        parts.append(_mention(switches, "next", **at, after=yes))
    if "target_cpu" in columns:
        wakings = rows.filter(pl.col("event").is_in(["sched_wakeup", "sched_wakeup_new"]))
        to, yes = pl.col("target_cpu"), pl.lit(True)
        itself = (pl.col("event_pid") == pl.col("pid")).fill_null(value=False)
        at = {"cpu": to, "from_cpu": to, "before": itself, "after": yes}
        born = pl.col("event") == "sched_wakeup_new"
        parts.append(_mention(wakings, "event", **at, born=born))
    if {"orig_cpu", "dest_cpu"} <= columns:
        moves = rows.filter(pl.col("event") == "sched_migrate_task")
        to, origin, unproved = pl.col("dest_cpu"), pl.col("orig_cpu"), pl.lit(None, pl.Boolean)
        at = {"cpu": to, "from_cpu": origin, "before": unproved}
        parts.append(_mention(moves, "event", **at, after=unproved))
    if not parts:
        return pl.DataFrame()
    return pl.concat(parts).filter(pl.col("pid") != 0)


FIRST_MENTION = {
    "pid": pl.Int32,
    "comm": pl.String,
    "from_cpu": pl.Int16,
    "before": pl.Boolean,
    "born": pl.Boolean,
}


def first_mentions(events: pl.DataFrame) -> pl.DataFrame:
    """Return each task's first mention, in the columns of `FIRST_MENTION`.

    `before` and `born` are what the first mention proves that proves anything.
    """
    mentioned = sightings(events)
    if mentioned.is_empty():
        return pl.DataFrame(schema=FIRST_MENTION)
    proved = mentioned.sort("time_ns", "order").group_by("pid", maintain_order=True)
    return proved.agg(
        pl.col("comm", "from_cpu").first(),
        pl.col("before").drop_nulls().first(),
        pl.col("born").filter(pl.col("before").is_not_null()).first(),
    )


def births(events: pl.DataFrame) -> pl.DataFrame:
    """Return when tasks began: pid, time_ns. From then on a process id means another task."""
    if "event_pid" not in events.columns:
        return pl.DataFrame(schema=BIRTHS)
    began = events.filter(pl.col("event") == "sched_wakeup_new")
    return began.select(pl.col("event_pid").cast(pl.Int32).alias("pid"), "time_ns").drop_nulls()


def _mention(rows: pl.DataFrame, task: str, **proved: pl.Expr) -> pl.DataFrame:
    """Select the task that the columns `<task>_pid` and `<task>_comm` name."""
    return rows.select(
        "time_ns",
        "order",
        pid=pl.col(f"{task}_pid").cast(pl.Int32),
        comm=f"{task}_comm",
        cpu=proved["cpu"].cast(pl.Int16),
        from_cpu=proved["from_cpu"].cast(pl.Int16),
        before=proved["before"],
        after=proved["after"],
        born=proved.get("born", pl.lit(False)),
        dead=proved.get("dead", pl.lit(False)),
    )


def _state() -> pl.Expr:
    """Whether a task was runnable from each mention on; null for unknown."""
    return pl.col("after").forward_fill().over("pid").fill_null(pl.col("was"))


def _with_losses(mentions: pl.DataFrame, lost: pl.DataFrame) -> pl.DataFrame:
    """End a state at the first loss of events on its CPU if the task's next event contradicts it.

    Other CPUs may name a task while its own loses events: what began within a loss ends as well.
    After it a migration, which proves no state, does not continue the one before the loss.
    """
    if lost.is_empty():
        return mentions
    losses = lost.select("cpu", lost_ns="start_ns", until_ns="end_ns").sort("until_ns")
    met = mentions.sort("time_ns", maintain_order=True).join_asof(
        losses,
        left_on="time_ns",
        right_on="until_ns",
        by="cpu",
        strategy="forward",
        allow_exact_matches=False,
        check_sortedness=False,  # both are sorted; polars cannot tell with `by`
    )
    proved = pl.col("was").shift(-1).over("pid")
    borne_out = proved.is_not_null() & (proved | ~_state())
    cut = (pl.col("lost_ns") < pl.col("end_ns")).fill_null(value=False) & ~borne_out
    forgotten = pl.col("after").is_null() & pl.col("cut").shift(1).over("pid")
    asleep = ~pl.col("was").fill_null(value=False)
    return (
        met.sort("pid", "time_ns", "order", maintain_order=True)
        .with_columns(cut=cut)
        .with_columns(
            end_ns=pl.when("cut").then(pl.max_horizontal("lost_ns", "time_ns")).otherwise("end_ns"),
            after=pl.when(forgotten & asleep).then(pl.lit(value=False)).otherwise("after"),
        )
    )
