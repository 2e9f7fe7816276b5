"""How often tasks of interest were moved, and who moved tasks between nodes."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

import polars as pl

from numalab.analysis.measures.family import (
    LOWER,
    NONE,
    WINDOW,
    MeasureFamily,
    register_measures,
    trace,
)
from numalab.measure import Measure
from numalab.recording.migrations import Mover
from numalab.recording.recording import WAITING_EVENTS, Recording

_MIGRATED = (trace("sched_migrate_task"),)
_BY_WHOM = (trace(*WAITING_EVENTS, "sched_move_numa", "sched_swap_numa"),)
TASK_MIGRATIONS = MeasureFamily(
    "task_migrations",
    "migrations",
    NONE,
    f"How often a task of interest was moved to another CPU in {WINDOW}.",
    _MIGRATED,
)
TASK_NODE_MIGRATIONS = MeasureFamily(
    "task_node_migrations",
    "migrations",
    NONE,
    f"How often a task of interest was moved to a CPU of another node in {WINDOW}.",
    _MIGRATED,
    needs_nodes=True,
)
BETWEEN_NODES = MeasureFamily(
    "task_migrations_node{a}_node{b}",
    "migrations",
    NONE,
    f"How often a task of interest was moved between nodes {{a}} and {{b}}, either way, in "
    f"{WINDOW}.",
    _MIGRATED,
    needs_nodes=True,
)
LLC_MIGRATIONS = MeasureFamily(
    "task_llc_migrations",
    "migrations",
    NONE,
    f"How often a task of interest was moved to a CPU with another last-level cache (as predicted) "
    f"in {WINDOW}.",
    _MIGRATED,
)
PING_PONGS = MeasureFamily(
    "task_ping_pongs",
    "moves",
    LOWER,
    f"How often a task of interest was moved to another node in {WINDOW}, and with its next move "
    "between nodes, within a second, back.",
    _MIGRATED,
    needs_nodes=True,
)
STORMS = MeasureFamily(
    "storms",
    "storms",
    LOWER,
    f"How often in {WINDOW} balancing (no wake-up) sent, within 10 ms, eight different tasks to "
    "one CPU, or to one node from others four for each of its CPUs (at least eight).",
    _BY_WHOM,
    needs_nodes=True,
)


def _moves_of(name: str, who: str) -> MeasureFamily:
    return MeasureFamily(
        f"node_moves_{name}",
        "moves",
        NONE,
        f"How often {who} moved any task to another node in {WINDOW}.",
        _BY_WHOM,
        needs_nodes=True,
    )


BY_MOVER: dict[Mover, MeasureFamily] = {
    "numa": _moves_of("numa", "NUMA balancing"),
    "load balancer": _moves_of("load_balancer", "the load balancer"),
    "wake-up": _moves_of("wake_up", "a wake-up"),
    "stopper": _moves_of("stopper", "a CPU's stopper (active balance, affinity, exec)"),
}
UNDONE = MeasureFamily(
    "numa_moves_undone",
    "moves",
    LOWER,
    f"How many moves of NUMA balancing to another node in {WINDOW} were taken back within a "
    "second, by whomever.",
    _BY_WHOM,
    needs_nodes=True,
)
REBALANCED = MeasureFamily(
    "numa_moves_rebalanced",
    "moves",
    LOWER,
    "How many moves of NUMA balancing to another node the load balancer (or an active "
    "balance) took back within a second.",
    _BY_WHOM,
    needs_nodes=True,
)


def _compute(run: Recording) -> Iterator[Measure]:
    mine = run.of_interest
    moved = run.migrations.filter(mine)
    allowed = set(run.allowed)
    nodes = [node for node in run.machine.nodes if set(run.machine.cpus_of[node]) & allowed]
    between: Counter[frozenset[int | None]] = Counter()
    for a, b, moves in moved.group_by("from_node", "to_node").agg(moves=pl.len()).iter_rows():
        between[frozenset((a, b))] += moves
    recorded = run.has("sched_migrate_task")
    across = sum(moves for pair, moves in between.items() if len(pair) == 2)
    by_mover = Counter(dict(run.node_migrations.group_by("mover").agg(pl.len()).iter_rows()))
    returned = run.node_migrations.filter(pl.col("back_by").is_not_null())
    numa = returned.filter(pl.col("mover") == "numa")
    by_balancer = numa.filter(pl.col("back_by").is_in(["load balancer", "stopper"]))
    movers = run.movers_known
    yield TASK_MIGRATIONS.of(moved.height if recorded else None)
    yield TASK_NODE_MIGRATIONS.of(run.if_nodes(across if recorded else None))
    for a, b in combinations(nodes, 2):
        yield BETWEEN_NODES.of(between[frozenset((a, b))] if recorded else None, a=a, b=b)
    yield LLC_MIGRATIONS.of(_between_caches(run, moved) if recorded else None)
    yield PING_PONGS.of(run.if_nodes(returned.filter(mine).height if recorded else None))
    for mover, family in BY_MOVER.items():
        yield family.of(by_mover[mover] if movers else None)
    yield UNDONE.of(numa.height if movers else None)
    yield REBALANCED.of(by_balancer.height if movers else None)
    yield STORMS.of(len(run.storms) if movers else None)


def _between_caches(run: Recording, moved: pl.DataFrame) -> int | None:
    """Count the migrations between last-level caches; None where caches are not known."""
    if run.cache_of is None:
        return None
    caches = {cpu: run.cache_of.get(cpu, -1) for cpu in run.cpus}
    pairs = moved.group_by("from_cpu", "to_cpu").agg(pl.len()).iter_rows()
    return sum(int(moves) for a, b, moves in pairs if caches.get(a) != caches.get(b))


GROUP = register_measures(
    "migrations",
    (
        *(TASK_MIGRATIONS, TASK_NODE_MIGRATIONS, BETWEEN_NODES, LLC_MIGRATIONS, PING_PONGS),
        *BY_MOVER.values(),
        *(UNDONE, REBALANCED, STORMS),
    ),
    _compute,
)
