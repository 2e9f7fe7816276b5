"""Runs studies on this host: as many guests at once as its CPUs and memory allow."""

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from numalab.campaign.carry_out import (
    Failure,
    Happening,
    OnWait,
    Tell,
    carry_out,
    claim_results,
    claimed,
    lacking,
)
from numalab.campaign.cost_model import Cost, Costs
from numalab.campaign.execute import execute_task
from numalab.campaign.executors.processes import Executor, Workers
from numalab.campaign.prepare import Builds
from numalab.campaign.schedule import Capacity, longest_first
from numalab.campaign.stopping import StoppingRule, look
from numalab.campaign.task import Execute, Setting, Task, make_tasks
from numalab.host.read import available_mib
from numalab.machine.model import Mode
from numalab.placement.admission import free_places
from numalab.results.layout import Results
from numalab.results.remarks import TimeOverRemark
from numalab.study.guest import measures_time
from numalab.study.model import Study
from numalab.study.plan import Plan, select
from numalab.topology.model import Topology


@dataclass(frozen=True)
class Ready:
    """A study of which everything is built, and where its results go."""

    plan: Plan
    prepared: Builds
    results: Results
    setting: Setting


@dataclass(frozen=True)
class Outlook:
    """The runs to do, in the order in which they start, what each costs, and how many at once."""

    tasks: tuple[Task, ...]
    costs: tuple[Cost, ...]
    jobs: int


def run_here(
    studies: Sequence[Ready],
    jobs: int | None,
    watch: Callable[[Outlook], Tell],
    *,
    rule: StoppingRule | None = None,
    fail_fast: bool = False,
    execute: Execute = execute_task,
    executor: Executor | None = None,
    on_wait: OnWait | None = None,
    deadline: float = math.inf,
) -> tuple[Failure, ...]:
    """Execute the runs that the results of some studies lack; returns the failures.

    `jobs` is how many at once; None: as many as `default_jobs` says. `watch` is told what is to be
    done, and returns what is told of it. With a `rule`, repetitions are added until it is met.
    `executor` is where runs are executed instead of on this host, as many at once as it takes.
    `on_wait` is told whose results another numalab has just now. No run starts after `deadline` (a
    time of the monotonic clock); the report then says so, and runs start in the order of the plan,
    whose first tell most. Raises UserError when results belong to another study, HostError when
    another numalab goes on to use them.
    """
    costs = Costs()
    with ExitStack() as stack:
        claims = [(study.plan, study.results) for study in studies]
        locks = stack.enter_context(claimed(claims, on_wait))
        tasks = [task for study in studies for task in _lacking(study)]
        if executor is not None:
            stack.enter_context(closing(executor))
        failures: list[Failure] = []
        while tasks:
            places = jobs or default_jobs(tasks)
            if executor is None:
                executor = Workers(capacity(places, tasks), execute, locks)
                stack.enter_context(closing(executor))
            if places > 1 and deadline == math.inf:
                tasks = longest_first(tasks, lambda task: cost_of(task, costs).seconds)
            every = tuple(cost_of(task, costs) for task in tasks)
            outlook = Outlook(tuple(tasks), every, min(places, len(tasks)))
            tell = _learning(watch(outlook), costs)
            failures += carry_out(tasks, executor, tell, fail_fast=fail_fast, deadline=deadline)
            if time.monotonic() > deadline:
                for study in studies:
                    _cut_short(study)
                break
            if rule is None or failures:
                break
            studies = [_prolonged(study, rule) for study in studies]
            tasks = [task for study in studies for task in _lacking(study)]
        return tuple(failures)


def _learning(tell: Tell, costs: Costs) -> Tell:
    """Remember what runs cost, besides telling what happens."""

    def told(happening: Happening) -> None:
        task = happening.task
        if happening.kind == "done":
            mode = task.setting.choice.mode
            costs.learn(task.topology, task.workload, mode, happening.seconds)
        tell(happening)

    return told


def _prolonged(study: Ready, rule: StoppingRule) -> Ready:
    """Add the repetitions that the rule asks for to a study's plan and to its results."""
    found = look(study.plan, study.results, rule)
    others = tuple(each for each in study.plan.remarks if not rule.made(each))
    plan = replace(study.plan, remarks=others)
    plan = select(plan, plan.runs + found.more, rule.remark(found.decided))
    claim_results(plan, study.results)
    return replace(study, plan=plan)


def _cut_short(study: Ready) -> None:
    """Write to a study's results that the time was over before all of its runs could start."""
    left = _lacking(study)
    if left:
        finished = study.results.finished()
        done = (run for run in study.plan.runs if run.id in finished)
        plan = select(study.plan, done, TimeOverRemark(left=len(left)))
        claim_results(plan, study.results)


def _lacking(study: Ready) -> list[Task]:
    tasks = make_tasks(study.plan, study.prepared, study.results, study.setting)
    return lacking(tasks, study.results)


def cost_of(task: Task, costs: Costs) -> Cost:
    """Return what a task costs on this host."""
    slow = task.study.machine.slow_motion
    return costs.of(task.topology, task.workload, task.setting.choice.mode, slow)


def default_jobs(tasks: Sequence[Task]) -> int:
    """Return how many guests run at once by default: what each of their studies allows."""
    studies = {(id(task.study), task.setting.choice.mode): task for task in tasks}
    return min(
        at_once(task.study, task.setting.choice.mode, [each.topology for each in tasks])
        for task in studies.values()
    )


def at_once(study: Study, mode: Mode, topologies: Iterable[Topology]) -> int:
    """Return how many guests of a study run at once by default.

    Where they are emulated, one on each CPU, as one thread runs all vCPUs of a guest. In kvm mode
    as many as have free host CPUs of their own; but only one where time is measured, as those
    beside it would share caches and memory with it, and no two have the same CPUs.
    """
    if mode != "kvm":
        return len(os.sched_getaffinity(0))
    if measures_time(study):
        return 1
    return free_places(mode, max(topology.cpu_count for topology in topologies))


def capacity(jobs: int, tasks: Sequence[Task]) -> Capacity:
    """Return what this host has for guests now; emulated ones may share its CPUs."""
    cpus = len(os.sched_getaffinity(0))
    if all(task.setting.choice.mode != "kvm" for task in tasks):
        cpus = max(jobs, cpus)
    return Capacity(jobs, available_mib(), cpus)
