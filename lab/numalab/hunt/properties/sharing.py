"""Properties of CPU shares among tasks."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise

import numpy as np
import polars as pl

from numalab.hunt.loads.load import Load
from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.intervals import NOTHING, Spans, between, covered, total
from numalab.recording.window import clip

_LONG_MS = 300.0  # over which turns are taken
_SHORT_MS = 100.0
_LEAST = 0.05  # of a CPU: who is due less has too few turns in that time


@register_property("fairness", unit="times", most=3.0, suspect=1.6)
def fairness(run: LoadRecording) -> Iterator[Observation]:
    """Of hogs with equal weight, none runs for far less than an even share.

    The even share is that of a task on the fullest CPU when the tasks are spread as evenly as their
    masks allow: the least of 1 / ceil(tasks / CPUs) over all sets of parts. The value is the even
    share over the smallest share of a hog. Weak for hogs with different masks.
    """
    load = _with_plain_tasks(run)
    parts = run.load.parts if load is None else load.parts
    if load is None or any(part.kind != "hog" or part.nice != parts[0].nice for part in parts):
        return
    window = run.settled
    if window.length_ns <= 0:
        return
    even = window.length_ns / _fullest(run)
    least = min(run.settled_ns.values(), default=0)
    value = even / max(least, even / 100)
    yield Observation(
        value,
        f"of {load.tasks} equal hogs one ran for {least / MS:.0f} ms of"
        f" {window.length_ns / MS:.0f} ms, {value:.1f} times less than an even share",
        weak=len(parts) > 1,
    )  # fmt: skip


def _fullest(run: LoadRecording) -> int:
    """Return the tasks on the fullest CPU when they are spread as evenly as their masks allow.

    By Hall's theorem it is the maximum of tasks / CPUs over all sets of masks.
    """
    most = 1
    tasks = Counter[frozenset[int]]()
    for place, part in enumerate(run.load.parts):
        tasks[frozenset(run.last_masks(place))] += part.count
    for count in range(1, len(tasks) + 1):
        for masks in combinations(tasks, count):
            cpus = frozenset[int]().union(*masks)
            most = max(most, -(-sum(map(tasks.__getitem__, masks)) // len(cpus)))
    return most


@register_property("proportion", unit="times", most=2.5, suspect=1.3)
def proportion(run: LoadRecording) -> Iterator[Observation]:
    """Hogs on one CPU share it by their weights (nice levels).

    The value is the share due to a hog over the share that it got: the largest of all times of
    300 ms or longer in which the same hogs were on a CPU.
    """
    load = _with_plain_tasks(run)
    if load is None or any(part.kind != "hog" for part in load.parts):
        return
    worst, text = 1.0, "every hog got its part of its CPU"
    for cpu, length, weights, ran in _sharing(run, load, _LONG_MS):
        for pid, weight in weights.items():
            due = weight / sum(weights.values())
            got = total(ran[pid]) / length
            value = due / max(got, 0.001)
            if due >= _LEAST and value > worst:
                worst = value
                text = (
                    f"a hog got {100 * got:.0f} % of CPU {cpu} in {length / MS:.0f} ms, where"
                    f" {100 * due:.0f} % are due to its weight among {len(weights)}"
                )
    yield Observation(worst, text)


@register_property("lag", unit="ms", most=250.0, suspect=8.0)
def lag(run: LoadRecording) -> Iterator[Observation]:
    """Hogs that share a CPU never lag far behind their share.

    Lag is what is due to a hog by its weight, less what it got. The value is its largest range in a
    time of 100 ms or longer in which the same hogs were on a CPU. EEVDF keeps lag between -r and
    max(r, q), with slices of r and ticks of q (Stoica and Abdel-Wahab, "Earliest Eligible Virtual
    Deadline First", 1995, theorem 1; `update_entity_lag()`, 6.12). Ticks come late in mode icount.
    """
    load = _with_plain_tasks(run)
    if load is None or any(part.kind != "hog" or part.slice_us for part in load.parts):
        return
    worst, text = 0.0, ""
    for cpu, length, weights, ran in _sharing(run, load, _SHORT_MS):
        value = _largest_range(ran, weights) / MS
        if value > worst:
            worst = value
            text = (
                f"the lag of a hog among {len(weights)} on CPU {cpu} varied by {value:.1f} ms in"
                f" {length / MS:.0f} ms"
            )
    if text:
        yield Observation(worst, text)


def _with_plain_tasks(run: LoadRecording) -> Load | None:
    """Return the load if it has plain tasks; what its changes leave if that has; else None.

    Tasks that are stopped at the end have no share.
    """
    load = run.load
    if load.has_plain_tasks:
        return load
    return load.at_end if load.at_end.has_plain_tasks and not load.stops_any else None


def _sharing(
    run: LoadRecording, load: Load, least_ms: float
) -> Iterator[tuple[int, int, Mapping[int, float], Mapping[int, Spans]]]:
    """Yield the times of `least_ms` or longer in which the same tasks, two or more, share a CPU.

    CPU, length in ns, weights of the tasks, and when each ran; of a `load` with other tasks than
    the recording's, in the settled time.
    """
    window = run.window if load is run.load else run.settled
    ran = _by_cpu(clip(run.load_spans, window))
    ready = _by_cpu(clip(run.load_stays.filter("runnable"), window))
    for cpu, tasks in ready.items():
        for low, high, pids in _together(tasks):
            if high - low < least_ms * MS or len(pids) < 2:
                continue
            weights = {pid: load.parts[run.load_tasks[pid].part].weight for pid in pids}
            inside = {pid: between(ran[cpu].get(pid, NOTHING), low, high) for pid in pids}
            yield cpu, high - low, weights, inside


def _largest_range(ran: Mapping[int, Spans], weights: Mapping[int, float]) -> float:
    """Return the largest range of the lag of a task of some that share a CPU, in ns.

    Its lag is its share of what they all ran, less what it ran itself.
    """
    edges = np.unique(np.concatenate([edge for spans in ran.values() for edge in spans]))
    if not len(edges):
        return 0.0
    service = {}
    for pid, (start, end) in ran.items():
        steps = np.column_stack([np.zeros(len(start)), end - start]).ravel()
        times = np.column_stack([start, end]).ravel()
        service[pid] = (
            np.interp(edges, times, steps.cumsum()) if len(start) else np.zeros(len(edges))
        )
    total_service = sum(service.values(), np.zeros(len(edges)))
    whole = sum(weights.values())
    return max(
        float(np.ptp(weights[pid] / whole * total_service - got)) for pid, got in service.items()
    )


def _by_cpu(rows: pl.DataFrame) -> dict[int, dict[int, Spans]]:
    """Return the spans of each task by CPU, from rows with pid, cpu, start_ns, end_ns."""
    by_cpu: defaultdict[int, dict[int, Spans]] = defaultdict(dict)
    for (cpu, pid), part in rows.partition_by("cpu", "pid", as_dict=True).items():
        spans = covered(part)
        by_cpu[int(cpu)][int(pid)] = spans
    return by_cpu


def _together(tasks: Mapping[int, Spans]) -> Iterator[tuple[int, int, frozenset[int]]]:
    """Yield the times in which the set of tasks stays the same: start, end, tasks."""
    steps = [(int(at), pid) for pid, spans in tasks.items() for ends in spans for at in ends]
    now: frozenset[int] = frozenset()
    for (low, pid), (high, _) in pairwise(sorted(steps)):
        now ^= {pid}
        if high > low:
            yield low, high, now
