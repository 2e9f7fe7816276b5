"""The table of events, its common columns each of one type.

The columns follow from the event formats of a recording. Kernels differ in the types of fields, and
a damaged format may have any; a value that does not fit the type of `SCHEMA` is null. Columns of
`AS_RECORDED` stay as they are: a patch's own event may have a field of that name and another type.
"""

from collections.abc import Collection, Mapping

import polars as pl

from numalab.capture.counters import NOT_MEASURED
from numalab.capture.spec import CaptureSpec

IDLE_PID = 0
SCHEMA: dict[str, type[pl.DataType]] = {
    "time_ns": pl.Int64,
    "cpu": pl.Int16,
    "node": pl.Int16,
    "event": pl.String,
    "pid": pl.Int32,
    "comm": pl.String,
    "lost": pl.Int64,
    "buf": pl.String,
    "line": pl.String,  # of sched_ext_dump; the next two are of sched_ext_event
    "name": pl.String,
    "delta": pl.Int64,
    "prev_comm": pl.String,
    "prev_pid": pl.Int32,
    "prev_state": pl.Int64,
    "next_comm": pl.String,
    "next_pid": pl.Int32,
    "event_comm": pl.String,
    "event_pid": pl.Int32,
    **dict.fromkeys(("target_cpu", "orig_cpu", "dest_cpu"), pl.Int16),
    **dict.fromkeys(("src_pid", "src_tgid", "src_ngid", "src_cpu"), pl.Int32),
    **dict.fromkeys(("dst_pid", "dst_cpu", "tgid", "ngid"), pl.Int32),
}
_WAKEUP = ("event_pid", "event_comm", "target_cpu")
# The fields by which measures and hunts read an event. NUMA events name their task in one of two
# (`numa_decisions`).
NEEDED: Mapping[str, tuple[str, ...]] = {
    "sched_switch": ("prev_comm", "prev_pid", "prev_state", "next_comm", "next_pid"),
    "sched_wakeup": _WAKEUP,
    "sched_wakeup_new": _WAKEUP,
    "sched_migrate_task": ("event_pid", "event_comm", "orig_cpu", "dest_cpu"),
    **dict.fromkeys(("sched_move_numa", "sched_swap_numa", "sched_stick_numa"),
                    ("src_cpu", "dst_cpu")),
}  # fmt: skip
# prev_state has the bits of the state in which a task leaves, and 0x100 if it was preempted:
# __trace_sched_switch_state() in include/trace/events/sched.h, Linux 4.20 on. Up to 4.13, 0x40 is
# TASK_DEAD and 0x200 TASK_PARKED. `with_states` takes care of the time between.
SLEEPING_BITS = 0x2FF
DEAD_BITS = 0x70  # EXIT_DEAD, EXIT_ZOMBIE, and 0x40; a parked task stays as nowhere as a dead one
STOPPED_BIT = 0x4  # __TASK_STOPPED
PARKED, PREEMPTED = 0x40, 0x100
PREEMPTED_OR_IDLE = 0x180
AS_RECORDED = frozenset({"buf", "line", "name", "delta"})
# What the measures read of a recording; the other columns need not be loaded.
COLUMNS = tuple(SCHEMA)


def typed(events: pl.DataFrame | pl.LazyFrame) -> pl.LazyFrame:
    """Return every column, those of `SCHEMA` in their types; one that the table lacks is null.

    Those of `AS_RECORDED` may also have the type of another number or text.
    """
    table = events.lazy()
    names = table.collect_schema()
    plain = {
        name
        for name in AS_RECORDED & names.keys()
        if names[name].is_integer() or names[name] in (pl.Boolean, pl.String)
    }
    return table.with_columns(
        (pl.col(name) if name in names else pl.lit(None)).cast(kind, strict=False).alias(name)
        for name, kind in SCHEMA.items()
        if name not in plain
    )


def with_states(events: pl.LazyFrame) -> pl.LazyFrame:
    """Return typed events with `prev_state` in the bits of Linux 4.20 on.

    From 4.15 to a fix in 4.20, each bit is one further to the left, and a running task has 1, as
    every idle task shows. Then 0x100 says that a task was preempted or is in TASK_IDLE, as idle
    kworkers are; this becomes `PREEMPTED_OR_IDLE`.
    """
    state = pl.col("prev_state")
    idle = state.filter((pl.col("event") == "sched_switch") & (pl.col("prev_pid") == IDLE_PID))
    least, most = events.select(least=idle.min(), most=idle.max()).collect().row(0)
    if (least, most) != (1, 1):
        return events
    moved = pl.when(state == PREEMPTED).then(PREEMPTED_OR_IDLE).otherwise(state // 2)
    return events.with_columns(moved.cast(pl.Int64).alias("prev_state"))


def fell_asleep() -> pl.Expr:
    """Whether the task that a sched_switch takes from its CPU went to sleep or died.

    A task that may have been preempted did not.
    """
    state = pl.col("prev_state")
    return (state & SLEEPING_BITS != 0) & (state != PREEMPTED_OR_IDLE)


def rows_like(like: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows in the columns of `like` and their types; a column that they lack is null."""
    return pl.concat([like.clear(), rows], how="diagonal_relaxed").select(
        pl.col(name).cast(kind) for name, kind in like.schema.items()
    )


def lacking_fields(events: pl.DataFrame | pl.LazyFrame) -> dict[str, tuple[str, ...]]:
    """Return the fields of `NEEDED` that events of a table lack, by event.

    A patch may rename a field. An event that did not occur lacks nothing: its count is 0.
    """
    fields = sorted({field for fields in NEEDED.values() for field in fields})
    held = (
        typed(events)
        .filter(pl.col("event").is_in(list(NEEDED)))
        .group_by("event")
        .agg(pl.col(fields).is_not_null().any())
        .collect(engine="streaming")
    )
    lacking = {
        row["event"]: tuple(field for field in NEEDED[row["event"]] if not row[field])
        for row in held.sort("event").iter_rows(named=True)
    }
    return {event: fields for event, fields in lacking.items() if fields}


def describe_lacking(lacking: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """Return a sentence for each event that lacks fields, with the kernel's names of these."""
    return tuple(
        f"{event} has no field {', '.join(name.removeprefix('event_') for name in fields)}:"
        f" {NOT_MEASURED}"
        for event, fields in lacking.items()
    )


def filtered_events(capture: CaptureSpec) -> tuple[str, ...]:
    """Return the events that have a filter, without their system; of `sched` all of `NEEDED`."""
    names = [event.name for event in capture.events if event.filter]
    of_sched = NEEDED if "sched" in names else ()
    return tuple(dict.fromkeys([*of_sched, *(name.rpartition(":")[2] for name in names)]))


def describe_filtered(filtered: Collection[str]) -> tuple[str, ...]:
    """Return a sentence for each event that was recorded with a filter."""
    return tuple(f"{event} was filtered: {NOT_MEASURED}" for event in filtered)


def of_interest(tasks: Collection[str]) -> pl.Expr:
    """Return the filter for tasks of these names, or for all but idle tasks without names.

    `*` stands for any text and `?` for one character, for threads with numbers (`thread 0/3`).
    """
    if not tasks:
        return pl.col("pid") != IDLE_PID
    exact = [name for name in tasks if not set(name) & set("*?")]
    globs = "|".join(map(_glob, (name for name in tasks if set(name) & set("*?"))))
    comm = pl.col("comm").cast(pl.String)
    matches = comm.is_in(exact)
    return matches | comm.str.contains(f"(?s)^(?:{globs})$") if globs else matches


def _glob(name: str) -> str:
    patterns = {"*": ".*", "?": "."}
    # Each character by its code point, so that none is read as syntax of the expression.
    return "".join(patterns.get(char) or f"\\x{{{ord(char):x}}}" for char in name)
