"""Examines cases in processes of this host, and takes from the store what was examined before."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import NoReturn

from numalab.hunt.case import Case
from numalab.hunt.examine import HuntBench, examine
from numalab.hunt.finding import Examined
from numalab.hunt.store import Store

_PATIENCE = 60.0  # seconds for a worker to end its guest
OnExamined = Callable[[Case, Examined], None]


@dataclass
class Examiners:
    """Where cases are examined. `booted` counts the boots that were done, not found."""

    store: Store
    pool: ProcessPoolExecutor
    on_examined: OnExamined
    booted: int = 0

    def examine(self, cases: Sequence[Case], bench: HuntBench, seed: int) -> list[Examined]:
        """Examine cases, as many beside each other as there are workers; results in their order."""
        found = [self.store.find(case, bench, seed) for case in cases]
        waiting: dict[Future[Examined], int] = {
            self.pool.submit(_examine, case, bench, seed): place
            for place, case in enumerate(cases)
            if found[place] is None
        }
        while waiting:
            done, _ = wait(waiting, return_when="FIRST_COMPLETED")
            for future in done:
                place = waiting.pop(future)
                result = future.result()
                found[place] = result
                self.booted += 1
                if not result.error:
                    self.store.keep(cases[place], bench, seed, result)
                self.on_examined(cases[place], result)
        return [each for each in found if each is not None]


@contextmanager
def workers(store: Store, jobs: int, on_examined: OnExamined) -> Iterator[Examiners]:
    """Give examiners; their guests end when the block is left by an error or Ctrl-C."""
    # Not fork: of libvirt's and polars' threads, the child would have the locks alone.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_prepare)
    try:
        yield Examiners(store, pool, on_examined)
    except BaseException:
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(_PATIENCE)
            process.kill()
        raise
    pool.shutdown(wait=True)


class _Worker:
    """Whether a worker examines a case: only then has it a guest to end before it goes."""

    busy = False


def _prepare() -> None:
    """Let Ctrl-C be the parent's business, and SIGTERM end the guest that runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)


def _end(_number: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not _Worker.busy:
        os._exit(0)
    raise KeyboardInterrupt


def _examine(case: Case, bench: HuntBench, seed: int) -> Examined:
    _Worker.busy = True
    try:
        return examine(case, bench, seed)
    except KeyboardInterrupt:
        os._exit(0)  # the guest has ended, and nobody waits for a result
    finally:
        _Worker.busy = False


def host_jobs() -> int:
    """Return how many guests run beside each other unless it is said: one for each host CPU."""
    return max(1, len(os.sched_getaffinity(0)))
