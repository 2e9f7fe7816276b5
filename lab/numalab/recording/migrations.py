"""Who moved a task, who moved it back, and where many tasks went at once.

sched_migrate_task does not name the mover. It follows from other events:

- NUMA balancing announces task and destination in sched_move_numa or sched_swap_numa; a CPU's
  stopper (`migration/N`) carries the move out.
- Any other move by a stopper is an active balance, a change of affinity or an exec.
- A wake-up placed a task that was asleep. (From 6.12 on a load balancer may pull one, too, whose
  dequeue is delayed: such a pull counts as a wake-up.)
- The load balancer pulled a task that was runnable; an idle CPU may pull for others
  (nohz_idle_balance()). Pushes of real-time tasks and new masks of waiting tasks count here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from numalab.recording.numa_decisions import node_of_cpu

RETURN_NS = 1_000_000_000  # what comes back within a second was not worth moving
CARRIED_OUT_NS = 1_000_000_000  # stop_two_cpus() waits for both CPUs; one that is busy takes long
STORM_NS = 10_000_000
STORM_TASKS = 8  # a load balancer may pull several at once (sched_nr_migrate is 32)
Mover = Literal["numa", "load balancer", "wake-up", "stopper", "not known"]
MOVERS: tuple[Mover, ...] = ("numa", "load balancer", "wake-up", "stopper", "not known")

_MOVER = pl.Enum(MOVERS)
SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "time_ns": pl.Int64,
    "pid": pl.Int32,
    "comm": pl.Categorical,
    "from_cpu": pl.Int32,
    "to_cpu": pl.Int32,
    "from_node": pl.Int32,
    "to_node": pl.Int32,
    "mover": _MOVER,
}

StormTarget = Literal["cpu", "node"]


@dataclass(frozen=True)
class Storm:
    """Many tasks were moved to one CPU or node within a short time."""

    to: StormTarget
    id: int
    at_ms: float
    length_ms: float
    moves: int
    tasks: int


@dataclass(frozen=True)
class Moves:
    """How often each mover moved a task to another node, and how often another took it back.

    `taken_back_by` counts, for a mover's moves, who undid them.
    """

    mover: Mover
    moves: int
    between_nodes: int
    taken_back_by: dict[Mover, int]


def migrations(
    events: pl.DataFrame, stayed: pl.DataFrame, node_of: Mapping[int, int]
) -> pl.DataFrame:
    """Return every sched_migrate_task that changes the CPU, in the columns of `SCHEMA`.

    Moves that NUMA balancing announced still count as the stopper's (see `name_numa_moves`).
    """
    if not {"orig_cpu", "dest_cpu"} <= set(events.columns):
        return pl.DataFrame(schema=SCHEMA)
    # set_task_cpu() traces before it looks whether the CPU changes at all (6.12, core.c).
    moved = events.filter(
        (pl.col("event") == "sched_migrate_task") & (pl.col("orig_cpu") != pl.col("dest_cpu"))
    )
    state = stayed.select("pid", "runnable", time_ns="start_ns").unique(
        ["pid", "time_ns"], keep="last"
    )
    stopper = pl.coalesce("comm", "runs").str.starts_with("migration/")
    if not (events["event"] == "lost_events").any():
        stopper = stopper.fill_null(value=False)  # a switch would name it
    table = (
        moved.join(_names(events), on="pid", how="left", maintain_order="left")
        .select(
            "time_ns",
            pid=pl.col("event_pid").cast(pl.Int32),
            comm=pl.col("event_comm").cast(pl.Categorical),
            from_cpu=pl.col("orig_cpu").cast(pl.Int32),
            to_cpu=pl.col("dest_cpu").cast(pl.Int32),
            from_node=node_of_cpu("orig_cpu", node_of),
            to_node=node_of_cpu("dest_cpu", node_of),
            stopper=stopper,
        )
        .join(state, on=["pid", "time_ns"], how="left", maintain_order="left")
    )
    mover = (
        pl.when(pl.col("stopper"))
        .then(pl.lit("stopper"))
        .when(pl.col("runnable").is_null() | pl.col("stopper").is_null())
        .then(pl.lit("not known"))
        .when(pl.col("runnable"))
        .then(pl.lit("load balancer"))
        .otherwise(pl.lit("wake-up"))
    )
    return table.with_columns(mover=mover.cast(_MOVER)).select(list(SCHEMA))


def _names(events: pl.DataFrame) -> pl.DataFrame:
    """Return the names of tasks in sched_switch: pid, runs.

    Events have names that the kernel keeps of few tasks only (saved_cmdlines of ftrace).
    """
    columns = (("prev_pid", "prev_comm"), ("next_pid", "next_comm"))
    switches = events.filter(pl.col("event") == "sched_switch")
    named = [
        switches.select(pid=pl.col(pid).cast(pl.Int32), runs=pl.col(comm).cast(pl.String))
        for pid, comm in columns
        if {pid, comm} <= set(events.columns)
    ]
    empty = pl.DataFrame(schema={"pid": pl.Int32, "runs": pl.String})
    return pl.concat([empty, *named]).drop_nulls().unique("pid", keep="last")


def name_numa_moves(moved: pl.DataFrame, done: pl.DataFrame) -> pl.DataFrame:
    """Attribute to NUMA balancing the migrations that it announced (`done`).

    These are the first migrations of the task to the announced CPU, at most a second later.
    """
    if moved.is_empty() or done.is_empty():
        return moved
    announced = done.select("pid", "to_cpu", "time_ns", announced="time_ns").sort("time_ns")
    by = ["pid", "to_cpu"]
    if not moved["time_ns"].is_sorted():  # a long table is, and not copied
        moved = moved.sort("time_ns", maintain_order=True)
    met = (
        moved.select("time_ns", *by, row=pl.int_range(pl.len()))
        .join(announced.select(by).unique(), on=by, how="semi", maintain_order="left")
        .join_asof(
            announced,
            on="time_ns",
            by=by,
            strategy="backward",
            tolerance=CARRIED_OUT_NS,
            check_sortedness=False,  # both are sorted; polars cannot tell with `by`
        )
    )
    first = pl.int_range(pl.len()).over(*by, "announced") == 0
    numa = np.zeros(moved.height, np.bool_)
    numa[met.filter(pl.col("announced").is_not_null() & first)["row"].to_numpy()] = True
    named = pl.when(pl.lit(pl.Series(numa))).then(pl.lit("numa", _MOVER))
    return moved.with_columns(mover=named.otherwise("mover"))


def with_returns(moved: pl.DataFrame, born: pl.DataFrame) -> pl.DataFrame:
    """Return the migrations between nodes with `back_ns` and `back_by`: when and who moved back.

    A move back is the task's next move between nodes, to its old node, within a second; else null.
    `born` is when tasks began (`births`): a process id may be used again.
    """
    between = (
        moved.filter(pl.col("from_node") != pl.col("to_node"))
        .sort("time_ns", maintain_order=True)
        .join_asof(
            born.select("pid", "time_ns", born_ns="time_ns").sort("time_ns"),
            on="time_ns",
            by="pid",
            check_sortedness=False,  # both are sorted; polars cannot tell with `by`
        )
        .sort("pid", "time_ns", maintain_order=True)
    )

    def following(column: str) -> pl.Expr:
        return pl.col(column).shift(-1).over("pid", "born_ns")

    returns = (
        (following("to_node") == pl.col("from_node"))
        & (following("from_node") == pl.col("to_node"))
        & (following("time_ns") - pl.col("time_ns") <= RETURN_NS)
    ).fill_null(value=False)
    return (
        between.with_columns(
            back_ns=pl.when(returns).then(following("time_ns")),
            back_by=pl.when(returns).then(following("mover")),
        )
        .drop("born_ns")
        .sort("time_ns", maintain_order=True)
    )


def who_moved(moved: pl.DataFrame, returned: pl.DataFrame) -> tuple[Moves, ...]:
    """Count for each mover its moves, those between nodes, and who moved tasks back."""
    all_moves, between = (
        dict(table.group_by("mover").agg(pl.len()).iter_rows()) for table in (moved, returned)
    )
    back: dict[Mover, dict[Mover, int]] = {mover: {} for mover in MOVERS}
    returns = returned.filter(pl.col("back_by").is_not_null()).group_by("mover", "back_by")
    for mover, by, count in returns.agg(pl.len()).sort("mover", "back_by").iter_rows():
        back[mover][by] = count
    return tuple(
        Moves(mover, all_moves[mover], between.get(mover, 0), back[mover])
        for mover in MOVERS
        if all_moves.get(mover)
    )


def find_storms(
    moved: pl.DataFrame, cpus_of_node: Mapping[int, int], start_ns: int
) -> tuple[Storm, ...]:
    """Return where balancing sent many tasks within 10 ms, the largest storm first.

    Many are eight different tasks to one CPU, or, to one node from other nodes, four times its CPUs
    (eight at least). Wake-ups do not count: they choose an idle CPU. A storm lasts while every 10
    ms have that many.
    """
    balanced = moved.filter(pl.col("mover").is_in(["numa", "load balancer", "stopper"]))
    crossing = balanced.filter(pl.col("from_node") != pl.col("to_node"))
    storms: list[Storm] = []
    targets: dict[StormTarget, tuple[str, pl.DataFrame]] = {
        "cpu": ("to_cpu", balanced),
        "node": ("to_node", crossing),
    }
    for to, (column, table) in targets.items():
        ordered = table.sort("time_ns", maintain_order=True)
        for (target,), rows in ordered.group_by(column, maintain_order=True):
            if target is None:
                continue
            many = STORM_TASKS
            if to == "node":
                many = max(many, 4 * cpus_of_node.get(target, 0))
            times, pids = rows["time_ns"].to_list(), rows["pid"].to_list()
            for first, last in _bursts(times, pids, many):
                storms.append(
                    Storm(
                        to,
                        target,
                        (times[first] - start_ns) / 1e6,
                        (times[last] - times[first]) / 1e6,
                        last - first + 1,
                        len(set(pids[first : last + 1])),
                    )
                )
    return tuple(sorted(storms, key=lambda storm: (-storm.tasks, storm.at_ms, storm.to)))


def _bursts(times: list[int], pids: list[int], many: int) -> list[tuple[int, int]]:
    """Return first and last row of each time in which every 10 ms move `many` different tasks."""
    bursts: list[tuple[int, int]] = []
    inside: dict[int, int] = {}
    first = 0
    for last, (time, pid) in enumerate(zip(times, pids, strict=True)):
        inside[pid] = inside.get(pid, 0) + 1
        while time - times[first] > STORM_NS:
            inside[pids[first]] -= 1
            if not inside[pids[first]]:
                del inside[pids[first]]
            first += 1
        if len(inside) >= many:
            if bursts and first <= bursts[-1][1]:
                bursts[-1] = (bursts[-1][0], last)
            else:
                bursts.append((first, last))
    return bursts
