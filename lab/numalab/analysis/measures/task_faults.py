"""Where the tasks of interest had their NUMA faults, by each task's last sample in the window."""

from collections.abc import Iterator

import polars as pl

from numalab.analysis.measures.family import (
    HIGHER,
    NONE,
    WINDOW,
    MeasureFamily,
    guest,
    register_measures,
    trace,
)
from numalab.analysis.series import faults_of, samples_of_interest, sum_of
from numalab.measure import Measure, percent
from numalab.recording.recording import Recording

_SCHED = guest("/proc/PID/sched")
_FOLLOWED = ("sched_switch", "sched_wakeup", "sched_migrate_task")
ON_PREFERRED_NODE = MeasureFamily(
    "task_faults_preferred",
    "%",
    HIGHER,
    "Of the NUMA faults that the kernel remembered of the tasks of interest at the last sample "
    f"of each in {WINDOW}, those on memory of the task's preferred node.",
    (_SCHED,),
)
SHARED = MeasureFamily(
    "task_faults_shared",
    "%",
    NONE,
    "Of these NUMA faults, those on memory that another task had touched last.",
    (_SCHED,),
)
TASKS_ON_PREFERRED = MeasureFamily(
    "tasks_on_preferred",
    "%",
    HIGHER,
    "Of the tasks of interest that had a preferred node at their last sample, those that were "
    f"last on a CPU of it at the end of {WINDOW}.",
    (_SCHED, trace(*_FOLLOWED)),
)


def _compute(run: Recording) -> Iterator[Measure]:
    if run.samples is None or run.samples.tasks.is_empty():
        return
    tasks = samples_of_interest(run).group_by("pid").agg(pl.all().sort_by("time_ns").last())
    faults = faults_of(run.samples, tasks)
    private, shared = (pl.col(f"task_{kind}") for kind in ("private", "shared"))
    preferred = faults.filter(pl.col("node") == pl.col("node_task"))
    settled = tasks.filter(pl.col("node") >= 0)
    last = run.sums.final.join(settled, on="pid", suffix="_task")["cpu", "node"].rows()
    on_preferred = sum(run.machine.node_of.get(cpu) == node for cpu, node in last)
    followed = last and run.has(*_FOLLOWED)
    every = sum_of(faults, private + shared)
    yield ON_PREFERRED_NODE.of(percent(sum_of(preferred, private + shared), every))
    yield SHARED.of(percent(sum_of(faults, shared), every))
    yield TASKS_ON_PREFERRED.of(run.if_nodes(100 * on_preferred / len(last)) if followed else None)


GROUP = register_measures("NUMA faults", (ON_PREFERRED_NODE, SHARED, TASKS_ON_PREFERRED), _compute)
