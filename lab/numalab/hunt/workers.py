"""Boot cases in processes of this host, and store the results."""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

from numalab.campaign.executors.worker import Done, WorkerProcess, end_workers
from numalab.errors import HostError, UserError
from numalab.files import bound_json, make_dir, read_regular, write_text
from numalab.hunt.boot_case import WORKLOAD, HuntBench, boot_case
from numalab.hunt.case import Case
from numalab.hunt.finding import BOOT_RESULT, BootResult
from numalab.hunt.property import OF_BOOT, PROPERTIES
from numalab.limits.cgroup import usable_cpus
from numalab.places import skip_input

# Increase it when the judgement of a boot changes: stored results are then not used.
_JUDGEMENT = "51"
_LARGEST, _MOST_VALUES = 16 << 20, 200_000


def read_boot(path: Path) -> BootResult | None:
    """Read a stored boot; None if the file is missing, damaged, or the result is an error."""
    try:
        data = bound_json(read_regular(path, _LARGEST, follow=False), _MOST_VALUES)
        stored = BOOT_RESULT.validate_json(data)
    except (OSError, ValueError):
        return None
    return None if stored.error else stored


@dataclass(frozen=True)
class Store:
    """A folder with a file for each boot, named by a digest of its inputs."""

    path: Path

    def find(self, case: Case, bench: HuntBench, seed: int) -> BootResult | None:
        """Return the stored result of a boot; None if there is none, or it is an error."""
        return read_boot(self._file(case, bench, seed))

    def keep(self, case: Case, bench: HuntBench, seed: int, result: BootResult) -> None:
        """Store the result of a boot, and its case beside it."""
        path = self._file(case, bench, seed)
        make_dir(path.parent)
        write_text(path.with_suffix(".case"), case.text)
        write_text(path, _dumped(result) + "\n")

    def _file(self, case: Case, bench: HuntBench, seed: int) -> Path:
        kernel = bench.builds.kernels[bench.kernel.name].digest
        files = bench.builds.files[WORKLOAD]
        driver = _digest(files)
        emulator = bench.choice.emulator.digest if bench.choice.emulator else ""
        key = case.key(
            kernel, driver, bench.choice.mode, emulator, str(seed), _JUDGEMENT, *_selection(bench),
            *([f"reach {bench.reach.digest}"] if bench.reach else []),
            *([bench.calls.key] if bench.calls else []),
            *(["varies"] if bench.varies_boot else []),
            *([f"scheduler {_digest(bench.scheduler.files)}"] if bench.scheduler else []),
        )  # fmt: skip
        return self.path / "examined" / bench.kernel.name.replace("/", "_") / f"{key}.json"


def _digest(files: Mapping[str, bytes]) -> str:
    return hashlib.sha256(b"".join(files[name] for name in sorted(files))).hexdigest()


def _dumped(result: BootResult) -> str:
    """Return a result as JSON; the counts of a whole scheduler are large, so without indent."""
    indent = None if result.reach is not None or result.calls else 1
    return BOOT_RESULT.dump_json(result, indent=indent, exclude_defaults=True).decode()


def _selection(bench: HuntBench) -> list[str]:
    """Return the names of the selected properties; [] for all built-in properties."""
    selected = bench.selected
    return [] if selected == {*OF_BOOT, *PROPERTIES.built_in()} else sorted(selected)


# A guest's limits exclude the time for which QEMU waits for a CPU. On a busy host a boot may take
# several times as long, plus this number of seconds.
_TIMES, _PATIENCE = 4.0, 60.0
OnResult = Callable[[Case, BootResult], None]
Boot = tuple[Case, HuntBench, int]  # the last is the seed
Job = tuple[int, Boot]  # the first is its place
Watch = Callable[[Boot, BootResult], None]


class BudgetOverError(Exception):
    """The time of the workers is over; boots that still ran are ended with the workers."""


@dataclass
class CaseWorkers:
    """Boots cases. `requested` counts the boots with a result, stored ones too.

    `on_result` receives each result, stored ones too, as soon as it is there, `watch` in the order
    of the boots. At `deadline` (monotonic time), `boot` raises BudgetOverError unless all results
    are stored.
    """

    store: Store
    pool: "CasePool"
    on_result: OnResult
    count: int = 1  # of workers
    requested: int = 0
    deadline: float | None = None
    watch: Watch | None = None

    def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
        """Boot cases in parallel, one per worker; return the results in order."""
        results = [self.store.find(*boot) for boot in boots]
        for boot, stored in zip(boots, results, strict=True):
            if stored is not None:
                self.requested += 1
                self.on_result(boot[0], stored)
        missing = [place for place, stored in enumerate(results) if stored is None]
        jobs = [(place, boots[place]) for place in missing]
        if jobs and self.is_over:
            raise BudgetOverError
        self.pool.start(jobs)
        for _ in jobs:
            try:
                wall = max(bench.wall for _, bench, _ in boots)
                longest = _TIMES * wall + _PATIENCE
                left = longest if self.deadline is None else self.deadline - time.monotonic()
                place, result = self.pool.next(timeout=max(0.0, min(longest, left)))
            except TimeoutError:
                if self.is_over:
                    raise BudgetOverError from None
                raise HostError("a worker process hangs") from None
            results[place] = result
            self.requested += 1
            if not result.error and not result.failures:
                self.store.keep(*boots[place], result)
            for name, reason in result.failures.items():
                skip_input(UserError(reason), f"property {name}")
            self.on_result(boots[place][0], result)
        complete = [result for result in results if result is not None]
        if self.watch is not None:
            for boot, result in zip(boots, complete, strict=True):
                self.watch(boot, result)
        return complete

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline


@contextmanager
def workers(store: Store, jobs: int, on_result: OnResult) -> Iterator[CaseWorkers]:
    """Start the workers; their guests end with the block."""
    pool = CasePool([WorkerProcess(_boot_job) for _ in range(jobs)])
    try:
        yield CaseWorkers(store, pool, on_result, jobs)
    finally:
        end_workers(pool.processes)  # also guests that nobody waits for


@dataclass
class CasePool:
    """Processes that boot cases; results come as soon as they are there."""

    processes: Sequence[WorkerProcess]
    _batch: int = 0
    _waiting: deque[Job] = field(default_factory=deque)

    def start(self, jobs: Iterable[Job]) -> None:
        """Boot cases, as many at once as there are processes; forget what was started before."""
        self._batch += 1
        self._waiting = deque(jobs)
        self._feed()

    def _feed(self) -> None:
        for process in self.processes:
            if self._waiting and not process.busy:
                process.start((self._batch, self._waiting.popleft()))

    def next(self, timeout: float) -> tuple[int, BootResult]:
        """Return the next result. Raises TimeoutError, and HostError for a process that died."""
        end = time.monotonic() + timeout
        while True:
            busy = {process.pipe: process for process in self.processes if process.busy}
            ready = wait(list(busy), max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError
            process = next(process for pipe, process in busy.items() if pipe in ready)
            try:
                message = process.receive()
            except (EOFError, OSError):
                raise HostError(f"a worker process ended {process.death()}") from None
            assert isinstance(message, Done)
            batch, place, result = message.get()
            self._feed()
            if batch == self._batch:
                return place, result


def _boot_job(
    numbered: tuple[int, Job], _report: Callable[[str], None]
) -> tuple[int, int, BootResult]:
    batch, (place, boot) = numbered
    return batch, place, boot_case(*boot)


def host_jobs() -> int:
    """Return the default number of guests at once: the number of usable host CPUs."""
    return usable_cpus()
