"""The assignment of runs to the workers of a cluster."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from numalab.campaign.task import Task
from numalab.machine.model import DETERMINISTIC

RESERVE_MIB = 512  # of a host's memory, for everything else on it


@dataclass(frozen=True)
class WorkerHost:
    """The host of a worker.

    `name` is the machine (with its cache), `kind` the hardware and software that affect timing.
    `error` is the reason why it cannot execute runs. `plugins` are those that it has imported.
    """

    name: str
    kind: str
    cpus: int
    memory_mib: int
    kvm: bool
    qemu: str
    numalab: str
    error: str = ""
    plugins: tuple[str, ...] = ()


@dataclass
class Worker:
    """A worker: its host, its number of places, and its runs."""

    address: str
    host: WorkerHost
    places: int
    running: dict[str, Task] = field(default_factory=dict)


class Assignment:
    """The workers, their runs, and the runs that are bound to a host."""

    def __init__(self) -> None:
        self.workers: dict[str, Worker] = {}
        self._idle: dict[str, Worker] = {}
        self._memory: dict[str, int] = {}
        self._bound: dict[tuple[str, ...], str] = {}
        self._where: dict[str, Worker] = {}

    def add(self, worker: Worker) -> None:
        """Add a worker."""
        self.workers[worker.address] = worker
        self._idle[worker.address] = worker
        self._memory.setdefault(worker.host.name, 0)

    def remove(self, address: str) -> list[Task]:
        """Remove a worker; return its runs.

        After the last worker of a host, runs are no longer bound to this host.
        """
        worker = self.workers.pop(address)
        self._idle.pop(address, None)
        lost = list(worker.running.values())
        for task in lost:
            self.release(task.key)
        if all(other.host.name != worker.host.name for other in self.workers.values()):
            gone = (worker.host.name, worker.host.kind)
            kinds = {other.host.kind for other in self.workers.values()}
            self._bound = {
                group: value
                for group, value in self._bound.items()
                if value not in gone or (group[0] == "kind" and value in kinds)
            }
        return lost

    def choose(self, task: Task) -> Worker | None:
        """Return the least busy worker that may execute a run, or None."""
        able = (worker for worker in self._idle.values() if self._may(task, worker))
        return min(able, key=lambda worker: len(worker.running) / worker.places, default=None)

    def take(self, task: Task, worker: Worker) -> None:
        """Assign a run to a worker."""
        for group, value in _bindings(task, worker):
            self._bound.setdefault(group, value)
        worker.running[task.key] = task
        self._where[task.key] = worker
        self._memory[worker.host.name] += task.memory_mib
        if len(worker.running) >= worker.places:
            self._idle.pop(worker.address, None)

    def worker_of(self, key: str) -> Worker | None:
        """Return the worker of a run; None where it has none."""
        return self._where.get(key)

    def release(self, key: str) -> None:
        """Release a run from its worker."""
        worker = self._where.pop(key)
        task = worker.running.pop(key)
        self._memory[worker.host.name] -= task.memory_mib
        if worker.address in self.workers:
            self._idle[worker.address] = worker

    def _may(self, task: Task, worker: Worker) -> bool:
        beside = self._memory[worker.host.name]
        if beside and beside + task.memory_mib > worker.host.memory_mib - RESERVE_MIB:
            return False
        if task.setting.choice.mode == "kvm" and not worker.host.kvm:
            return False
        return all(
            self._bound.get(group, value) == value for group, value in _bindings(task, worker)
        )


def _bindings(task: Task, worker: Worker) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what must be the same for runs that are compared, where time is that of the host: the
    host for the variants of a repetition, the kind of host for all runs of a cell."""
    if task.setting.choice.mode in DETERMINISTIC:
        return
    cell = (str(task.results.path), task.run.cell.name)
    yield ("kind", *cell), worker.host.kind
    yield ("host", *cell, str(task.run.seed)), worker.host.name
