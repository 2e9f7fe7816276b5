"""A load: tasks of several kinds, and changes while they run; `load_text` has its text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

PartKind = Literal["hog", "sleeper", "waker", "forker", "memory", "locker"]
KINDS: tuple[PartKind, ...] = get_args(PartKind)
Policy = Literal["fair", "batch", "idle", "fifo", "rr", "deadline"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
Channel = Literal["pipe", "futex", "socket"]
CHANNELS: tuple[Channel, ...] = get_args(Channel)
Cpus = tuple[int, ...]
_SLICED: tuple[Policy, ...] = ("fair", "batch")  # fair_policy(), kernel/sched/sched.h


@dataclass(frozen=True)
class Part:
    """A group of equal tasks.

    `count` tasks start bound to `start` (empty: to `cpus`) and are allowed on `cpus` when the
    time begins, on `later` (if any) from half of it on. `run_us` and `sleep_us` are what sleepers,
    wakers, forkers and lockers do in turns; a forker has `burst` children, a waker `burst` wakees.

    Policies are those of sched(7): `priority` is of fifo and rr, `runtime_us` in each `period_us`
    of deadline, due within `deadline_us` (0: the period), `slice_us` of fair and batch (0: the
    kernel's).

    Wakees are allowed on `wakee` (empty: as their waker) and woken over `over`. Children of
    forkers with `execs` execute a program. Hogs with `yields` yield each 200 us. Lockers of all
    parts share one lock with priority inheritance. Memory users have `mib` each, first touched
    where they start or on `node`, where it remains if `bound`; `threads` are of one process and
    share it; with `rest` nothing is touched in the second quarter of the time; `shared` memory is
    of all processes of the part. It consists of `areas` (VMAs); with enough for all threads,
    each thread uses its own.
    `group` is the cgroup of the tasks, if any. With `reclaim` deadline tasks use what others leave
    (SCHED_FLAG_RECLAIM, Documentation/scheduler/sched-deadline.rst). With `resets` children have
    the usual policy and no negative nice level (SCHED_RESET_ON_FORK, sched(7)).
    """

    kind: PartKind
    count: int
    cpus: Cpus
    start: Cpus = ()
    later: Cpus = ()
    nice: int = 0
    policy: Policy = "fair"
    priority: int = 0
    runtime_us: int = 0
    period_us: int = 0
    deadline_us: int = 0
    slice_us: int = 0
    run_us: int = 1000
    sleep_us: int = 1000
    burst: int = 1
    wakee: Cpus = ()
    over: Channel = "pipe"
    mib: int = 4
    areas: int = 1
    node: int | None = None
    threads: bool = False
    rest: bool = False
    shared: bool = False
    bound: bool = False
    execs: bool = False
    yields: bool = False
    reclaim: bool = False
    resets: bool = False
    group: str = ""

    @property
    def tasks(self) -> int:
        """The largest number of tasks at once."""
        return self.count * (1 + self.burst if self.kind in ("waker", "forker") else 1)

    @property
    def weight(self) -> float:
        """The weight of its tasks by their nice level; 1 for level 0.

        sched_prio_to_weight of kernel/sched/core.c (6.12) is 1024 times that, to a rounding of 1 %.
        """
        return float(1.25**-self.nice)

    @property
    def every_cpu(self) -> set[int]:
        """All CPUs that it names."""
        return {*self.cpus, *self.start, *self.later, *self.wakee}

    @property
    def is_real_time(self) -> bool:
        """Whether its tasks go before all fair ones."""
        return self.policy in ("fifo", "rr", "deadline")


@dataclass(frozen=True)
class Cgroup:
    """A cgroup for tasks (cgroup v2): its CPUs (empty: all), weight, and quota.

    `quota_ms` is the CPU time in each period (0: no limit), of which it may save `burst_ms`. With
    `idle` its tasks are as those of policy idle. A group that is a `parent` has no tasks of its
    own. The `cpus` of a `partition` are taken from all other tasks, and have sched domains of their
    own.
    """

    name: str
    parent: str = ""
    weight: int = 100
    quota_ms: int = 0
    period_ms: int = 100
    burst_ms: int = 0
    cpus: Cpus = ()
    idle: bool = False
    partition: bool = False


@dataclass(frozen=True)
class Hotplug:
    """A CPU that goes offline and online again, in ms after the start."""

    cpu: int
    off_ms: int
    on_ms: int


@dataclass(frozen=True)
class CpusetChange:
    """A cpuset of all tasks, whose CPUs change, in ms after the start."""

    before: Cpus
    after: Cpus
    at_ms: int


@dataclass(frozen=True)
class LoadChange:
    """A change of a part or of a group, in ms after the start; what is None or empty stays.

    It happens `times` times, each `every_ms`. `into` moves the tasks of the part to another group.
    `stop` sends SIGSTOP to the tasks of the part, `go` SIGCONT. `weight` and what follows are of a
    group; `quota_ms` of 0 removes its limit.
    """

    at_ms: int
    times: int = 1
    every_ms: int = 0
    part: int | None = None
    group: str = ""
    cpus: Cpus = ()
    nice: int | None = None
    policy: Policy | None = None
    priority: int = 0
    runtime_us: int = 0
    period_us: int = 0
    into: str = ""
    stop: bool = False
    go: bool = False
    weight: int = 0
    quota_ms: int | None = None
    period_ms: int = 0
    burst_ms: int | None = None
    idle: bool | None = None


@dataclass(frozen=True)
class Load:
    """Parts that run at the same time for `ms` milliseconds, and changes meanwhile.

    NUMA balancing scans `scan_mib` MiB of a process at once; 0: the kernel's default.
    """

    ms: int
    parts: tuple[Part, ...]
    hotplug: tuple[Hotplug, ...] = ()
    cpuset: CpusetChange | None = None
    groups: tuple[Cgroup, ...] = ()
    changes: tuple[LoadChange, ...] = ()
    scan_mib: int = 0

    @property
    def tasks(self) -> int:
        """The largest number of tasks at once."""
        return sum(part.tasks for part in self.parts)

    @property
    def every_cpu(self) -> set[int]:
        """All CPUs that it names."""
        named = set[int]().union(*(part.every_cpu for part in self.parts))
        named |= {change.cpu for change in self.hotplug}
        named.update(*[g.cpus for g in self.groups], *[c.cpus for c in self.changes])
        return named | ({*self.cpuset.before, *self.cpuset.after} if self.cpuset else set())

    @property
    def is_steady(self) -> bool:
        """Whether no CPU, mask, policy or group changes meanwhile."""
        return not self.changes_ms()

    @property
    def has_plain_tasks(self) -> bool:
        """Whether fair shares follow from nice levels alone, and every runnable task may run."""
        changed = any(
            change.group or change.stop or change.policy or change.into or change.nice is not None
            for change in self.changes
        )
        return not (changed or self.groups) and not any(
            part.policy in ("idle", "rr", "deadline") or part.yields or part.kind == "locker"
            or (part.policy == "fifo" and part.kind == "hog")
            for part in self.parts
        )  # fmt: skip

    @property
    def is_plain(self) -> bool:
        """Whether it has plain tasks, and nothing changes: absolute limits are from such loads."""
        return self.has_plain_tasks and self.is_steady

    @property
    def changes_machine(self) -> bool:
        """Whether CPUs or sched domains change, which may affect later loads."""
        return bool(self.hotplug) or any(group.partition for group in self.groups)

    @property
    def rebuilds_domains(self) -> bool:
        """Whether the kernel may build its sched domains anew meanwhile."""
        return self.changes_machine or self.cpuset is not None

    @cached_property
    def timeline(self) -> tuple[tuple[int, LoadChange], ...]:
        """Each change as often as it happens, with its time in ms after the start, in order."""
        happened = [
            (change.at_ms + number * change.every_ms, change)
            for change in self.changes
            for number in range(change.times)
        ]
        return tuple(sorted(happened, key=lambda pair: pair[0]))

    @cached_property
    def group_of(self) -> Mapping[str, Cgroup]:
        """The groups by name."""
        return {group.name: group for group in self.groups}

    @cached_property
    def at_end(self) -> "Load":
        """The load with the settings that its last changes leave, and without these changes."""
        parts = [
            replace(part, later=(), slice_us=part.slice_us if part.policy in _SLICED else 0)
            for part in self.parts
        ]
        groups = {group.name: group for group in self.groups}
        for _, change in self.timeline:
            if change.part is not None:
                parts[change.part] = _changed_part(parts[change.part], change)
            else:
                groups[change.group] = _changed_group(groups[change.group], change)
        left = tuple(replace(part, cpus=self._mask(n, self.ms)) for n, part in enumerate(parts))
        return replace(self, parts=left, groups=tuple(groups.values()), changes=())

    @property
    def stops_any(self) -> bool:
        """Whether tasks are stopped at the end."""
        stopped: dict[int | None, bool] = {}
        for _, change in self.timeline:
            stopped[change.part] = not change.go and (
                change.stop or stopped.get(change.part, False)
            )
        return any(stopped.values())

    def keep(self, places: Sequence[int]) -> "Load":
        """Return the load with only these parts, and without changes of the others."""
        new = {place: number for number, place in enumerate(places)}
        parts = tuple(self.parts[place] for place in places)
        changes = tuple(
            change if change.part is None else replace(change, part=new[change.part])
            for change in self.changes
            if change.part is None or change.part in new
        )
        return replace(self, parts=parts, changes=changes)

    def names_in(self, group: Cgroup) -> set[str]:
        """Return the names of a group and of the groups below it."""
        names = {group.name}
        for other in self.groups:  # parents come first
            names |= {other.name} if other.parent in names else set()
        return names

    def places_in(self, group: Cgroup) -> list[int]:
        """Return the parts of a group and of the groups below it."""
        names = self.names_in(group)
        return [place for place, part in enumerate(self.parts) if part.group in names]

    def has_quota(self, part: Part) -> bool:
        """Whether a quota may stop the tasks of a part."""
        places = {place for place, other in enumerate(self.parts) if other == part}
        names = {part.group} | {change.into for change in self.changes if change.part in places}
        return any(map(self.is_limited, names))

    def is_limited(self, name: str) -> bool:
        """Whether a group, or one above it, has a quota at any time."""
        above = [group.name for group in self._above(name)]
        return any(self.group_of[name].quota_ms for name in above) or any(
            change.quota_ms for change in self.changes if change.group in above
        )

    def limits_of(self, group: Cgroup) -> list[Cgroup]:
        """Return a group with its settings at first, and after each change of it."""
        limits = [group]
        for _, change in self.timeline:
            if change.group == group.name:
                limits.append(_changed_group(limits[-1], change))
        return limits

    def masks(self, place: int, at_ms: float, *, wakees: bool = False) -> frozenset[int]:
        """Return the CPUs allowed for the tasks of a part, or its wakees, at a time."""
        part = self.parts[place]
        own = self._mask(place, at_ms)
        own = part.wakee if wakees and part.wakee else own
        return self._in_cpusets(frozenset(own), place, at_ms)

    def _mask(self, place: int, at_ms: float) -> tuple[int, ...]:
        later = self.parts[place].later if at_ms >= self.ms / 2 else ()
        own = later or self.parts[place].cpus
        for ms, change in self.timeline:
            if change.part == place and change.cpus and at_ms >= ms:
                own = later if later and ms <= self.ms / 2 else change.cpus
        return own

    def cpuset_of(self, place: int, at_ms: float) -> frozenset[int]:
        """Return the CPUs of the cpuset of a part at a time; none without a cpuset."""
        return self._in_cpusets(frozenset(), place, at_ms)

    def _in_cpusets(self, allowed: frozenset[int], place: int, at_ms: float) -> frozenset[int]:
        name = self.parts[place].group
        for ms, change in self.timeline:
            name = change.into if change.part == place and change.into and at_ms >= ms else name
        cpus_of = {group.name: group.cpus for group in reversed(self._above(name))}
        for ms, change in self.timeline:
            if change.group in cpus_of and change.cpus and at_ms >= ms:
                cpus_of[change.group] = change.cpus
        both = self.cpuset
        whole = [] if both is None else [both.before if at_ms < both.at_ms else both.after]
        for group in self.groups:
            if group.partition and group.name not in cpus_of:
                whole.append(tuple(sorted(self.every_cpu - set(group.cpus))))
        for cpus in filter(None, [*whole, *cpus_of.values()]):
            # A mask without a CPU of the cpuset is ignored (cpuset_cpus_allowed()).
            allowed = allowed & frozenset(cpus) or frozenset(cpus)
        return allowed

    def changes_ms(self, *, but_later: bool = False) -> tuple[float, ...]:
        """Return the times of changes, in ms after the start, in order.

        With `but_later`, without those of `later` of parts, at half of the time.
        """
        has_later = any(part.later for part in self.parts) and not but_later
        times = [float(self.ms) / 2] if has_later else []
        times += [self.cpuset.at_ms] if self.cpuset else []
        times += [ms for change in self.hotplug for ms in (change.off_ms, change.on_ms)]
        times += [ms for ms, _ in self.timeline]
        return tuple(sorted(times))

    def _above(self, name: str) -> list[Cgroup]:
        """Return a group and those above it."""
        above: list[Cgroup] = []
        while name in self.group_of and len(above) < len(self.groups):
            above.append(self.group_of[name])
            name = above[-1].parent
        return above


def _changed_part(part: Part, change: LoadChange) -> Part:
    if change.policy is not None:  # sched_setattr(2) sets all of a policy's own settings
        is_fair = change.policy in _SLICED  # other ones keep nice level and slice
        part = replace(
            part,
            policy=change.policy,
            priority=change.priority,
            nice=0 if is_fair else part.nice,
            slice_us=0 if is_fair else part.slice_us,
            runtime_us=change.runtime_us,
            period_us=change.period_us,
            deadline_us=0,
            reclaim=False,
            resets=False,
        )
    nice = part.nice if change.nice is None else change.nice
    return replace(part, nice=nice, group=change.into or part.group)


def _changed_group(group: Cgroup, change: LoadChange) -> Cgroup:
    return replace(
        group,
        weight=change.weight or group.weight,
        quota_ms=group.quota_ms if change.quota_ms is None else change.quota_ms,
        period_ms=change.period_ms or group.period_ms,
        burst_ms=group.burst_ms if change.burst_ms is None else change.burst_ms,
        idle=group.idle if change.idle is None else change.idle,
        cpus=change.cpus or group.cpus,
    )
