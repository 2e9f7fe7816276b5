"""Generate loads of tasks of all policies, and of tasks that wait for others."""

import random
from collections.abc import Mapping
from dataclasses import replace

from numalab.hunt.generate.draw import ADMITTED, Family, everywhere, node_cpus, some_cpus
from numalab.hunt.loads.load import CHANNELS, Cgroup, Hotplug, Load, Part, PartKind, Policy
from numalab.topology.topology import Topology


def ranked(rng: random.Random, machine: Topology) -> Load | None:
    """Real-time tasks of several priorities, which take turns on all CPUs beside hogs.

    They are as many as CPUs, or one more, which then waits until one of the others sleeps.
    """
    allowed = everywhere(machine)
    if len(allowed) < 2:
        return None
    run = rng.choice((2000, 5000))
    policy: Policy = rng.choice(("fifo", "rr"))
    half = len(allowed) // 2
    few = rng.choice((half, len(allowed) - half + 1))
    sleep = run if few == half else run // rng.choice((1, 3))
    parts = [
        Part("sleeper", max(1, count), allowed, some_cpus(rng, allowed, 1),
             policy=policy, priority=priority, run_us=run, sleep_us=sleep)
        for count, priority in zip((half, few), rng.sample((5, 20, 50, 80), 2), strict=True)
    ]  # fmt: skip
    if rng.random() < 0.6:
        parts.append(Part("hog", len(allowed), allowed))
    return Load(1000, tuple(parts))


def ranked_apart(rng: random.Random, machine: Topology) -> Load | None:
    """Real-time tasks with masks: one is bound where others run that could run elsewhere.

    It has a higher priority than they have, or the same, and one CPU stays free of all of them.
    """
    allowed = everywhere(machine)
    if len(allowed) < 3:
        return None
    kind: PartKind = rng.choice(("sleeper", "hog"))
    most = len(allowed) - (2 if kind == "hog" else 1)  # fair tasks must get a CPU
    bound = some_cpus(rng, allowed, 1)
    wide = tuple(sorted({*bound, *some_cpus(rng, allowed, rng.randint(1, most))}))
    run = rng.choice((2000, 10000))
    parts = (
        Part("sleeper", 1, bound, policy="fifo", priority=rng.choice((60, 30)), run_us=run,
             sleep_us=run),
        Part(kind, max(1, len(wide) - 1), wide, bound, policy="fifo", priority=30,
             run_us=run, sleep_us=run // 2),
        Part("hog", rng.randint(1, len(allowed)), allowed),
    )  # fmt: skip
    return Load(1000, parts)


def real_time_hogs(rng: random.Random, machine: Topology) -> Load | None:
    """Real-time hogs that leave one CPU or more to fair hogs."""
    allowed = everywhere(machine)
    if len(allowed) < 3:
        return None
    taken = some_cpus(rng, allowed[1:], rng.randint(1, len(allowed) - 2))
    policy: Policy = rng.choice(("fifo", "rr", "rr"))
    count = len(taken) if policy == "fifo" else len(taken) * rng.choice((1, 2))
    parts = (
        Part("hog", count, taken, policy=policy, priority=10, yields=rng.random() < 0.25),
        Part("hog", rng.randint(1, len(allowed)), allowed),
        Part("sleeper", 1, allowed, run_us=500, sleep_us=1500),
    )
    return Load(1200, parts)


def served(rng: random.Random, machine: Topology) -> Load | None:
    """Fair tasks bound where real-time hogs are: the fair server runs them, 50 ms in a second."""
    allowed = everywhere(machine)
    if len(allowed) < 2:
        return None
    taken = some_cpus(rng, allowed[1:], rng.randint(1, 2))
    hogs = Part("hog", len(taken), taken, policy=rng.choice(("fifo", "rr")), priority=10)
    fair = rng.choice((
        Part("hog", rng.randint(1, 2), taken),
        Part("sleeper", rng.randint(1, 2), taken, run_us=8000, sleep_us=200_000),
        Part("sleeper", len(taken), taken, run_us=100_000, sleep_us=100_000),
    ))  # fmt: skip
    limited = rng.random() < 0.3
    if limited:
        fair = replace(fair, group="a")
    parts = (hogs, fair, Part("hog", rng.randint(1, len(allowed)), allowed))
    groups = (Cgroup("a", quota_ms=rng.choice((10, 30, 200))),) if limited else ()
    return Load(2500, parts[: rng.choice((2, 3))], groups=groups)


def reclaiming(rng: random.Random, machine: Topology) -> Load | None:
    """Deadline hogs that may use what others leave, beside some that sleep for many periods."""
    allowed = everywhere(machine)
    runtime, period = rng.choice(((2000, 10_000), (3000, 12_000), (5000, 20_000)))
    hogs = Part("hog", rng.randint(1, max(1, len(allowed) // 2)), allowed, policy="deadline",
                runtime_us=runtime, period_us=period, reclaim=rng.random() < 0.8)  # fmt: skip
    sleepers = replace(hogs, kind="sleeper", count=max(1, len(allowed) // 2), run_us=runtime // 2,
                       sleep_us=period * rng.choice((1, 3, 12)), reclaim=False)  # fmt: skip
    parts = (replace(hogs, yields=rng.random() < 0.25), sleepers, Part("hog", 1, allowed))
    return Load(1500, parts[: rng.choice((2, 3))])


def deadlines_and_hotplug(rng: random.Random, machine: Topology) -> Load | None:
    """Deadline tasks that few CPUs can admit, while a CPU goes offline and comes back."""
    allowed = everywhere(machine)
    if len(allowed) < 3:
        return None
    part = Part("hog", rng.randint(1, len(allowed) // 2), allowed, policy="deadline",
                runtime_us=3000, period_us=10_000)  # fmt: skip
    if rng.random() < 0.4:
        part = replace(part, kind="sleeper", run_us=1000, sleep_us=4000)
    cpu = rng.choice(allowed[1:])
    return Load(1800, (part, Part("hog", 1, allowed)), (Hotplug(cpu, 200, 600),))


def deadlines(rng: random.Random, machine: Topology) -> Load | None:
    """Deadline tasks that the machine can admit, beside fair hogs."""
    allowed = everywhere(machine)
    runtime, period = rng.choice(((2000, 10000), (5000, 20000), (4000, 10000), (10000, 25000)))
    count = rng.randint(1, max(1, 2 * len(allowed) // 3))
    reclaim = rng.random() < 0.25
    parts = [
        Part("hog", count, allowed, policy="deadline", runtime_us=runtime, period_us=period,
             reclaim=reclaim)
    ]  # fmt: skip
    if rng.random() < 0.7:
        parts.append(Part("hog", rng.randint(1, len(allowed)), allowed))
    if rng.random() < 0.4:
        parts.append(
            Part("sleeper", 1, allowed, policy="fifo", priority=40, run_us=1000, sleep_us=3000)
        )
    return Load(1500, tuple(parts))


_SERVERS = ((2000, 8000), (3000, 12_000), (5000, 30_000), (12_000, 40_000))


def competing_deadlines(rng: random.Random, machine: Topology) -> Load | None:
    """More deadline tasks than CPUs, of several periods: the earliest deadlines go first.

    In mode icount, CPUs that are busy together are slower by their number.
    """
    allowed = everywhere(machine)
    if len(allowed) < 2:
        return None
    servers = rng.sample(_SERVERS, rng.choice((2, 3, 3)))
    share = ADMITTED * len(allowed) / len(servers)
    parts = []
    for place, (runtime, period) in enumerate(servers):
        count = min(24, int(share * period / runtime))
        part = Part(
            "sleeper",
            max(1, count),
            allowed,
            policy="deadline",
            runtime_us=runtime,
            period_us=period,
            run_us=runtime // (2 * len(allowed)),
            sleep_us=period,
        )
        parts.append(replace(part, kind="hog") if place and rng.random() < 0.5 else part)
    if rng.random() < 0.6:
        parts.append(Part("hog", rng.randint(1, len(allowed)), allowed))
    return Load(1200, tuple(parts))


def sleepers_near_deadlines(rng: random.Random, machine: Topology) -> Load | None:
    """Deadline tasks that sleep before their runtime is used up, and wake near the deadline.

    After it, nothing is left for them until the period ends; shortly before it, they may use what
    still fits their share (Documentation/scheduler/sched-deadline.rst).
    """
    server = rng.choice(((2000, 5000, 20_000), (3000, 6000, 30_000), (1000, 2000, 8000)))
    due = server[1]
    cpus = len(everywhere(machine))
    sleeper = _server(rng.randint(1, max(1, 2 * cpus // 3)), machine, server)
    sleeper = replace(sleeper, sleep_us=rng.choice((due // 2, due, 2 * due)))
    return _in_pieces(sleeper, rng.randint(1, cpus), 3)


def sleepers_before_deadlines(rng: random.Random, machine: Topology) -> Load | None:
    """Deadline tasks whose brief sleeps use up their runtime long before the deadline."""
    server = rng.choice(((3000, 24_000, 60_000), (4000, 32_000, 80_000), (5000, 50_000, 100_000)))
    sleeper = replace(_server(rng.randint(1, 2), machine, server), sleep_us=rng.choice((150, 400)))
    return _in_pieces(sleeper, rng.randint(1, 2), 8)


def _server(count: int, machine: Topology, server: tuple[int, int, int]) -> Part:
    """Deadline tasks with the runtime, deadline and period of a server, in us."""
    runtime, due, period = server
    return Part("sleeper", count, everywhere(machine), policy="deadline", runtime_us=runtime,
                deadline_us=due, period_us=period)  # fmt: skip


def _in_pieces(sleeper: Part, hogs: int, pieces: int) -> Load:
    """Let deadline tasks sleep after pieces of their runtime, beside hogs.

    In mode icount, CPUs that are busy together are slower by their number.
    """
    busy = min(len(sleeper.cpus), sleeper.count + hogs)
    run = max(20, sleeper.runtime_us // (pieces * busy))
    return Load(1000, (replace(sleeper, run_us=run), Part("hog", hogs, sleeper.cpus)))


def below_all(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks of policy idle on all CPUs: for whoever wakes up, these CPUs are as good as idle."""
    allowed = everywhere(machine)
    run = rng.choice((500, 2000))
    count = max(1, len(allowed) * rng.choice((1, 2)) // 2)
    parts = (
        Part("hog", len(allowed) * rng.choice((1, 2)), allowed, policy="idle"),
        rng.choice(
            (
                Part("sleeper", count, allowed, run_us=run, sleep_us=run),
                Part("hog", count, allowed, some_cpus(rng, allowed, 1)),
                Part("waker", max(1, count // 2), allowed, run_us=run, sleep_us=2 * run),
            )
        ),
    )
    return Load(1200, parts)


def batches(rng: random.Random, machine: Topology) -> Load | None:
    """Batch hogs, or hogs with longer or shorter slices, beside sleepers."""
    allowed = everywhere(machine)
    hog = Part("hog", len(allowed) * rng.choice((1, 2)), allowed)
    hogs = rng.choice(
        (replace(hog, policy="batch"), replace(hog, slice_us=rng.choice((500, 20000))))
    )
    parts = (
        hogs,
        Part("sleeper", max(1, len(allowed) // 2), allowed, run_us=500, sleep_us=1500,
             slice_us=rng.choice((0, 0, 300))),
        *([Part("hog", len(allowed), allowed)] if rng.random() < 0.5 else []),
    )  # fmt: skip
    return Load(1000, parts)


def sliced(rng: random.Random, machine: Topology) -> Load | None:
    """Sleepers or wakers whose slices are shorter than those of hogs beside them, or longer."""
    allowed = everywhere(machine)
    few = some_cpus(rng, allowed, rng.choice((1, 2, len(allowed))))
    slices = ((0, 200), (0, 1000), (0, 20_000), (20_000, 0), (20_000, 500), (500, 0))
    of_hogs, own = rng.choice(slices)
    run = rng.choice((200, 1000, 3000))
    kind: PartKind = rng.choice(("sleeper", "sleeper", "waker"))
    parts = (
        Part("hog", len(few) * rng.choice((1, 2)), few, slice_us=of_hogs),
        Part(kind, rng.choice((1, len(few))), few, slice_us=own,
             run_us=run, sleep_us=run * rng.choice((2, 5))),
    )  # fmt: skip
    return Load(1000, parts)


def overdrawn(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks that run for longer than their share, and then sleep for microseconds, beside hogs.

    They stay in the queue until they are eligible again (`requeue_delayed_entity()`, 6.12).
    """
    few = some_cpus(rng, everywhere(machine), rng.choice((1, 1, 2)))
    brief = Part("sleeper", len(few), few, nice=rng.choice((0, 5, 10)),
                 slice_us=rng.choice((0, 0, 20_000)), run_us=rng.choice((1500, 2500, 6000)),
                 sleep_us=rng.choice((10, 50, 200)))  # fmt: skip
    return Load(1500, (brief, Part("hog", len(few) * rng.choice((1, 2)), few)))


def yielders(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks that yield their CPU time and again beside hogs, often of the same one or two CPUs."""
    allowed = everywhere(machine)
    if rng.random() < 0.5:
        allowed = some_cpus(rng, allowed, rng.choice((1, 2)))
    parts = (
        Part("hog", rng.randint(1, len(allowed)), allowed, yields=True),
        Part("hog", rng.randint(1, len(allowed)), allowed),
    )
    return Load(800, parts)


def masked_wakees(rng: random.Random, machine: Topology) -> Load | None:
    """Wakees with a mask of their own, which may not contain the waker's CPU."""
    allowed = everywhere(machine)
    if len(allowed) < 3:
        return None
    mine = rng.choice((allowed, node_cpus(rng, machine), some_cpus(rng, allowed, 2)))
    wakee = rng.choice(
        (node_cpus(rng, machine), some_cpus(rng, allowed, rng.randint(1, len(allowed) - 1)))
    )
    run = rng.choice((300, 1000, 3000))
    parts = [
        Part("waker", max(1, len(allowed) // 4), mine, wakee=wakee, burst=rng.choice((1, 1, 2)),
             over=rng.choice(CHANNELS), run_us=run, sleep_us=run * rng.choice((1, 2, 4)))
    ]  # fmt: skip
    if rng.random() < 0.4:
        taken = some_cpus(rng, wakee, max(1, len(wakee) // 2))
        parts.append(Part("hog", len(taken), taken))
    return Load(1000, tuple(parts))


def fan_out(rng: random.Random, machine: Topology) -> Load | None:
    """Wakers of many wakees: whether these stay near their waker depends on how many they are."""
    allowed = everywhere(machine)
    if len(allowed) < 2:
        return None
    burst = rng.choice((len(allowed) - 1, len(allowed), 2 * len(allowed)))
    run = rng.choice((500, 2000))
    return Load(1000, (
        Part("waker", rng.choice((1, 1, 2)), allowed, burst=max(1, min(16, burst)),
             over=rng.choice(CHANNELS), run_us=run, sleep_us=2 * run),
    ))  # fmt: skip


def executors(rng: random.Random, machine: Topology) -> Load | None:
    """Parents whose children execute a program, which is a chance to move."""
    allowed = everywhere(machine)
    if len(allowed) < 2:
        return None
    burst = rng.choice((1, max(1, len(allowed) // 2), len(allowed)))
    parts = [
        Part("forker", rng.choice((1, 2)), allowed, burst=min(64, burst), execs=True,
             run_us=rng.choice((3000, 10000)), sleep_us=5000)
    ]  # fmt: skip
    if rng.random() < 0.4:
        taken = some_cpus(rng, allowed, len(allowed) // 2)
        parts.append(Part("hog", len(taken), taken))
    return Load(1000, tuple(parts))


def ranked_forkers(rng: random.Random, machine: Topology) -> Load | None:
    """Real-time parents, whose children inherit the policy, and may execute a program."""
    allowed = everywhere(machine)
    if len(allowed) < 2:
        return None
    burst = rng.randint(1, len(allowed))
    forker = Part(
        "forker",
        1,
        allowed,
        policy=rng.choice(("fifo", "rr")),
        priority=20,
        burst=burst,
        execs=rng.random() < 0.5,
        run_us=rng.choice((2000, 8000)),
        sleep_us=10_000,
    )
    parts = (forker, Part("hog", rng.randint(1, len(allowed)), allowed))
    return Load(1000, parts)


def lenders(rng: random.Random, machine: Topology) -> Load | None:
    """A lock whose holder inherits the priority of its waiters, beside tasks in between.

    Some of the waiters have deadlines.
    """
    allowed = everywhere(machine)
    cpus = rng.choice((some_cpus(rng, allowed, 1), allowed))
    between = Part(
        "sleeper", len(cpus), cpus, policy="fifo", priority=20, run_us=8000, sleep_us=4000
    )
    first = Part("locker", 1, cpus, policy="fifo", priority=50, run_us=300, sleep_us=3000)
    if len(cpus) == len(allowed) and rng.random() < 0.5:
        first = replace(first, policy="deadline", priority=0, runtime_us=5000, period_us=10_000)
    parts = (
        first,
        Part(
            "locker", rng.choice((1, 2)), cpus, nice=rng.choice((0, 10)), run_us=2000, sleep_us=1000
        ),
        rng.choice((between, Part("hog", 2 * len(cpus), cpus, nice=-5))),
    )
    return Load(1200, parts)


FAMILIES: Mapping[Family, float] = {
    ranked: 1.0,
    ranked_apart: 0.8,
    real_time_hogs: 0.6,
    deadlines: 0.6,
    reclaiming: 0.5,
    deadlines_and_hotplug: 0.5,
    served: 0.7,
    competing_deadlines: 0.8,
    sleepers_near_deadlines: 0.45,
    sleepers_before_deadlines: 0.45,
    below_all: 0.8,
    batches: 0.6,
    sliced: 0.8,
    overdrawn: 0.5,
    yielders: 0.4,
    masked_wakees: 1.6,
    fan_out: 0.8,
    executors: 0.7,
    ranked_forkers: 0.4,
    lenders: 0.8,
}
