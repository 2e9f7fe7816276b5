"""In which order runs start, which fit beside each other, and how long all of them take."""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from numalab.campaign.task import Task


@dataclass(frozen=True)
class Capacity:
    """How many runs, and how much of the host's memory and CPUs, at most at once."""

    places: int
    memory_mib: int
    cpus: int

    def fits(self, task: Task, running: Iterable[Task]) -> bool:
        """Say whether a run may start beside others. Alone, each may: it then fails by itself."""
        beside = list(running)
        if not beside:
            return True
        memory = task.memory_mib + sum(each.memory_mib for each in beside)
        cpus = task.cpus + sum(each.cpus for each in beside)
        return len(beside) < self.places and memory <= self.memory_mib and cpus <= self.cpus


def longest_first(tasks: Sequence[Task], seconds: Callable[[Task], float]) -> list[Task]:
    """Order runs so that the longest start first and the variants of a repetition stay together.

    A long run that starts last would leave the other places idle (R. L. Graham, SIAM J. Appl.
    Math. 17, 1969, 416-429).
    """
    groups: dict[tuple[str, str, str, int], list[Task]] = {}
    for task in tasks:
        run = task.run
        group = (str(task.results.path), run.topology, run.workload, run.seed)
        groups.setdefault(group, []).append(task)
    order = sorted(groups.values(), key=lambda group: -max(map(seconds, group)))
    return [task for group in order for task in group]


def makespan(seconds: Iterable[float], places: int) -> float:
    """Return how long runs take in this order when each starts as soon as a place is free."""
    return max(then([0.0] * max(1, places), seconds))


def then(ends: Sequence[float], seconds: Iterable[float]) -> list[float]:
    """Return when each place is free after some more runs; `ends` are a heap, before and after."""
    after = list(ends)
    for each in seconds:
        heapq.heapreplace(after, after[0] + each)
    return after
