"""Violations of work conservation: a CPU is idle while another allowed CPU has two tasks or more.

Short ones are normal: balancing takes time, and moving a task has a cost. Long ones are a sign of
wrongly built sched groups.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from numalab.recording.intervals import covered, minus
from numalab.recording.window import Window

VIOLATION = {
    "cpu": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "busy_cpu": pl.Int64,
    "pid": pl.Int64,
    "comm": pl.String,
}


def idle_while_overloaded(
    lengths: pl.DataFrame, unknown: pl.DataFrame, window: Window, cpus: Sequence[int]
) -> tuple[int, int]:
    """Return two times in ns: idle while overloaded, and unknown because events were lost.

    Idle while overloaded: one of `cpus` has no runnable task, another has two or more, and no
    events of them were lost (`unknown`, the gaps in the window). `lengths` is from `queue_lengths`.
    """
    mine = pl.col("cpu").is_in(list(cpus))
    steps = pl.concat(
        [
            _steps(lengths.filter(mine & (pl.col("runnable") <= 0)), "idle"),
            _steps(lengths.filter(mine & (pl.col("runnable") >= 2)), "overloaded"),
            _steps(unknown.filter(mine), "unknown"),
        ],
        how="diagonal",
    )
    state = (
        steps.sort("at")
        .select("at", pl.exclude("at").fill_null(0).cum_sum() > 0)
        .with_columns(length=pl.col("at").shift(-1).fill_null(window.end_ns) - pl.col("at"))
    )
    both = state.filter(pl.col("idle") & pl.col("overloaded") & ~pl.col("unknown"))
    return int(both["length"].sum()), int(state.filter("unknown")["length"].sum())


def violations(lengths: pl.DataFrame, lost: pl.DataFrame) -> pl.DataFrame:
    """Return when a CPU was idle and another overloaded: cpu, start_ns, end_ns.

    `lengths` is from `queue_lengths`. Times with lost events on any of its CPUs are left out.
    """
    mine = lost.filter(pl.col("cpu").is_in(lengths["cpu"].unique().to_list()))
    over = minus(covered(lengths.filter(pl.col("runnable") >= 2)), covered(mine))
    idle = lengths.filter(pl.col("runnable") <= 0).sort("cpu", "start_ns")
    start, end = idle["start_ns"].to_numpy(), idle["end_ns"].to_numpy()
    first = np.searchsorted(over[1], start, "right")
    met = np.maximum(np.searchsorted(over[0], end, "left") - first, 0)
    row = np.repeat(np.arange(len(start)), met)
    which = np.arange(len(row)) - np.repeat(np.cumsum(met) - met, met) + first[row]
    return pl.DataFrame(
        {
            "cpu": idle["cpu"].cast(pl.Int64).to_numpy()[row],
            "start_ns": np.maximum(start[row], over[0][which]),
            "end_ns": np.minimum(end[row], over[1][which]),
        },
        schema={name: VIOLATION[name] for name in ("cpu", "start_ns", "end_ns")},
    )


def longest(
    violations: pl.DataFrame, lengths: pl.DataFrame, stayed: pl.DataFrame, most: int, window: Window
) -> pl.DataFrame:
    """Return the longest violations, each with the overloaded CPU and a task that waited there.

    The task is the last to arrive of those runnable when the violation began. Violations that touch
    the ends of the window are always included: they may go on in the next chunk.
    """
    ordered = violations.sort(pl.col("start_ns") - pl.col("end_ns"), "start_ns", "cpu")
    cut = (pl.col("start_ns") == window.start_ns) | (pl.col("end_ns") == window.end_ns)
    chosen = pl.concat([ordered.head(most), ordered.slice(most).filter(cut)])
    rows = []
    for cpu, start, end in chosen.iter_rows():
        now = (pl.col("start_ns") <= start) & (pl.col("end_ns") > start)
        busy = lengths.filter(now & (pl.col("runnable") >= 2)).sort("runnable", descending=True)
        busy_cpu = busy["cpu"][0] if len(busy) else None
        waits = stayed.filter(now & pl.col("runnable") & (pl.col("cpu") == busy_cpu))
        last = waits.sort("start_ns", "pid").tail(1)
        pid, comm = last.select("pid", "comm").row(0) if len(last) else (None, None)
        rows.append((cpu, start, end, busy_cpu, pid, comm))
    return pl.DataFrame(rows, schema=VIOLATION, orient="row")


def joined(violations: pl.DataFrame) -> pl.DataFrame:
    """Join violations of a CPU that follow each other without a hole, as pieces cut them."""
    ordered = violations.sort("cpu", "start_ns")
    new = (pl.col("start_ns") != pl.col("end_ns").shift(1).over("cpu")).fill_null(value=True)
    return (
        ordered.with_columns(number=new.cum_sum())
        .group_by("number", maintain_order=True)
        .agg(pl.exclude("end_ns").first(), pl.col("end_ns").last())
        .select(ordered.columns)
    )


def _steps(spans: pl.DataFrame, name: str) -> pl.DataFrame:
    step = pl.lit(1, pl.Int64)
    return pl.concat(
        [spans.select(at="start_ns", **{name: step}), spans.select(at="end_ns", **{name: -step})]
    )
