"""Boots are done once each, beside each other, and end with the hunt that asked for them."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import active_children
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from numalab.campaign.executors.worker import Done, WorkerProcess, end_workers
from numalab.errors import HostError
from numalab.hunt.boot_case import WORKLOAD, HuntBench
from numalab.hunt.case import Case
from numalab.hunt.finding import BootResult, Finding
from numalab.hunt.workers import Boot, BudgetOverError, CaseWorkers, Store, host_jobs, workers
from numalab.places import skipped_inputs
from numalab.topology.shapes.shape import SHAPES
from support.hunt_kernels import DeafKernel, EndlessKernel, NoKernel, SlowEndKernel, as_text, refuse

BAD = BootResult((), 1.0, "no QEMU")


def result(seed: int) -> BootResult:
    return BootResult((Finding("p", 0, float(seed), 1.0, ""),), 1.0)


def bench(kernel: Any = None, wall: float = 5.0) -> HuntBench:
    return cast(HuntBench, SimpleNamespace(wall=wall, kernel=kernel or SimpleNamespace(name="k")))


@dataclass
class MemoryStore:
    """Knows the boots of some seeds."""

    stored: dict[int, BootResult] = field(default_factory=dict)

    def find(self, case: Case, bench: HuntBench, seed: int) -> BootResult | None:
        return self.stored.get(seed)

    def keep(self, case: Case, bench: HuntBench, seed: int, result: BootResult) -> None:
        assert seed not in self.stored
        self.stored[seed] = result


@dataclass
class LastFirst:
    """A pool whose results come in the wrong order; `waits` are the times that it was given."""

    gives: Callable[[int], BootResult]
    waits: list[float] = field(default_factory=list)

    def start(self, jobs: Iterable[tuple[int, Boot]]) -> None:
        self.jobs = list(jobs)

    def next(self, timeout: float) -> tuple[int, BootResult]:
        self.waits.append(timeout)
        place, (_, _, seed) = self.jobs.pop()
        return place, self.gives(seed)


def crew(store: MemoryStore, pool: LastFirst) -> tuple[CaseWorkers, list[BootResult]]:
    reported: list[BootResult] = []
    made = CaseWorkers(
        cast(Store, store), cast(Any, pool), lambda _, results: reported.append(results)
    )
    return made, reported


def boots(case: Case, seeds: Sequence[int], wall: float = 5.0) -> list[Boot]:
    return [(case, bench(wall=wall), seed) for seed in seeds]


def test_results_come_in_the_order_of_the_boots(drawn_case: Case) -> None:
    store = MemoryStore()
    case_workers, reported = crew(store, LastFirst(result))
    results = case_workers.boot(boots(drawn_case, [1, 2, 3]))
    assert results == [result(1), result(2), result(3)]
    assert reported == [result(3), result(2), result(1)]
    assert store.stored == {n: result(n) for n in (1, 2, 3)}


def test_what_is_stored_is_reported_and_not_booted(drawn_case: Case) -> None:
    store = MemoryStore({2: result(20)})
    case_workers, reported = crew(store, LastFirst(result))
    assert case_workers.boot(boots(drawn_case, [1, 2, 3])) == [
        result(1),
        result(20),
        result(3),
    ]
    assert (case_workers.requested, len(reported)) == (3, 3)
    assert case_workers.boot(boots(drawn_case, [1, 2])) == [result(1), result(20)]
    assert case_workers.requested == 5


def test_a_boot_that_failed_is_a_result_and_not_stored(drawn_case: Case) -> None:
    store = MemoryStore()
    case_workers, reported = crew(store, LastFirst(lambda seed: BAD if seed == 2 else result(seed)))
    assert case_workers.boot(boots(drawn_case, [1, 2])) == [result(1), BAD]
    assert set(store.stored) == {1}
    assert BAD in reported and case_workers.requested == 2


@pytest.mark.usefixtures("without_plugins")
def test_a_property_that_failed_is_warned_of_once_and_the_boot_not_stored(
    drawn_case: Case,
) -> None:
    def failed(seed: int) -> BootResult:
        return replace(result(seed), failures={"odd": f"odd.py: KeyError: {seed}"})

    store = MemoryStore()
    case_workers, _ = crew(store, LastFirst(failed))
    assert len(case_workers.boot(boots(drawn_case, [1, 2]))) == 2
    assert not store.stored
    assert [str(error) for error in skipped_inputs()] == ["odd.py: KeyError: 2"]


def test_boots_are_stored_by_the_selected_properties(drawn_case: Case, tmp_path: Path) -> None:
    def judged(*names: str) -> HuntBench:
        builds = SimpleNamespace(kernels={"k": SimpleNamespace(digest="0")}, files={WORKLOAD: {}})
        kernel, choice = SimpleNamespace(name="k"), SimpleNamespace(mode="icount", emulator=None)
        inputs: tuple[Any, Any, Any] = kernel, builds, choice
        return HuntBench(*inputs, properties=frozenset(names))

    store = Store(tmp_path)
    store.keep(drawn_case, judged("affinity"), 1, result(1))
    assert store.find(drawn_case, judged("affinity"), 1) == result(1)
    assert store.find(drawn_case, judged("affinity", "fair"), 1) is None


def test_the_longest_boot_may_take_its_time(drawn_case: Case) -> None:
    pool = LastFirst(result)
    case_workers, _ = crew(MemoryStore(), pool)
    case_workers.boot([*boots(drawn_case, [1], wall=5), *boots(drawn_case, [2], wall=300)])
    assert len(pool.waits) == 2 and min(pool.waits) > 4 * 300, (
        "on a busy host it waits for a CPU as well"
    )


def test_a_process_that_says_nothing_is_an_error_of_the_host(drawn_case: Case) -> None:
    def gone(_: int) -> BootResult:
        raise TimeoutError

    case_workers, reported = crew(MemoryStore(), LastFirst(gone))
    with pytest.raises(HostError, match="hangs"):
        case_workers.boot(boots(drawn_case, [1]))
    assert not reported


def test_after_the_deadline_only_stored_boots_are_given(drawn_case: Case) -> None:
    def late(_: int) -> BootResult:
        case_workers.deadline = time.monotonic()
        raise TimeoutError

    pool = LastFirst(late)
    case_workers, _ = crew(MemoryStore({2: result(2)}), pool)
    case_workers.deadline = time.monotonic() + 60
    with pytest.raises(BudgetOverError):
        case_workers.boot(boots(drawn_case, [1]))
    assert pool.waits[0] <= 60
    with pytest.raises(BudgetOverError):
        case_workers.boot(boots(drawn_case, [1, 2]))
    assert len(pool.waits) == 1, "no boot begins after the deadline"
    assert case_workers.boot(boots(drawn_case, [2])) == [result(2)]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, also of the processes; none of these is left by a test."""
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path))
    yield tmp_path
    assert not active_children()
    assert not list((tmp_path / "boots").iterdir())


def test_processes_give_results_and_let_ctrl_c_pass(drawn_case: Case, cache: Path) -> None:
    reported: list[BootResult] = []
    jobs = [(drawn_case, bench(NoKernel()), seed) for seed in (1, 2)]
    store = cast(Store, MemoryStore())
    with workers(store, 1, lambda _, results: reported.append(results)) as case_workers:
        results = case_workers.boot(jobs)
        assert [result.error for result in results] == ["no such kernel"] * 2
        (process,) = active_children()
        assert process.pid is not None and case_workers.count == 1
        os.kill(process.pid, signal.SIGINT)
        assert [result.error for result in case_workers.boot(jobs)] == ["no such kernel"] * 2
        assert active_children() == [process]
    assert reported[:2] == results and case_workers.requested == 4


def test_a_boot_ends_with_the_hunt(drawn_case: Case, cache: Path) -> None:
    """Of two processes one boots and one waits: both go, and the guest is ended first."""
    jobs = [(drawn_case, bench(kernel), 1) for kernel in (NoKernel(), EndlessKernel(cache))]

    def ctrl_c(*_: object) -> None:
        while not (cache / "began").exists():
            time.sleep(0.02)
        raise KeyboardInterrupt

    store = cast(Store, MemoryStore())
    with pytest.raises(KeyboardInterrupt), workers(store, 2, ctrl_c) as case_workers:
        case_workers.boot(jobs)
    assert (cache / "interrupted").exists()


def test_a_boot_ends_with_the_budget(drawn_case: Case, cache: Path) -> None:
    jobs = [(drawn_case, bench(EndlessKernel(cache)), 1)]
    with workers(cast(Store, MemoryStore()), 1, lambda *_: None) as case_workers:
        case_workers.boot([(drawn_case, bench(NoKernel()), 1)])  # the process is ready
        case_workers.deadline = time.monotonic() + 1
        with pytest.raises(BudgetOverError):
            case_workers.boot(jobs)
    assert (cache / "interrupted").exists()


@pytest.fixture
def hang_fails() -> Iterator[None]:
    def too_long(*_: object) -> None:
        pytest.fail("the hunt does not end")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("hang_fails")
def test_a_hunt_ends_if_the_signal_reached_idle_processes_as_well(
    drawn_case: Case, cache: Path
) -> None:
    """As `timeout` and service managers send it: to all processes of the group."""
    store = cast(Store, MemoryStore())
    with pytest.raises(KeyboardInterrupt), workers(store, 2, lambda *_: None) as case_workers:
        case_workers.boot([(drawn_case, bench(NoKernel()), seed) for seed in (1, 2)])
        for process in active_children():
            assert process.pid is not None
            os.kill(process.pid, signal.SIGTERM)
        raise KeyboardInterrupt


@pytest.mark.usefixtures("hang_fails")
def test_a_hunt_ends_if_a_process_did_not_notice_the_signal(drawn_case: Case, cache: Path) -> None:
    store = cast(Store, MemoryStore())
    with workers(store, 1, lambda *_: None) as case_workers:
        case_workers.boot([(drawn_case, bench(NoKernel()), 1)])  # the process is ready
        case_workers.deadline = time.monotonic() + 1
        with pytest.raises(BudgetOverError):
            case_workers.boot([(drawn_case, bench(DeafKernel()), 1)])


def test_a_process_that_is_ending_is_not_interrupted(
    drawn_case: Case, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = cast(Store, MemoryStore())
    with workers(store, 1, lambda *_: None) as case_workers:
        case_workers.boot([(drawn_case, bench(SlowEndKernel(cache)), 1)])
        (process,) = active_children()
        assert process.pid is not None

        def interrupt(pid: int) -> None:
            while not (cache / "ending").exists():
                time.sleep(0.02)
            os.kill(pid, signal.SIGTERM)

        thread = Thread(target=interrupt, args=(process.pid,))
        thread.start()
    thread.join()
    assert "Traceback" not in capfd.readouterr().err


def test_a_process_that_is_killed_ends_the_hunt(
    drawn_case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path))

    def kill(*_: object) -> None:
        while not (tmp_path / "began").exists():
            time.sleep(0.02)
        for process in active_children():
            process.kill()

    store = cast(Store, MemoryStore())
    jobs = [(drawn_case, bench(kernel), 1) for kernel in (NoKernel(), EndlessKernel(tmp_path))]
    with (
        pytest.raises(HostError, match="a worker process ended by SIGKILL"),
        workers(store, 2, kill) as case_workers,
    ):
        case_workers.boot(jobs)
    assert not active_children()


def test_results_of_boots_that_nobody_waits_for_are_forgotten(
    drawn_case: Case, cache: Path
) -> None:
    with workers(cast(Store, MemoryStore()), 1, lambda *_: None) as case_workers:
        case_workers.pool.start([(7, (drawn_case, bench(NoKernel()), 1))])
        (result,) = case_workers.boot([(drawn_case, bench(NoKernel()), 2)])
        assert result.error == "no such kernel"


def test_there_is_a_process_for_each_cpu_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numalab.hunt.workers.usable_cpus", lambda: 3)
    assert host_jobs() == 3


PLUGIN = """
from numalab.api import Shape, register_shape
@register_shape("plain")
class Plain(Shape):
    'Nodes without links.'
    def links(self, nodes):
        return ()
"""


@pytest.mark.usefixtures("without_plugins")
def test_a_worker_receives_machines_with_the_shape_of_a_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "broken.py").write_text("1 / 0")
    (tmp_path / "plugins" / "shapes.py").write_text(PLUGIN)
    monkeypatch.setenv("NUMALAB_HOME", str(tmp_path))
    shape = SHAPES.find("plain")(kind="plain", distances=(10, 20))
    worker = WorkerProcess(as_text)
    worker.start(shape)
    assert worker.receive() == Done(repr(shape))
    end_workers([worker])


def test_a_worker_runs_nothing_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may have put a module there, in /tmp for example, or a guest that returned it."""
    (tmp_path / "multiprocessing.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    worker = WorkerProcess(as_text)
    worker.start(5)
    assert worker.receive() == Done("5")
    end_workers([worker])
    assert not (tmp_path / "ran").exists()
    assert "PYTHONSAFEPATH" not in os.environ


def test_an_error_of_a_worker_comes_with_where_it_was_raised() -> None:
    """A pipe drops the traceback of an exception."""
    process = WorkerProcess(refuse)
    process.start("no number")
    done = process.receive()
    process.ask_to_end()
    process.end(time.monotonic() + 10)
    assert isinstance(done, Done)
    with pytest.raises(TypeError) as raised:
        done.get()
    assert "in refuse" in raised.value.__notes__[0]
