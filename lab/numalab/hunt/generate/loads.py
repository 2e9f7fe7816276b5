"""Generate loads of hogs, sleepers, wakers and forkers; each family tests another decision."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from numalab.hunt.generate.draw import Family, everywhere
from numalab.hunt.generate.machines import far_pairs
from numalab.hunt.loads.load import Cpus, CpusetChange, Hotplug, Load, Part, PartKind
from numalab.topology.topology import Topology


def spread(rng: random.Random, machine: Topology) -> Load | None:
    """Hogs that start on one node and may run on further nodes, often far ones."""
    start, allowed = _start_and_allowed(rng, machine)
    if len(allowed) < 2:
        return None
    count = rng.choice((len(allowed) + 1, machine.cpu_count + 1, machine.cpu_count + 2))
    return Load(rng.choice((2000, 2500)), (Part("hog", count, allowed, start),))


def unfold(rng: random.Random, machine: Topology) -> Load | None:
    """Hogs that start on one node, each of which could have a CPU of its own elsewhere."""
    start, allowed = _start_and_allowed(rng, machine)
    if len(allowed) <= len(start):
        return None
    count = rng.randint(len(start) + 1, len(allowed))
    return Load(1500, (Part("hog", count, allowed, start),))


def piled(rng: random.Random, machine: Topology) -> Load | None:
    """More hogs than CPUs everywhere, most of them on one node: no CPU ever goes idle."""
    start, allowed = _start_and_allowed(rng, machine)
    if len(allowed) <= len(start):
        return None
    parts = (
        Part("hog", len(allowed) * rng.choice((1, 2)), allowed),
        Part("hog", len(start) * rng.choice((2, 3)) + 1, allowed, start),
    )
    return Load(1500, parts)


def uneven_crowds(rng: random.Random, machine: Topology) -> Load | None:
    """Crowds of different sizes, one on each node, all of which may go anywhere."""
    nodes = [node for node in machine.nodes if node.cpus]
    if len(nodes) < 3:
        return None
    allowed = everywhere(machine)
    parts = tuple(
        Part("hog", max(1, len(node.cpus) * rng.choice((1, 2, 4, 6, 8)) // 2), allowed, node.cpus)
        for node in nodes
    )
    return Load(1500, parts)


def heap(rng: random.Random, machine: Topology) -> Load | None:
    """More hogs on one CPU than the load balancer looks at in one go (sched_nr_migrate is 32)."""
    start, allowed = _start_and_allowed(rng, machine)
    if len(allowed) < 2:
        return None
    return Load(1000, (Part("hog", rng.choice((40, 64)), allowed, start[:1]),))


def partial(rng: random.Random, machine: Topology) -> Load | None:
    """Hogs that may use a part of the CPUs of several nodes, whose neighbours stay idle."""
    holders = [node for node in machine.nodes if node.cpus]
    if machine.cpu_count < 3:
        return None
    some = rng.sample(holders, rng.randint(min(2, len(holders)), min(3, len(holders))))
    mine = {cpu for node in some for cpu in rng.sample(node.cpus, (len(node.cpus) + 1) // 2)}
    count = len(mine) + rng.randint(0, len(mine))
    parts = [Part("hog", count, tuple(sorted(mine)))]
    if rng.random() < 0.3:
        parts.append(Part("hog", 2, (min(mine),)))
    return Load(800, tuple(parts))


def crowd(rng: random.Random, machine: Topology) -> Load | None:
    """Hogs of different weights that have to share few CPUs, beside a sleeper."""
    allowed = everywhere(machine)
    few = tuple(sorted(rng.sample(allowed, min(len(allowed), rng.choice((1, 1, 2))))))
    count = rng.choice((1, 2))
    parts = tuple(
        Part("hog", count * len(few), few, nice=nice)
        for nice in rng.choice(((0, 5), (-5, 0), (0, 3)))
    )
    return Load(1200, parts)


def real_time(rng: random.Random, machine: Topology) -> Load | None:
    """Real-time tasks, fewer than CPUs, which find a CPU each beside hogs on all of them."""
    allowed = everywhere(machine)
    if len(allowed) < 3:
        return None
    start = (rng.choice(allowed),)
    count = rng.randint(1, len(allowed) // 2)
    run = rng.choice((500, 2000))
    parts = (
        Part(
            "sleeper",
            count,
            allowed,
            start,
            policy="fifo",
            priority=rng.choice((5, 50)),
            run_us=run,
            sleep_us=run,
        ),
        Part("hog", len(allowed), allowed),
    )
    return Load(1000, parts)


def steady(rng: random.Random, machine: Topology) -> Load | None:
    """No more hogs than CPUs: once they are spread there is no reason to move any."""
    allowed = everywhere(machine)
    count = rng.choice((len(allowed), max(1, len(allowed) // 2), rng.randint(1, len(allowed))))
    return Load(1200, (Part("hog", count, allowed),))


def pinned(rng: random.Random, machine: Topology) -> Load | None:
    """Hogs bound to some CPUs, and hogs that may run everywhere."""
    allowed = everywhere(machine)
    bound = tuple(sorted(rng.sample(allowed, rng.randint(1, max(1, len(allowed) // 2)))))
    few = tuple(sorted(rng.sample(allowed, min(len(allowed), rng.choice((1, 2, 3))))))
    parts = (
        Part("hog", len(bound) * rng.choice((1, 2)), bound),
        Part("hog", rng.randint(1, 3), few),
        Part("hog", rng.randint(1, len(allowed)), allowed),
    )
    return Load(1200, parts)


def weighted(rng: random.Random, machine: Topology) -> Load | None:
    """Hogs of different weights."""
    allowed = everywhere(machine)
    parts = tuple(
        Part("hog", rng.randint(1, len(allowed)), allowed, nice=nice)
        for nice in rng.sample((-10, -5, 0, 5, 10, 19), 2)
    )
    return Load(1500, parts)


def outweighed(rng: random.Random, machine: Topology) -> Load | None:
    """A crowded node where one hog weighs more than all others: only these are to be pulled."""
    start, allowed = _start_and_allowed(rng, machine)
    if len(start) < 2 or len(allowed) <= len(start):
        return None
    parts = (
        Part("hog", 1, allowed, start[:1], nice=rng.choice((-20, -15, -10))),
        Part("hog", len(start) * rng.choice((2, 3)), allowed, start, nice=rng.choice((0, 5))),
        Part("hog", len(allowed) - len(start), allowed),
    )
    return Load(1500, parts)


def sleepers(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks that work and sleep in turns, for which there are CPUs enough or just enough.

    Half of the times they all begin on one CPU.
    """
    allowed = everywhere(machine)
    run = rng.choice((300, 1000, 3000, 8000))
    count = max(1, len(allowed) * rng.choice((1, 2, 3)) // 2)
    start = (rng.choice(allowed),) if rng.random() < 0.5 else ()
    sleep = run * rng.choice((1, 1, 3))
    return Load(1000, (Part("sleeper", count, allowed, start, run_us=run, sleep_us=sleep),))


def churn(rng: random.Random, machine: Topology) -> Load | None:
    """Hogs that start on one node, and sleepers that leave CPUs idle time and again."""
    start, allowed = _start_and_allowed(rng, machine)
    if len(allowed) < 2:
        return None
    parts = (
        Part("hog", len(allowed), allowed, start),
        Part("sleeper", len(allowed), allowed, run_us=rng.choice((1000, 4000)), sleep_us=1000),
    )
    return Load(1000, parts)


def wakers(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks that wake one or several others, on a machine that has idle CPUs for all of them."""
    allowed = everywhere(machine)
    burst = rng.choice((1, 1, 1, 2, 3))
    most = max(1, len(allowed) // (2 * (1 + burst)))
    run = rng.choice((500, 2000, 5000))
    start = (rng.choice(allowed),) if rng.random() < 0.5 else ()
    sleep = rng.choice((run, 3 * run // 2, 2 * run))
    part = Part(
        "waker", rng.randint(1, most), allowed, start, burst=burst, run_us=run, sleep_us=sleep
    )
    return Load(1000, (part,))


def crowded_out(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks that wake on CPUs that bound hogs have, beside idle ones."""
    allowed = everywhere(machine)
    if len(allowed) < 3:
        return None
    taken = tuple(sorted(rng.sample(allowed, rng.randint(1, len(allowed) // 2))))
    count = max(1, (len(allowed) - len(taken)) // 2)
    run = rng.choice((500, 2000))
    kind: PartKind = rng.choice(("waker", "sleeper"))
    parts = (
        Part(kind, count, allowed, taken, run_us=run, sleep_us=run * rng.choice((1, 2))),
        Part("hog", len(taken), taken),
    )
    return Load(1000, parts)


def moving_wakers(rng: random.Random, machine: Topology) -> Load | None:
    """Pairs whose mask changes at half of the time, beside hogs."""
    allowed = everywhere(machine)
    if len(allowed) < 3:
        return None
    later = tuple(sorted(rng.sample(allowed, rng.randint(1, len(allowed) - 1))))
    first = tuple(sorted(rng.sample(allowed, rng.randint(1, len(allowed)))))
    parts = (
        Part("waker", 2, first, later=later, run_us=500, sleep_us=rng.choice((700, 3000))),
        Part("sleeper", 2, first, later=later, run_us=700, sleep_us=1500),
    )
    return Load(1000, parts)


def forkers(rng: random.Random, machine: Topology) -> Load | None:
    """Parents whose children find their CPUs when they are made."""
    allowed = everywhere(machine)
    if rng.random() < 0.3 and len(allowed) > 2:
        allowed = tuple(sorted(rng.sample(allowed, rng.randint(2, len(allowed)))))
    cpus = len(allowed)
    burst = rng.choice((1, 1, max(1, cpus - 1), max(1, cpus // 2), cpus + cpus // 2))
    run, sleep = rng.choice((3000, 10000, 20000)), rng.choice((500, 5000))
    count = rng.choice((1, 1, 2))
    return Load(1000, (Part("forker", count, allowed, burst=burst, run_us=run, sleep_us=sleep),))


def crowded_forkers(rng: random.Random, machine: Topology) -> Load | None:
    """Parents of bursts of children beside more hogs than CPUs, which may be on the parents' node.

    Whoever looks for a place for a child compares full nodes.
    """
    start, allowed = _start_and_allowed(rng, machine)
    cpus = len(allowed)
    burst = max(1, min(24, rng.choice((cpus // 2, cpus, 2 * cpus))))
    execs, run = rng.random() < 0.3, rng.choice((3000, 10_000))
    parent = Part("forker", rng.choice((1, 2)), allowed, start, burst=burst, execs=execs,
                  run_us=run, sleep_us=5000)  # fmt: skip
    near = Part("hog", len(start) * rng.choice((1, 2)), start)
    around = Part("hog", cpus * rng.choice((1, 2)), allowed)
    return Load(1000, (parent, *rng.choice(((around,), (near, around)))))


def reset_forkers(rng: random.Random, machine: Topology) -> Load | None:
    """Parents that go before hogs, whose children do not inherit that."""
    allowed = everywhere(machine)
    few = tuple(sorted(rng.sample(allowed, max(1, len(allowed) // rng.choice((1, 2))))))
    parent = Part("forker", 1, few, burst=rng.randint(1, 2 * len(few)), resets=True,
                  run_us=rng.choice((5000, 10_000)), sleep_us=2000)  # fmt: skip
    if rng.random() < 0.3:
        parent = replace(parent, policy=rng.choice(("fifo", "rr")), priority=20)
    else:
        parent = replace(parent, nice=rng.choice((-15, -10, -5)))
    if parent.nice == -10:
        parent = replace(parent, slice_us=20_000)
    return Load(1000, (parent, Part("hog", 2 * len(few), few)))


def hotplug(rng: random.Random, machine: Topology) -> Load | None:
    """A CPU, busy or idle, that goes offline and online, and must then get work again."""
    allowed = everywhere(machine)
    cpu = rng.choice(allowed[1:]) if len(allowed) > 1 else 0
    if not cpu:
        return None
    online = tuple(candidate for candidate in allowed if candidate != cpu)
    some = tuple(sorted({cpu, *rng.sample(online, rng.randint(1, len(online)))}))
    few = max(1, len(allowed) // 2)
    parts = rng.choice((
        (Part("hog", len(allowed) * rng.choice((1, 2)), allowed),),
        (Part("hog", len(allowed), allowed), Part("hog", len(some) - 1, some)),
        (Part("sleeper", few, allowed, run_us=2000, sleep_us=2000),),
        (Part("waker", max(1, few // 2), allowed, run_us=1000, sleep_us=2000),),
        (Part("forker", 1, allowed, burst=len(allowed), run_us=5000, sleep_us=5000),),
        (Part("sleeper", few, allowed, policy="fifo", priority=20, run_us=2000, sleep_us=2000),
         Part("hog", len(allowed), allowed)),
    ))  # fmt: skip
    if rng.random() < 0.6:
        return Load(2000, parts, (Hotplug(cpu, 200, 500),))
    cpus = rng.choices(allowed[1:], k=3)
    times = ((150, 250), (400, 500), (650, 800))
    cycles = (Hotplug(cpu, *when) for cpu, when in zip(cpus, times, strict=True))
    return Load(2000, parts, tuple(cycles))


def cpuset(rng: random.Random, machine: Topology) -> Load | None:
    """A cpuset whose CPUs change under tasks that have masks of their own."""
    allowed = everywhere(machine)
    if len(allowed) < 3:
        return None
    before = tuple(sorted(rng.sample(allowed, rng.randint(2, len(allowed)))))
    mine = tuple(sorted(rng.sample(before, rng.randint(1, len(before) - 1))))
    after = tuple(sorted({*allowed} if rng.random() < 0.5 else {*mine, rng.choice(allowed)}))
    parts = (Part("hog", 2 * len(mine), mine), Part("sleeper", 2, mine[:1]))
    return Load(1200, parts, cpuset=CpusetChange(before, after, 400))


FAMILIES: Mapping[Family, float] = {
    spread: 3.0,
    unfold: 1.5,
    piled: 1.0,
    uneven_crowds: 1.0,
    heap: 0.5,
    partial: 1.5,
    crowd: 0.7,
    real_time: 0.7,
    steady: 1.5,
    pinned: 1.5,
    weighted: 0.7,
    outweighed: 0.8,
    sleepers: 1.0,
    churn: 1.5,
    wakers: 1.0,
    crowded_out: 1.2,
    moving_wakers: 0.8,
    forkers: 1.2,
    reset_forkers: 0.5,
    crowded_forkers: 0.8,
    hotplug: 0.7,
    cpuset: 0.7,
}


def _start_and_allowed(rng: random.Random, machine: Topology) -> tuple[Cpus, Cpus]:
    """Choose where tasks start and where else they may run: two far nodes, several, or all."""
    holders = [node.id for node in machine.nodes if node.cpus]
    if len(holders) < 2:
        cpus = everywhere(machine)
        return cpus[:1], cpus
    if rng.random() < 0.6:
        nodes: Sequence[int] = rng.choice(far_pairs(machine))
    else:
        nodes = rng.sample(holders, rng.randint(2, len(holders)))
    first = rng.choice(list(nodes))
    allowed = sorted(cpu for node in nodes for cpu in machine.nodes[node].cpus)
    return machine.nodes[first].cpus, tuple(allowed)
