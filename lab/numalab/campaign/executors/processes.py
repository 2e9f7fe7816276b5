"""Worker processes: each executes one run at a time and reports its phase.

A worker that dies loses only its own run. Workers end with their parent, even after SIGKILL: they
watch a pipe that the parent holds open. Until then they hold the locks of the results, so that no
other numalab resumes these results while a worker still writes to them.
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
from numalab.plugins import Registry, load_plugins

# Not fork: the child would inherit the locks of libvirt's and polars' threads, but no threads.
_CONTEXT = get_context("spawn")
_AGAIN = 1.0  # seconds between two SIGTERMs to a process that should end
_PATIENCE = 90.0  # seconds for a worker to end its guest and to store its files


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
        """End all workers; busy ones store the files of their run first."""
        for worker in self._workers:
            worker.ask_to_end()
        deadline = time.monotonic() + _PATIENCE
        for worker in self._workers:
            worker.end(deadline)


class _Worker:
    """One process and its current run."""

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
        except OSError as error:  # it died while idle; `news` reports it
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
    """`_serve`, in a process that inherits the descriptors of locks."""

    def __init__(self, locks: Sequence[int]) -> None:
        self._locks = locks

    def __getstate__(self) -> dict[str, Any]:
        # Called while the process starts; DupFd works only then.
        return {"locks": [DupFd(lock) for lock in self._locks]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._locks = [lock.detach() for lock in state["locks"]]

    def __call__(self, execute: Execute, pipe: Connection, lifeline: Connection) -> None:
        for lock in self._locks:
            os.set_inheritable(lock, False)
        _serve(execute, pipe, lifeline)


def _serve(execute: Execute, pipe: Connection, lifeline: Connection) -> None:
    """Execute tasks from the pipe until it is closed or SIGTERM arrives."""
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal's reach all; the parent decides
        signal.signal(number, signal.SIG_IGN)
    ending = _Ending()
    signal.signal(signal.SIGTERM, ending.handle)
    threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()
    load_plugins()  # a task may have a shape of a plug-in

    def report(text: str) -> None:
        with suppress(OSError):  # the parent is gone; `_watch` ends the run
            pipe.send(text)

    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            task = pipe.recv()
            ending.interrupts = True
            if ending.received:
                break
            ended = execute(task, report)
            ending.interrupts = False
            pipe.send(ended)


class _Ending:
    """The handler of SIGTERM.

    The first SIGTERM during a run interrupts the run; later ones must not disturb its clean-up.
    Between two runs the handler only sets `received`, and the next task, which may already lie in
    the pipe, does not start. The handler runs in the main thread, between two bytecode
    instructions: either before `interrupts` is set, and `received` is checked after that, or
    after it.
    """

    def __init__(self) -> None:
        self.received = self.interrupts = False

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        first, self.received = not self.received, True
        if first and self.interrupts:
            raise KeyboardInterrupt


def _watch(lifeline: Connection, pause: float = _AGAIN) -> None:
    """Wait until the parent is gone, then send SIGTERM to this process.

    Repeated until the process ends: Python handles signals between two bytecode instructions, so
    a signal just before a blocking system call of the main thread does not interrupt it.
    """
    with suppress(EOFError, OSError):
        lifeline.recv_bytes()
    while True:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(pause)
