"""Properties of policies: real-time tasks go first, deadlines are met, and everybody runs."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from numalab.hunt.compare.quantity import Quantity, register_difference
from numalab.hunt.loads.load import Load, Part
from numalab.hunt.property import Limit, Observation, register_property
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.intervals import Spans, between, covered, joined, longest, met, total

# Of the three policies that go before fair tasks; stop and deadline go before fifo and rr.
_DEADLINE, _FAIR = 100, 0
_LEAST_READY_MS = 50
_TURNS = 20  # for a percentile to mean something
_LONG = 0.5  # of the time of a task: turns that are few because they are long
_STARVED = 0.9  # of the time of a load
_USED = 0.75  # of the runtime: wake-ups and interrupts count, too
_DUE_MS = 400  # the shortest time over which runtime in periods is added up
_OVERRUN_NS = 10 * MS  # a tick at 100 Hz, at which the kernel sees that the runtime is used up


@register_property("priority", unit="ms", most=400.0, suspect=4.0, any_load=True)
def priority(run: LoadRecording) -> Iterator[Observation]:
    """No real-time task waits while a CPU that it may use is idle or runs a lower priority.

    The value is the longest such time in ms (`push_rt_task()`, `push_dl_task()`, 6.12). Deadline
    tasks that may be throttled are left out, and loads in which a policy was refused.
    """
    for place, part in enumerate(run.load.parts):
        worst, at, kind = 0, 0, ""
        for rank, spans in _waits_beside_lower(run, place):
            kind = kind or _kind(part, rank)
            for waited in spans:
                length, start = longest(waited)
                if length > worst:
                    worst, at, kind = length, start, _kind(part, rank)
        if not kind:
            continue
        yield Observation(
            worst / MS,
            f"a {kind} waited {worst / MS:.1f} ms, from {(at - run.window.start_ns) / MS:.1f} ms"
            " after the begin, while a CPU that it may use was idle or ran a lower priority"
            if worst
            else f"no {kind} waited for a lower one",
        )


@register_difference(Quantity("real-time-waits", "%", 2.0, ("more",), apart=1.9))
def real_time_waits(run: LoadRecording) -> float | None:
    """The time of real-time tasks in queues beside CPUs that are idle or run a lower priority.

    Of deadline tasks those with longer periods count as lower: their deadlines are mostly later.
    """
    waited = ready = 0
    for place in range(len(run.load.parts)):
        judged = False
        for _, spans in _waits_beside_lower(run, place, by_period=True):
            judged = True
            waited += total(joined(spans))
        mine = [pid for pid, task in run.load_tasks.items() if task.part == place]
        ready += sum(total(run.runnable[pid]) for pid in mine) if judged else 0
    return 100.0 * waited / ready if ready >= _LEAST_READY_MS * MS else None


def _waits_beside_lower(
    run: LoadRecording, place: int, *, by_period: bool = False
) -> Iterator[tuple[int, list[Spans]]]:
    """Yield the rank of a part's real-time tasks in each phase, and their waits, for each CPU.

    The waits are those in which the CPU was idle or ran a lower rank. Nothing for a part, or a
    phase, that is not judged.
    """
    load, part = run.load, run.load.parts[place]
    if load.rebuilds_domains or load.has_quota(part) or run.printed.refused:
        return
    for window, at_ms in run.phases():
        rank = _rank(load, place, at_ms)
        if rank == _FAIR or (rank == _DEADLINE and not _is_never_throttled(part, run)):
            continue
        below_rank = {
            number
            for number, other in enumerate(load.parts)
            if _rank(load, number, at_ms) < rank
            or (by_period and rank == _DEADLINE and other.period_us > part.period_us)
        }
        reset = {  # children that are fair, whatever their parent is
            pid
            for pid, task in run.load_tasks.items()
            if task.kind == "child" and load.parts[task.part].resets
        }
        tasks = run.load_tasks.items()
        lower = [pid for pid, task in tasks if task.part in below_rank or pid in reset]
        inside = np.array([window.start_ns], np.int64), np.array([window.end_ns], np.int64)
        spans = []
        for crew in run.crews(place):
            waited = met(joined(run.waits[pid] for pid in crew.pids - reset), inside)
            for cpu in load.masks(place, at_ms, wakees=crew.wakees):
                below = [run.idle[cpu]] if cpu in run.idle else []
                if cpu in run.load_spans_on:
                    rows = run.load_spans_on[cpu]
                    below.append(covered(rows.filter(pl.col("pid").is_in(lower))))
                spans.append(met(waited, joined(below)))
        yield rank, spans


def _kind(part: Part, rank: int) -> str:
    return f"deadline {part.kind}" if rank == _DEADLINE else f"{part.kind} of priority {rank}"


def _is_never_throttled(part: Part, run: LoadRecording) -> bool:
    """Whether a deadline task sleeps for a period before it has used its runtime.

    In mode icount, CPUs that are busy together are slower by their number.
    """
    sleeps = part.kind == "sleeper" and part.policy == "deadline"
    used = part.run_us * run.topology.cpu_count
    return sleeps and used <= _USED * part.runtime_us and part.sleep_us >= part.period_us


def _rank(load: Load, place: int, at_ms: float = 0) -> int:
    """Return the rank of the tasks of a part at a time: a larger one goes first."""
    part = load.parts[place]
    policy, priority = part.policy, part.priority
    for ms, change in load.timeline:
        if change.part == place and change.policy and ms <= at_ms:
            policy, priority = change.policy, change.priority
    if policy == "deadline":
        return _DEADLINE
    return priority if policy in ("fifo", "rr") else _FAIR


@register_property("deadline", unit="times", most=2.0, suspect=1.1, any_load=True)
def deadline(run: LoadRecording) -> Iterator[Observation]:
    """A deadline task never gets more than its runtime on average, a hog not less either.

    The value is the runtime due over the runtime got of a hog, or its inverse if that is larger;
    for a sleeper it is the latter, with the runtime of one more period and a tick of overrun due
    (constant bandwidth server, Documentation/scheduler/sched-deadline.rst). Not where the kernel
    refused a policy.
    """
    load, window = run.load.at_end, run.settled
    if load.rebuilds_domains or run.load.stops_any or window.length_ns < _DUE_MS * MS:
        return
    if run.printed.refused:
        return
    for place, part in enumerate(load.parts):
        is_hog, before = part.kind == "hog", run.load.parts[place]
        if not (is_hog or part.kind == "sleeper") or part.later or part.yields or part.reclaim:
            continue  # those that are reclaimed may have more
        if {part.policy, before.policy} != {"deadline"} or not (is_hog or part == before):
            continue
        due = window.length_ns * part.runtime_us / part.period_us
        most = due if is_hog else due + part.runtime_us * 1000 + _OVERRUN_NS
        got = [ns for pid, ns in run.settled_ns.items() if run.load_tasks[pid].part == place]
        least = [due / max(ns, due / 100) if is_hog else 0.0 for ns in got]
        worst = max((max(ns / most, few) for ns, few in zip(got, least, strict=True)), default=1.0)
        yield Observation(
            worst,
            f"of {len(got)} deadline tasks with {part.runtime_us} us in each {part.period_us} us"
            f" one ran for {min(got, default=0) / MS:.0f} ms, one for"
            f" {max(got, default=0) / MS:.0f} ms, where {'' if is_hog else 'at most '}"
            f"{most / MS:.0f} ms were due",
        )


@register_property("tardiness", unit="periods", most=10.0, suspect=0.1, any_load=True)
def tardiness(run: LoadRecording) -> Iterator[Observation]:
    """A deadline task that is never throttled ends each turn within about a period.

    The value is the 95th percentile of its turns, over the period. With the earliest deadlines
    first on several CPUs a turn may end later by a bounded time (Devi and Anderson, "Tardiness
    bounds under global EDF scheduling on a multiprocessor", Real-Time Systems 38, 2008).
    """
    load, window = run.load, run.judged
    if load.rebuilds_domains or run.printed.refused:
        return
    for place, part in enumerate(load.parts):
        if not _is_never_throttled(part, run) or _rank(load, place, load.ms) != _DEADLINE:
            continue
        mine = [pid for pid, task in run.load_tasks.items() if task.part == place]
        spans = [between(run.runnable[pid], window.start_ns, window.end_ns) for pid in mine]
        turns = np.sort(
            np.concatenate([np.empty(0, np.int64), *(end - start for start, end in spans)])
        )
        is_long = int(turns.sum()) >= _LONG * len(mine) * window.length_ns > 0
        if len(turns) < _TURNS and not is_long:
            continue
        late = float(turns[int(0.95 * (len(turns) - 1))]) / (part.period_us * 1000)
        yield Observation(
            late,
            f"one in twenty turns of deadline tasks that run for {part.run_us} us took"
            f" {late * part.period_us / 1000:.1f} ms or longer; their period is"
            f" {part.period_us / 1000:g} ms",
        )  # fmt: skip


@register_property("starvation", unit="ms", most=1000.0, suspect=150.0, any_load=True)
def starvation(run: LoadRecording) -> Iterator[Observation]:
    """No runnable fair task waits for long, in loads without fifo and rr tasks.

    The value is the longest wait in ms; the limit is nine tenths of the time of the load.
    """
    load = run.load
    if any(part.policy in ("fifo", "rr") or (part.is_real_time and part.kind == "hog")
           for part in load.parts) or any(change.policy in ("fifo", "rr", "deadline")
                                          for change in load.changes):  # fmt: skip
        return
    worst, text = 0.0, "every task ran soon"
    levels = [*(part.nice for part in load.parts), *(change.nice or 0 for change in load.changes)]
    for place, part in enumerate(load.parts):
        changes = [change for change in load.changes if change.part == place]
        light = part.nice > 0 or any((change.nice or 0) > 0 for change in changes)
        is_idle = "idle" in {part.policy, *(change.policy for change in changes)}
        weak = light or is_idle or min(levels) < 0 or bool(part.group)
        if part.is_real_time or weak or load.has_quota(part):
            continue
        for crew in run.crews(place):
            waited = max((longest(run.waits[pid])[0] for pid in crew.pids), default=0)
            if waited / MS > worst:
                worst = waited / MS
                text = f"a {crew.name} waited {worst:.0f} ms for a CPU"
    yield Observation(worst, text, limit=Limit(_STARVED * run.window.length_ns / MS, 150.0))


@register_property("lock-wait", unit="ms", most=3000.0, suspect=20.0, any_load=True)
def lock_wait(run: LoadRecording) -> Iterator[Observation]:
    """A locker gets the lock soon after those before it: its holder inherits its priority.

    The value is the longest wait for the lock in ms of the lockers of the highest priority, which
    is about the time for which one locker holds it (`rt_mutex_adjust_prio_chain()`, 6.12).
    """
    parts = run.load.parts
    lockers = {n: _rank(run.load, n) for n, part in enumerate(parts) if part.kind == "locker"}
    if len(lockers) < 2 or run.load.hotplug:
        return
    first = max(lockers.values())
    locks = run.printed.locks.items()
    waits = [lock.worst_us for (place, _), lock in locks if lockers.get(place) == first]
    worst = max(waits, default=0) / 1000
    yield Observation(
        worst,
        f"a locker of the highest priority waited {worst:.1f} ms for the lock",
        weak=first == 0,
    )
