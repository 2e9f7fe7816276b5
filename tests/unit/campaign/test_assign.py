"""Which worker of a cluster gets which run."""

import heapq
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.campaign.execute import TaskEvent, run_tasks
from numalab.campaign.executors.assign import RESERVE_MIB, Assignment, Worker, WorkerHost
from numalab.campaign.executors.processes import Finished, News
from numalab.campaign.task import Ended, Task
from support.fake_executor import MATRIX, ready, tasks


def host(
    name: str, kind: str = "xeon", memory_mib: int = 1 << 20, *, kvm: bool = True
) -> WorkerHost:
    return WorkerHost(name, kind, 8, memory_mib, kvm, "QEMU 7.2", "1")


def in_kvm(task: Task) -> Task:
    choice = replace(task.setting.choice, mode="kvm")
    return replace(task, setting=replace(task.setting, choice=choice))


@pytest.fixture
def every(tmp_path: Path) -> Sequence[Task]:
    return tasks(ready(tmp_path))


def test_the_least_busy_worker_gets_the_next_run(every: Sequence[Task]) -> None:
    assignment = Assignment()
    for name, places in (("a", 1), ("b", 2)):
        assignment.add(Worker(name, host(name), places))
    addresses = []
    for task in every[:3]:
        worker = assignment.choose(task)
        assert worker is not None
        assignment.take(task, worker)
        addresses.append(worker.address)
    assert sorted(addresses) == ["a", "b", "b"]
    assert assignment.choose(every[3]) is None
    assignment.release(every[0].key)
    assert assignment.choose(every[3]) is not None


def test_memory_is_that_of_the_host_not_of_each_worker(every: Sequence[Task]) -> None:
    assignment = Assignment()
    size = every[0].memory_mib
    for name in ("a", "b"):
        assignment.add(Worker(name, host("one", memory_mib=size + RESERVE_MIB), 1))
    first = assignment.choose(every[0])
    assert first is not None
    assignment.take(every[0], first)
    assert assignment.choose(every[1]) is None
    assignment.add(Worker("c", host("two", memory_mib=1), 1))
    assert assignment.choose(every[1]) is not None  # alone it may try, and fails by itself


def test_variants_of_a_repetition_stay_on_a_host_and_a_cell_on_one_kind(
    every: Sequence[Task],
) -> None:
    before, after = in_kvm(every[0]), in_kvm(every[1])
    assert (before.run.variant, after.run.variant) == ("before", "after")
    assignment = Assignment()
    assignment.add(Worker("a", host("a"), 1))
    assignment.add(Worker("b", host("b"), 1))
    assignment.add(Worker("c", host("c", "epyc"), 1))
    assignment.take(before, assignment.workers["a"])
    assert assignment.choose(after) is None  # its place is taken, and no other host will do
    next_seed = next(in_kvm(t) for t in every if t.run.seed == 2 and t.run.cell == before.run.cell)
    assert assignment.choose(next_seed) is assignment.workers["b"]
    assignment.take(next_seed, assignment.workers["b"])
    third = next(in_kvm(t) for t in every if t.run.seed == 3 and t.run.cell == before.run.cell)
    assert assignment.choose(third) is None  # only the other kind is free
    other_cell = next(in_kvm(t) for t in every if t.run.cell != before.run.cell)
    assert assignment.choose(other_cell) is assignment.workers["c"]
    assert assignment.choose(every[1]) is assignment.workers["c"]  # in icount mode all are alike
    assignment.release(before.key)
    assert assignment.choose(after) is assignment.workers["a"]


def test_runs_of_a_worker_that_is_gone_are_free_to_go_elsewhere(every: Sequence[Task]) -> None:
    before, after = in_kvm(every[0]), in_kvm(every[1])
    assignment = Assignment()
    assignment.add(Worker("a", host("a"), 1))
    assignment.add(Worker("b", host("b"), 1))
    assignment.take(before, assignment.workers["a"])
    assert assignment.remove("a") == [before]
    assert assignment.choose(before) is assignment.workers["b"]
    assert assignment.choose(after) is assignment.workers["b"]


def test_a_worker_without_kvm(every: Sequence[Task]) -> None:
    assignment = Assignment()
    assignment.add(Worker("a", host("a", kvm=False), 1))
    assert assignment.choose(in_kvm(every[0])) is None
    assert assignment.choose(every[0]) is not None


class Simulated:
    """A cluster in virtual time: runs sleep, and what the bookkeeping takes passes as well."""

    def __init__(self, workers: int, seconds: float) -> None:
        self.assignment = Assignment()
        for number in range(workers):
            self.assignment.add(Worker(f"w{number}", host(f"h{number // 4}"), 1))
        self.now = self.busy = 0.0
        self._seconds, self._count = seconds, 0
        self._ends: list[tuple[float, int, Task]] = []
        self._looked = time.monotonic()

    def fits(self, task: Task) -> bool:
        return self.assignment.choose(task) is not None

    def start(self, task: Task) -> None:
        worker = self.assignment.choose(task)
        assert worker is not None
        self.assignment.take(task, worker)
        self._count += 1
        length = self._seconds * (0.5 + (self._count * 7919 % 1000) / 1000)
        self.busy += length
        heapq.heappush(self._ends, (self.now + length, self._count, task))

    def news(self, seconds: float) -> Sequence[News]:
        self.now += time.monotonic() - self._looked
        end, _, task = heapq.heappop(self._ends)
        self.now = max(self.now, end)
        self.assignment.release(task.key)
        self._looked = time.monotonic()
        return [Finished(task.key, Ended(task.run.id, 1.0))]

    def close(self) -> None:
        """Nothing is open."""


def test_workers_are_kept_busy(tmp_path: Path) -> None:
    """`tests/bench/scale.py` does this with 100,000 runs on 500 workers."""
    seeds = list(range(1, 126))
    study = ready(tmp_path, MATRIX.replace("[1, 2, 3]", str(seeds)))
    executor = Simulated(20, seconds=20.0)
    ended: list[TaskEvent] = []
    assert run_tasks(tasks(study), executor, ended.append) == ()
    assert sum(event.kind == "done" for event in ended) == 1000
    assert executor.busy / (20 * executor.now) > 0.9
