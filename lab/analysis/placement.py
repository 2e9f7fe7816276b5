"""The placement measures: where tasks ran, who waited where, and what moved.

Each function takes the tables of one piece of a run and gives plain numbers; `totals.py` adds them
up.
Tasks of interest are named; a task counts from the moment on that it has the name.
"""

from collections.abc import Collection, Sequence

import polars as pl

from lab.analysis.occupancy import IDLE_PID
from lab.analysis.window import Window


def of_interest(tasks: Collection[str], comm: str = "comm", pid: str = "pid") -> pl.Expr:
    """Return the filter for the tasks of interest: those named, or all but the idle tasks.

    In a name `*` stands for any text and `?` for any one character, for the many threads that are
    numbered (`thread 0/3`).
    """
    if not tasks:
        return pl.col(pid) != IDLE_PID
    exact = [name for name in tasks if not set(name) & set("*?")]
    globs = "|".join(map(_glob, (name for name in tasks if set(name) & set("*?"))))
    found = pl.col(comm).is_in(exact)
    return found | pl.col(comm).str.contains(f"(?s)^(?:{globs})$") if globs else found


def _glob(name: str) -> str:
    known = {"*": ".*", "?": "."}
    # Every character as its number: no dialect of regular expressions reads that otherwise.
    return "".join(known.get(char) or f"\\x{{{ord(char):x}}}" for char in name)


def busy_ns(spans: pl.DataFrame, tasks: Collection[str]) -> dict[int, int]:
    """Return for each CPU the nanoseconds in which a task of interest ran on it."""
    return dict(spans.filter(of_interest(tasks)).group_by("cpu").agg(_length().sum()).iter_rows())


def idle_while_overloaded(
    lengths: pl.DataFrame, unknown: pl.DataFrame, window: Window, cpus: Sequence[int]
) -> tuple[int, int]:
    """Return two times in nanoseconds: idle while overloaded, and unknown.

    The first is that in which one of `cpus` had no runnable task while another had two or more, the
    second that in which events of one of them were lost; the first is without the second. `lengths`
    is what `queue_lengths` gave, `unknown` the gaps in the window.
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


def node_changes(ran: pl.DataFrame, before: pl.DataFrame) -> tuple[int, pl.DataFrame]:
    """Count the moves between nodes as they took effect, and return where tasks ran last.

    One is counted where a task of interest ran on another node than in the span before. `ran` are
    the spans of tasks of interest, `before` where each task ran last before them (pid, node).
    """
    rows = pl.concat(
        [
            before.select("pid", "node", start_ns=pl.lit(-1, pl.Int64)),
            ran.select("pid", "node", "start_ns"),
        ]
    ).sort("pid", "start_ns", maintain_order=True)
    changed = rows["node"].ne(rows["node"].shift(1)) & rows["pid"].eq(rows["pid"].shift(1))
    last = rows.group_by("pid", maintain_order=True).agg(pl.col("node").last())
    return int(changed.fill_null(value=False).sum()), last


def count(events: pl.DataFrame, window: Window, event: str) -> int:
    """Count an event in the window."""
    return _within(events, window).filter(pl.col("event") == event).height


def _within(events: pl.DataFrame, window: Window) -> pl.DataFrame:
    return events.filter(pl.col("time_ns").is_between(window.start_ns, window.end_ns))


def _length() -> pl.Expr:
    return (pl.col("end_ns") - pl.col("start_ns")).alias("length_ns")


def _steps(spans: pl.DataFrame, name: str) -> pl.DataFrame:
    one = pl.lit(1, pl.Int64)
    return pl.concat(
        [
            spans.select(at="start_ns", **{name: one}),
            spans.select(at="end_ns", **{name: -one}),
        ]
    )
