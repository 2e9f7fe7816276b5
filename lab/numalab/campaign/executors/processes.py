"""Worker processes: each executes one run at a time and reports its phase.

A worker that dies loses only its own run. Workers hold the locks of the results, so that no other
numalab resumes these results while a worker still writes to them.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Protocol, TypeVar

from numalab.campaign.executors.worker import WorkerProcess, end_workers
from numalab.campaign.schedule import Capacity
from numalab.campaign.task import Ended, Execute, Task
from numalab.errors import HostError
from numalab.plugins import Registry


@dataclass(frozen=True)
class Phase:
    """The current phase of a run, in words."""

    key: str
    text: str


@dataclass(frozen=True)
class Finished:
    """A run has ended; its worker is idle."""

    key: str
    ended: Ended


News = Phase | Finished


class Executor(Protocol):
    """Where runs are executed: processes of this host, or of a cluster."""

    def fits(self, task: Task) -> bool:
        """Return whether a run can start now."""

    def start(self, task: Task) -> None:
        """Start a run that fits."""

    def news(self, seconds: float) -> Sequence[News]:
        """Return new phases and ended runs; wait at most `seconds` for the first."""

    def close(self) -> None:
        """End the active runs, and store their files."""


@dataclass(frozen=True)
class ExecutorRequest:
    """Input of an executor's constructor; `argument` is TEXT of `--executor NAME=TEXT`."""

    argument: str
    say: Callable[[str], None]
    execute: Execute


# None: the campaign starts processes of this host itself.
MakeExecutor = Callable[[ExecutorRequest], Executor | None]
EXECUTORS: Registry[MakeExecutor] = Registry("executor", __package__, first=("processes",))
Make = TypeVar("Make", bound=Callable[..., Any])


def register_executor(name: str) -> Callable[[Make], Make]:
    """Add an executor, which `numalab run --executor NAME` selects; a decorator.

    It decorates a class with the methods of `Executor`, or a function that makes one, from an
    `ExecutorRequest`. Its attribute `places` is the number of runs at once, 1 without
    it. Raises UserError for a name that is taken.
    """

    def add(make: Make) -> Make:
        EXECUTORS.add(name, make, make)
        return make

    return add


@register_executor("processes")
def processes(_request: ExecutorRequest) -> None:
    """Run guests in processes of this host, the default."""


class Workers:
    """An executor of processes on this host; starts a process when all are busy."""

    def __init__(self, capacity: Capacity, execute: Execute, locks: Sequence[int] = ()) -> None:
        self._capacity = capacity
        self._execute = execute
        self._locks = locks
        self._workers: list[_Worker] = []

    def fits(self, task: Task) -> bool:
        """Return whether a place is free and the host has enough memory and CPUs."""
        running = [worker.task for worker in self._workers if worker.task is not None]
        return self._capacity.fits(task, running)

    def start(self, task: Task) -> None:
        """Start a run in an idle worker, or in a new one."""
        worker = next((idle for idle in self._workers if idle.task is None), None)
        if worker is None:
            worker = _Worker(self._execute, self._locks)
            self._workers.append(worker)
        worker.start(task)

    def news(self, seconds: float) -> list[News]:
        """Return messages of the workers, and the runs of workers that died."""
        busy = {worker.process.pipe: worker for worker in self._workers if worker.task is not None}
        messages: list[News] = []
        ready = wait(list(busy), seconds)
        for worker in [worker for pipe, worker in busy.items() if pipe in ready]:
            try:
                messages.append(worker.receive())
            except (EOFError, OSError):
                messages.append(worker.died())
                self._workers.remove(worker)
        return messages

    def close(self) -> None:
        """End all workers; busy ones store the files of their run first."""
        end_workers([worker.process for worker in self._workers])


class _Worker:
    """One process and its current run."""

    def __init__(self, execute: Execute, locks: Sequence[int]) -> None:
        self.process = WorkerProcess(execute, locks)
        self.task: Task | None = None
        self._began = 0.0

    def start(self, task: Task) -> None:
        self.task, self._began = task, time.monotonic()
        self.process.start(task)  # `news` reports one that died while it was idle

    def receive(self) -> News:
        assert self.task is not None
        key, message = self.task.key, self.process.receive()
        if isinstance(message, str):
            return Phase(key, message)
        self.task = None
        return Finished(key, message.get())

    def died(self) -> Finished:
        assert self.task is not None
        reason = f"the process that executed it was ended {self.process.death()}"
        seconds = time.monotonic() - self._began
        ended = Ended(self.task.run.id, seconds, reason, HostError.exit_code, by_host=True)
        return Finished(self.task.key, ended)
