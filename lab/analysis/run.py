"""All measures and findings of one run, put together from small ones."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import polars as pl

from lab.analysis.decisions import success_percent
from lab.analysis.details import describe_run
from lab.analysis.findings import Findings, Level
from lab.analysis.locality import autonuma_cost, local_percent
from lab.analysis.measure import DEFINITIONS, Measure, measure
from lab.analysis.pieces import ROWS
from lab.analysis.placement import of_interest
from lab.analysis.recorded import NUMA_EVENTS, WAITING_EVENTS, Recorded, read_run
from lab.analysis.residence import converged_ms, spread_ms
from lab.analysis.sampled import fault_measures
from lab.capture.samples import Samples
from lab.topology.model import Topology

COUNTERS = ("numa_", "pgmigrate_", "pgfault", "pgmajfault")
# The measures that cannot be taken without knowing which node a CPU is on.
OF_NODES = tuple(
    each.name
    for each in DEFINITIONS
    if "node" in each.name.replace("perf_node", "")
    or each.name
    in (
        *("numa_moves_hops", "numa_moves_undone", "numa_moves_nearer", "numa_moves_as_near"),
        *("numa_moves_farther", "numa_moves_rebalanced", "task_ping_pongs"),
        *("tasks_converged", "processes_converged", "task_convergence_time"),
        *("process_convergence_time", "even_spread_time", "queue_imbalance", "storms"),
    )
)


@dataclass(frozen=True)
class Analysis:
    """What a run gave: single numbers, and what a reader can look deeper into."""

    measures: tuple[Measure, ...]
    findings: Findings


def measure_run(
    events: pl.DataFrame | pl.LazyFrame,
    topology: Topology | None,
    *,
    tasks: Sequence[str],
    allowed_cpus: Sequence[int] | None = None,
    recorded: Collection[str] | None = None,
    counters: Mapping[str, int] | None = None,
) -> tuple[Measure, ...]:
    """Compute every measure of a run; see `analyse_run`."""
    return analyse_run(
        events,
        topology,
        tasks=tasks,
        allowed_cpus=allowed_cpus,
        recorded=recorded,
        counters=counters,
    ).measures


def analyse_run(
    events: pl.DataFrame | pl.LazyFrame,
    topology: Topology | None,
    *,
    tasks: Sequence[str],
    allowed_cpus: Sequence[int] | None = None,
    recorded: Collection[str] | None = None,
    counters: Mapping[str, int] | None = None,
    samples: Samples | None = None,
    rows: int = ROWS,
) -> Analysis:
    """Compute every measure of a run, and its findings.

    `events` is the table that `decode_trace` wrote (at least `COLUMNS`, as far as it has them), or
    a scan of it, which is read `rows` at a time.
    Without a topology the CPUs are those with events, and of `OF_NODES` those of one node are left
    out, the others None.
    `tasks` are the names of the tasks of interest, none meaning every task but the idle ones.
    `allowed_cpus` are the CPUs that they were allowed on (all without).
    `recorded` are the `system:event` (or `system`) names that were asked for: a measure of an event
    that was not is None, not 0; without it all were. `counters` is how much each counter of
    /proc/vmstat grew.
    `samples` are counters sampled on the trace's clock.
    """
    run = read_run(
        events,
        topology,
        tasks=tasks,
        allowed_cpus=allowed_cpus,
        recorded=recorded,
        samples=samples,
        rows=rows,
    )
    found = (
        *_where(run),
        *_settling(run),
        *_waiting(run),
        *_moves(run),
        *_decisions(run),
        *fault_measures(run),
        *_counters(counters),
    )
    return Analysis(found, describe_run(run))


def _where(run: Recorded) -> list[Measure]:
    """Say where the tasks of interest ran."""
    known = run.has("sched_switch")
    time = run.totals.time.group_by("node").agg(pl.col("ns").sum())
    by_node = {node: ns for node, ns in time.iter_rows() if node is not None} if known else {}
    total = sum(by_node.values())
    length = run.window.length_ns
    share = {}
    if known and length:
        share = {cpu: 100 * run.totals.busy_cpu[cpu] / length for cpu in run.wanted.allowed}
    return [
        *(
            measure(
                "task_time_share_node{node}",
                100 * by_node.get(node, 0) / total if total else None,
                node=node,
            )
            for node in run.ground.nodes
        ),
        *(
            measure("task_busy_share_cpu{cpu}", share.get(cpu), cpu=cpu)
            for cpu in run.wanted.allowed
        ),
        measure("task_busy_share_min", min(share.values()) if share else None),
        measure("task_node_changes", run.if_nodes(run.totals.changes if known else None)),
    ]


def _settling(run: Recorded) -> list[Measure]:
    """Say how many tasks and processes came to rest on a node, and when the last one did."""
    found = []
    families: tuple[tuple[str, Level], ...] = (("tasks", "task"), ("processes", "process"))
    for family, level in families:
        here = run.residents[level] if run.has("sched_switch") and run.ground.nodes else ()
        since = [converged_ms(each.ns, run.wanted.slices) for each in here]
        there = [at for at in since if at is not None]
        last = max(there) / 1000 if there and len(there) == len(since) else None
        share = 100 * len(there) / len(since) if since else None
        found += [
            measure(f"{family}_converged", share),
            measure(f"{level}_convergence_time", last),
        ]
    weights = [len(set(run.ground.cpus_of[n]) & set(run.wanted.allowed)) for n in run.ground.nodes]
    tasks = run.residents["task"]
    spread = None
    if tasks and run.ground.nodes and run.has("sched_switch"):
        together = np.sum([each.ns for each in tasks], axis=0)
        spread = spread_ms(together, weights, run.wanted.slices)
    return [*found, measure("even_spread_time", None if spread is None else spread / 1000)]


def _waiting(run: Recorded) -> list[Measure]:
    """Say who waited while a CPU was idle, and where the tasks of interest ended."""
    totals, length = run.totals, run.window.length_ns
    known = length - totals.lost_ns
    told = run.has(*WAITING_EVENTS) and known > 0
    longest = totals.longest.select(pl.col("end_ns") - pl.col("start_ns")).max().item()
    mine = totals.final.filter(of_interest(run.wanted.tasks))["cpu"].to_list()
    last = Counter(run.ground.node_of.get(cpu) for cpu in mine)
    followed = any(map(run.has, ("sched_switch", "sched_wakeup", "sched_migrate_task")))
    return [
        measure("idle_while_overloaded", 100 * totals.idle_ns / known if told else None),
        measure("longest_idle_while_overloaded", (longest or 0) / 1e6 if told else None),
        measure("queue_imbalance", run.if_nodes(_imbalance(run) if told else None)),
        measure("unknown_time", 100 * totals.lost_ns / length if length else 0.0),
        *(
            measure("tasks_final_node{node}", last[node] if followed else None, node=node)
            for node in run.ground.nodes
        ),
    ]


def _imbalance(run: Recorded) -> float | None:
    """Return the mean over slices of the fullest node's queue less the emptiest's, for each CPU."""
    allowed = set(run.wanted.allowed)
    cpus = {node: len(allowed & set(run.ground.cpus_of[node])) for node in run.ground.nodes}
    used = [node for node, count in cpus.items() if count]
    lengths = run.wanted.slices.lengths_ns()
    if len(used) < 2 or not lengths:
        return None
    queued = {(node, number): ns for node, number, ns in run.totals.queued.iter_rows()}
    total = 0.0
    for number, length in enumerate(lengths):
        each = [queued.get((node, number), 0) / length / cpus[node] for node in used]
        total += (max(each) - min(each)) * length
    return total / sum(lengths)


def _moves(run: Recorded) -> list[Measure]:
    """Say how often tasks of interest were moved, in all and between the allowed nodes, and who
    moved tasks between nodes."""
    mine = of_interest(run.wanted.tasks)
    moved = run.moved.filter(mine)
    by_pair = moved.group_by("from_node", "to_node").agg(moves=pl.len())
    allowed = set(run.wanted.allowed)
    nodes = [node for node in run.ground.nodes if set(run.ground.cpus_of[node]) & allowed]
    between: Counter[frozenset[int | None]] = Counter()
    for a, b, moves in by_pair.iter_rows():
        between[frozenset((a, b))] += moves
    known = run.has("sched_migrate_task")
    across = sum(moves for pair, moves in between.items() if len(pair) == 2)
    by_mover = Counter(run.returned["mover"].to_list())
    returned = run.returned.filter(pl.col("back_by").is_not_null())
    by_balancer = pl.col("back_by").is_in(["load balancer", "stopper"])
    numa = returned.filter(pl.col("mover") == "numa")
    told = run.tells_movers()
    return [
        measure("task_migrations", moved.height if known else None),
        measure("task_node_migrations", run.if_nodes(across if known else None)),
        *(
            measure(
                "task_migrations_node{a}_node{b}",
                between[frozenset((a, b))] if known else None,
                a=a,
                b=b,
            )
            for a, b in combinations(nodes, 2)
        ),
        measure("task_ping_pongs", run.if_nodes(returned.filter(mine).height if known else None)),
        *(
            measure(
                f"node_moves_{mover.replace(' ', '_').replace('-', '_')}",
                by_mover[mover] if told else None,
            )
            for mover in ("numa", "load balancer", "wake-up", "stopper")
        ),
        measure("numa_moves_undone", numa.height if told else None),
        measure(
            "numa_moves_rebalanced",
            numa.filter(by_balancer).height if told else None,
        ),
        measure("storms", len(run.gusts) if told else None),
    ]


def _decisions(run: Recorded) -> list[Measure]:
    """Say what NUMA balancing decided, and how well it came out."""
    kinds = Counter(run.decided["kind"].to_list())
    reasons = Counter(run.decided["reason"].to_list())
    stuck = run.has("sched_stick_numa")
    all_three = run.has(*NUMA_EVENTS)
    hops = [
        run.ground.hops[pair]
        for pair in run.done.select("from_node", "to_node").iter_rows()
        if pair in run.ground.hops
    ]
    change = run.done["nearer"].drop_nulls()
    near = {
        "nearer": int((change > 0).sum()),
        "as_near": int((change == 0).sum()),
        "farther": int((change < 0).sum()),
    }
    return [
        *(
            measure(event, kinds[event.split("_")[1]] if run.has(event) else None)
            for event in NUMA_EVENTS
        ),
        measure("numa_move_success", success_percent(run.decided) if all_three else None),
        measure("numa_sticks_no_destination", reasons["no destination"] if stuck else None),
        measure(
            "numa_sticks_failed",
            reasons["failed"] + reasons["not allowed there"] if stuck else None,
        ),
        measure("numa_moves_hops", sum(hops) / len(hops) if hops and all_three else None),
        *(
            measure(f"numa_moves_{name}", count if all_three else None)
            for name, count in near.items()
            if run.samples is not None
        ),
    ]


def _counters(counters: Mapping[str, int] | None) -> list[Measure]:
    if counters is None:
        return []
    return [
        measure("numa_local_faults", local_percent(counters)),
        measure("autonuma_cost", autonuma_cost(counters)),
        *(
            measure("vmstat_{counter}", value, counter=name)
            for name, value in sorted(counters.items())
            if name.startswith(COUNTERS)
        ),
    ]
