"""A campaign: cases of several targets in processes, until their seeds or the time are used up.

The next case is always one of the target that has had the least time, so that every target gets
the same share of a given time, however long its cases take.
"""

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import NoReturn

from fuzz.runner import CaseResult, modules, run_case

MOST_WALL = 1800.0  # seconds for one case, far above MOST_SECONDS of CPU time
LAST_CASES = 60.0  # seconds that running cases get after the end of the time


@dataclass
class Target:
    """A module of cases with its next seed, and the figures so far."""

    name: str
    seed: int
    left: float  # number of cases, infinite where only the time bounds them
    first: int = 0
    cases: int = 0
    cpu: float = 0.0
    wall: float = 0.0
    charged: float = 0.0  # wall time, that of running cases included
    outcomes: Counter[str] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.first = self.seed

    def add(self, seed: int, result: CaseResult) -> None:
        """Count one case."""
        self.cases += 1
        self.cpu += result.cpu
        self.wall += result.wall
        if result.failure:
            self.failed[seed] = result.failure
        else:
            self.outcomes[result.outcome] += 1

    def line(self) -> str:
        """Return the figures in one line."""
        outcomes = ", ".join(f"{number} {name}" for name, number in sorted(self.outcomes.items()))
        seeds = f"seeds {self.first} to {self.seed - 1}" if self.cases else "no seeds"
        return (
            f"{self.name}: {self.cases} cases, {seeds}, {self.cpu:.0f} s CPU, {self.wall:.0f} s"
            f" wall, {len(self.failed)} failed: {outcomes or 'no outcome'}"
        )


def repeat_command(name: str, seed: int) -> str:
    """Return the command that runs one case again."""
    return f"make fuzz ONLY={name} SEED={seed} CASES=1"


class _Worker:
    """A process that runs one case at a time."""

    def __init__(self) -> None:
        # Not fork: the child would have the locks of polars' threads, but not the threads.
        context = get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other,))
        self.process.start()
        other.close()
        self.target: Target | None = None
        self.seed = 0
        self.began = 0.0

    def start(self, target: Target) -> None:
        self.target, self.seed, self.began = target, target.seed, time.monotonic()
        target.seed += 1
        target.left -= 1
        self.pipe.send((target.name, self.seed))

    def result(self) -> CaseResult:
        """Return the result of the case, or how its process ended instead."""
        assert self.target is not None
        wall = time.monotonic() - self.began
        try:
            received: CaseResult = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            reason = f"its process ended with {self.process.exitcode}"
            return CaseResult(failure=f"{self.target.name}, seed {self.seed}: {reason}", wall=wall)
        return received

    def stop(self) -> None:
        self.process.terminate()
        self.process.join(10)
        self.process.kill()
        self.process.join()


def run_campaign(
    targets: list[Target], jobs: int, seconds: float | None, tell: Callable[[str], None]
) -> bool:
    """Run cases; return False where Ctrl-C ended it. The figures are in the targets."""
    deadline = None if seconds is None else time.monotonic() + seconds
    workers: list[_Worker] = []
    try:
        workers += [_Worker() for _ in range(jobs)]
        while True:
            over = deadline is not None and time.monotonic() >= deadline
            for worker in workers:
                if worker.target is None and not over and (target := _next(targets, workers)):
                    worker.start(target)
            busy = {worker.pipe: worker for worker in workers if worker.target is not None}
            if not busy or (over and deadline is not None
                            and time.monotonic() >= deadline + LAST_CASES):  # fmt: skip
                return True
            _collect(busy, workers, tell)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return False
    finally:
        for worker in workers:
            worker.stop()


def _next(targets: list[Target], workers: list[_Worker]) -> Target | None:
    """Return the target with the least time, running cases included."""
    now = time.monotonic()
    for target in targets:
        running = [worker for worker in workers if worker.target is target]
        target.charged = target.wall + sum(now - worker.began + 1.0 for worker in running)
    waiting = [target for target in targets if target.left > 0]
    return min(waiting, key=lambda target: target.charged, default=None)


def _collect(
    busy: Mapping[Connection, _Worker], workers: list[_Worker], tell: Callable[[str], None]
) -> None:
    """Wait a moment, count the cases that have ended, and replace processes that are gone."""
    ready = wait(list(busy), timeout=1.0)
    for pipe, worker in busy.items():
        if pipe not in ready:
            if time.monotonic() - worker.began < MOST_WALL:
                continue
            worker.process.kill()  # its pipe then says so
        target, result = worker.target, worker.result()
        assert target is not None
        target.add(worker.seed, result)
        again = f"again: {repeat_command(target.name, worker.seed)}"
        tell(f"{result.traceback or result.failure}\n{again}" if result.failure else "")
        worker.target = None
        if not worker.process.is_alive():
            workers[workers.index(worker)] = _Worker()


def _serve(pipe: Connection) -> None:
    """Run the cases that the pipe names, until it is closed or SIGTERM comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the campaign, which ends this
    signal.signal(signal.SIGTERM, _end)
    cases = modules()
    while True:
        try:
            name, seed = pipe.recv()
        except EOFError:
            return
        pipe.send(run_case(name, cases[name], seed))


def _end(_number: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)
