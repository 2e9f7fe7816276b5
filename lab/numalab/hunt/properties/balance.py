"""Properties of load balancing: no task waits for long while an allowed CPU is idle."""

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np
import polars as pl

from numalab.cpulist import name_cpus
from numalab.hunt.loads.load import Cpus, PartKind
from numalab.hunt.property import Limit, Observation, register_property
from numalab.hunt.recording import GRACE_MS, MS, LoadRecording
from numalab.recording.intervals import between, joined, longest, met, total
from numalab.recording.window import Window, clip

# How long a CPU may be idle while a task waits depends on how often the tasks sleep.
_IDLE_MS: Mapping[PartKind, Limit] = {
    "hog": Limit(1600.0, 200.0), "sleeper": Limit(800.0, 40.0), "waker": Limit(400.0, 20.0),
    "forker": Limit(400.0, 20.0), "memory": Limit(1600.0, 200.0), "locker": Limit(400.0, 20.0),
}  # fmt: skip


@register_property("affinity", unit="ms", most=0.0)
def affinity(run: LoadRecording) -> Iterator[Observation]:
    """No task runs on a CPU outside its mask or cpuset.

    A change is made when sched_setaffinity(2) or write(2) returns: affine_move_task() has waited
    until the task is on a CPU of the mask. Only after hotplug cpusets follow later, and children
    that a forker had before keep their mask, also those from before the begin. Loads with
    partitions in which a call was refused are left out: one may have lost its CPUs.
    """
    partitions = {group.name for group in run.load.groups if group.partition}
    if partitions and (run.printed.refused or run.printed.denied):
        return
    for place, part in enumerate(run.load.parts):
        if partitions and part.group not in partitions:
            continue  # a mask without a CPU beside the partitions depends on the release
        worst, text = 0, f"every {part.kind} kept to its CPUs"
        for masks, spans in ran_outside(run, place):
            length = pl.col("end_ns") - pl.col("start_ns")
            ran = spans.group_by("pid", "cpu").agg(ns=length.sum()).sort("pid", "cpu")
            pid, cpu, ns = ran.sort("ns", descending=True, maintain_order=True).row(0)
            if ns > worst:
                task = run.load_tasks[pid]
                worst = ns
                text = (
                    f"{task.kind} {task.number}, which may run on {name_cpus(masks)}, ran"
                    f" on CPU {cpu} for {ns / MS:.2f} ms"
                )
        yield Observation(worst / MS, text)


def ran_outside(run: LoadRecording, place: int) -> Iterator[tuple[frozenset[int], pl.DataFrame]]:
    """Yield masks of a part, with the spans of its tasks on other CPUs, if any."""
    grace_ms = GRACE_MS if run.load.hotplug or run.load.parts[place].kind == "forker" else 0.0
    for crew, (window, at_ms) in product(run.crews(place), run.phases(grace_ms)):
        masks = run.load.masks(place, at_ms, wakees=crew.wakees)
        away = {h.cpu for h in run.load.hotplug if h.off_ms <= at_ms < h.on_ms}
        # A mask without a CPU on line is replaced by the cpuset's, and not restored
        # (cpuset_cpus_allowed_fallback(), 6.12).
        if not masks - {h.cpu for h in run.load.hotplug if h.off_ms <= at_ms}:
            masks = run.load.cpuset_of(place, at_ms)
        if not masks - away:
            continue
        outside = ~pl.col("cpu").is_in(sorted(masks))
        old = {
            pid for pid in crew.pids
            if run.load_tasks[pid].kind == "child"
            and run.window.start_ns < window.start_ns >= run.born.get(pid, 0)
        }  # fmt: skip
        mine = pl.col("pid").is_in(crew.pids - old)
        spans = clip(run.load_spans.filter(mine & outside), window)
        if not spans.is_empty():
            yield masks, spans


@register_property("reachability", unit="of the time", most=0.5, suspect=0.3)
def reachability(run: LoadRecording) -> Iterator[Observation]:
    """Every node that several hogs may use runs some of them.

    Weak if the hogs do not outnumber the machine's CPUs: a group of busy and idle CPUs then need
    not count as overloaded (`group_is_overloaded()`, 6.12).

    The value is 0 for a node on which a hog ran in the settled time. Else it is the share of that
    time in which the node's allowed CPUs were idle while a hog that may run there waited.
    """
    window = run.settled
    for place, part in enumerate(run.load.parts):
        if part.kind != "hog" or part.count < 2 or run.load.has_quota(part):
            continue
        ran = run.time_on(place, window)
        idle = run.avoidable(place, window)
        for node in run.topology.nodes:
            mine = sorted(run.last_masks(place) & set(node.cpus))
            if not mine or window.length_ns <= 0:
                continue
            worked = int(ran.filter(pl.col("cpu").is_in(mine))["ns"].sum())
            unused = min(total(idle[cpu]) if cpu in idle else 0 for cpu in mine)
            share = unused / window.length_ns if not worked else 0.0
            text = f"tasks that may run on node {node.id} ({name_cpus(mine)}) "
            if worked:
                text += f"ran there for {worked / MS:.0f} ms in {window.length_ns / MS:.0f} ms"
            else:
                text += (
                    f"never ran there in {window.length_ns / MS:.0f} ms; it was idle for"
                    f" {100 * share:.0f} % of that time while one of them waited elsewhere"
                )
            yield Observation(share, text, weak=part.count <= run.topology.cpu_count)


@register_property("work-conservation", unit="ms", most=1600.0, suspect=200.0)
def work_conservation(run: LoadRecording) -> Iterator[Observation]:
    """No CPU is idle for long while a task that may run there waits."""
    for place, part in enumerate(run.load.parts):
        if run.load.has_quota(part):
            continue  # its tasks wait for their quota, too
        worst, at, where = 0, 0, -1
        for cpu, spans in run.avoidable(place).items():
            length, start = longest(spans)
            if length > worst:
                worst, at, where = length, start, cpu
        yield Observation(
            worst / MS,
            f"CPU {where} was idle for {worst / MS:.1f} ms while a {part.kind} that may run there"
            f" waited, from {(at - run.window.start_ns) / MS:.1f} ms after the begin"
            if worst else f"no {part.kind} waited while a CPU was idle that may run it",
            limit=_IDLE_MS[part.kind],
        )  # fmt: skip


@register_property("idle-neighbours", unit="ms", most=800.0, suspect=8.0)
def neighbours(run: LoadRecording) -> Iterator[Observation]:
    """No task waits for long while another allowed CPU of its node is idle."""
    load, inside = run.load, run.judged
    worst, text = 0, "nobody waited beside an idle CPU of the node"
    for place, part in enumerate(load.parts):
        if load.has_quota(part):
            continue
        for crew in run.crews(place):
            free = run.free_on(run.last_masks(place, wakees=crew.wakees))
            for (pid, node), spans in run.waits_behind.items():
                if pid not in crew.pids:
                    continue
                waited = between(met(spans, free[node]), inside.start_ns, inside.end_ns)
                length, start = longest(waited)
                if length > worst:
                    worst = length
                    text = (
                        f"a {crew.name} waited on node {node} for {length / MS:.1f} ms beside an"
                        f" idle CPU of it, from {(start - run.window.start_ns) / MS:.1f} ms after"
                        " the begin"
                    )
    yield Observation(worst / MS, text)


@register_property("lost-time", unit="of the time", most=0.6, suspect=0.02)
def lost_time(run: LoadRecording) -> Iterator[Observation]:
    """Tasks do not wait in a queue for most of their time while an allowed CPU is idle.

    Weak for hogs and memory users, which may wait until a far node balances, and for any task
    that shares a CPU with hogs.
    """
    load, inside = run.load, run.judged
    low, high = inside.start_ns, inside.end_ns
    hogs = any(part.kind == "hog" for part in load.parts)
    for place, part in enumerate(load.parts):
        if load.has_quota(part):
            continue
        for crew in run.crews(place):
            free = joined(run.free_on(run.last_masks(place, wakees=crew.wakees)).values())
            free = between(free, low, high)
            ready = sum(total(between(run.runnable[pid], low, high)) for pid in crew.pids)
            waits = [spans for (pid, _), spans in run.waits_behind.items() if pid in crew.pids]
            lost = sum(total(met(spans, free)) for spans in waits)
            if ready < 50 * MS:
                continue
            yield Observation(
                lost / ready,
                f"{crew.name} tasks waited behind others for {100 * lost / ready:.1f} % of the time"
                f" in which they were ready ({lost / MS:.0f} ms) while a CPU was idle that may run"
                " them",
                weak=hogs or part.kind == "memory",
            )


@register_property("spread", unit="tasks", most=6.0, suspect=1.4)
def spread(run: LoadRecording) -> Iterator[Observation]:
    """Hogs of one weight and mask are spread evenly over their CPUs.

    The value is the mean, in the settled time, of the hogs on the fullest CPU less those on the
    emptiest: at most 1 in an even spread. The kernel tolerates more between nodes
    (`imbalance_pct`, `imb_numa_nr`, 6.12).
    """
    load, window = run.load, run.settled
    part = load.parts[0]
    cpus = tuple(sorted(run.last_masks(0)))
    if not load.has_plain_tasks or len(load.parts) != 1 or part.kind != "hog":
        return
    if len(cpus) < 2 or part.count < 2 or window.length_ns <= 0:
        return
    value = _mean_range(run, cpus, window)
    yield Observation(
        value,
        f"of {part.count} equal hogs the fullest of {len(cpus)} CPUs had {value:.2f} more than"
        f" the emptiest, in the mean of {window.length_ns / MS:.0f} ms",
    )  # fmt: skip


def _mean_range(run: LoadRecording, cpus: Cpus, window: Window) -> float:
    """Return the mean of the largest less the smallest number of runnable tasks on some CPUs."""
    rows = clip(run.queue.filter(pl.col("cpu").is_in(cpus)), window)
    edges = np.unique(np.append(rows["start_ns"].to_numpy(), window.end_ns))
    counts = []
    for (_,), of_cpu in rows.sort("start_ns").partition_by("cpu", as_dict=True).items():
        place = np.searchsorted(of_cpu["start_ns"].to_numpy(), edges[:-1], "right") - 1
        counts.append(of_cpu["runnable"].to_numpy()[np.maximum(place, 0)])
    if not counts or len(edges) < 2:
        return 0.0
    table = np.vstack(counts)
    return float(np.average(table.max(axis=0) - table.min(axis=0), weights=np.diff(edges)))
