"""Worker processes: each executes one run at a time and says how far it is.

A worker that dies takes only its run with it. Workers end with the process that started them,
however that ends: they watch a pipe that nobody writes to. Until then they hold the locks of the
results, so that nobody goes on with results while a run of a dead numalab still writes to them.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import DupFd
from types import FrameType
from typing import Any, Protocol, TypeVar

from numalab.campaign.schedule import Capacity
from numalab.campaign.task import Ended, Execute, Task
from numalab.errors import HostError
from numalab.plugins import Registry

# Not fork: libvirt's and polars' threads would not be there in the child, but their locks would.
_CONTEXT = get_context("spawn")
_AGAIN = 1.0  # seconds until a process that was told to end is told again
_PATIENCE = 90.0  # seconds for a worker to end its guest and to keep what it left


@dataclass(frozen=True)
class Phase:
    """What a run does just now, in words."""

    key: str
    text: str


@dataclass(frozen=True)
class Finished:
    """A run has ended; its worker takes the next one."""

    key: str
    ended: Ended


News = Phase | Finished


class Executor(Protocol):
    """Where runs are executed: processes of this host, or of a cluster."""

    def fits(self, task: Task) -> bool:
        """Say whether a run can start now."""

    def start(self, task: Task) -> None:
        """Start a run that fits."""

    def news(self, seconds: float) -> Sequence[News]:
        """Return what the runs have to say, waiting for it at most so long."""

    def close(self) -> None:
        """End the runs that are under way, keeping what they left."""


@dataclass(frozen=True)
class ExecutorRequest:
    """What an executor is made from: `argument` is the text after `=` in `--executor NAME=TEXT`."""

    argument: str
    say: Callable[[str], None]
    execute: Execute


# None stands for processes of this host, which a campaign starts itself.
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
    """An executor of processes on this host, as many as have been needed at once."""

    def __init__(self, capacity: Capacity, execute: Execute, locks: Sequence[int] = ()) -> None:
        self._capacity = capacity
        self._execute = execute
        self._locks = locks
        self._workers: list[_Worker] = []

    def fits(self, task: Task) -> bool:
        """Say whether there is a place for it, and the host has enough for the run."""
        running = [worker.task for worker in self._workers if worker.task is not None]
        return self._capacity.fits(task, running)

    def start(self, task: Task) -> None:
        """Hand a run to an idle worker, or to a new one."""
        worker = next((idle for idle in self._workers if idle.task is None), None)
        if worker is None:
            worker = _Worker(self._execute, self._locks)
            self._workers.append(worker)
        worker.start(task)

    def news(self, seconds: float) -> list[News]:
        """Return what the workers have sent, and whose worker died."""
        busy = {worker.pipe: worker for worker in self._workers if worker.task is not None}
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
        """End all workers; those that execute a run keep what it left."""
        for worker in self._workers:
            worker.ask_to_end()
        deadline = time.monotonic() + _PATIENCE
        for worker in self._workers:
            worker.end(deadline)


class _Worker:
    """One process, and the run that it executes."""

    def __init__(self, execute: Execute, locks: Sequence[int]) -> None:
        self.task: Task | None = None
        self._began = 0.0
        self.pipe, theirs = _CONTEXT.Pipe()
        lifeline, self._lifeline = _CONTEXT.Pipe(duplex=False)
        self._process: SpawnProcess = _CONTEXT.Process(
            target=_LockedServe(locks), args=(execute, theirs, lifeline), daemon=False
        )
        self._process.start()
        theirs.close()
        lifeline.close()

    def start(self, task: Task) -> None:
        self.task, self._began = task, time.monotonic()
        try:
            self.pipe.send(task)
        except OSError as error:  # it died while it was idle; `news` will tell
            if not isinstance(error, BrokenPipeError | ConnectionError):
                raise

    def receive(self) -> News:
        assert self.task is not None
        key, message = self.task.key, self.pipe.recv()
        if isinstance(message, Ended):
            self.task = None
            return Finished(key, message)
        return Phase(key, str(message))

    def died(self) -> Finished:
        assert self.task is not None
        self._process.join(5)
        code = self._process.exitcode
        how = f"by {signal.Signals(-code).name}" if code is not None and code < 0 else f"({code})"
        return Finished(
            self.task.key,
            Ended(
                self.task.run.id,
                time.monotonic() - self._began,
                f"the process that executed it was ended {how}",
                HostError.exit_code,
                by_host=True,
            ),
        )

    def ask_to_end(self) -> None:
        if self.task is not None:
            self._process.terminate()
        self.pipe.close()
        self._lifeline.close()

    def end(self, deadline: float) -> None:
        self._process.join(max(0.1, deadline - time.monotonic()))
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


class _LockedServe:
    """`_serve` in a process that was handed the descriptors of locks."""

    def __init__(self, locks: Sequence[int]) -> None:
        self._locks = locks

    def __getstate__(self) -> dict[str, Any]:
        # Called while the process is started: only then can a descriptor go along.
        return {"locks": [DupFd(lock) for lock in self._locks]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._locks = [lock.detach() for lock in state["locks"]]

    def __call__(self, execute: Execute, pipe: Connection, lifeline: Connection) -> None:
        for lock in self._locks:
            os.set_inheritable(lock, False)
        _serve(execute, pipe, lifeline)


def _serve(execute: Execute, pipe: Connection, lifeline: Connection) -> None:
    """Execute tasks as they come, until there are no more or the process is told to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent decides
    ending = _Ending()
    signal.signal(signal.SIGTERM, ending.hear)
    threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()

    def tell(text: str) -> None:
        with suppress(OSError):  # the parent is gone; `_watch` ends the run
            pipe.send(text)

    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            task = pipe.recv()
            ending.interrupts = True
            if ending.told:
                break
            ended = execute(task, tell)
            ending.interrupts = False
            pipe.send(ended)


class _Ending:
    """Whether this process was told to end (SIGTERM), and what that does to it.

    A run is interrupted, once: what tidies up after it must not be disturbed. Between two runs it
    is only noted, and the next one does not start. That one may lie in the pipe already when the
    parent is killed, so that an empty pipe does not tell. The handler runs in the main thread, as
    runs do, between two of its instructions: it comes before `interrupts` is set, and is seen in
    `told`, or after it, and interrupts.
    """

    def __init__(self) -> None:
        self.told = self.interrupts = False

    def hear(self, _number: int, _frame: FrameType | None) -> None:
        first, self.told = not self.told, True
        if first and self.interrupts:
            raise KeyboardInterrupt


def _watch(lifeline: Connection, pause: float = _AGAIN) -> None:
    """Wait until the parent is gone, then end this process as SIGTERM from it would.

    It is told again until it has ended: Python hears a signal between two of its instructions, and
    one that comes when the main thread is about to wait in the kernel does not wake it.
    """
    with suppress(EOFError, OSError):
        lifeline.recv_bytes()
    while True:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(pause)
