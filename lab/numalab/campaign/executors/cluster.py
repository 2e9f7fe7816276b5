"""An executor of workers on other hosts, by dask.distributed (the extra `numalab[cluster]`).

numalab chooses the worker of each run; Dask only transports it. A pair of variants stays on one
host, kinds of hosts are not mixed, and a lost worker loses only its own runs.
"""

import queue
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numalab.artifact.digest import hash_file
from numalab.campaign.executors.assign import Assignment, Worker, WorkerHost
from numalab.campaign.executors.processes import (
    ExecutorRequest,
    Finished,
    News,
    register_executor,
)
from numalab.campaign.executors.remote import (
    Delivered,
    Shipped,
    describe_host,
    execute_here,
    has_file,
    take_chunk,
)
from numalab.campaign.run_task import run_task
from numalab.campaign.task import Ended, Execute, Task
from numalab.errors import HostError, LabError, UserError, shown
from numalab.results.archive import unpack_folder
from numalab.units import runs_of

CHUNK = 4 << 20  # bytes
ANSWER = 15.0  # seconds for a scheduler to answer
PATIENCE = 120.0  # seconds in which no worker may take a run
TRIES = 3  # of a run whose result does not arrive, although its worker is there
_BROKEN = (OSError, TimeoutError, ValueError)  # raised by calls to a cluster that fails


@dataclass(frozen=True)
class Refused:
    """A worker that gets no runs, with the reason."""

    address: str
    reason: str


@register_executor("cluster")
def cluster(request: ExecutorRequest) -> "Cluster":
    """Run guests on the workers of a Dask scheduler: `--executor cluster=ADDRESS`."""

    def refused(worker: Refused) -> None:
        request.say(f"worker {worker.address}: refused, {worker.reason}")

    executor = Cluster(request.argument, request.execute, refused)
    request.say(f"cluster {request.argument}: {runs_of(executor.places)} at once")
    return executor


class Cluster:
    """An `Executor` on the workers of a Dask scheduler."""

    def __init__(
        self,
        address: str,
        execute: Execute = run_task,
        on_refused: Callable[[Refused], None] | None = None,
    ) -> None:
        """Connect to a scheduler. Raises HostError where there is none, or the extra is missing."""
        self._address = address
        self._client = _connect(address)
        self._execute = execute
        self._on_refused = on_refused or (lambda refused: None)
        self._me = uuid.uuid4().hex[:12]
        self._here = describe_host()
        self._reference = self._here.qemu
        self._refused: dict[str, Refused] = {}
        self._assignment = Assignment()
        self._tasks: dict[str, Task] = {}
        self._futures: dict[str, Any] = {}
        self._unsent: dict[str, str] = {}
        self._ended: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._hashes: dict[Path, str] = {}
        self._shipped: set[tuple[str, str]] = set()
        self._alone_since: float | None = None
        self._lost = self._look()

    @property
    def places(self) -> int:
        """The number of runs that the workers can execute at once."""
        return sum(worker.places for worker in self._assignment.workers.values())

    def fits(self, task: Task) -> bool:
        """Return whether a worker may take the run now."""
        return self._assignment.choose(task) is not None

    def start(self, task: Task) -> None:
        """Send a run to a worker, with the files that its host lacks."""
        worker = self._assignment.choose(task)
        assert worker is not None
        self._assignment.take(task, worker)
        self._alone_since = None
        self._tasks[task.key] = task
        try:
            future = self._client.submit(
                execute_here,
                task,
                tuple(self._files(task, worker)),
                self._execute,
                key=f"numalab-{self._me}-{task.run.id}-{uuid.uuid4().hex[:8]}",
                workers=[worker.address],
                allow_other_workers=False,
                retries=0,
                pure=False,
            )
        except (LabError, *_BROKEN) as error:
            self._unsent[task.key] = str(error)
            self._ended.put((task.key, None))
            return
        self._futures[task.key] = future
        future.add_done_callback(lambda done, key=task.key: self._ended.put((key, done)))

    def news(self, seconds: float) -> Sequence[News]:
        """Return the runs that have ended or whose worker is lost."""
        received: list[News] = []
        with suppress(queue.Empty):
            key, future = self._ended.get(timeout=seconds)
            while True:
                if key in self._tasks and future is self._futures.get(key):
                    received.append(self._collect(key))
                key, future = self._ended.get_nowait()
        for task in [*self._lost, *self._look()]:
            if task.key in self._tasks:
                received.append(self._give_up(task.key, "its worker is gone", lost=True))
        self._lost = []
        self._check_alone()
        return received

    def close(self) -> None:
        """Cancel all runs and disconnect; a running guest ends by itself."""
        with suppress(Exception):
            self._client.cancel(list(self._futures.values()), force=True)
        with suppress(Exception):
            self._client.close(timeout=5)

    def _look(self) -> list[Task]:
        """Update the workers; return the runs of lost workers."""
        present = self._scheduler_workers()
        gone = set(self._assignment.workers) - set(present)
        lost = [task for address in gone for task in self._assignment.remove(address)]
        registered = {*self._assignment.workers, *self._refused}
        for address in set(present) - registered:
            self._welcome(address, int(present[address]["nthreads"]))
        return lost

    def _scheduler_workers(self) -> Mapping[str, Any]:
        """Return the scheduler's records of its workers, by address; none without a scheduler.

        Not `Client.scheduler_info`: it returns a stored answer, which the client's own updates,
        every two seconds, replace by one without workers (distributed 2026.8).
        """
        scheduler = self._client.scheduler
        if self._client.status != "running" or scheduler is None:
            return {}
        try:
            received: Mapping[str, Any] = self._client.sync(scheduler.identity, n_workers=-1)
        except _BROKEN:
            return {}
        workers: Mapping[str, Any] = received["workers"]
        return workers

    def _welcome(self, address: str, places: int) -> None:
        try:
            host: WorkerHost = self._client.run(describe_host, workers=[address])[address]
        except (*_BROKEN, KeyError):
            return  # gone again or not ready; the next call of `_look` tries again
        except Exception as error:  # Dask raises here what the worker raised
            reason = f"it cannot tell what it is: {shown(error)}"
        else:
            reason = self._why_not(host)
        if reason:
            self._refused[address] = Refused(address, reason)
            self._on_refused(self._refused[address])
        else:
            self._assignment.add(Worker(address, host, places))

    def _why_not(self, host: WorkerHost) -> str:
        """Return why a worker is refused; its QEMU must be ours or the first worker's."""
        if host.error:
            return host.error
        if host.numalab != self._here.numalab:
            return f"it runs numalab {host.numalab}, this side {self._here.numalab}"
        if lacking := [name for name in self._here.plugins if name not in host.plugins]:
            names = ", ".join(lacking)
            return f"it lacks this side's plug-in {names}; start it in a copy of the lab folder"
        self._reference = self._reference or host.qemu
        if host.qemu != self._reference:
            return (
                f"it has {host.qemu}, this side {self._reference}:"
                " in icount mode their runs would not be the same"
            )
        return ""

    def _collect(self, key: str) -> Finished:
        """Unpack the folder of a run into the results."""
        task, future = self._tasks[key], self._futures.get(key)
        if future is None or future.status != "finished":
            why = f"it was not executed to its end: {self._error_of(key)}"
            return self._give_up(key, why, lost=self._is_gone(key))
        try:
            delivered: Delivered = future.result(timeout=60)
            _take_in(task, delivered)
        except (LabError, *_BROKEN) as error:
            why = f"its result did not arrive: {error}"
            return self._give_up(key, why, lost=self._is_gone(key))
        self._forget(key)
        return Finished(key, delivered.ended)

    def _error_of(self, key: str) -> str:
        """Return why a run was not sent, or what its worker raised."""
        if (future := self._futures.get(key)) is None:
            return self._unsent.pop(key, "")
        try:
            future.result(timeout=ANSWER)  # `exception` gives None for a cancelled one
        except Exception as error:
            return shown(str(error) or type(error).__name__)
        return ""

    def _is_gone(self, key: str) -> bool:
        worker = self._assignment.worker_of(key)
        return worker is None or worker.address not in self._scheduler_workers()

    def _give_up(self, key: str, reason: str, *, lost: bool) -> Finished:
        if (future := self._futures.get(key)) is not None:
            with suppress(Exception):
                self._client.cancel([future], force=True)
        run = self._tasks[key].run.id
        self._forget(key)
        code = HostError.exit_code
        ended = Ended(run, 0.0, reason, code, by_host=True, lost=lost, tries=TRIES)
        return Finished(key, ended)

    def _forget(self, key: str) -> None:
        self._tasks.pop(key)
        self._futures.pop(key, None)
        with suppress(KeyError):  # its worker was removed with it
            self._assignment.release(key)

    def _check_alone(self) -> None:
        """Raise HostError when the scheduler is gone, or no worker takes a run for too long."""
        if self._tasks:
            self._alone_since = None
            return
        if self._client.status == "closed":  # it has given up to connect again
            raise HostError(
                f"the scheduler at {self._address} is gone",
                hint="start it and workers, then the same command with --resume",
            )
        self._alone_since = self._alone_since or time.monotonic()
        if time.monotonic() - self._alone_since > PATIENCE:
            reasons = [
                f"\n  {refusal.address}: {refusal.reason}" for refusal in self._refused.values()
            ]
            workers = self._assignment.workers.values()
            reasons += [f"\n  {at.address}: it has no KVM" for at in workers if not at.host.kvm]
            raise HostError(
                f"the cluster has no worker that can run this{''.join(reasons)}",
                hint="start workers, then the same command with --resume",
            )

    def _files(self, task: Task, worker: Worker) -> Iterator[Shipped]:
        files = {"bzimage": task.built.bzimage, "rootfs": task.rootfs}
        if task.built.initrd is not None:
            files["initrd"] = task.built.initrd
        if (emulator := task.setting.choice.emulator) is not None:
            files["emulator"] = emulator.program
        for role, path in files.items():
            sha256 = self._hash(path)
            self._ship(path, sha256, worker)
            yield Shipped(role, sha256)

    def _hash(self, path: Path) -> str:
        if path not in self._hashes:
            self._hashes[path] = hash_file(path)
        return self._hashes[path]

    def _ship(self, path: Path, sha256: str, worker: Worker) -> None:
        """Send a file to a host that lacks it, once; its content is checked there."""
        if (worker.host.name, sha256) in self._shipped:
            return
        if not self._on(worker, has_file, sha256):
            size = path.stat().st_size
            with path.open("rb") as file:
                while data := file.read(CHUNK):
                    last = file.tell() == size
                    wrong = self._on(worker, take_chunk, sha256, self._me, data, last=last)
                    if wrong:
                        raise OSError(f"{path.name} {wrong}")
        self._shipped.add((worker.host.name, sha256))

    def _on(self, worker: Worker, function: Callable[..., Any], *words: Any, **more: Any) -> Any:
        return self._client.run(function, *words, workers=[worker.address], **more)[worker.address]


def _take_in(task: Task, delivered: Delivered) -> None:
    """Unpack a run's folder into the results, unless a second worker has finished it."""
    targets = (task.results.run(task.run.id), task.results.failed(task.run.id))
    if not delivered.folder or targets[0].manifest.exists():
        return
    for target in targets:
        if target.path.name == delivered.folder:
            unpack_folder(delivered.data, target.path)
            return
    raise UserError(f"a worker named a run {delivered.folder[:80]!r}")


def check_address(address: str, option: str = "--executor") -> None:
    """Raise UserError for a text that is no address of a scheduler."""
    if not re.fullmatch(r"(tcp|tls)://.+:\d+|[^/:]+:\d+", address):
        raise UserError(
            f"{address!r} is not HOST:PORT, tcp://HOST:PORT or tls://HOST:PORT", key=option
        )


def _connect(address: str) -> Any:
    check_address(address)
    try:
        import distributed  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise HostError(
            "dask.distributed is not installed", hint='pip install "numalab[cluster]"'
        ) from None
    try:
        client: Any = distributed.Client  # it has no annotations
        return client(address, timeout=ANSWER, set_as_default=False)
    except _BROKEN as error:
        raise HostError(f"no scheduler answers at {address}: {error}") from None
