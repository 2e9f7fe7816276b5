"""Who waited while a CPU was idle, how many waited on each node, and where tasks ended."""

from collections import Counter
from collections.abc import Iterator

import polars as pl

from numalab.analysis.measures.family import (
    LOWER,
    NONE,
    WINDOW,
    MeasureFamily,
    register_measures,
    trace,
)
from numalab.measure import Measure, MeasureKind
from numalab.recording.recording import WAITING_EVENTS, Recording

_FOLLOWED = ("sched_switch", "sched_wakeup", "sched_migrate_task")
_WAITED = (trace(*WAITING_EVENTS),)
IDLE_WHILE_OVERLOADED = MeasureFamily(
    "idle_while_overloaded",
    "%",
    LOWER,
    f"The share of {WINDOW} in which an allowed CPU had no runnable task while a task that may use "
    "it waited on another. Without a sampled mask, a task may use all CPUs, the kernel's threads "
    "of a CPU or node and numalab's helpers only theirs. A task being migrated counts on its "
    "destination.",
    _WAITED,
)
LONGEST = MeasureFamily(
    "longest_idle_while_overloaded",
    "ms",
    LOWER,
    "The longest time of idle_while_overloaded on one CPU, bound threads left out.",
    _WAITED,
    MeasureKind.TIMING,
)
QUEUE_IMBALANCE = MeasureFamily(
    "queue_imbalance",
    "tasks",
    LOWER,
    "How many more tasks were runnable for each allowed CPU on the fullest node than on the "
    "emptiest, the mean over slices of the window.",
    _WAITED,
    needs_nodes=True,
)
UNKNOWN_TIME = MeasureFamily(
    "unknown_time",
    "%",
    LOWER,
    f"The share of {WINDOW} in which events of an allowed CPU were lost; shares and "
    "queue_imbalance leave it out; above 1 %, convergence is none.",
    (trace("lost events"),),
)
TASKS_FINAL = MeasureFamily(
    "tasks_final_node{node}",
    "tasks",
    NONE,
    f"How many tasks of interest, by their names at leaving a CPU, were last on node {{node}} at "
    f"the end of {WINDOW}, ended ones included.",
    (trace(*_FOLLOWED),),
    needs_nodes=True,
    any_event=True,
)


def _compute(run: Recording) -> Iterator[Measure]:
    sums, length = run.sums, run.window.length_ns
    known_ns = length - sums.lost_ns
    recorded = run.has(*WAITING_EVENTS) and known_ns > 0
    longest = sums.longest.select(pl.col("end_ns") - pl.col("start_ns")).max().item()
    yield IDLE_WHILE_OVERLOADED.of(100 * sums.idle_ns / known_ns if recorded else None)
    yield LONGEST.of((longest or 0) / 1e6 if recorded else None)
    yield QUEUE_IMBALANCE.of(run.if_nodes(_imbalance(run) if recorded else None))
    yield UNKNOWN_TIME.of(100 * sums.lost_ns / length if length else 0.0)
    pid = pl.col("pid")
    ran_so = pid.is_in(list(sums.names))
    never_ran = run.of_interest & ~pid.is_in(sums.ran)  # such a task has the name of its events
    mine = sums.final.filter(ran_so | never_ran)["cpu"].to_list()
    last = Counter(run.machine.node_of.get(cpu) for cpu in mine)
    followed = any(map(run.has, _FOLLOWED))
    for node in run.machine.nodes:
        yield TASKS_FINAL.of(last[node] if followed else None, node=node)


def _imbalance(run: Recording) -> float | None:
    """Return the mean over slices of the fullest node's queue less the emptiest's, for each CPU."""
    allowed = set(run.allowed)
    cpus = {node: len(allowed & set(run.machine.cpus_of[node])) for node in run.machine.nodes}
    used = [node for node, count in cpus.items() if count]
    lengths = run.sums.known_ns(run.slices)
    if len(used) < 2 or not any(lengths):
        return None
    queued = {(node, number): ns for node, number, ns in run.sums.queued.iter_rows()}
    total = 0.0
    for number, length in enumerate(lengths):
        if not length:
            continue
        queues = [queued.get((node, number), 0) / length / cpus[node] for node in used]
        total += (max(queues) - min(queues)) * length
    return total / sum(lengths)


GROUP = register_measures(
    "work conservation",
    (IDLE_WHILE_OVERLOADED, LONGEST, QUEUE_IMBALANCE, UNKNOWN_TIME, TASKS_FINAL),
    _compute,
)
