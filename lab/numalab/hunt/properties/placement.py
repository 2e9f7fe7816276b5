"""Which share tasks get by their weights, and where new and woken ones go, beside the reference."""

import numpy as np
import polars as pl

from numalab.hunt.compare.quantity import Quantity, register_difference
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.intervals import total, within

_FEWEST = 20  # wake-ups or children, for a share to mean something


@register_difference(Quantity("least-share-by-weight", "per mille", 50.0, ("less",), apart=1.5))
def least_share(run: LoadRecording) -> float | None:
    """The least time of a hog over the time that is due to its weight on all CPUs together."""
    parts = run.load.parts
    masks = {part.cpus for part in parts}
    if not run.load.has_plain_tasks or any(part.kind != "hog" for part in parts) or len(masks) > 1:
        return None
    weights = {pid: parts[task.part].weight for pid, task in run.load_tasks.items()}
    if len(weights) < 2 or not run.settled.length_ns:
        return None
    due = _due(weights, len(masks.pop()))
    shares = (
        1000.0 * run.settled_ns.get(pid, 0) / (part * run.settled.length_ns)
        for pid, part in due.items()
    )
    return min(shares)


def _due(weights: dict[int, float], cpus: int) -> dict[int, float]:
    """Return the CPUs due to each task: by weight, and at most one."""
    due: dict[int, float] = {}
    left, room = dict(weights), float(cpus)
    while left:
        whole = sum(left.values())
        full = [pid for pid, weight in left.items() if weight * room >= whole]
        if not full:
            return due | {pid: weight * room / whole for pid, weight in left.items()}
        for pid in full:
            due[pid] = 1.0
            del left[pid]
        room = max(0.0, room - len(full))
        if room <= 0:
            break
    return due


@register_difference(Quantity("wake-ups-on-idle-cores", "%", 25.0, apart=1.9))
def woken_on_idle_cores(run: LoadRecording) -> float | None:
    """With SMT, the share of wake-ups whose CPU has idle siblings, if its node has an idle core."""
    packaging = run.topology.packaging
    if packaging.threads < 2:
        return None
    table = run.events("sched_wakeup").filter(pl.col("event_pid").is_in(list(run.load_tasks)))
    table = table.select("time_ns", "target_cpu").drop_nulls()
    count = idle = 0
    for (cpu,), rows in table.partition_by("target_cpu", as_dict=True).items():
        if cpu not in run.idle:
            continue
        at = rows["time_ns"].to_numpy() - 1
        beside: dict[int, list[np.ndarray]] = {}  # of each core of the node, but for this CPU
        for other in run.topology.nodes[run.topology.node_of_cpu(cpu)].cpus:
            of_core = beside.setdefault(packaging.core_of(other), [])
            if other != cpu:
                of_core.append(within(run.idle[other], at))
        free = np.logical_and.reduce(beside.pop(packaging.core_of(cpu)))
        choice = free | np.any([np.logical_and.reduce(core) for core in beside.values()], axis=0)
        count += int(choice.sum())
        idle += int(free.sum())
    return 100.0 * idle / count if count >= _FEWEST else None


@register_difference(Quantity("wait-of-children", "ms", 1.0, ("more",), apart=1.75))
def wait_of_children(run: LoadRecording) -> float | None:
    """The mean time for which a child of a forker waits for a CPU in its life."""
    children = [pid for pid, task in run.load_tasks.items() if task.kind == "child"]
    if len(children) < _FEWEST:
        return None
    return sum(total(run.waits[pid]) for pid in children) / len(children) / MS


@register_difference(Quantity("children-on-their-parents-node", "%", 25.0, apart=2.0))
def on_parents_node(run: LoadRecording) -> float | None:
    """The share of children that first run on the node of their parent, if a part has only one."""
    nodes = run.topology.nodes_of_cpus
    parents = {
        task.part: pid
        for pid, task in run.load_tasks.items()
        if task.kind == "forker" and run.load.parts[task.part].count == 1
    }
    spans = run.load_spans.select("pid", "cpu", "start_ns").sort("start_ns")
    first = spans.unique("pid", keep="first", maintain_order=True)
    count = same = 0
    for part, parent in parents.items():
        children = [
            pid for pid, t in run.load_tasks.items() if t.kind == "child" and t.part == part
        ]
        beside = spans.filter(pl.col("pid") == parent).select("start_ns", parent_cpu="cpu")
        both = first.filter(pl.col("pid").is_in(children)).join_asof(beside, on="start_ns")
        for cpu, parent_cpu in both.drop_nulls().select("cpu", "parent_cpu").iter_rows():
            count += 1
            same += nodes.get(cpu) == nodes.get(parent_cpu)
    return 100.0 * same / count if count >= _FEWEST else None
