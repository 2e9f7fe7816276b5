"""All measures of one run, put together from small ones."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import polars as pl

from lab.analysis.measure import DEFINITIONS, Measure, measure
from lab.analysis.occupancy import spans
from lab.analysis.placement import (
    busy_shares,
    count,
    final_nodes,
    idle_while_overloaded,
    migrations,
    node_changes,
    time_by_node,
)
from lab.analysis.runqueue import queue_lengths, stays
from lab.analysis.window import Window, clip, find_window, gaps
from lab.topology.model import Node, Topology

NUMA_EVENTS = ("sched_move_numa", "sched_swap_numa", "sched_stick_numa")
COUNTERS = ("numa_", "pgmigrate_", "pgfault", "pgmajfault")
# The measures that cannot be taken without knowing which node a CPU is on.
OF_NODES = tuple(each.name for each in DEFINITIONS if "node" in each.name)
# What the measures read of a recording; the other columns need not be loaded.
COLUMNS = (
    *("time_ns", "cpu", "node", "event", "pid", "comm", "buf", "lost"),
    *("prev_comm", "prev_pid", "prev_state", "next_comm", "next_pid"),
    *("event_comm", "event_pid", "target_cpu", "orig_cpu", "dest_cpu"),
)


def measure_run(
    events: pl.DataFrame,
    topology: Topology | None,
    *,
    tasks: Sequence[str],
    allowed_cpus: Sequence[int] | None = None,
    recorded: Collection[str] | None = None,
    counters: Mapping[str, int] | None = None,
) -> tuple[Measure, ...]:
    """Compute every measure of a run.

    `events` is the table that `decode_trace` wrote (at least `COLUMNS`, as far as it has them).
    Without a topology the CPUs are those with events, and of `OF_NODES` those of one node are left
    out, the others None.
    `tasks` are the names of the tasks of interest, none meaning every task but the idle ones.
    `allowed_cpus` are the CPUs that they were allowed on (all without).
    `recorded` are the `system:event` names that were asked for: a measure of an event that was not
    is None, not 0; without it all were. `counters` is how much each counter of /proc/vmstat grew.
    """
    nodes = topology.nodes if topology is not None else ()
    cpus = [cpu for node in nodes for cpu in node.cpus]
    if topology is None:
        cpus = events["cpu"].unique().to_list()
    run = _Run(
        events,
        nodes,
        find_window(events),
        tuple(tasks),
        tuple(sorted(cpus if allowed_cpus is None else allowed_cpus)),
        None if recorded is None else frozenset(name.partition(":")[2] for name in recorded),
    )
    return (
        *_where(run),
        *_waiting(run),
        *_moves(run),
        *(
            measure(event, count(events, run.window, event) if run.has(event) else None)
            for event in NUMA_EVENTS
        ),
        *_counters(counters),
    )


@dataclass(frozen=True)
class _Run:
    """What the measures of one run are made from; `asked` are the events recorded, None for all.

    `nodes` are empty where it is not known which node a CPU is on.
    """

    events: pl.DataFrame
    nodes: tuple[Node, ...]
    window: Window
    tasks: tuple[str, ...]
    allowed: tuple[int, ...]
    asked: frozenset[str] | None

    def has(self, *events: str) -> bool:
        return self.asked is None or self.asked >= set(events)

    def node_of_cpus(self) -> pl.DataFrame:
        pairs = [(cpu, node.id) for node in self.nodes for cpu in node.cpus]
        return pl.DataFrame(pairs, schema={"cpu": pl.Int16, "node": pl.Int16}, orient="row")


def _where(run: _Run) -> list[Measure]:
    """Say where the tasks of interest ran."""
    known = run.has("sched_switch")
    ran = spans(run.events, run.window, run.allowed)
    time = time_by_node(ran, run.tasks) if known else {}
    total = sum(time.values())
    share = busy_shares(ran, run.window, run.tasks, run.allowed) if known else {}
    found = [
        measure(
            "task_time_share_node{node}",
            100 * time.get(node.id, 0) / total if total else None,
            node=node.id,
        )
        for node in run.nodes
    ]
    for cpu in run.allowed:
        value = 100 * share[cpu] if cpu in share else None
        found.append(measure("task_busy_share_cpu{cpu}", value, cpu=cpu))
    least = 100 * min(share.values()) if share else None
    changes = int(node_changes(ran, run.tasks)["moves"].sum()) if known and run.nodes else None
    return [
        *found,
        measure("task_busy_share_min", least),
        measure("task_node_changes", changes),
    ]


def _waiting(run: _Run) -> list[Measure]:
    """Say who waited while a CPU was idle, and where the tasks of interest ended."""
    stayed = stays(run.events, run.window)
    lengths = queue_lengths(stayed, run.window, list(run.allowed))
    unknown = clip(gaps(run.events), run.window)
    share, lost = idle_while_overloaded(lengths, unknown, run.window, run.allowed)
    needed = ("sched_switch", "sched_wakeup", "sched_wakeup_new", "sched_migrate_task")
    if not run.has(*needed):
        share = None
    last = final_nodes(stayed, run.tasks, run.node_of_cpus())
    followed = any(map(run.has, ("sched_switch", "sched_wakeup", "sched_migrate_task")))
    return [
        measure("idle_while_overloaded", None if share is None else 100 * share),
        measure("unknown_time", 100 * lost),
        *(
            measure(
                "tasks_final_node{node}",
                last.get(node.id, 0) if followed else None,
                node=node.id,
            )
            for node in run.nodes
        ),
    ]


def _moves(run: _Run) -> list[Measure]:
    """Say how often tasks of interest were moved, in all and between the allowed nodes."""
    moved = migrations(run.events, run.window, run.tasks, run.node_of_cpus())
    nodes = sorted(node.id for node in run.nodes if set(node.cpus) & set(run.allowed))
    between: dict[frozenset[int], int] = {}
    for a, b, moves in moved.iter_rows():
        between[frozenset((a, b))] = between.get(frozenset((a, b)), 0) + moves
    known = run.has("sched_migrate_task")
    across = sum(moves for pair, moves in between.items() if len(pair) == 2)
    return [
        measure("task_migrations", sum(between.values()) if known else None),
        measure("task_node_migrations", across if known and run.nodes else None),
        *(
            measure(
                "task_migrations_node{a}_node{b}",
                between.get(frozenset((a, b)), 0) if known else None,
                a=a,
                b=b,
            )
            for a, b in combinations(nodes, 2)
        ),
    ]


def _counters(counters: Mapping[str, int] | None) -> list[Measure]:
    return [
        measure("vmstat_{counter}", value, counter=name)
        for name, value in sorted((counters or {}).items())
        if name.startswith(COUNTERS)
    ]
