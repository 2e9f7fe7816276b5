"""Executes studies: starts the runs that their results lack, and repeats them as a rule demands."""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import groupby, islice, zip_longest
from pathlib import Path
from typing import Literal

from numalab.campaign.build import BuiltStudy
from numalab.campaign.cost_model import Cost, Costs
from numalab.campaign.executors.processes import Executor, News, Phase, Workers
from numalab.campaign.resume import (
    OnWait,
    held_results,
    missing_tasks,
    with_repetitions,
    write_plan,
)
from numalab.campaign.run_task import WAITING, run_task
from numalab.campaign.schedule import (
    capacity,
    cost_of,
    default_jobs,
    further_within,
    longest_first,
)
from numalab.campaign.stopping import StoppingRule, look
from numalab.campaign.task import Ended, Execute, Task
from numalab.results.layout import Results, has_ended
from numalab.results.plan import BudgetRemark, TimeOverRemark
from numalab.study.plan import select

_LISTEN = 0.5  # seconds
_LOOK_AHEAD = 64  # tasks


@dataclass(frozen=True)
class Schedule:
    """The tasks to do in their order, the cost of each, and how many run at once."""

    tasks: tuple[Task, ...]
    costs: tuple[Cost, ...]
    jobs: int


@dataclass(frozen=True)
class TaskEvent:
    """A change of a task, for progress output; `ended` counts the tasks that have ended."""

    kind: Literal["started", "phase", "done", "failed", "retry"]
    task: Task
    text: str
    ended: int
    seconds: float = 0.0


OnEvent = Callable[[TaskEvent], None]


@dataclass(frozen=True)
class Failure:
    """A run of a study without a result, and why."""

    study: str
    results: Results
    ended: Ended


def execute(
    studies: Sequence[BuiltStudy],
    jobs: int | None,
    on_schedule: Callable[[Schedule], OnEvent],
    *,
    rule: StoppingRule | None = None,
    fail_fast: bool = False,
    run: Execute = run_task,
    executor: Executor | None = None,
    on_wait: OnWait | None = None,
    deadline: float = math.inf,
) -> tuple[Failure, ...]:
    """Execute the runs that the results of some studies lack, but for those that a budget leaves
    out; return the failures.

    `jobs` is how many run at once; None: `default_jobs`. `on_schedule` receives each schedule and
    returns the callback for its events. With a `rule`, repetitions are added until it is met;
    those that the results have from a rule are completed in any case.
    `executor` replaces the worker processes of this host. `on_wait` is called with results that
    another numalab holds. No run starts after `deadline` (monotonic time); the results then record
    that, and runs start in the order of the plan, the studies in turn. Before it, runs that a
    budget left out are added as soon as finished runs show that they fit, unless a run has failed
    or a `rule` takes the time. Raises UserError when results belong to another study, HostError
    when another numalab keeps them.
    """
    costs = Costs()
    with ExitStack() as stack:
        plans = [(study.plan, study.results) for study in studies]
        locks = stack.enter_context(held_results(plans, on_wait))
        studies = [with_repetitions(study) for study in studies]
        tasks = _missing(studies)
        for study in studies:  # a refused command has changed nothing
            write_plan(study.plan, study.results)
        if executor is not None:
            stack.enter_context(closing(executor))
        failures: list[Failure] = []
        tried: set[tuple[Path, str]] = set()
        while True:
            if rule is not None and not (tasks or failures):
                studies = [_prolonged(study, rule) for study in studies]
                tasks = _missing(studies)
            if not tasks:
                return tuple(failures)
            places = jobs or default_jobs(tasks)
            if executor is None:
                executor = Workers(capacity(places, tasks), run, locks)
                stack.enter_context(closing(executor))
            if deadline < math.inf:
                tasks = _in_turn(tasks)
            elif places > 1:
                tasks = longest_first(tasks, lambda task: cost_of(task, costs).seconds)
            every = tuple(cost_of(task, costs) for task in tasks)
            schedule = Schedule(tuple(tasks), every, min(places, len(tasks)))
            on_event = _learning(on_schedule(schedule), costs)
            tried |= {(task.results.path, task.run.id) for task in tasks}
            failures += run_tasks(tasks, executor, on_event, fail_fast=fail_fast, deadline=deadline)
            if time.monotonic() > deadline:
                for study in studies:
                    _record_time_over(study, rule)
                return tuple(failures)
            tasks = []
            if rule is None and not failures and deadline < math.inf:
                studies = _prolonged_to(deadline, studies, jobs)
                more = _missing(studies)
                tasks = [task for task in more if (task.results.path, task.run.id) not in tried]


def _prolonged_to(
    deadline: float, studies: Sequence[BuiltStudy], jobs: int | None
) -> list[BuiltStudy]:
    """Add left-out runs that fit before the deadline; each study has the same share of the time."""
    sharing = sum(bool(study.left_out) for study in studies)
    share = (deadline - time.monotonic()) / max(1, sharing)
    prolonged = [further_within(s, share, jobs) if s.left_out else s for s in studies]
    for study in prolonged:
        write_plan(study.plan, study.results)
    return prolonged


def _missing(studies: Iterable[BuiltStudy]) -> list[Task]:
    return [
        task
        for study in studies
        for task in missing_tasks(study)
        if task.run.id not in study.left_out
    ]


def _in_turn(tasks: Iterable[Task]) -> list[Task]:
    """Take the repetitions of a cell from each study in turn: a deadline cuts all of them alike."""
    of_studies = [
        [list(group) for _, group in groupby(of_study, lambda task: (task.run.cell, task.run.seed))]
        for _, of_study in groupby(tasks, lambda task: task.results.path)
    ]
    return [task for turn in zip_longest(*of_studies, fillvalue=()) for g in turn for task in g]


def _learning(on_event: OnEvent, costs: Costs) -> OnEvent:
    """Return a callback that also remembers the cost of finished runs that had not to wait."""
    waited: set[str] = set()

    def learn(event: TaskEvent) -> None:
        task = event.task
        if event.kind == "phase" and event.text.startswith(WAITING):
            waited.add(task.key)
        elif event.kind == "done" and task.key not in waited:
            what = (task.topology, task.workload, task.mode)
            costs.learn(*what, event.seconds, task.study.machine)
        on_event(event)

    return learn


def _prolonged(study: BuiltStudy, rule: StoppingRule, *, time_over: bool = False) -> BuiltStudy:
    """Add the repetitions that the rule demands to a study's plan and to its results.

    Runs that a budget left out are the first repetitions. Where the time is over, none is added,
    and the results record that the rule demands some.
    """
    plan = study.plan
    repetitions = look(plan, study.results, rule, study.left_out)
    more = () if time_over else repetitions.more
    left_out = study.left_out - {run.id for run in more}
    remarks = [
        remark
        for remark in plan.remarks
        if not rule.made(remark) and (left_out or not isinstance(remark, BudgetRemark))
    ]
    if time_over and repetitions.more:
        remarks.append(TimeOverRemark(left=0))
    plan = replace(plan, remarks=tuple(remarks))
    runs = dict.fromkeys((*plan.runs, *more))
    plan = select(plan, runs, rule.remark(repetitions.decided))
    write_plan(plan, study.results)
    return replace(study, plan=plan, left_out=left_out)


def _record_time_over(study: BuiltStudy, rule: StoppingRule | None) -> None:
    """Record in a study's results that the time was over before all of its runs could start, or
    before the rule was met."""
    results, missing = study.results, {task.run.id for task in _missing([study])}
    left = {name for name in missing if not has_ended(results, name)}
    if left:
        remarks = (*study.plan.remarks, TimeOverRemark(left=len(left)))
        write_plan(replace(study.plan, remarks=remarks), results)
    elif rule is not None and not missing:
        _prolonged(study, rule, time_over=True)


def run_tasks(
    tasks: Iterable[Task],
    executor: Executor,
    on_event: OnEvent,
    *,
    fail_fast: bool = False,
    deadline: float = math.inf,
) -> tuple[Failure, ...]:
    """Execute tasks in their order, as many at once as fit; return the failures.

    After `deadline` (monotonic time) no task starts.

    A run that fails because of the host is tried as often as its `Ended` says, twice by default;
    after the last failure the host counts as broken and no other run starts. A run whose worker is
    gone is tried again on another worker. A run that fails because of its guest is not tried again,
    and the other runs go on (with `fail_fast`, the function returns while some run). The caller
    closes the executor, which ends these.
    """
    campaign = _Campaign(tasks, executor, on_event)
    while campaign.start_what_fits() or campaign.running or campaign.waiting:
        if not campaign.running:
            campaign.tell_waiting()
        for news in executor.news(_LISTEN):
            campaign.note(news)
        if time.monotonic() > deadline:
            campaign.waiting.clear()
        if fail_fast and campaign.failures:
            break
    return tuple(campaign.failures)


class _Campaign:
    """The tasks that wait, that run, and that were tried before."""

    def __init__(self, tasks: Iterable[Task], executor: Executor, on_event: OnEvent) -> None:
        self.waiting = deque(tasks)
        self.running: dict[str, Task] = {}
        self.failures: list[Failure] = []
        self._tries: Counter[str] = Counter()
        self._ended = 0
        self._told = False
        self._executor, self._on_event = executor, on_event

    def start_what_fits(self) -> bool:
        """Start waiting tasks in order while they fit; return whether any started.

        Where the next task does not fit, one close behind it may: it can belong on another host.
        """
        started = False
        while (place := self._next()) is not None:
            task = self.waiting[place]
            del self.waiting[place]
            self.running[task.key] = task
            self._executor.start(task)
            self._on_event(TaskEvent("started", task, "starting", self._ended))
            started = True
        return started

    def tell_waiting(self) -> None:
        """Say once that the executor takes no run although none is running."""
        if not self._told and self.waiting:
            self._told = True
            text = "waits until the executor takes it"
            self._on_event(TaskEvent("phase", self.waiting[0], text, self._ended))

    def _next(self) -> int | None:
        ahead = enumerate(islice(self.waiting, _LOOK_AHEAD))
        return next((place for place, task in ahead if self._executor.fits(task)), None)

    def note(self, news: News) -> None:
        """Process a message of a run."""
        key = news.key
        task = self.running[key]
        if isinstance(news, Phase):
            self._on_event(TaskEvent("phase", task, news.text, self._ended))
            return
        del self.running[key]
        ended = news.ended
        if not ended.lost:
            self._tries[key] += 1
        if ended.lost or (ended.by_host and self._tries[key] < ended.tries):
            self.waiting.appendleft(task)
            self._on_event(TaskEvent("retry", task, f"tried again: {ended.error}", self._ended))
            return
        self._ended += 1
        if ended.ok:
            self._on_event(TaskEvent("done", task, "done", self._ended, ended.seconds))
            return
        self.failures.append(Failure(task.inputs.study, task.results, ended))
        self._on_event(
            TaskEvent("failed", task, f"failed: {ended.error}", self._ended, ended.seconds)
        )
        if ended.by_host:
            self.waiting.clear()
