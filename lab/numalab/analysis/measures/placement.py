"""Where the tasks of interest ran."""

from collections.abc import Iterator

import polars as pl

from numalab.analysis.measures.family import (
    HIGHER,
    NONE,
    WINDOW,
    MeasureFamily,
    register_measures,
    trace,
)
from numalab.measure import Measure
from numalab.recording.recording import Recording

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
    time = run.sums.time.group_by("node").agg(pl.col("ns").sum())
    by_node = {node: ns for node, ns in time.iter_rows() if node is not None} if recorded else {}
    total = sum(by_node.values())
    length = run.window.length_ns
    share = {}
    if recorded and length:
        share = {cpu: 100 * run.sums.busy_cpu[cpu] / length for cpu in run.allowed}
    for node in run.machine.nodes:
        yield TIME_SHARE.of(100 * by_node.get(node, 0) / total if total else None, node=node)
    for cpu in run.allowed:
        yield BUSY_SHARE.of(share.get(cpu), cpu=cpu)
    yield BUSY_SHARE_MIN.of(min(share.values()) if share else None)
    yield NODE_CHANGES.of(run.if_nodes(run.sums.changes if recorded else None))


GROUP = register_measures(
    "placement", (TIME_SHARE, BUSY_SHARE, BUSY_SHARE_MIN, NODE_CHANGES), _compute
)
