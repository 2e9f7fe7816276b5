"""What NUMA balancing decided, from sched_move_numa, sched_swap_numa and sched_stick_numa.

task_numa_migrate() (kernel/sched/fair.c, 6.12) ends in one of these ways: no better CPU was found
(a stick without a destination); a move or a swap is announced and done; or it is announced and
fails, and a stick with the same destination follows. A stick with a destination that nothing
announced is a CPU on which the task may not run (migrate_task_to(), migrate_swap()).

Before Linux 5.7 a stick names one task, and the stick of a failed swap has the CPU on which the
other task is by then: swaps mostly fail because that one has moved.
"""

from collections.abc import Mapping
from typing import Literal

import polars as pl

from numalab.recording.window import Window

SCHEMA = {
    "time_ns": pl.Int64,
    "kind": pl.String,
    "pid": pl.Int32,
    "tgid": pl.Int32,
    "ngid": pl.Int32,
    "from_cpu": pl.Int32,
    "from_node": pl.Int32,
    "to_cpu": pl.Int32,
    "to_node": pl.Int32,
    "other_pid": pl.Int32,
    "old_stick": pl.Boolean,
}
KINDS = {"sched_move_numa": "move", "sched_swap_numa": "swap", "sched_stick_numa": "stick"}
StickReason = Literal["", "no destination", "failed", "not allowed there"]
NO_DESTINATION: StickReason = "no destination"
FAILED: StickReason = "failed"
NOT_ALLOWED: StickReason = "not allowed there"


def numa_decisions(
    events: pl.DataFrame, window: Window, node_of: Mapping[int, int]
) -> pl.DataFrame:
    """Return the NUMA balancing events of the window in the columns of `SCHEMA`, by time.

    `to_cpu` is null without a destination, `other_pid` without a swap; `old_stick` is a stick of a
    kernel before 5.7. Nodes come from `node_of`: an imported machine may number its nodes
    differently than its kernel.
    """
    decisions = events.filter(
        pl.col("event").is_in(list(KINDS))
        & pl.col("time_ns").is_between(window.start_ns, window.end_ns)
    )
    columns = set(decisions.columns)
    if decisions.is_empty() or not {"src_cpu", "dst_cpu"} <= columns:
        return pl.DataFrame(schema=SCHEMA)

    def either(*names: str) -> pl.Expr:
        present = [pl.col(name) for name in names if name in columns]
        return pl.coalesce(present).cast(pl.Int32) if present else pl.lit(None, pl.Int32)

    def if_any(name: str, least: int) -> pl.Expr:
        value = either(name)
        return pl.when(value >= least).then(value)

    table = decisions.select(
        "time_ns",
        kind=pl.col("event").replace_strict(KINDS),
        # A move names one task; a swap, and from Linux 5.7 on a stick, names two.
        pid=either("src_pid", "event_pid"),
        tgid=either("src_tgid", "tgid"),
        ngid=either("src_ngid", "ngid"),
        from_cpu=either("src_cpu"),
        to_cpu=if_any("dst_cpu", 0),
        other_pid=if_any("dst_pid", 1),
        old_stick=(pl.col("event") == "sched_stick_numa") & either("dst_pid").is_null(),
    )
    placed = table.with_columns(
        from_node=node_of_cpu("from_cpu", node_of), to_node=node_of_cpu("to_cpu", node_of)
    )
    return placed.select(list(SCHEMA)).sort("time_ns", maintain_order=True)


def node_of_cpu(cpu: str, node_of: Mapping[int, int]) -> pl.Expr:
    """Return the node of the CPUs in a column, null for one that has none."""
    number = pl.col(cpu).cast(pl.Int32)
    return number.replace_strict(dict(node_of) or {-1: -1}, default=None, return_dtype=pl.Int32)


def with_outcomes(decisions: pl.DataFrame) -> pl.DataFrame:
    """Add `failed` (to moves and swaps: it did not happen) and `reason` (to sticks).

    A move or swap failed when the next event of its task is a stick with the same destination; a
    swap also for an `old_stick` that has a destination, while the task is where it was.
    """
    ordered = decisions.sort("pid", "time_ns", maintain_order=True)
    same = ordered["pid"] == ordered["pid"].shift(-1)
    to_cpu = pl.col("to_cpu").shift(-1)
    elsewhere = (
        (pl.col("kind") == "swap")
        & pl.col("old_stick").shift(-1)
        & to_cpu.is_not_null()
        & (pl.col("from_cpu").shift(-1) == pl.col("from_cpu"))
    )
    answers = (pl.col("kind").shift(-1) == "stick") & ((to_cpu == pl.col("to_cpu")) | elsewhere)
    marked = ordered.with_columns(
        failed=((pl.col("kind") != "stick") & answers & same).fill_null(value=False)
    )
    follows = (pl.col("failed").shift(1) & same.shift(1)).fill_null(value=False)
    reason = (
        pl.when(pl.col("kind") != "stick")
        .then(pl.lit(""))
        .when(pl.col("to_cpu").is_null())
        .then(pl.lit(NO_DESTINATION))
        .when(follows)
        .then(pl.lit(FAILED))
        .otherwise(pl.lit(NOT_ALLOWED))
    )
    return marked.with_columns(reason=reason).sort("time_ns", maintain_order=True)


def success_percent(decisions: pl.DataFrame) -> float | None:
    """Return the share of attempts that moved or swapped a task; None without an attempt.

    An attempt is a move, a swap, or a stick that no announcement precedes.
    """
    announced = decisions.filter(pl.col("kind") != "stick")
    alone = decisions.filter((pl.col("kind") == "stick") & (pl.col("reason") != FAILED)).height
    attempts = announced.height + alone
    done = announced.filter(~pl.col("failed")).height
    return 100 * done / attempts if attempts else None


def done_moves(decisions: pl.DataFrame) -> pl.DataFrame:
    """Return every task moved by NUMA balancing; a swap moves two.

    Columns: decision (row in `decisions`), kind, time_ns, pid, from_cpu, to_cpu, from_node,
    to_node.
    """
    done = decisions.with_row_index("decision").filter(
        (pl.col("kind") != "stick") & ~pl.col("failed")
    )
    names = ("decision", "kind", "time_ns", "pid", "from_cpu", "to_cpu", "from_node", "to_node")
    back = done.filter(pl.col("other_pid").is_not_null()).select(
        "decision",
        "kind",
        "time_ns",
        pid="other_pid",
        from_cpu="to_cpu",
        to_cpu="from_cpu",
        from_node="to_node",
        to_node="from_node",
    )
    return pl.concat([done.select(names), back]).sort("time_ns", maintain_order=True)


def nearer(
    moved: pl.DataFrame, preferred: pl.DataFrame, distance: Mapping[tuple[int, int], int]
) -> pl.DataFrame:
    """Add `nearer`: the decrease of the distance to the task's preferred node, null without one.

    `preferred` (time_ns, pid, node) samples numa_preferred_nid. The first sample after the move
    counts, else the last before: the kernel sets the node just before it moves a task.
    """
    samples = preferred.filter(pl.col("node") >= 0).sort("time_ns").rename({"node": "preferred"})
    rows = moved.sort("time_ns", maintain_order=True)
    if samples.is_empty() or rows.is_empty():
        return rows.with_columns(nearer=pl.lit(None, pl.Int32))
    sides: dict[Literal["forward", "backward"], str] = {"forward": "later", "backward": "earlier"}
    for strategy, column in sides.items():
        rows = rows.join_asof(
            samples.rename({"preferred": column}),
            on="time_ns",
            by="pid",
            strategy=strategy,
            check_sortedness=False,  # both are sorted; polars cannot tell with `by`
        )
    rows = rows.with_columns(preferred=pl.coalesce("later", "earlier")).drop("later", "earlier")
    change = [
        None
        if None in (a, b, wanted) or (a, wanted) not in distance or (b, wanted) not in distance
        else distance[a, wanted] - distance[b, wanted]
        for a, b, wanted in rows.select("from_node", "to_node", "preferred").iter_rows()
    ]
    return rows.with_columns(nearer=pl.Series(change, dtype=pl.Int32)).drop("preferred")
