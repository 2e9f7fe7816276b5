"""A process that executes one job at a time, over a pipe of its own.

Workers share no lock: one that is interrupted cannot keep the others, or its parent, waiting. They
end with their parent, even after SIGKILL: they watch a pipe that the parent holds open. Until then
they hold the locks that they were started with.
"""

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import DupFd
from types import FrameType
from typing import Any

from numalab.plugins import load_plugins
from numalab.process import signal_name

# Not fork: the child would inherit the locks of libvirt's and polars' threads, but no threads.
_CONTEXT = get_context("spawn")
_AGAIN = 1.0  # seconds between two SIGTERMs to a process that should end
END_S = 90.0  # for a worker to end its guest and to store its files

# Executes a job; the second argument takes words about its progress.
Execute = Callable[[Any, Callable[[str], None]], Any]


@dataclass(frozen=True)
class Done:
    """A job has ended: its result, or the exception that it raised."""

    result: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        """Return the result, or raise the exception."""
        if self.error is not None:
            raise self.error
        return self.result


@contextmanager
def _without_current_folder() -> Iterator[None]:
    """Start Python meanwhile without the current folder on its path, as by `python -P`.

    `python -c`, by which multiprocessing starts a worker, would import its own modules from there:
    anybody's files in /tmp, or what a guest returned.
    """
    name = "PYTHONSAFEPATH"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


class WorkerProcess:
    """One process. `busy`: it executes a job."""

    def __init__(self, execute: Execute, locks: Sequence[int] = ()) -> None:
        self.busy = False
        self.pipe, theirs = _CONTEXT.Pipe()
        lifeline, self._lifeline = _CONTEXT.Pipe(duplex=False)
        self._process: SpawnProcess = _CONTEXT.Process(
            target=_LockedServe(locks), args=(execute, theirs, lifeline), daemon=False
        )
        with _without_current_folder():
            self._process.start()
        theirs.close()
        lifeline.close()

    def start(self, job: Any) -> None:
        """Start a job in an idle worker. One that died raises EOFError in `receive`."""
        self.busy = True
        with suppress(BrokenPipeError, ConnectionError):
            self.pipe.send(job)

    def receive(self) -> str | Done:
        """Return words about the job, or its end. Raises EOFError or OSError for a dead worker."""
        message: str | Done = self.pipe.recv()
        if isinstance(message, Done):
            self.busy = False
        return message

    def death(self) -> str:
        """Write how a worker that died ended: `by SIGKILL`, or its exit code."""
        self._process.join(5)
        code = self._process.exitcode
        return f"by {signal_name(-code)}" if code is not None and code < 0 else f"({code})"

    def ask_to_end(self) -> None:
        """Interrupt the job, if there is one, and let the worker end."""
        if self.busy:
            self._process.terminate()
        self.pipe.close()
        self._lifeline.close()

    def end(self, deadline: float) -> None:
        """Wait until the worker has ended, and kill it at `deadline` (monotonic time)."""
        self._process.join(max(0.1, deadline - time.monotonic()))
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def end_workers(workers: Sequence[WorkerProcess]) -> None:
    """End all workers; busy ones end their guests and store their files first."""
    for worker in workers:
        worker.ask_to_end()
    deadline = time.monotonic() + END_S
    for worker in workers:
        worker.end(deadline)


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
    """Execute jobs from the pipe until it is closed or SIGTERM arrives."""
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal's reach all; the parent decides
        signal.signal(number, signal.SIG_IGN)
    ending = _Ending()
    signal.signal(signal.SIGTERM, ending.handle)
    threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()
    load_plugins()  # a job may have a shape of a plug-in

    def report(text: str) -> None:
        with suppress(OSError):  # the parent is gone; `_watch` ends the job
            pipe.send(text)

    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            job = pipe.recv()
            ending.interrupts = True
            if ending.received:
                break
            done = _executed(execute, job, report)
            ending.interrupts = False
            pipe.send(done)


def _executed(execute: Execute, job: Any, report: Callable[[str], None]) -> Done:
    try:
        return Done(execute(job, report))
    except Exception as error:  # the parent raises it, for --debug with where it came from
        error.add_note(f"In the worker:\n{traceback.format_exc()}")
        return Done(error=error)


class _Ending:
    """The handler of SIGTERM.

    The first SIGTERM during a job interrupts the job; later ones must not disturb its clean-up.
    Between two jobs the handler only sets `received`, and the next job, which may already lie in
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
