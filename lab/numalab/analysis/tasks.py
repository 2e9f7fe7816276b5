"""Tasks of interest: which they are, how long they ran on each CPU, how often they changed nodes.

They are named; a task counts from the moment on that it has the name.
"""

from collections.abc import Collection

import polars as pl

from numalab.analysis.tables.on_cpu import IDLE_PID


def of_interest(tasks: Collection[str]) -> pl.Expr:
    """Return the filter for the tasks of interest: those named, or all but the idle tasks.

    In a name `*` stands for any text and `?` for any one character, for the many threads that are
    numbered (`thread 0/3`).
    """
    if not tasks:
        return pl.col("pid") != IDLE_PID
    exact = [name for name in tasks if not set(name) & set("*?")]
    globs = "|".join(map(_glob, (name for name in tasks if set(name) & set("*?"))))
    comm = pl.col("comm")
    found = comm.is_in(exact)
    return found | comm.str.contains(f"(?s)^(?:{globs})$") if globs else found


def _glob(name: str) -> str:
    known = {"*": ".*", "?": "."}
    # Each character by its code point, so that none is read as syntax of the expression.
    return "".join(known.get(char) or f"\\x{{{ord(char):x}}}" for char in name)


def busy_ns(spans: pl.DataFrame, tasks: Collection[str]) -> dict[int, int]:
    """Return for each CPU the nanoseconds in which a task of interest ran on it."""
    length = pl.col("end_ns") - pl.col("start_ns")
    return dict(spans.filter(of_interest(tasks)).group_by("cpu").agg(length.sum()).iter_rows())


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
