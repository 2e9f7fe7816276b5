"""Properties of policies: real-time tasks go first, deadlines are met, and everybody runs."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from numalab.hunt.load import Load, Part
from numalab.hunt.property import Limit, Observation, register_property
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.intervals import covered, joined, longest, met

# Of the three policies that go before fair tasks; stop and deadline go before fifo and rr.
_DEADLINE, _FAIR = 100, 0
_STARVED = 0.9  # of the time of a load
_DUE_MS = 400  # the shortest time over which runtime in periods is added up


@register_property("priority", most=400.0, suspect=4.0, any_load=True)
def priority(run: LoadRecording) -> Iterator[Observation]:
    """No real-time task waits while a CPU that it may use is idle or runs a lower priority.

    The value is the longest such time in ms (`push_rt_task()`, `find_lowest_rq()`, 6.12).
    """
    load = run.load
    if load.hotplug or load.cpuset:
        return
    spans_of = {
        cpu: rows for (cpu,), rows in run.load_spans.partition_by("cpu", as_dict=True).items()
    }
    for place, part in enumerate(load.parts):
        if (
            part.policy not in ("fifo", "rr")
            or load.has_quota(part)
            or _changes_policy(load, place)
        ):
            continue
        lower = [
            pid
            for pid, task in run.load_tasks.items()
            if _rank(load.parts[task.part]) < _rank(part) and not _changes_policy(load, task.part)
        ]
        worst, at = 0, 0
        for crew in run.crews(place):
            waited = joined(run.waits[pid] for pid in crew.pids)
            for window, at_ms in run.phases():
                inside = np.array([window.start_ns], np.int64), np.array([window.end_ns], np.int64)
                for cpu in load.masks(place, at_ms, wakees=crew.wakees):
                    below = [run.idle[cpu]] if cpu in run.idle else []
                    if cpu in spans_of:
                        below.append(covered(spans_of[cpu].filter(pl.col("pid").is_in(lower))))
                    length, start = longest(met(met(waited, joined(below)), inside))
                    if length > worst:
                        worst, at = length, start
        yield Observation(
            worst / MS,
            f"a {part.kind} of {part.policy} priority {part.priority} waited {worst / MS:.1f} ms,"
            f" from {(at - run.window.start_ns) / MS:.1f} ms after the begin, while a CPU that it"
            " may use was idle or ran a lower priority"
            if worst
            else f"no {part.kind} of {part.policy} priority {part.priority} waited for a lower one",
        )


def _rank(part: Part) -> int:
    if part.policy == "deadline":
        return _DEADLINE
    return part.priority if part.policy in ("fifo", "rr") else _FAIR


def _changes_policy(load: Load, place: int) -> bool:
    return any(change.part == place and (change.policy or change.stop) for change in load.changes)


@register_property("deadline", most=2.0, suspect=1.1, any_load=True)
def deadline(run: LoadRecording) -> Iterator[Observation]:
    """A deadline task that always wants to run gets its runtime in each period, and not more.

    The value is the runtime due over the runtime got, or its inverse if that is larger
    (constant bandwidth server, Documentation/scheduler/sched-deadline.rst).
    """
    load, window = run.load, run.settled
    if not load.is_steady or window.length_ns < _DUE_MS * MS:
        return
    for place, part in enumerate(load.parts):
        if part.kind != "hog" or part.policy != "deadline" or part.later or part.yields:
            continue
        due = window.length_ns * part.runtime_us / part.period_us
        got = [ns for pid, ns in run.settled_ns.items() if run.load_tasks[pid].part == place]
        worst = max((max(due / max(ns, due / 100), ns / due) for ns in got), default=1.0)
        yield Observation(
            worst,
            f"of {len(got)} deadline tasks with {part.runtime_us} us in each {part.period_us} us"
            f" one ran for {min(got, default=0) / MS:.0f} ms, one for"
            f" {max(got, default=0) / MS:.0f} ms, where {due / MS:.0f} ms were due",
        )  # fmt: skip


@register_property("starvation", most=1000.0, suspect=150.0, any_load=True)
def starvation(run: LoadRecording) -> Iterator[Observation]:
    """No runnable fair task waits for long, in loads without fifo and rr tasks.

    The value is the longest wait in ms; the limit is nine tenths of the time of the load.
    """
    load = run.load
    if any(part.policy in ("fifo", "rr") or (part.is_real_time and part.kind == "hog")
           for part in load.parts):  # fmt: skip
        return
    worst, text = 0.0, "every task ran soon"
    for place, part in enumerate(load.parts):
        weak = part.nice > 0 or any(other.nice < 0 for other in load.parts) or bool(part.group)
        if part.is_real_time or part.policy == "idle" or weak or load.has_quota(part):
            continue
        for crew in run.crews(place):
            waited = max((longest(run.waits[pid])[0] for pid in crew.pids), default=0)
            if waited / MS > worst:
                worst = waited / MS
                text = f"a {crew.name} waited {worst:.0f} ms for a CPU"
    yield Observation(worst, text, limit=Limit(_STARVED * run.window.length_ns / MS, 150.0))


@register_property("lock-wait", most=3000.0, suspect=20.0, any_load=True)
def lock_wait(run: LoadRecording) -> Iterator[Observation]:
    """A locker gets the lock soon after those before it: its holder inherits its priority.

    The value is the longest wait for the lock in ms of the lockers of the highest priority, which
    is about the time for which one locker holds it (`rt_mutex_adjust_prio_chain()`, 6.12).
    """
    parts = run.load.parts
    lockers = {place: _rank(part) for place, part in enumerate(parts) if part.kind == "locker"}
    if len(lockers) < 2 or run.load.hotplug:
        return
    first = max(lockers.values())
    waits = [lock.worst_us for (place, _), lock in run.locks.items() if lockers.get(place) == first]
    worst = max(waits, default=0) / 1000
    yield Observation(
        worst,
        f"a locker of the highest priority waited {worst:.1f} ms for the lock",
        weak=first == 0,
    )
