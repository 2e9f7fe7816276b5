"""Properties of wake-ups and forks: on a machine with idle CPUs, a task runs soon."""

from collections.abc import Iterator

import numpy as np

from numalab.hunt.load import Part
from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.intervals import overlaps

_FEWEST = 20  # waits, for a percentile to mean something


@register_property("wake-up-latency", most=4.0, suspect=0.15)
def latency(run: LoadRecording) -> Iterator[Observation]:
    """Where at most half of the CPUs are wanted at once, a woken or new task runs soon.

    The value is the 90th percentile of how long tasks waited while another CPU of the node on which
    they were was idle and allowed, of all their turns: wake-ups look no further than a cache. Weak
    where more CPUs are wanted.
    """
    weak = 2 * run.load.tasks > run.topology.cpu_count
    for place, part in _parts(run):
        if (value := _late(run, place, near=True)) is not None:
            yield Observation(
                value,
                f"one in ten {part.kind} turns waited {value:.2f} ms or longer beside an idle CPU"
                " of the node",
                weak=weak,
            )  # fmt: skip


@register_property("response", most=1000.0, suspect=3.0)
def response(run: LoadRecording) -> Iterator[Observation]:
    """A woken task gets its turn soon, also where all CPUs are busy.

    The value is the 90th percentile of how long tasks waited, whether a CPU was idle or not. In
    icount mode even a real-time task waits until the emulator turns to its CPU.
    """
    for place, part in _parts(run):
        if (value := _late(run, place, near=False)) is not None:
            yield Observation(
                value,
                f"one in ten {part.kind} turns waited {value:.2f} ms or longer",
            )  # fmt: skip


def _parts(run: LoadRecording) -> Iterator[tuple[int, Part]]:
    """Give the parts whose tasks sleep time and again, and whose masks stay."""
    if run.load.hotplug or run.load.cpuset:
        return
    for place, part in enumerate(run.load.parts):
        if part.kind in ("sleeper", "waker", "forker") and not part.later:
            yield place, part


def _late(run: LoadRecording, place: int, *, near: bool) -> float | None:
    """Return the 90th percentile, in ms, of how long the turns of a part waited.

    With `near` only what they waited beside an idle CPU of the node that they might use.
    """
    mine = {pid for pid, task in run.load_tasks.items() if task.part == place}
    turns = sum(len(run.runnable[pid][0]) for pid in mine)
    if turns < _FEWEST:
        return None
    if near:
        free = run.free_on(run.load.parts[place].cpus)
        lengths = [
            overlaps(spans, free[node])
            for (pid, node), spans in run.waits_behind.items()
            if pid in mine
        ]
    else:
        lengths = [run.waits[pid][1] - run.waits[pid][0] for pid in mine]
    waited = np.concatenate([np.empty(0, np.int64), *lengths]) / MS
    turn_waits = np.sort(np.append(waited, np.zeros(max(0, turns - len(waited)))))
    return float(turn_waits[int(0.9 * (len(turn_waits) - 1))])
