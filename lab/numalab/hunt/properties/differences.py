"""What a load did, to compare with the reference kernel: time, waits, wake-ups and moves."""

from statistics import fmean

import numpy as np
import polars as pl

from numalab.hunt.compare.quantity import Quantity, register_difference
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.intervals import NOTHING, Ints, joined, met, total, within

_LEAST_NS = 20 * MS  # of the time that counts as use of a CPU
_FEWEST = 20  # wake-ups, for a share to mean something
_LONG = 0.25  # of the time of the load: waits that are few because they are long


@register_difference(Quantity("time-ready-and-run", "%", 5.0, ("less",), apart=1.5))
def ran(run: LoadRecording) -> float | None:
    """The time in which the tasks of the load run, as a share of the time when they are ready."""
    ready = sum(map(total, run.runnable.values()))
    waited = sum(map(total, run.waits.values()))
    return 100.0 * (ready - waited) / ready if ready >= 50 * MS else None


@register_difference(
    Quantity("least-run-time", "ms a second when ready", 20.0, ("less",), apart=1.9)
)
def least_run(run: LoadRecording) -> float | None:
    """The time in which the task that runs least does so, while it is ready."""
    shares = []
    for pid, spans in run.runnable.items():
        ready = total(spans)
        if ready >= 200 * MS and pid in run.waits:
            shares.append(1000.0 * (ready - total(run.waits[pid])) / ready)
    return min(shares, default=None)


@register_difference(Quantity("spread-of-equal-tasks", "%", 10.0, ("more",), apart=2.2))
def spread(run: LoadRecording) -> float | None:
    """How far the least time of equal tasks of a part is below the mean, for the worst part."""
    worst: float | None = None
    for place, part in enumerate(run.load.parts):
        if part.count < 2 or part.kind in ("forker", "waker"):
            continue
        ran = run.time_on(place, run.window).group_by("pid").agg(pl.col("ns").sum())
        never = {
            pid: 0
            for pid, task in run.load_tasks.items()
            if task.part == place and total(run.runnable.get(pid, NOTHING)) > 0
        }
        times = list((never | dict(ran.iter_rows())).values())
        if len(times) >= part.count and (mean := fmean(times)):
            worst = max(worst or 0.0, 100.0 * (1 - min(times) / mean))
    return worst


@register_difference(Quantity("cpus-used", "CPUs", 0.5, apart=1.5))
def cpus_used(run: LoadRecording) -> float | None:
    """The CPUs on which tasks of the load run for 20 ms or longer."""
    used = run.load_spans.group_by("cpu").agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    return float((used["ns"] >= _LEAST_NS).sum())


@register_difference(Quantity("idle-beside-waiting", "%", 10.0, ("more",), apart=2.2))
def idle_beside_waiting(run: LoadRecording) -> float | None:
    """The time in which an allowed CPU is idle while a task of the load waits in a queue."""
    lost = []
    for crew in (crew for place in range(len(run.load.parts)) for crew in run.crews(place)):
        free = joined(run.free_on(crew.cpus).values())
        waits = joined(spans for (pid, _), spans in run.waits_behind.items() if pid in crew.pids)
        lost.append(met(waits, free))
    return 100.0 * total(joined(lost)) / run.window.length_ns if run.window.length_ns else None


@register_difference(Quantity("other-tasks", "%", 0.5, ("more",), apart=1.2))
def other_tasks(run: LoadRecording) -> float | None:
    """The CPU time of tasks that are not of the load, such as kernel threads, as a share."""
    length = run.window.length_ns * run.topology.cpu_count
    beside = run.spans.filter(~pl.col("pid").is_in(list(run.load_tasks)) & (pl.col("pid") > 0))
    used = int((beside["end_ns"] - beside["start_ns"]).sum())
    return 100.0 * used / length if length else None


def _a_second(run: LoadRecording, count: float) -> float:
    return count / (run.window.length_ns / 1e9)


@register_difference(Quantity("switches", "a second", 100.0, apart=1.4))
def switches(run: LoadRecording) -> float | None:
    """Context switches of all CPUs."""
    return _a_second(run, run.events("sched_switch").height)


def _moves(run: LoadRecording, *, between_nodes: bool) -> float:
    table = run.load_spans.sort("pid", "start_ns")
    where = pl.col("cpu").replace_strict(run.places(nodes=True), default=-1, return_dtype=pl.Int64)
    moved = (pl.col("cpu") != pl.col("cpu").shift(1)) & (
        (where != where.shift(1)) if between_nodes else (where == where.shift(1))
    )
    return _a_second(run, int(table.select(moved.over("pid").sum()).item() or 0))


@register_difference(Quantity("moves-within-nodes", "a second", 15.0, apart=1.7))
def moves_within(run: LoadRecording) -> float | None:
    """Moves of tasks of the load to another CPU of their node."""
    return _moves(run, between_nodes=False)


@register_difference(Quantity("moves-between-nodes", "a second", 15.0, apart=1.7))
def moves_between(run: LoadRecording) -> float | None:
    """Moves of tasks of the load to another node."""
    return _moves(run, between_nodes=True)


def _waits(run: LoadRecording) -> Ints:
    lengths = [end - start for start, end in run.waits.values()]
    return np.sort(np.concatenate([np.empty(0, np.int64), *lengths]))


def _are_enough(waits: Ints, run: LoadRecording) -> bool:
    """Whether waits say something: they are many, or few because they are long."""
    return len(waits) >= _FEWEST or int(waits.sum()) >= _LONG * run.window.length_ns


@register_difference(Quantity("mean-wait", "ms", 0.2, ("more",), apart=1.9))
def mean_wait(run: LoadRecording) -> float | None:
    """The mean time that a task of the load waits before it runs."""
    waits = _waits(run)
    return float(waits.mean()) / MS if _are_enough(waits, run) else None


@register_difference(Quantity("long-wait", "ms", 1.0, ("more",), apart=2.1))
def long_wait(run: LoadRecording) -> float | None:
    """The 99th percentile of the time that a task of the load waits before it runs."""
    waits = _waits(run)
    return float(waits[int(0.99 * (len(waits) - 1))]) / MS if _are_enough(waits, run) else None


def _wake_ups(run: LoadRecording) -> pl.DataFrame:
    table = run.events("sched_wakeup").filter(pl.col("event_pid").is_in(list(run.load_tasks)))
    return table.select("time_ns", pid="event_pid", cpu="target_cpu").drop_nulls()


@register_difference(Quantity("wake-ups", "a second", 30.0, apart=1.2))
def wake_ups(run: LoadRecording) -> float | None:
    """Wake-ups of tasks of the load."""
    return _a_second(run, _wake_ups(run).height)


@register_difference(Quantity("wake-ups-on-idle-cpus", "%", 25.0, apart=1.8))
def woken_on_idle(run: LoadRecording) -> float | None:
    """The share of wake-ups of tasks of the load that choose a CPU without a runnable task."""
    table = _wake_ups(run)
    if table.height < _FEWEST:
        return None
    idle = 0
    for (cpu,), rows in table.partition_by("cpu", as_dict=True).items():
        at = rows["time_ns"].to_numpy() - 1
        idle += int(within(run.idle.get(int(cpu), NOTHING), at).sum())
    return 100.0 * idle / table.height


def _beside_waker(run: LoadRecording, *, nodes: bool) -> float | None:
    """Return the share of wake-ups of wakees on the CPU (or node) where their waker ran last."""
    place_of = run.places(nodes=nodes)
    tasks = run.load_tasks
    wakers = {(task.part, task.number): pid for pid, task in tasks.items() if task.kind == "waker"}
    count = same = 0
    woken = _wake_ups(run)
    for pid, task in tasks.items():
        burst = max(1, run.load.parts[task.part].burst)
        waker = wakers.get((task.part, task.number // burst)) if task.kind == "wakee" else None
        if waker is None:
            continue
        left = woken.filter(pl.col("pid") == pid).sort("time_ns")
        right = run.load_spans.filter(pl.col("pid") == waker).sort("start_ns")
        joined_rows = left.join_asof(
            right.select("start_ns", waker_cpu="cpu"), left_on="time_ns", right_on="start_ns"
        ).drop_nulls()
        for cpu, waker_cpu in joined_rows.select("cpu", "waker_cpu").iter_rows():
            count += 1
            same += place_of.get(cpu) == place_of.get(waker_cpu)
    return 100.0 * same / count if count >= _FEWEST else None


@register_difference(Quantity("wakees-on-their-wakers-cpu", "%", 10.0, apart=1.8))
def on_wakers_cpu(run: LoadRecording) -> float | None:
    """The share of wake-ups of wakees on the CPU where their waker runs."""
    return _beside_waker(run, nodes=False)


@register_difference(Quantity("wakees-on-their-wakers-node", "%", 25.0, apart=2.0))
def on_wakers_node(run: LoadRecording) -> float | None:
    """The share of wake-ups of wakees on the node where their waker runs."""
    return _beside_waker(run, nodes=True)


@register_difference(Quantity("refused-settings", "calls", 0.5, ("more",)))
def refused(run: LoadRecording) -> float | None:
    """Policies, masks and nice levels that the kernel refuses to set."""
    value = run.printed.counters.get("end", {}).get("refused")
    return None if value is None else float(value)
