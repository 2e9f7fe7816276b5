"""Where the tasks of interest ran, and when they came to rest on a node."""

from collections.abc import Iterator

import numpy as np

from numalab.analysis.measures.family import (
    HIGHER,
    LOWER,
    NONE,
    WINDOW,
    MeasureFamily,
    register_measures,
    trace,
)
from numalab.measure import Measure, MeasureKind
from numalab.recording.recording import Recording
from numalab.recording.residence import Level, converged_ms, spread_ms

_RAN = (trace("sched_switch"),)
TIME_SHARE = MeasureFamily(
    "task_time_share_node{node}",
    "%",
    NONE,
    f"Of the CPU time that the tasks of interest had in {WINDOW}, the share on node {{node}}.",
    _RAN,
    needs_nodes=True,
)
BUSY_SHARE = MeasureFamily(
    "task_busy_share_cpu{cpu}",
    "%",
    NONE,
    f"The share of {WINDOW} in which a task of interest ran on CPU {{cpu}}.",
    _RAN,
)
BUSY_SHARE_MIN = MeasureFamily(
    "task_busy_share_min",
    "%",
    HIGHER,
    "The smallest task_busy_share_cpu of the allowed CPUs.",
    _RAN,
)
NODE_CHANGES = MeasureFamily(
    "task_node_changes",
    "changes",
    NONE,
    f"How often a task of interest ran on another node than the time before in {WINDOW}: "
    "migrations as they took effect. Two moves without running in between are one change.",
    _RAN,
    needs_nodes=True,
)


def _compute(run: Recording) -> Iterator[Measure]:
    recorded = run.has("sched_switch")
    time = run.sums.time_of_node
    total = sum(ns for node, ns in time.items() if node is not None) if recorded else 0
    length = run.window.length_ns
    followed = {cpu: length - run.sums.lost[cpu] for cpu in run.allowed} if recorded else {}
    share = {cpu: 100 * run.sums.busy_cpu[cpu] / ns for cpu, ns in followed.items() if ns > 0}
    for node in run.machine.nodes:
        yield TIME_SHARE.of(100 * time[node] / total if total else None, node=node)
    for cpu in run.allowed:
        yield BUSY_SHARE.of(share.get(cpu), cpu=cpu)
    every = share and len(share) == len(run.allowed)
    yield BUSY_SHARE_MIN.of(min(share.values()) if every else None)
    yield NODE_CHANGES.of(run.if_nodes(run.sums.changes if recorded else None))


register_measures("placement", (TIME_SHARE, BUSY_SHARE, BUSY_SHARE_MIN, NODE_CHANGES), _compute)


def _converged(level: str, of: str, *, may_be_never: bool = False) -> MeasureFamily:
    return MeasureFamily(
        f"{level}_converged",
        "%",
        NONE,
        f"Of the {of}, those that converged: from some moment before the last fifth of the window "
        "on, one node always had at least 80 % of the CPU time that was left.",
        _RAN,
        needs_nodes=True,
        may_be_never=may_be_never,
    )


def _convergence_time(level: str, of: str) -> MeasureFamily:
    return MeasureFamily(
        f"{level}_convergence_time",
        "s",
        LOWER,
        f"When the last of the {of} converged, since the window began; none when one never did.",
        _RAN,
        MeasureKind.TIMING,
        needs_nodes=True,
        may_be_never=True,
    )


_PROCESSES = "processes of tasks of interest"
BY_LEVEL: dict[Level, tuple[MeasureFamily, MeasureFamily]] = {
    "task": (
        _converged("tasks", "tasks of interest that ran in the window"),
        _convergence_time("task", "tasks of interest"),
    ),
    "process": (
        _converged("processes", f"{_PROCESSES} whose threads are known", may_be_never=True),
        _convergence_time("process", _PROCESSES),
    ),
}
EVEN_SPREAD = MeasureFamily(
    "even_spread_time",
    "s",
    LOWER,
    "Since when, until the end of the window, every node with allowed CPUs had at least 80 % of "
    "its even share of the CPU time of the tasks of interest; none for never.",
    _RAN,
    MeasureKind.TIMING,
    needs_nodes=True,
    may_be_never=True,
)


def _convergence(run: Recording) -> Iterator[Measure]:
    ran = run.has("sched_switch") and bool(run.machine.nodes) and run.sums.follow_tasks(run.window)
    for level, (converged, time) in BY_LEVEL.items():
        here = run.residents[level] if ran else ()
        since = [converged_ms(resident.ns, run.slices) for resident in here]
        moments = [at for at in since if at is not None]
        yield converged.of(100 * len(moments) / len(since) if since else None)
        yield time.of(max(moments) / 1000 if moments and len(moments) == len(since) else None)
    tasks = run.residents["task"]
    spread = None
    if tasks and ran:
        allowed = set(run.allowed)
        weights = [len(set(run.machine.cpus_of[node]) & allowed) for node in run.machine.nodes]
        together = np.sum([resident.ns for resident in tasks], axis=0)
        spread = spread_ms(together, weights, run.slices)
    yield EVEN_SPREAD.of(None if spread is None else spread / 1000)


_CONVERGED, _TIMES = zip(*BY_LEVEL.values(), strict=True)
register_measures("convergence", (*_CONVERGED, *_TIMES, EVEN_SPREAD), _convergence)
