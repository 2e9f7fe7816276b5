"""Who ran where: for each CPU, the task on it at every moment.

What is known rests on sched_switch alone: from one to the next, a CPU runs the task that the first
names as next. The policy for what that leaves open:

- Before a CPU's first sched_switch it ran the task that this one names as previous, since the
  recording began or since events were last lost.
- A CPU without any sched_switch ran the task that its other events say they happened in; without
  any event at all it was idle. Such spans are not `known`.
- From the last event before lost events to the first one after, who ran is unknown: pid is null.
"""

from collections.abc import Iterable

import polars as pl

from lab.analysis.window import Window, clip

SCHEMA = {
    "cpu": pl.Int16,
    "node": pl.Int16,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "pid": pl.Int32,
    "comm": pl.String,
    "known": pl.Boolean,
}
IDLE_PID = 0
_PART = {name: kind for name, kind in SCHEMA.items() if name != "node"}


def spans(events: pl.DataFrame, window: Window, cpus: Iterable[int] = ()) -> pl.DataFrame:
    """Return who ran where in the window: cpu, node, start_ns, end_ns, pid, comm, known.

    `events` is the table that `decode_trace` writes. The spans of a CPU follow each other without
    a hole; idle ones have pid 0, unknown ones a null pid. `cpus` names CPUs that are to be in the
    table even if no event happened on them. Sorted by cpu and start. The name of a task is the one
    it had when it left the CPU, so that a fork that becomes another program is called as that.
    """
    if events.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    first, last = events["time_ns"][0], max(events["time_ns"][-1], window.end_ns)
    rows = _by_segment(events)
    switched = _switched(rows, last)
    parts = [switched, _lost(rows, first), _without_switch(rows, last)]
    parts.append(_without_event(rows, cpus, min(first, window.start_ns), last))
    whole = pl.concat([part.select(list(_PART)) for part in parts])
    nodes = events.group_by("cpu").agg(pl.col("node").first())
    placed = whole.join(nodes, on="cpu", how="left").select(list(SCHEMA))
    return clip(placed, window).sort("cpu", "start_ns")


def _by_segment(events: pl.DataFrame) -> pl.DataFrame:
    """Number the stretches of each CPU between lost events, and give each its start and end."""
    lost = pl.col("event") == "lost_events"
    rows = events.lazy().with_columns(segment=lost.cum_sum().over("cpu"))
    return rows.with_columns(
        segment_start=pl.when(pl.col("segment") == 0)
        .then(pl.lit(events["time_ns"][0]))
        .otherwise(pl.col("time_ns").min().over("cpu", "segment")),
        segment_end=pl.col("time_ns").max().over("cpu", "segment"),
        segments=pl.col("segment").max().over("cpu"),
    ).collect()


def _switched(rows: pl.DataFrame, last: int) -> pl.DataFrame:
    """Return the spans that sched_switch bounds."""
    if "prev_pid" not in rows.columns:
        return pl.DataFrame(schema=_PART)
    group = ["cpu", "segment"]
    switches = rows.filter(pl.col("event") == "sched_switch")
    ends = pl.when(pl.col("segment") == pl.col("segments")).then(last).otherwise("segment_end")
    left_as = pl.col("prev_comm").shift(-1).over(group)
    left = pl.col("prev_pid").shift(-1).over(group)
    after = switches.select(
        "cpu",
        start_ns="time_ns",
        end_ns=pl.col("time_ns").shift(-1).over(group).fill_null(ends),
        pid="next_pid",
        comm=pl.when(left == pl.col("next_pid")).then(left_as).otherwise("next_comm"),
        known=pl.lit(True),
    )
    before = switches.filter(pl.int_range(pl.len()).over(group) == 0).select(
        "cpu",
        start_ns="segment_start",
        end_ns="time_ns",
        pid="prev_pid",
        comm="prev_comm",
        known=pl.lit(True),
    )
    return pl.concat([before, after])


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


def _without_switch(rows: pl.DataFrame, last: int) -> pl.DataFrame:
    """Return one span for each stretch in which a CPU has events but no sched_switch."""
    whole = pl.when(pl.col("segment") == pl.col("segments")).then(last).otherwise("segment_end")
    return (
        rows.with_columns(switched=(pl.col("event") == "sched_switch").any().over("cpu", "segment"))
        .filter(~pl.col("switched"))
        .with_columns(end_ns=whole)
        .group_by("cpu", "segment", maintain_order=True)
        .agg(
            start_ns=pl.col("segment_start").first(),
            end_ns=pl.col("end_ns").first(),
            pid=pl.col("pid").drop_nulls().last(),
            comm=pl.col("comm").drop_nulls().last(),
            known=pl.lit(False),
        )
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
