"""Boots are done once each, beside each other, and end with the hunt that asked for them."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import TimeoutError, active_children
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from numalab.errors import HostError
from numalab.hunt.case import Case
from numalab.hunt.examine import HuntBench
from numalab.hunt.finding import Examined, Finding
from numalab.hunt.store import Store
from numalab.hunt.workers import Boot, Examiners, host_jobs, workers
from support.hunt_kernels import EndlessKernel, NoKernel

BAD = Examined((), 1.0, "no QEMU")


def examined(seed: int) -> Examined:
    return Examined((Finding("p", 0, float(seed), 1.0, ""),), 1.0)


def bench(kernel: Any = None, wall: float = 5.0) -> HuntBench:
    return cast(HuntBench, SimpleNamespace(wall=wall, kernel=kernel or SimpleNamespace(name="k")))


@dataclass
class MemoryStore:
    """Knows the boots of some seeds."""

    stored: dict[int, Examined] = field(default_factory=dict)

    def find(self, case: Case, bench: HuntBench, seed: int) -> Examined | None:
        return self.stored.get(seed)

    def keep(self, case: Case, bench: HuntBench, seed: int, examined: Examined) -> None:
        assert seed not in self.stored
        self.stored[seed] = examined


@dataclass
class LastFirst:
    """A pool whose results come in the wrong order; `waits` are the times that it was given."""

    gives: Callable[[int], Examined]
    waits: list[float] = field(default_factory=list)

    def imap_unordered(self, _: object, jobs: Iterable[tuple[int, Boot]]) -> "LastFirst":
        self.jobs = list(jobs)
        return self

    def next(self, timeout: float) -> tuple[int, Examined]:
        self.waits.append(timeout)
        place, (_, _, seed) = self.jobs.pop()
        return place, self.gives(seed)


def crew(store: MemoryStore, pool: LastFirst) -> tuple[Examiners, list[Examined]]:
    reported: list[Examined] = []
    made = Examiners(
        cast(Store, store), cast(Any, pool), lambda _, results: reported.append(results)
    )
    return made, reported


def boots(case: Case, seeds: Sequence[int], wall: float = 5.0) -> list[Boot]:
    return [(case, bench(wall=wall), seed) for seed in seeds]


def test_results_come_in_the_order_of_the_boots(drawn_case: Case) -> None:
    store = MemoryStore()
    examiners, reported = crew(store, LastFirst(examined))
    results = examiners.examine(boots(drawn_case, [1, 2, 3]))
    assert results == [examined(1), examined(2), examined(3)]
    assert reported == [examined(3), examined(2), examined(1)]
    assert store.stored == {n: examined(n) for n in (1, 2, 3)}


def test_what_is_stored_is_not_booted(drawn_case: Case) -> None:
    store = MemoryStore({2: examined(20)})
    examiners, reported = crew(store, LastFirst(examined))
    assert examiners.examine(boots(drawn_case, [1, 2, 3])) == [
        examined(1),
        examined(20),
        examined(3),
    ]
    assert (examiners.asked, examiners.booted, len(reported)) == (3, 2, 2)
    assert examiners.examine(boots(drawn_case, [1, 2])) == [examined(1), examined(20)]
    assert (examiners.asked, examiners.booted) == (5, 2)


def test_a_boot_that_failed_is_a_result_and_not_stored(drawn_case: Case) -> None:
    store = MemoryStore()
    examiners, reported = crew(store, LastFirst(lambda seed: BAD if seed == 2 else examined(seed)))
    assert examiners.examine(boots(drawn_case, [1, 2])) == [examined(1), BAD]
    assert set(store.stored) == {1}
    assert BAD in reported and examiners.booted == 2


def test_the_longest_boot_may_take_its_time(drawn_case: Case) -> None:
    pool = LastFirst(examined)
    examiners, _ = crew(MemoryStore(), pool)
    examiners.examine([*boots(drawn_case, [1], wall=5), *boots(drawn_case, [2], wall=300)])
    assert len(pool.waits) == 2 and min(pool.waits) > 4 * 300, (
        "on a busy host it waits for a CPU as well"
    )


def test_a_process_that_says_nothing_is_an_error_of_the_host(drawn_case: Case) -> None:
    def gone(_: int) -> Examined:
        raise TimeoutError

    examiners, reported = crew(MemoryStore(), LastFirst(gone))
    with pytest.raises(HostError, match="is gone, or stands still"):
        examiners.examine(boots(drawn_case, [1]))
    assert not reported


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, also of the processes; none of these is left by a test."""
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path))
    yield tmp_path
    assert not active_children()
    assert not list((tmp_path / "boots").iterdir())


def test_processes_give_results_and_let_ctrl_c_pass(drawn_case: Case, cache: Path) -> None:
    reported: list[Examined] = []
    jobs = [(drawn_case, bench(NoKernel()), seed) for seed in (1, 2)]
    store = cast(Store, MemoryStore())
    with workers(store, 1, lambda _, results: reported.append(results)) as examiners:
        results = examiners.examine(jobs)
        assert [result.error for result in results] == ["no such kernel"] * 2
        (process,) = active_children()
        assert process.pid is not None and examiners.count == 1
        os.kill(process.pid, signal.SIGINT)
        assert [result.error for result in examiners.examine(jobs)] == ["no such kernel"] * 2
        assert active_children() == [process]
    assert reported[:2] == results and examiners.booted == 4


def test_a_boot_ends_with_the_hunt(drawn_case: Case, cache: Path) -> None:
    """Of two processes one boots and one waits: both go, and the guest is ended first."""
    jobs = [(drawn_case, bench(kernel), 1) for kernel in (NoKernel(), EndlessKernel(cache))]

    def ctrl_c(*_: object) -> None:
        while not (cache / "began").exists():
            time.sleep(0.02)
        raise KeyboardInterrupt

    store = cast(Store, MemoryStore())
    with pytest.raises(KeyboardInterrupt), workers(store, 2, ctrl_c) as examiners:
        examiners.examine(jobs)
    assert (cache / "interrupted").exists()


def test_there_is_a_process_for_each_cpu_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 9})
    assert host_jobs() == 3
