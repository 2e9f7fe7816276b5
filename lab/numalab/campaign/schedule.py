"""The schedule of runs: order, number at once, time, and selection for a budget."""

import heapq
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from numalab.campaign.build import BuiltStudy
from numalab.campaign.cost_model import Cost, Costs
from numalab.campaign.task import Task, make_tasks
from numalab.errors import UserError
from numalab.host.read import available_mib, read_host
from numalab.limits.cgroup import cpu_limit, usable_cpus
from numalab.machine.model import Mode
from numalab.placement.admission import free_places, guest_cpus
from numalab.results.plan import BudgetRemark, Cell, PlannedRun
from numalab.study.guest import measures_time
from numalab.study.model import Study
from numalab.study.plan import Plan, select
from numalab.topology.topology import Topology
from numalab.units import format_seconds


@dataclass(frozen=True)
class Capacity:
    """The most runs at once, and the host's memory and CPUs for them."""

    places: int
    memory_mib: int
    cpus: int

    def fits(self, task: Task, running: Iterable[Task]) -> bool:
        """Return whether a run may start beside the running ones.

        A run may always start alone: where the host is too small, its start fails.
        """
        beside = list(running)
        if not beside:
            return True
        memory = task.memory_mib + sum(other.memory_mib for other in beside)
        cpus = task.cpus + sum(other.cpus for other in beside)
        return len(beside) < self.places and memory <= self.memory_mib and cpus <= self.cpus


def longest_first(tasks: Sequence[Task], seconds: Callable[[Task], float]) -> list[Task]:
    """Order runs so that the longest start first and the variants of a repetition stay together.

    A long run that starts last would leave the other places idle (R. L. Graham, SIAM J. Appl.
    Math. 17, 1969, 416-429).
    """
    groups: dict[tuple[str, str, str, int], list[Task]] = {}
    for task in tasks:
        run = task.run
        group = (str(task.results.path), run.topology, run.workload, run.seed)
        groups.setdefault(group, []).append(task)
    order = sorted(groups.values(), key=lambda group: -max(map(seconds, group)))
    return [task for group in order for task in group]


def makespan(seconds: Iterable[float], places: int) -> float:
    """Return how long runs take in this order when each starts as soon as a place is free."""
    return max(free_times([0.0] * max(1, places), seconds))


def free_times(ends: Sequence[float], seconds: Iterable[float]) -> list[float]:
    """Return when each place is free after some more runs; `ends` are a heap, before and after."""
    after = list(ends)
    for duration in seconds:
        heapq.heapreplace(after, after[0] + duration)
    return after


def cost_of(task: Task, costs: Costs) -> Cost:
    """Return the cost of a task on this host."""
    return costs.of(task.topology, task.workload, task.mode, task.study.machine)


def default_jobs(tasks: Sequence[Task]) -> int:
    """Return how many guests run at once by default: the least that a study of theirs allows."""
    studies = {(id(task.study), task.mode): task for task in tasks}
    topologies = [task.topology for task in tasks]
    return min(at_once(task.study, task.mode, topologies) for task in studies.values())


def at_once(study: Study, mode: Mode, topologies: Iterable[Topology]) -> int:
    """Return how many guests of a study run at once by default.

    Emulated guests: one on each CPU, as one thread runs all vCPUs of a guest. In kvm mode, as many
    as have free host CPUs of their own; but only one where time is measured, as guests beside it
    would share caches and memory with it, and no two have the same CPUs.
    """
    if mode != "kvm":
        return usable_cpus()
    if measures_time(study):
        return 1
    return free_places(mode, max(topology.cpu_count for topology in topologies))


def capacity(jobs: int, tasks: Sequence[Task]) -> Capacity:
    """Return what this host has for guests now. Emulated guests may share its CPUs.

    Guests in mode kvm may also have isolated CPUs, on which this process does not run.
    """
    if all(task.mode != "kvm" for task in tasks):
        cpus = max(jobs, usable_cpus())
    else:
        every, limit = len(guest_cpus(read_host())), cpu_limit()
        cpus = every if limit is None else max(1, min(every, int(limit)))
    return Capacity(jobs, available_mib(), cpus)


@dataclass(frozen=True)
class _Group:
    """All variants of a repetition in a cell: only together can they be compared."""

    repetition: int
    cell: Cell
    runs: tuple[PlannedRun, ...]
    seconds: tuple[float, ...]


def within_seconds(study: BuiltStudy, seconds: float, jobs: int | None) -> BuiltStudy:
    """Return a study that leaves out all but the most useful runs that fit in so many wall seconds.

    Runs that its results have take no time. Its plan keeps all runs. Raises UserError when
    something is left to run and not even one comparison fits.
    """
    tasks, costs, finished = make_tasks(study), Costs(), study.results.finished()
    cost = {
        task.run: 0.0 if task.run.id in finished else cost_of(task, costs).seconds for task in tasks
    }
    places = jobs or default_jobs(tasks)
    fitting = within_budget(study.plan, seconds, cost.__getitem__, places, done=finished)
    left_out = {run.id for run in study.plan.runs} - {run.id for run in fitting.runs}
    plan = replace(study.plan, remarks=fitting.remarks)
    return replace(study, plan=plan, left_out=frozenset(left_out))


def further_within(study: BuiltStudy, seconds: float, jobs: int | None) -> BuiltStudy:
    """Return a study with those of its left-out runs that fit in so many further wall seconds.

    The times of finished runs replace estimates, which may have been far too long. The remark on
    the budget counts the further runs.
    """
    plan, kept = study.plan, [r for r in study.plan.remarks if not isinstance(r, BudgetRemark)]
    budgets = [remark for remark in plan.remarks if isinstance(remark, BudgetRemark)]
    try:
        fitting = within_seconds(study, seconds, jobs)
    except UserError:  # no further comparison fits
        return study
    left = len(fitting.left_out)
    counted = [budget.model_copy(update={"chosen": budget.planned - left}) for budget in budgets]
    remarks = (*kept, *counted) if left else tuple(kept)
    return replace(fitting, plan=replace(plan, remarks=remarks))


def within_budget(
    plan: Plan,
    seconds: float,
    cost: Callable[[PlannedRun], float],
    jobs: int = 1,
    done: Collection[str] = (),
) -> Plan:
    """Return the plan with the most useful runs that fit in so many wall seconds, `jobs` at once.

    Every topology and every workload comes first, then every cell, then repetitions: each repeats
    all cells before the next one begins. The variants of a repetition stay together. Groups that
    do not fit are left out; cheaper ones after them may still fit. Groups that cost nothing always
    fit, and runs that are `done` stay. Raises UserError when others are there and not even one
    fits.
    """
    chosen: list[PlannedRun] = []
    ends = [0.0] * max(1, jobs)
    groups = _most_useful_first(_groups(plan, cost))
    for group in groups:
        after = free_times(ends, group.seconds)
        if max(after) <= seconds or not any(group.seconds):
            chosen += group.runs
            ends = after
    open_groups = [group for group in groups if any(group.seconds)]
    if open_groups and not any(ends):
        least = min(makespan(group.seconds, jobs) for group in open_groups)
        raise UserError(
            f"no comparison of {plan.name} fits into {format_seconds(max(0.0, seconds))},"
            " its share of the time that the builds leave;"
            f" the shortest takes about {format_seconds(least)}",
            key="--budget",
        )
    kept = set(chosen)
    runs = tuple(run for run in plan.runs if run in kept or run.id in done)
    if runs == plan.runs:
        return plan
    remark = BudgetRemark(chosen=len(runs), planned=len(plan.runs), seconds=float(seconds))
    return select(plan, runs, remark)


def _groups(plan: Plan, cost: Callable[[PlannedRun], float]) -> list[_Group]:
    seeds = dict.fromkeys(run.seed for run in plan.runs)
    repetitions = {seed: place for place, seed in enumerate(seeds)}
    sorted_runs: dict[tuple[int, Cell], list[PlannedRun]] = {}
    for run in plan.runs:
        sorted_runs.setdefault((repetitions[run.seed], run.cell), []).append(run)
    return [
        _Group(repetition, cell, tuple(runs), tuple(map(cost, runs)))
        for (repetition, cell), runs in sorted_runs.items()
    ]


def _most_useful_first(groups: Sequence[_Group]) -> list[_Group]:
    """Order groups: by repetition, and in the first one by how many values of axes are new."""
    left = sorted(groups, key=lambda group: group.repetition)
    order: list[_Group] = []
    covered: set[str] = set()
    while left and left[0].repetition == groups[0].repetition:
        first = [group for group in left if group.repetition == left[0].repetition]
        best = max(
            first, key=lambda group: (len(_values(group.cell) - covered), -sum(group.seconds))
        )
        covered |= _values(best.cell)
        order.append(best)
        left.remove(best)
    return [*order, *left]


def _values(cell: Cell) -> set[str]:
    return {f"topology {cell.topology}", f"workload {cell.label}"}
