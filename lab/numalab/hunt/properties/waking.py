"""Properties of wake-ups and forks: on a machine with idle CPUs, a task runs soon."""

from collections.abc import Iterator

import numpy as np

from numalab.hunt.finding import Finding
from numalab.hunt.intervals import joined, met, total
from numalab.hunt.properties.tolerances import Tolerances
from numalab.hunt.recording import MS, LoadRecording

LATENCY = "wake-up-latency"
LOST_TIME = "lost-time"
_FEWEST = 20  # waits, for a percentile to mean something


def latency(run: LoadRecording, limits: Tolerances) -> Iterator[Finding]:
    """Where at most half of the CPUs are wanted at once, a woken or new task runs soon.

    The value is the 90th percentile of how long tasks waited while a CPU was idle that might have
    run them, of all their turns.
    """
    load = run.load
    cpus = run.machine.cpu_count
    if load.hotplug or load.cpuset or 2 * load.tasks > cpus:
        return
    for place, part in enumerate(load.parts):
        if part.kind not in ("sleeper", "waker", "forker") or part.later:
            continue
        free = joined(run.idle[cpu] for cpu in part.cpus if cpu in run.idle)
        mine = [pid for pid, task in run.tasks.items() if task.part == place]
        waited: list[float] = []
        turns = 0
        for pid in mine:
            turns += len(run.runnable[pid][0])
            start, end = run.waits[pid]
            for low, high in zip(start.tolist(), end.tolist(), strict=True):
                one = (np.array([low], np.int64), np.array([high], np.int64))
                waited.append(total(met(one, free)) / MS)
        if turns < _FEWEST:
            continue
        each = np.sort(np.array([*waited, *[0.0] * max(0, turns - len(waited))]))
        value = float(each[int(0.9 * (len(each) - 1))])
        yield Finding(
            LATENCY, run.number, round(value, 3), limits.late_ms,
            f"one in ten {part.kind} turns waited {value:.2f} ms or longer while a CPU was idle",
        )  # fmt: skip


def lost_time(run: LoadRecording, limits: Tolerances) -> Iterator[Finding]:
    """Tasks that sleep or fork do not wait for most of their time while a CPU is idle.

    Not beside hogs, behind which they may well wait.
    """
    load = run.load
    if load.hotplug or load.cpuset or any(part.kind == "hog" for part in load.parts):
        return
    for place, part in enumerate(run.load.parts):
        if part.kind not in ("sleeper", "waker", "forker") or part.later:
            continue
        mine = [pid for pid, task in run.tasks.items() if task.part == place]
        free = joined(run.idle[cpu] for cpu in part.cpus if cpu in run.idle)
        ready = sum(total(run.runnable[pid]) for pid in mine)
        lost = sum(total(met(run.waits[pid], free)) for pid in mine)
        if ready < 50 * MS:
            continue
        yield Finding(
            LOST_TIME, run.number, round(lost / ready, 4), limits.lost_share,
            f"{part.kind} tasks waited for {100 * lost / ready:.1f} % of the time in which they"
            f" were runnable ({lost / MS:.0f} ms) while a CPU was idle that may run them",
        )  # fmt: skip
