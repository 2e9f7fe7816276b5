"""Many runs at once: order, what fits, retries, and nothing lost or done twice."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.campaign.build import BuiltStudy
from numalab.campaign.execute import Schedule, TaskEvent, execute, run_tasks
from numalab.campaign.executors.processes import Finished, News, Phase, Workers
from numalab.campaign.executors.worker import _Ending, _serve, _watch
from numalab.campaign.schedule import Capacity, capacity, default_jobs, longest_first, makespan
from numalab.campaign.task import Ended, Task
from numalab.errors import HostError, UserError
from numalab.files import read_json
from numalab.locks import is_locked
from numalab.results.plan import TimeOverRemark
from numalab.results.reader import load_plan
from numalab.study.plan import select
from support.fake_executor import MATRIX, fake, ledger, order, ready, tasks


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))


class Scripted:
    """An executor in this process: a run ends at the next look, as `outcomes` says."""

    def __init__(
        self, places: int, outcomes: dict[str, list[Ended]] | None = None, memory_mib: int = 1 << 20
    ) -> None:
        self._capacity = Capacity(places, memory_mib, 64)
        self.started: list[str] = []
        self.most = 0
        self._outcomes = outcomes or {}
        self._running: list[Task] = []

    def fits(self, task: Task) -> bool:
        return self._capacity.fits(task, self._running)

    def start(self, task: Task) -> None:
        self.started.append(task.run.id)
        self._running.append(task)
        self.most = max(self.most, len(self._running))

    def news(self, seconds: float) -> Sequence[News]:
        task = self._running.pop(0)
        outcomes = self._outcomes.get(task.run.id, [])
        ended = outcomes.pop(0) if outcomes else Ended(task.run.id, 1.0)
        return [Phase(task.key, "workload"), Finished(task.key, ended)]

    def close(self) -> None:
        raise AssertionError("the caller closes it")


def silent(_: TaskEvent) -> None:
    """Show nothing."""


def unwatched(_: Schedule) -> Callable[[TaskEvent], None]:
    return silent


def host(run: str) -> Ended:
    return Ended(run, 1.0, "no memory", 3, by_host=True)


def guest(run: str) -> Ended:
    return Ended(run, 1.0, "it panicked", 4)


def test_the_longest_start_first_and_variants_stay_together(tmp_path: Path) -> None:
    every = tasks(ready(tmp_path))
    ordered = longest_first(every, lambda task: 9.0 if task.run.workload == "many" else 1.0)
    names = [task.run.id for task in ordered]
    assert names[:2] == ["ring-4_many_before_1", "ring-4_many_after_1"]
    assert all("_many_" in name for name in names[:12])
    for first, second in zip(names[::2], names[1::2], strict=True):
        assert first.replace("before", "after") == second
    assert sorted(names) == sorted(task.run.id for task in every)


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=40), st.integers(1, 8))
def test_a_makespan_is_within_its_bounds(seconds: list[float], places: int) -> None:
    span = makespan(seconds, places)
    total, longest = sum(seconds), max(seconds)
    assert max(total / places, longest) - 1e-6 <= span <= total / places + longest + 1e-6
    assert makespan(seconds, 1) == pytest.approx(total)


def test_what_fits_beside_each_other(tmp_path: Path) -> None:
    task = tasks(ready(tmp_path))[0]
    alone = task.memory_mib
    assert Capacity(1, 0, 0).fits(task, [])  # it then fails by itself, with a message
    assert not Capacity(1, 10 * alone, 9).fits(task, [task])
    assert Capacity(2, 2 * alone, 9).fits(task, [task])
    assert not Capacity(2, 2 * alone - 1, 9).fits(task, [task])
    kvm = replace(
        task, setting=replace(task.setting, choice=replace(task.setting.choice, mode="kvm"))
    )
    assert kvm.cpus == 9  # one for QEMU's own threads
    assert Capacity(2, 1 << 30, 18).fits(kvm, [kvm])
    assert not Capacity(2, 1 << 30, 17).fits(kvm, [kvm])


@pytest.mark.parametrize(("limit", "cpus"), [(None, 32), (64.0, 32), (5.5, 5), (0.5, 1)])
def test_guests_under_kvm_may_have_isolated_cpus_within_the_limit_on_cpu_time(
    limit: float | None, cpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`isolcpus=2-31`: this process runs on CPUs 0 and 1."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("numalab.campaign.schedule.usable_cpus", lambda: 2)
    monkeypatch.setattr("numalab.campaign.schedule.cpu_limit", lambda: limit)
    monkeypatch.setattr("numalab.campaign.schedule.guest_cpus", lambda _: frozenset(range(32)))
    task = tasks(ready(tmp_path))[0]
    choice = replace(task.setting.choice, mode="kvm")
    kvm = replace(task, setting=replace(task.setting, choice=choice))
    assert capacity(3, [kvm]).cpus == cpus
    assert capacity(3, [task]).cpus == 3


def test_how_many_at_once_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numalab.campaign.schedule.usable_cpus", lambda: 6)
    monkeypatch.setattr(
        "numalab.campaign.schedule.free_places", lambda mode, vcpus: 64 // (vcpus + 1)
    )
    every = tasks(ready(tmp_path))
    kvm = [
        replace(
            task, setting=replace(task.setting, choice=replace(task.setting.choice, mode="kvm"))
        )
        for task in every
    ]
    assert default_jobs(every) == 6
    assert default_jobs(kvm) == 7  # the largest machine has eight vCPUs
    assert default_jobs([*every, *kvm]) == 6
    timed = every[0].study.model_copy(update={"key_measures": ("no_measure_but_a_metric",)})
    assert default_jobs([replace(task, study=timed) for task in kvm]) == 1
    assert default_jobs([replace(task, study=timed) for task in every]) == 6


@pytest.mark.parametrize("places", [1, 3])
def test_all_runs_are_done_once_with_as_many_at_once_as_there_are_places(
    tmp_path: Path, places: int
) -> None:
    every, executor = tasks(ready(tmp_path)), Scripted(places)
    events: list[TaskEvent] = []
    assert run_tasks(every, executor, events.append) == ()
    assert executor.started == [task.run.id for task in every]
    assert executor.most == places
    assert [event.ended for event in events if event.kind == "done"] == list(range(1, 25))


def test_too_little_memory_for_two(tmp_path: Path) -> None:
    every = tasks(ready(tmp_path))
    executor = Scripted(4, memory_mib=every[0].memory_mib)
    run_tasks(every, executor, silent)
    assert executor.most == 1
    assert len(executor.started) == len(every)


def test_a_run_that_the_host_made_fail_is_tried_once_more(tmp_path: Path) -> None:
    every = tasks(ready(tmp_path))
    name = every[3].run.id
    executor, events = Scripted(2, {name: [host(name)]}), list[TaskEvent]()
    assert run_tasks(every, executor, events.append) == ()
    assert executor.started.count(name) == 2
    assert len(executor.started) == len(every) + 1
    assert [event.task.run.id for event in events if event.kind == "retry"] == [name]


def test_a_host_that_fails_a_run_twice_gets_no_more(tmp_path: Path) -> None:
    every = tasks(ready(tmp_path))
    name = every[3].run.id
    executor = Scripted(1, {name: [host(name), host(name)]})
    (failure,) = run_tasks(every, executor, silent)
    assert (failure.ended.run, failure.ended.exit_code) == (name, 3)
    assert executor.started == [task.run.id for task in every[:4]] + [name]


def test_a_run_that_its_guest_made_fail_is_not_tried_again(tmp_path: Path) -> None:
    every = tasks(ready(tmp_path))
    name = every[0].run.id
    executor = Scripted(2, {name: [guest(name)]})
    (failure,) = run_tasks(every, executor, silent)
    assert failure.ended.error == "it panicked"
    assert executor.started.count(name) == 1
    assert len(executor.started) == len(every)


def test_a_run_whose_worker_is_gone_is_tried_elsewhere_as_often_as_it_takes(tmp_path: Path) -> None:
    every = tasks(ready(tmp_path))
    name = every[1].run.id
    gone = replace(host(name), lost=True)
    executor = Scripted(2, {name: [gone, gone, gone]})
    assert run_tasks(every, executor, silent) == ()
    assert executor.started.count(name) == 4


def test_an_executor_that_takes_no_run_is_told_of_once(tmp_path: Path) -> None:
    class Full(Scripted):
        def fits(self, task: Task) -> bool:
            return False

        def news(self, seconds: float) -> Sequence[News]:
            return ()

    events: list[TaskEvent] = []
    soon = time.monotonic() + 0.2
    run_tasks(tasks(ready(tmp_path)), Full(1), events.append, deadline=soon)
    assert [(event.kind, event.text) for event in events] == [
        ("phase", "waits until the executor takes it")
    ]


def test_fail_fast(tmp_path: Path) -> None:
    every = tasks(ready(tmp_path))
    name = every[1].run.id
    executor = Scripted(1, {name: [guest(name)]})
    assert len(run_tasks(every, executor, silent, fail_fast=True)) == 1
    assert executor.started == [task.run.id for task in every[:2]]


def test_runs_that_failed_before_the_time_was_over_stay_in_the_plan(tmp_path: Path) -> None:
    study = ready(tmp_path)
    failed = study.plan.runs[0].id
    study.results.failed(failed).path.mkdir(parents=True)
    assert execute([study], 2, unwatched, run=fake, deadline=0.0) == ()
    plan = load_plan(study.results)
    assert len(plan.runs) == 24
    assert plan.remarks == (TimeOverRemark(left=24 - len({*ledger(study.results), failed})),)
    rest = select(study.plan, [run for run in study.plan.runs if run.id != failed][-2:])
    assert execute([replace(study, plan=rest)], 2, unwatched, run=fake) == ()
    assert failed in {run.id for run in load_plan(study.results).runs}


def test_when_the_time_is_over_nothing_more_starts_and_the_results_say_so(tmp_path: Path) -> None:
    every, executor = tasks(ready(tmp_path)), Scripted(2)
    assert run_tasks(every, executor, silent, deadline=time.monotonic()) == ()
    assert executor.started == [task.run.id for task in every[:2]]
    study = ready(tmp_path)
    assert execute([study], 2, unwatched, run=fake, deadline=time.monotonic()) == ()
    plan = load_plan(study.results)
    assert plan.runs == study.plan.runs
    left = 24 - len(ledger(study.results))
    assert 0 < left < 24
    assert plan.remarks == (TimeOverRemark(left=left),)
    assert execute([study], 2, unwatched, run=fake) == ()
    assert len(ledger(study.results)) == len(read_json(study.results.plan)["runs"]) == 24
    assert read_json(study.results.plan)["remarks"] == []


def test_a_deadline_cuts_all_studies_alike(tmp_path: Path) -> None:
    """The variants of a repetition stay together."""
    studies = [ready(tmp_path, results=name) for name in ("first", "second")]
    started: list[tuple[str, str]] = []

    class Noting(Scripted):
        def start(self, task: Task) -> None:
            started.append((task.results.path.name, task.run.variant))
            super().start(task)

        def close(self) -> None:
            started.append(("", "closed"))

    later = time.monotonic() + 3600
    execute(studies, 1, unwatched, executor=Noting(1), deadline=later)
    pair = ["before", "after"]
    turns = [(name, variant) for name in ("first", "second") for variant in pair]
    assert started[:8] == 2 * turns


def test_worker_processes_do_all_runs(tmp_path: Path) -> None:
    study = ready(tmp_path)
    order(study, "ring-4_few_after_1", "kill")
    order(study, "ring-4_few_before_2", "host")
    order(study, "ring-2_many_before_1", "guest")
    events: list[TaskEvent] = []
    outlooks: list[Schedule] = []

    def watch(outlook: Schedule) -> Callable[[TaskEvent], None]:
        outlooks.append(outlook)
        return events.append

    (failure,) = execute([study], 3, watch, run=fake)
    assert failure.ended.run == "ring-2_many_before_1"
    done = {run.id for run in study.plan.runs} - {"ring-2_many_before_1"}
    assert sorted(ledger(study.results)) == sorted(done)
    assert set(study.results.finished()) == done
    again = {event.task.run.id: event.text for event in events if event.kind == "retry"}
    assert "ended by SIGKILL" in again["ring-4_few_after_1"]
    assert again["ring-4_few_before_2"] == "tried again: no memory"
    assert (len(outlooks[0].tasks), outlooks[0].jobs) == (24, 3)
    assert not is_locked(study.results.path)


def test_what_runs_took_is_learned(tmp_path: Path) -> None:
    outlooks: list[Schedule] = []

    def watch(outlook: Schedule) -> Callable[[TaskEvent], None]:
        outlooks.append(outlook)
        return silent

    study = ready(tmp_path)
    order(study, "ring-4_few_before_1", "wait")  # for other guests: it says nothing about its cost
    execute([study], 2, watch, run=fake)
    execute([ready(tmp_path, results="again")], 2, watch, run=fake)
    assert {cost.learned_from for cost in outlooks[0].costs} == {0}
    assert {cost.learned_from for cost in outlooks[1].costs} == {5, 6}
    assert {cost.seconds for cost in outlooks[1].costs} == {0.1}


def test_only_what_is_lacking_is_done(tmp_path: Path) -> None:
    study = ready(tmp_path)
    order(study, "ring-4_few_after_1", "guest")
    execute([study], 2, unwatched, run=fake)
    assert len(ledger(study.results)) == 23
    execute([study], 2, unwatched, run=fake)
    assert sorted(ledger(study.results)) == sorted(run.id for run in study.plan.runs)
    execute([study], 2, unwatched, run=fake)
    assert len(ledger(study.results)) == 24


def test_runs_of_other_inputs_are_not_mixed(tmp_path: Path) -> None:
    study = ready(tmp_path)
    execute([study], 2, unwatched, run=fake)
    image = replace(study.builds.image, digest="1" * 64)
    other = ready(tmp_path, MATRIX.replace("?", "!", 1))
    other = replace(other, builds=replace(study.builds, image=image))
    stored = study.results.plan.read_bytes()
    with pytest.raises(UserError, match="differs from today's inputs in image "):
        execute([other], 2, unwatched, run=fake)
    assert study.results.plan.read_bytes() == stored  # a refused command changes nothing
    changed = ready(tmp_path, MATRIX.replace("seeds = [1, 2, 3]", "seeds = [1, 2]"))
    renamed = replace(study, plan=replace(study.plan, name="other"))
    for refused, why in ((changed, "differ from the study in seeds"), (renamed, "of the study tr")):
        with pytest.raises(UserError, match=why):
            execute([refused], 2, unwatched, run=fake)


def test_studies_share_the_places(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    both = [ready(tmp_path), ready(tmp_path / "b")]
    assert execute(both, 3, unwatched, run=fake) == ()
    assert [len(ledger(study.results)) for study in both] == [24, 24]


@pytest.mark.parametrize("how", ["sleep", "told-twice"])
def test_closing_an_executor_lets_runs_keep_what_they_left(tmp_path: Path, how: str) -> None:
    """Told twice: the parent's SIGTERM, and that of the lifeline while the run tidies up."""
    study = ready(tmp_path)
    every = tasks(study)[:2]
    for task in every:
        order(study, task.run.id, how)
    executor = Workers(Capacity(2, 1 << 20, 64), fake)
    for task in every:
        executor.start(task)
    heard: set[str] = set()
    deadline = time.monotonic() + 60
    while len(heard) < 2 and time.monotonic() < deadline:
        heard |= {news.key for news in executor.news(1)}
    executor.close()
    left = sorted(path.name for path in (study.results.path / "runs").iterdir())
    assert left == sorted(f"{task.run.id}.interrupted" for task in every)


def test_a_task_of_a_parent_that_is_gone_is_not_taken(tmp_path: Path) -> None:
    """Killed while a worker starts, its parent leaves a task in the pipe."""
    study = ready(tmp_path)
    task = tasks(study)[0]
    order(study, task.run.id, "sleep")
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    lifeline, end = context.Pipe(duplex=False)
    worker = context.Process(target=_serve, args=(fake, theirs, lifeline))
    ours.send(task)
    end.close()
    worker.start()
    theirs.close()
    worker.join(120)
    assert worker.exitcode == 0
    assert not study.results.running(task.run.id).path.exists()
    assert ledger(study.results) == []


def test_a_worker_interrupts_a_run_once() -> None:
    ending = _Ending()
    ending.handle(signal.SIGTERM, None)  # between two runs
    assert ending.received
    ending.interrupts = True
    ending.handle(signal.SIGTERM, None)
    ending = _Ending()
    ending.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        ending.handle(signal.SIGTERM, None)
    ending.handle(signal.SIGTERM, None)  # clean-up is not disturbed


def test_a_worker_that_did_not_hear_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    signals: list[int] = []

    def kill(_pid: int, number: int) -> None:
        signals.append(number)
        if len(signals) == 3:
            raise SystemExit

    monkeypatch.setattr("numalab.campaign.executors.worker.os.kill", kill)
    lifeline, end = get_context("spawn").Pipe(duplex=False)
    end.close()
    with pytest.raises(SystemExit):
        _watch(lifeline, pause=0.0)
    assert signals == [signal.SIGTERM] * 3


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from support.fake_executor import fake, ready
from numalab.campaign.execute import execute
if __name__ == "__main__":
    print("go", flush=True)
    execute([ready(Path({folder!r}))], 2, lambda outlook: lambda event: None, run=fake)
"""


def begun(folder: Path, study: BuiltStudy) -> "subprocess.Popen[str]":
    """Start the study in a process of its own, and wait until two runs are under way."""
    script = folder / "child.py"
    script.write_text(CHILD.format(tests=str(Path(__file__).parents[2]), folder=str(folder)))
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while len(list(study.results.path.glob("runs/*.running"))) < 2:
        assert time.monotonic() < deadline, "no run has started"
        assert process.poll() is None
        time.sleep(0.05)
    return process


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_study_goes_on_without_a_run_lost_or_done_twice(
    tmp_path: Path, number: signal.Signals
) -> None:
    study = ready(tmp_path)
    sleepers = {task.run.id for task in tasks(study)[6:10]}
    for run in sleepers:
        order(study, run, "sleep", "sleep")
    process = begun(tmp_path, study)
    # Both workers: one that is about to end a run could be killed before it is in the ledger.
    assert until(lambda: len(ledger(study.results)) >= 1 and len(_begun(study) & sleepers) == 2)
    process.send_signal(number)
    process.wait(60)
    # The workers of a process that was killed end by themselves, and only then is the lock free.
    assert until(lambda: not is_locked(study.results.path))
    done = ledger(study.results)
    assert 0 < len(done) < 24
    for path in (study.results.path / "orders").iterdir():
        path.unlink()
    execute([study], 2, unwatched, run=fake)
    assert sorted(ledger(study.results)) == sorted(run.id for run in study.plan.runs)
    assert ledger(study.results)[: len(done)] == done


def _begun(study: BuiltStudy) -> set[str]:
    return {path.stem for path in study.results.path.glob("runs/*.running")}


def test_a_locked_study_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numalab.campaign.resume.LOCK_PATIENCE", 0.0)
    study = ready(tmp_path)
    for task in tasks(study):
        order(study, task.run.id, "sleep")
    process = begun(tmp_path, study)
    try:
        waits: list[Path] = []
        with pytest.raises(HostError, match="another numalab is using"):
            execute([study], 1, unwatched, run=fake, on_wait=waits.append)
        assert waits == [study.results.path]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
