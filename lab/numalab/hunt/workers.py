"""Examines cases in processes of this host, and takes from the store what was examined before."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import TimeoutError, get_context
from multiprocessing.pool import Pool
from typing import NoReturn

from numalab.errors import HostError
from numalab.hunt.case import Case
from numalab.hunt.examine import HuntBench, examine
from numalab.hunt.finding import Examined
from numalab.hunt.store import Store

# A guest's limits leave out the time for which QEMU waits for a CPU: on a busy host it may take
# several times as long, and so much more.
_TIMES, _PATIENCE = 4.0, 60.0
OnExamined = Callable[[Case, Examined], None]
Boot = tuple[Case, HuntBench, int]  # the last is the seed


@dataclass
class Examiners:
    """Where cases are examined. `asked` counts the boots, `booted` those that were not stored."""

    store: Store
    pool: Pool
    on_examined: OnExamined
    count: int = 1  # of workers
    asked: int = 0
    booted: int = 0

    def examine(self, boots: Sequence[Boot]) -> list[Examined]:
        """Do boots, as many beside each other as there are workers; results in their order."""
        self.asked += len(boots)
        results = [self.store.find(*boot) for boot in boots]
        missing = [place for place, stored in enumerate(results) if stored is None]
        jobs = [(place, boots[place]) for place in missing]
        pending = self.pool.imap_unordered(_examine, jobs)
        for _ in jobs:
            try:
                wall = max(bench.wall for _, bench, _ in boots)
                place, result = pending.next(timeout=_TIMES * wall + _PATIENCE)
            except TimeoutError:
                raise HostError("a process that examined a case is gone, or stands still") from None
            results[place] = result
            self.booted += 1
            if not result.error:
                self.store.keep(*boots[place], result)
            self.on_examined(boots[place][0], result)
        return [result for result in results if result is not None]


@contextmanager
def workers(store: Store, jobs: int, on_examined: OnExamined) -> Iterator[Examiners]:
    """Give examiners; their guests end when the block is left by an error or Ctrl-C."""
    # Not fork: of libvirt's and polars' threads, the child would have the locks alone.
    pool = get_context("spawn").Pool(jobs, _prepare)
    try:
        yield Examiners(store, pool, on_examined, jobs)
    except BaseException:
        pool.terminate()  # SIGTERM to each, and waits
        pool.join()
        raise
    pool.close()
    pool.join()


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


def _examine(job: tuple[int, Boot]) -> tuple[int, Examined]:
    place, boot = job
    _Worker.busy = True
    try:
        return place, examine(*boot)
    except KeyboardInterrupt:
        os._exit(0)  # the guest has ended, and nobody waits for a result
    finally:
        _Worker.busy = False


def host_jobs() -> int:
    """Return how many guests run beside each other unless it is said: one for each host CPU."""
    return max(1, len(os.sched_getaffinity(0)))
