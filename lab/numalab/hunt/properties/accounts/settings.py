"""What the kernel says of the settings of tasks, beside what the load asked for."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from numalab.cpulist import format_cpulist
from numalab.hunt.loads.load import Load, Part, Policy
from numalab.hunt.loads.settings_output import TaskSettings
from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import LoadRecording

# SCHED_OTHER to SCHED_DEADLINE of include/uapi/linux/sched.h.
_NUMBERS: tuple[Policy | None, ...] = ("fair", "fifo", "rr", "batch", None, "idle", "deadline")
_RESETS, _RECLAIM = 1, 2  # SCHED_FLAG_RESET_ON_FORK, SCHED_FLAG_RECLAIM
_SLICE_US = (100, 100_000)  # __setscheduler_params(), kernel/sched/syscalls.c, 6.12
_NICE_0, _IDLE = 1 << 20, 3 << 10  # scale_load(); WEIGHT_IDLEPRIO, kernel/sched/sched.h
_ROUNDED = 0.03  # sched_prio_to_weight has whole numbers, and neighbours differ by 25 %


@register_property("task-settings", unit="tasks", most=0.0, any_load=True)
def task_settings(run: LoadRecording) -> Iterator[Observation]:
    """Tasks have their last settings.

    Read when all are stopped: mask, nice level, priority and weight in /proc, and what
    sched_getattr(2) returns. The mask is that of the task within its cpuset, or the cpuset. Loads
    in which a call was refused are left out, and masks without a CPU on line, those that were set
    while a CPU was off line and, beside partitions, those outside them.
    """
    if run.printed.refused:
        return
    for (place, wakees), tasks in run.printed.settings.tasks.items():
        if place >= len(run.load.parts):
            continue
        asked = _asked(run.load.at_end.parts[place])
        cpus = _mask(run.load, place, wakees=wakees)
        wrong = [text for task in tasks if (text := _difference(asked, cpus, task))]
        kind = "wakee" if wakees else run.load.parts[place].kind
        text = f"a {kind} has {wrong[0]}" if wrong else f"each {kind} has its settings"
        yield Observation(len(wrong), text)


@register_property("refusals", unit="calls", most=0.0, any_load=True)
def refusals(run: LoadRecording) -> Iterator[Observation]:
    """No setting is refused.

    The value is how many policies, masks and nice levels, files of cgroups, moves of tasks between
    these and changes of CPUs were refused. Weak: loads may ask for more than is admitted, or for
    what an old kernel does not have. So it counts where the reference kernel refuses nothing.
    """
    if "denied" in run.printed.counters.get("end", {}):
        refused, denied = run.printed.refused, run.printed.denied
        text = f"{refused} settings of tasks and {denied} of cgroups and CPUs were refused"
        yield Observation(refused + denied, text, weak=True)


@register_property("inherited", unit="children", most=0.0, any_load=True)
def inherited(run: LoadRecording) -> Iterator[Observation]:
    """Children have their parents' settings or, with reset-on-fork, defaults.

    A child compares them at its begin, and later if of its parent alone nothing has changed.
    Resets are those of SCHED_RESET_ON_FORK (sched(7)).
    """
    settings = run.printed.settings
    for place, differing in settings.differing.items():
        for what, count in differing.items():
            yield Observation(
                count,
                f"of {settings.children[place]} comparisons of children of part {place} with their"
                f" parents {count} differ in the {what}",
            )


@dataclass(frozen=True)
class _Asked:
    """What a task was last asked to have, as sched_getattr(2) tells it; `runtime` 0: any."""

    policy: Policy
    nice: int
    priority: int
    flags: int
    runtime: int
    deadline: int
    period: int
    any_rank: bool

    @property
    def rank(self) -> int:
        """The priority in /proc/PID/stat: task_prio(), kernel/sched/syscalls.c, 6.12."""
        ranks: dict[Policy, int] = {
            "fifo": -1 - self.priority, "rr": -1 - self.priority, "deadline": -101
        }  # fmt: skip
        return ranks.get(self.policy, 20 + self.nice)


def _asked(part: Part) -> _Asked:
    """Return the settings of a part after all changes."""
    if part.policy == "deadline":
        times = (part.runtime_us, part.deadline_us or part.period_us, part.period_us)
    else:
        low, high = _SLICE_US
        fair = part.policy not in ("fifo", "rr") and part.slice_us
        times = (min(max(part.slice_us, low), high) if fair else 0, 0, 0)
    ranked = part.priority if part.policy in ("fifo", "rr") else 0
    flags = _RESETS * part.resets + _RECLAIM * part.reclaim
    runtime, deadline, period = (1000 * us for us in times)
    # A lock may lend a rank, and that of policy idle has the nice level that was given with it
    # (__sched_setscheduler(), 6.12).
    any_rank = part.kind == "locker" or part.policy == "idle"
    return _Asked(part.policy, part.nice, ranked, flags, runtime, deadline, period, any_rank)


def _mask(load: Load, place: int, *, wakees: bool) -> frozenset[int] | None:
    """Return the CPUs on which tasks of a part are allowed at the end; None if it depends."""
    part = load.parts[place]
    partitions = {group.name for group in load.groups if group.partition}
    if (partitions and part.group not in partitions) or _has_two_masks(load, place, part):
        return None
    if _is_set_while_off(load, place, part):
        return None
    gone = {change.cpu for change in load.hotplug}
    times = [0.0, *load.changes_ms(), math.inf]
    masks = [load.masks(place, at_ms, wakees=wakees) for at_ms in times]
    return masks[-1] if all(mask - gone for mask in masks) else None


def _is_set_while_off(load: Load, place: int, part: Part) -> bool:
    """Whether the last mask was set while a CPU was off line, which kernels before 6.2 left out."""
    times = [load.ms / 2] if part.later else []
    times += [ms for ms, change in load.timeline if change.part == place and change.cpus]
    last = max(times, default=-1.0)
    return any(hotplug.off_ms <= last <= hotplug.on_ms for hotplug in load.hotplug)


def _has_two_masks(load: Load, place: int, part: Part) -> bool:
    """Whether a part gets a mask at half of the time, and in changes."""
    return bool(part.later) and any(c.part == place and c.cpus for c in load.changes)


def _difference(asked: _Asked, cpus: frozenset[int] | None, task: TaskSettings) -> str:
    """Return in words what a task has, and what it was asked to have; "" if both are equal."""
    policy = dict(enumerate(_NUMBERS)).get(task.policy) or task.policy
    weight = _IDLE if asked.policy == "idle" else _NICE_0 * 1.25**-asked.nice
    # The kernel tells slices since 6.12, and weights with CONFIG_SCHED_DEBUG.
    any_runtime = not (asked.runtime and (task.runtime or asked.deadline))
    any_weight = task.weight == -1 or abs(task.weight / weight - 1) <= _ROUNDED
    settings: tuple[tuple[str, object, object, bool], ...] = (
        ("mask", _list(task.cpus), _list(cpus or ()), cpus is None),
        ("policy", policy, asked.policy, False),
        ("nice level", task.nice, asked.nice, False),
        ("priority", task.priority, asked.priority, False),
        ("flags", task.flags, asked.flags, False),
        ("runtime or slice", task.runtime, asked.runtime, any_runtime),
        ("deadline", task.deadline, asked.deadline, False),
        ("period", task.period, asked.period, False),
        ("priority of /proc/PID/stat", task.rank, asked.rank, asked.any_rank),
        ("load weight", task.weight, round(weight), any_weight),
    )
    differing = (
        f"the {name} {has}, not {wanted}"
        for name, has, wanted, is_right in settings
        if has != wanted and not is_right
    )
    return next(differing, "")


def _list(cpus: Iterable[int]) -> str:
    return format_cpulist(sorted(cpus))
