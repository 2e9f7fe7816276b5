"""Properties of wake-ups and forks: on a machine with idle CPUs, a task runs soon."""

from collections.abc import Iterator

import numpy as np

from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import MS, Crew, LoadRecording
from numalab.recording.intervals import between, overlaps, total

_FEWEST = 20  # waits, for a percentile to mean something
_LONG = 0.25  # of the time of a task: waits that are few because they are long


@register_property("wake-up-latency", unit="ms", most=4.0, suspect=0.15)
def latency(run: LoadRecording) -> Iterator[Observation]:
    """A woken or new task runs soon while at least half of the CPUs are free.

    The value is the 90th percentile, over all turns, of the wait beside an idle allowed CPU of the
    same node: a wake-up searches only the CPUs that share a cache. Weak if the tasks want more
    than half of the CPUs.
    """
    weak = 2 * run.load.tasks > run.topology.cpu_count
    for place, crew in _crews(run):
        if (value := _late(run, place, crew, near=True)) is not None:
            yield Observation(
                value,
                f"one in ten {crew.name} turns waited {value:.2f} ms or longer beside an idle CPU"
                " of the node",
                weak=weak,
            )  # fmt: skip


@register_property("response", unit="ms", most=1000.0, suspect=3.0)
def response(run: LoadRecording) -> Iterator[Observation]:
    """A woken task runs soon, even if all CPUs are busy.

    The value is the 90th percentile of the wait, whether a CPU was idle or not. In mode icount even
    a real-time task waits until the emulator schedules its CPU.
    """
    for place, crew in _crews(run):
        if (value := _late(run, place, crew, near=False)) is not None:
            yield Observation(
                value,
                f"one in ten {crew.name} turns waited {value:.2f} ms or longer",
            )  # fmt: skip


def _crews(run: LoadRecording) -> Iterator[tuple[int, Crew]]:
    """Yield the tasks, by part and mask, that sleep repeatedly and keep their masks."""
    for place, part in enumerate(run.load.parts):
        sleeps = part.kind in ("sleeper", "waker", "forker", "locker")
        if sleeps and not run.load.has_quota(part):
            for crew in run.crews(place):
                yield place, crew


def _late(run: LoadRecording, place: int, crew: Crew, *, near: bool) -> float | None:
    """Return the 90th percentile of the waits of some tasks of a part, in ms.

    With `near`, count only waits beside an idle allowed CPU of the node.
    """
    low, high = run.judged.start_ns, run.judged.end_ns
    turns = sum(len(between(run.runnable[pid], low, high)[0]) for pid in crew.pids)
    all_waits = [between(run.waits[pid], low, high) for pid in crew.pids]
    if turns < _FEWEST and sum(map(total, all_waits)) < _LONG * len(crew.pids) * (high - low):
        return None
    if near:
        free = run.free_on(run.last_masks(place, wakees=crew.wakees))
        lengths = [
            overlaps(between(spans, low, high), free[node])
            for (pid, node), spans in run.waits_behind.items()
            if pid in crew.pids
        ]
    else:
        lengths = [end - start for start, end in all_waits]
    waited = np.concatenate([np.empty(0, np.int64), *lengths]) / MS
    turn_waits = np.sort(np.append(waited, np.zeros(max(0, turns - len(waited)))))
    if not len(turn_waits):
        return None
    return float(turn_waits[int(0.9 * (len(turn_waits) - 1))])
