"""The placement measures: where tasks ran, who waited where, and what moved.

Each function takes the tables of one run and gives plain numbers; `run.py` makes measures of them.
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


def time_by_node(spans: pl.DataFrame, tasks: Collection[str]) -> dict[int, int]:
    """Return the CPU time in ns that the tasks of interest had on each node, by node."""
    mine = spans.filter(of_interest(tasks)).group_by("node").agg(_length().sum())
    return {node: length for node, length in mine.iter_rows() if node is not None}


def busy_shares(
    spans: pl.DataFrame, window: Window, tasks: Collection[str], cpus: Sequence[int]
) -> dict[int, float]:
    """Return for each CPU the share of the window in which a task of interest ran on it."""
    mine = spans.filter(of_interest(tasks)).group_by("cpu").agg(_length().sum())
    busy = dict(mine.iter_rows())
    return {cpu: busy.get(cpu, 0) / window.length_ns for cpu in cpus} if window.length_ns else {}


def idle_while_overloaded(
    lengths: pl.DataFrame, unknown: pl.DataFrame, window: Window, cpus: Sequence[int]
) -> tuple[float | None, float]:
    """Return two shares: idle while overloaded, and unknown.

    The first is the share of the known time in which one of `cpus` had no runnable task while
    another had two or more; the second the share of the window in which events of one of them
    were lost. `lengths` is what `queue_lengths` gave, `unknown` the gaps in the window. The first
    is None when nothing is known.
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
    if not window.length_ns:
        return None, 0.0
    state = (
        steps.sort("at")
        .select("at", pl.exclude("at").fill_null(0).cum_sum() > 0)
        .with_columns(length=pl.col("at").shift(-1).fill_null(window.end_ns) - pl.col("at"))
    )
    lost = int(state.filter("unknown")["length"].sum())
    both = state.filter(pl.col("idle") & pl.col("overloaded") & ~pl.col("unknown"))
    known = window.length_ns - lost
    return (int(both["length"].sum()) / known if known else None), lost / window.length_ns


def final_nodes(
    stayed: pl.DataFrame, tasks: Collection[str], node_of: pl.DataFrame
) -> dict[int, int]:
    """Return how many tasks of interest were last on each node. `stayed` is what `stays` gave."""
    last = stayed.filter(of_interest(tasks)).group_by("pid").agg(pl.col("cpu").last())
    counted = last.join(node_of, on="cpu").group_by("node").len()
    return dict(counted.iter_rows())


def migrations(
    events: pl.DataFrame, window: Window, tasks: Collection[str], node_of: pl.DataFrame
) -> pl.DataFrame:
    """Return the moves of tasks of interest by sched_migrate_task: from_node, to_node, moves.

    Moves within a node are in the table as well. A CPU that the topology lacks has a null node.
    """
    if not {"orig_cpu", "dest_cpu"} <= set(events.columns):
        return pl.DataFrame(schema={"from_node": pl.Int16, "to_node": pl.Int16, "moves": pl.UInt32})
    moved = _within(events, window).filter(
        (pl.col("event") == "sched_migrate_task")
        # set_task_cpu() traces before it looks whether the CPU changes at all (6.12, core.c).
        & (pl.col("orig_cpu") != pl.col("dest_cpu"))
        & of_interest(tasks, "event_comm", "event_pid")
    )
    ends = {"orig_cpu": "from_node", "dest_cpu": "to_node"}
    for column, node in ends.items():
        moved = moved.with_columns(pl.col(column).cast(pl.Int16)).join(
            node_of.rename({"cpu": column, "node": node}), on=column, how="left"
        )
    return moved.group_by("from_node", "to_node").agg(moves=pl.len()).sort("from_node", "to_node")


def node_changes(spans: pl.DataFrame, tasks: Collection[str]) -> pl.DataFrame:
    """Return the moves between nodes as they took effect: from_node, to_node, moves.

    One is counted where a task of interest ran on another node than in the span before.
    """
    ran = spans.filter(of_interest(tasks)).sort("pid", "start_ns")
    before = ran.with_columns(from_node=pl.col("node").shift(1).over("pid"))
    return (
        before.filter(pl.col("from_node") != pl.col("node"))
        .group_by("from_node", to_node="node")
        .agg(moves=pl.len())
        .sort("from_node", "to_node")
    )


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
