"""Generate loads that change while they run: once, or time and again between two states.

What a change costs, and where tasks go after it, takes milliseconds. Repeated changes make it a
large part of a load.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from numalab.hunt.generate.draw import Family, everywhere, node_cpus, some_cpus
from numalab.hunt.loads.load import (
    Cgroup,
    Cpus,
    CpusetChange,
    Hotplug,
    Load,
    LoadChange,
    Part,
    Policy,
)
from numalab.topology.topology import Topology

MS = 1500  # of a load with changes that repeat
_FIRST_MS, _LAST_MS = 100, 1000  # of changes that repeat: then the load settles
_SPREAD_MS = 700  # when tasks of a load with hotplug may spread
GAPS_MS = (15, 40, 80, 150)


def changing(rng: random.Random, machine: Topology) -> Load | None:
    """Hogs and sleepers whose mask, weight or policy changes while they run, or which stop."""
    allowed = everywhere(machine)
    parts = (
        Part("hog", len(allowed), allowed),
        Part("hog", rng.randint(1, len(allowed)), allowed, nice=rng.choice((0, 5))),
        Part("sleeper", max(1, len(allowed) // 2), allowed, run_us=700, sleep_us=1500),
    )
    changes = tuple(rng.choice(_CHANGES)(rng, part, allowed) for part in rng.sample((0, 1, 2), 2))
    times = sorted(rng.sample(range(100, 600, 50), len(changes) + 1))
    timed = [replace(change, at_ms=at) for change, at in zip(changes, times, strict=False)]
    timed += [LoadChange(times[-1], part=change.part, go=True) for change in timed if change.stop][
        :1
    ]
    return Load(1500, parts, changes=tuple(timed))


def reranked(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks whose policy and priority change while they run or sleep, on CPUs that all share."""
    allowed = everywhere(machine)
    if len(allowed) < 2:
        return None
    run = rng.choice((1000, 4000))
    few = rng.choice((allowed, some_cpus(rng, allowed, rng.randint(1, len(allowed)))))
    ranks: list[tuple[Policy, int]] = [
        ("fifo", rng.choice((5, 40, 70))), ("rr", rng.choice((20, 60))), ("fair", 0)
    ]  # fmt: skip
    rng.shuffle(ranks)
    parts = [
        Part("sleeper", len(few), few, policy=policy, priority=priority, run_us=run, sleep_us=run)
        for policy, priority in ranks
    ]
    parts.append(Part("hog", len(allowed), allowed))
    times = sorted(rng.sample(range(200, 1200, 100), 3))
    changes = []
    for at, part in zip(times, rng.choices((0, 1, 2), k=3), strict=True):
        policy, priority = rng.choice((*ranks, ("fifo", 80), ("rr", 2), ("batch", 0)))
        changes.append(LoadChange(at, part=part, policy=policy, priority=priority))
    return Load(1500, tuple(parts), changes=tuple(changes))


def _new_mask(rng: random.Random, part: int, allowed: Cpus) -> LoadChange:
    return LoadChange(0, part=part, cpus=some_cpus(rng, allowed, rng.randint(1, len(allowed))))


def _new_nice(rng: random.Random, part: int, _allowed: Cpus) -> LoadChange:
    return LoadChange(0, part=part, nice=rng.choice((-10, -5, 5, 10, 19)))


def _new_policy(rng: random.Random, part: int, _allowed: Cpus) -> LoadChange:
    return LoadChange(0, part=part, policy=rng.choice(("batch", "idle", "fair")))


def _stop(_rng: random.Random, part: int, _allowed: Cpus) -> LoadChange:
    return LoadChange(0, part=part, stop=True)


_CHANGES: tuple[Callable[[random.Random, int, Cpus], LoadChange], ...] = (
    _new_mask,
    _new_mask,
    _new_nice,
    _new_policy,
    _stop,
)


def in_turn(first: LoadChange, second: LoadChange, gap_ms: int) -> tuple[LoadChange, ...]:
    """Return two changes that happen in turn, each `gap_ms` after the other, and end together."""
    times = max(1, (_LAST_MS - _FIRST_MS) // (2 * gap_ms))
    return tuple(
        replace(change, at_ms=_FIRST_MS + late, times=times, every_ms=2 * gap_ms)
        for change, late in ((first, 0), (second, gap_ms))
    )


def masks_in_turn(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks that get one of two masks in turn, and each time spread over its CPUs anew."""
    allowed = everywhere(machine)
    if len(allowed) < 3:
        return None
    half = max(1, len(allowed) // 2)
    first = rng.choice((node_cpus(rng, machine), some_cpus(rng, allowed, half)))
    rest = tuple(cpu for cpu in allowed if cpu not in first)
    second = rng.choice((node_cpus(rng, machine), rest or allowed, allowed))
    count = max(1, min(len(first), len(second)) - rng.choice((0, 0, 1)))
    mine = Part("hog", count, first)
    hogs = rng.randint(1, half)
    if rng.random() < 0.5:
        run = rng.choice((500, 2000))
        mine = Part("sleeper", count, first, run_us=run, sleep_us=run)
        hogs = rng.choice((hogs, len(allowed)))  # with one on each CPU, a sleeper competes
    parts = [mine, Part("hog", hogs, allowed)]
    changes = in_turn(
        LoadChange(0, part=0, cpus=second), LoadChange(0, part=0, cpus=first), rng.choice(GAPS_MS)
    )
    return Load(MS, tuple(parts[: rng.choice((1, 2))]), changes=changes)


def policies_in_turn(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks that are fair and of another policy, weight or state in turn, beside hogs."""
    allowed = everywhere(machine)
    if len(allowed) < 2:
        return None
    count = rng.randint(1, len(allowed))
    run = rng.choice((500, 2000))
    mine = rng.choice((
        Part("hog", count, allowed),
        Part("sleeper", count, allowed, run_us=run, sleep_us=run),
        Part("sleeper", count, allowed, some_cpus(rng, allowed, 1), run_us=run, sleep_us=4 * run),
    ))  # fmt: skip
    first, second = rng.choice(_PAIRS)
    if first.policy in ("fifo", "rr") and mine.kind == "hog":
        first = LoadChange(0, part=0, policy="batch")  # or nothing would be left to the driver
    parts = (mine, Part("hog", rng.randint(1, len(allowed)), allowed))
    return Load(MS, parts, changes=in_turn(first, second, rng.choice(GAPS_MS)))


def priorities_in_turn(rng: random.Random, machine: Topology) -> Load | None:
    """Real-time hogs whose priority is above and below that of hogs that wait, in turn.

    They share all CPUs but one, or are bound to one: tasks that are bound are never pushed away.
    """
    allowed = everywhere(machine)
    if len(allowed) < 3:
        return None
    taken = allowed[1:]  # the first is left to fair tasks
    taken = some_cpus(rng, taken, 1) if rng.random() < 0.4 else taken
    policy: Policy = rng.choice(("fifo", "rr"))
    changing = rng.randint(1, max(1, len(taken) - 1))
    high, between, low = sorted(rng.sample(range(5, 90, 5), 3), reverse=True)
    parts = tuple(
        Part("hog", count, taken, policy=policy, priority=priority)
        for count, priority in (
            (changing, high), (len(taken) - changing, high), (rng.randint(1, changing), between)
        )
        if count
    )  # fmt: skip
    lowered, raised = (
        LoadChange(0, part=0, policy=policy, priority=priority) for priority in (low, high)
    )
    return Load(MS, parts, changes=in_turn(lowered, raised, rng.choice(GAPS_MS)))


def deadlines_in_turn(rng: random.Random, machine: Topology) -> Load | None:
    """Deadline tasks that get one of two runtimes and periods in turn, or are fair in turn.

    Others with deadlines compete with them; all are admitted.
    """
    allowed = everywhere(machine)
    if len(allowed) < 2:
        return None
    half = len(allowed) // 2
    (runtime, period), (other, its_period) = rng.sample(_SERVERS, 2)
    run = rng.choice((runtime // 4, 2 * runtime))
    mine = Part("hog", half, allowed, policy="deadline", runtime_us=runtime, period_us=period)
    if rng.random() < 0.5:
        rest = rng.choice((run, period, 3 * period))
        mine = replace(mine, kind="sleeper", run_us=run, sleep_us=rest)
    parts = (
        mine,
        Part("hog", len(allowed) - half, allowed, policy="deadline", runtime_us=4000,
             period_us=20_000),
        Part("hog", rng.randint(1, len(allowed)), allowed),
    )  # fmt: skip
    changed = LoadChange(0, part=0, policy="deadline", runtime_us=other, period_us=its_period)
    again = LoadChange(0, part=0, policy="deadline", runtime_us=runtime, period_us=period)
    # Linux 6.12 does not give back what is admitted for a task that becomes fair in a long sleep.
    # Later loads of the boot may then be refused, so it is rare.
    if rng.random() < (0.1 if mine.kind == "sleeper" else 0.3):
        changed = LoadChange(0, part=0, policy="fair")
    return Load(MS, parts, changes=in_turn(changed, again, rng.choice(GAPS_MS)))


_SERVERS = ((2000, 10_000), (4000, 20_000), (6000, 20_000), (2000, 40_000), (12_000, 40_000))
_FAIR_AGAIN = LoadChange(0, part=0, policy="fair")
_PAIRS: tuple[tuple[LoadChange, LoadChange], ...] = (
    (LoadChange(0, part=0, policy="fifo", priority=10), _FAIR_AGAIN),
    (LoadChange(0, part=0, policy="rr", priority=30), _FAIR_AGAIN),
    (LoadChange(0, part=0, policy="deadline", runtime_us=2000, period_us=20_000), _FAIR_AGAIN),
    (LoadChange(0, part=0, policy="deadline", runtime_us=4000, period_us=80_000), _FAIR_AGAIN),
    (
        LoadChange(0, part=0, policy="deadline", runtime_us=2000, period_us=40_000),
        LoadChange(0, part=0, policy="deadline", runtime_us=2000, period_us=10_000),
    ),
    (LoadChange(0, part=0, policy="idle"), _FAIR_AGAIN),
    (LoadChange(0, part=0, policy="batch"), _FAIR_AGAIN),
    (LoadChange(0, part=0, nice=10), LoadChange(0, part=0, nice=-5)),
    (LoadChange(0, part=0, stop=True), LoadChange(0, part=0, go=True)),
)


def groups_in_turn(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks that move between two groups in turn, perhaps to other CPUs, or whose group changes.

    Those that sleep meanwhile leave load behind, which the queue that they never run in forgets.
    """
    allowed = everywhere(machine)
    if len(allowed) < 2:
        return None
    groups = (
        Cgroup("a", weight=rng.choice((100, 300))),
        Cgroup("b", weight=100, quota_ms=rng.choice((0, 0, 10, 40 * len(allowed)))),
    )
    count = rng.randint(1, len(allowed))
    mine = rng.choice((
        Part("hog", count, allowed, group="a"),
        Part("sleeper", count, allowed, run_us=1000, sleep_us=1000, group="a"),
        Part("sleeper", count, allowed, run_us=8000, sleep_us=20_000, group="a"),
    ))  # fmt: skip
    half = some_cpus(rng, allowed, len(allowed) // 2)
    rest = tuple(cpu for cpu in allowed if cpu not in half)
    first, second = rng.choice((
        (LoadChange(0, part=0, into="b"), LoadChange(0, part=0, into="a")),
        (LoadChange(0, part=0, into="b", cpus=rest), LoadChange(0, part=0, into="a", cpus=half)),
        (LoadChange(0, part=0, into="b", cpus=rest), LoadChange(0, part=0, into="a", cpus=half)),
        (LoadChange(0, group="a", weight=20), LoadChange(0, group="a", weight=500)),
        (LoadChange(0, group="a", cpus=half), LoadChange(0, group="a", cpus=allowed)),
        (LoadChange(0, group="a", quota_ms=10), LoadChange(0, group="a", quota_ms=1000)),
    ))  # fmt: skip
    # Where those that sleep come from, nothing else of the group updates what they leave behind.
    cpus = first.cpus if first.into and first.cpus else allowed
    parts = (mine, Part("hog", rng.randint(1, len(cpus)), cpus, group="b"))
    changes = in_turn(first, second, rng.choice(GAPS_MS))
    return Load(MS, parts, groups=groups, changes=changes)


def forks_in_narrow_cpusets(rng: random.Random, machine: Topology) -> Load | None:
    """Parents whose children begin while their cpuset is narrow, and remain when it is widened.

    Then they may use all CPUs, or no more than before by the mask of their parents.
    """
    allowed = everywhere(machine)
    if len(allowed) < 3:
        return None
    narrow = some_cpus(rng, allowed, rng.randint(1, len(allowed) // 2))
    burst = max(2, min(24, len(allowed) - rng.choice((0, 1))))
    parts = (
        Part("forker", 1, rng.choice((allowed, allowed, narrow)), burst=burst, run_us=300_000,
             sleep_us=10_000),
        Part("sleeper", 1, allowed, run_us=500, sleep_us=1500),
    )  # fmt: skip
    widened = CpusetChange(narrow, allowed, 450)
    return Load(1500, parts[: rng.choice((1, 2))], cpuset=widened)


def partitioned(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks in a partition of some CPUs, which may change, and others on the rest."""
    allowed = everywhere(machine)
    if len(allowed) < 3:
        return None
    mine = rng.choice((node_cpus(rng, machine), some_cpus(rng, allowed[1:], len(allowed) // 2)))
    mine = tuple(cpu for cpu in mine if cpu) or allowed[-1:]  # CPU 0 is the driver's
    parts = (
        Part("hog", len(mine) + rng.choice((0, 1)), allowed, group="a"),
        Part("sleeper", len(mine), allowed, run_us=1000, sleep_us=1000, group="a"),
        Part("hog", rng.randint(1, len(allowed)), allowed),
    )
    other = some_cpus(rng, allowed[1:], rng.randint(1, len(allowed) - 1))
    changes = (LoadChange(400, group="a", cpus=other),) if rng.random() < 0.5 else ()
    if rng.random() < 0.3:
        ranked = replace(parts[1], policy="fifo", priority=10, count=len(mine) + 1)
        parts = (parts[0], ranked, parts[2])
    chosen = parts if rng.random() < 0.5 else (parts[0], parts[2])
    return Load(MS, chosen, groups=(Cgroup("a", cpus=mine, partition=True),), changes=changes)


def partitioned_deadlines(rng: random.Random, machine: Topology) -> Load | None:
    """Deadline tasks in a partition, which grows, or which they leave for the other CPUs."""
    allowed = everywhere(machine)
    if len(allowed) < 4:
        return None
    # CPU 0 is the driver's. All deadline tasks must fit on the CPUs that are left, too.
    mine = some_cpus(rng, allowed[1:], rng.randint(2, max(2, len(allowed) // 2)))
    part = Part("hog", len(mine) - 1, allowed, policy="deadline", runtime_us=3000,
                period_us=10_000, group="a")  # fmt: skip
    if rng.random() < 0.5:
        part = replace(part, kind="sleeper", run_us=500, sleep_us=rng.choice((2000, 30_000)))
    rest = tuple(cpu for cpu in allowed[1:] if cpu not in mine)
    wider = tuple(sorted({*mine, *(rest[:-1] or rest)}))
    change = rng.choice((
        LoadChange(500, part=0, into="b"),
        LoadChange(500, group="a", cpus=wider),
    ))  # fmt: skip
    parts = (part, Part("hog", rng.randint(1, len(allowed)), allowed, group="b"))
    groups = (Cgroup("a", cpus=mine, partition=True), Cgroup("b"))
    return Load(MS, parts, groups=groups, changes=(change,))


def after_hotplug(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks that sit on one node, stopped, while idle CPUs go offline, and then have to spread.

    The CPUs come back before, or one of them afterwards.
    """
    allowed = everywhere(machine)
    if len(allowed) < 3:
        return None
    first = rng.choice((node_cpus(rng, machine), some_cpus(rng, allowed, 1)))
    idle = [cpu for cpu in allowed[1:] if cpu not in first]
    if not idle:
        return None
    gone = sorted(rng.sample(idle, rng.randint(1, min(4, len(idle)))))
    last = _SPREAD_MS - 100 if rng.random() < 0.6 else _SPREAD_MS + 500
    hotplug = [Hotplug(cpu, 100 + 100 * place, 150 + 100 * place) for place, cpu in enumerate(gone)]
    hotplug[-1] = replace(hotplug[-1], on_ms=last)
    count = rng.choice((len(first) + 1, max(2, len(allowed) - 1), len(allowed)))
    run = rng.choice((1000, 4000))
    part = Part("hog", count, first)
    if rng.random() < 0.3:
        part = Part("sleeper", count, first, run_us=run, sleep_us=run)
    changes = (
        LoadChange(10, part=0, stop=True),
        LoadChange(_SPREAD_MS, part=0, cpus=allowed, go=True),
    )
    return Load(2000, (part,), tuple(hotplug), changes=changes)


FAMILIES: Mapping[Family, float] = {
    changing: 1.0,
    reranked: 0.8,
    masks_in_turn: 1.0,
    policies_in_turn: 1.2,
    priorities_in_turn: 0.8,
    groups_in_turn: 1.2,
    forks_in_narrow_cpusets: 0.8,
    deadlines_in_turn: 0.6,
    partitioned: 0.5,
    partitioned_deadlines: 0.4,
    after_hotplug: 0.7,
}
