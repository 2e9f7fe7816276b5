"""Properties of load balancing: no task waits for long while an allowed CPU is idle."""

from collections.abc import Iterator, Mapping

import polars as pl

from numalab.hunt.load import PartKind
from numalab.hunt.property import Limit, Observation, register_property
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.intervals import joined, longest, met, total

# How long a CPU may be idle while a task waits depends on how often the tasks sleep.
_IDLE_MS: Mapping[PartKind, Limit] = {
    "hog": Limit(1600.0, 200.0), "sleeper": Limit(800.0, 40.0), "waker": Limit(400.0, 20.0),
    "forker": Limit(400.0, 20.0), "memory": Limit(1600.0, 200.0),
}  # fmt: skip


@register_property("affinity", most=0.0)
def affinity(run: LoadRecording) -> Iterator[Observation]:
    """No task runs on a CPU outside its mask or cpuset."""
    for place, part in enumerate(run.load.parts):
        worst, text = 0, f"every {part.kind} kept to its CPUs"
        for window, at_ms in run.phases():
            masks = run.load.masks(place, at_ms)
            away = {h.cpu for h in run.load.hotplug if h.off_ms <= at_ms < h.on_ms}
            if not masks - away:
                continue
            ran = run.time_on(place, window).filter(~pl.col("cpu").is_in(sorted(masks)))
            if ran.is_empty():
                continue
            pid, cpu, ns = ran.sort("ns", descending=True).row(0)
            if ns > worst:
                task = run.load_tasks[pid]
                worst = ns
                text = (
                    f"{task.kind} {task.number}, which may run on CPUs {_list(sorted(masks))}, ran"
                    f" on CPU {cpu} for {ns / MS:.2f} ms"
                )
        yield Observation(worst / MS, text)


@register_property("reachability", most=0.5, suspect=0.3)
def reachability(run: LoadRecording) -> Iterator[Observation]:
    """Every node that several hogs may use runs some of them.

    Weak if the hogs do not outnumber the machine's CPUs: a group of busy and idle CPUs then need
    not count as overloaded (`group_is_overloaded()`, 6.12).

    The value is 0 for a node on which a hog ran in the settled time. Else it is the share of that
    time in which the node's allowed CPUs were idle while a hog that may run there waited.
    """
    if run.load.hotplug or run.load.cpuset:
        return
    window = run.settled
    for place, part in enumerate(run.load.parts):
        if part.kind != "hog" or part.later or part.count < 2:
            continue
        ran = run.time_on(place, window)
        idle = run.avoidable(place, window)
        for node in run.topology.nodes:
            mine = sorted(set(part.cpus) & set(node.cpus))
            if not mine or window.length_ns <= 0:
                continue
            worked = int(ran.filter(pl.col("cpu").is_in(mine))["ns"].sum())
            unused = min(total(idle[cpu]) if cpu in idle else 0 for cpu in mine)
            share = unused / window.length_ns if not worked else 0.0
            yield Observation(
                share,
                f"tasks that may run on node {node.id} (CPUs {_list(mine)}) never did in"
                f" {window.length_ns / MS:.0f} ms, of which it was idle for"
                f" {100 * share:.0f} % while one of them waited elsewhere",
                weak=part.count <= run.topology.cpu_count,
            )  # fmt: skip


@register_property("work-conservation", most=1600.0, suspect=200.0)
def work_conservation(run: LoadRecording) -> Iterator[Observation]:
    """No CPU is idle for longer than T while a task that may run there waits."""
    for place, part in enumerate(run.load.parts):
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


@register_property("idle-neighbours", most=800.0, suspect=8.0)
def neighbours(run: LoadRecording) -> Iterator[Observation]:
    """No task waits for long while another allowed CPU of its node is idle."""
    load = run.load
    if load.hotplug or load.cpuset:
        return
    worst, text = 0, "nobody waited beside an idle CPU of the node"
    for place, part in enumerate(load.parts):
        free = run.free_on(part.cpus)
        mine = {pid for pid, task in run.load_tasks.items() if task.part == place}
        for (pid, node), spans in run.waits_behind.items():
            if pid not in mine or part.later:
                continue
            length, start = longest(met(spans, free[node]))
            if length > worst:
                worst = length
                text = (
                    f"a {part.kind} waited on node {node} for {length / MS:.1f} ms beside an idle"
                    f" CPU of it, from {(start - run.window.start_ns) / MS:.1f} ms after the begin"
                )
    yield Observation(worst / MS, text)


@register_property("lost-time", most=0.6, suspect=0.02)
def lost_time(run: LoadRecording) -> Iterator[Observation]:
    """Tasks do not wait in a queue for most of their time while an allowed CPU is idle.

    Weak for hogs and memory users, which may wait until a far node balances, and for any task
    that shares a CPU with hogs.
    """
    load = run.load
    if load.hotplug or load.cpuset:
        return
    hogs = any(part.kind == "hog" for part in load.parts)
    for place, part in enumerate(run.load.parts):
        if part.later:
            continue
        mine = {pid for pid, task in run.load_tasks.items() if task.part == place}
        free = joined(run.free_on(part.cpus).values())
        ready = sum(total(run.runnable[pid]) for pid in mine)
        waits = [spans for (pid, _), spans in run.waits_behind.items() if pid in mine]
        lost = sum(total(met(spans, free)) for spans in waits)
        if ready < 50 * MS:
            continue
        yield Observation(
            lost / ready,
            f"{part.kind} tasks waited behind others for {100 * lost / ready:.1f} % of the time in"
            f" which they were ready ({lost / MS:.0f} ms) while a CPU was idle that may run them",
            weak=hogs or part.kind == "memory",
        )  # fmt: skip


def _list(cpus: list[int]) -> str:
    return ",".join(map(str, cpus))
