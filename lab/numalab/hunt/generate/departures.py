"""Generate loads whose CPUs go offline and come back under deadlines, partitions and cpusets."""

import random
from collections.abc import Mapping
from dataclasses import replace

from numalab.hunt.generate.changes import MS
from numalab.hunt.generate.draw import Family, everywhere, some_cpus
from numalab.hunt.loads.load import Cgroup, Hotplug, Load, Part
from numalab.topology.topology import Topology


def long_periods_and_hotplug(rng: random.Random, machine: Topology) -> Load | None:
    """Deadline hogs that wait for most of a long period, while a CPU goes offline for part of it.

    Where one of them waits on this CPU, its runtime is filled up elsewhere
    (dl_task_offline_migration(), kernel/sched/deadline.c).
    """
    allowed = everywhere(machine)
    if len(allowed) < 2:
        return None
    runtime, period = rng.choice(((10_000, 200_000), (20_000, 300_000), (30_000, 150_000)))
    part = Part("hog", rng.randint(len(allowed) // 2, len(allowed)), allowed, policy="deadline",
                runtime_us=runtime, period_us=period)  # fmt: skip
    off = rng.randrange(200, 500, 10)
    gone = rng.sample(allowed[1:], rng.randint(1, min(2, len(allowed) - 1)))
    hotplug = tuple(Hotplug(cpu, off + 40 * place, 1100) for place, cpu in enumerate(sorted(gone)))
    beside = Part("hog", rng.randint(1, len(allowed)), allowed)
    return Load(2000, (part, beside)[: rng.choice((1, 2))], hotplug)


def partition_and_hotplug(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks of a partition whose first CPU goes offline and comes back, beside another partition.

    The other one keeps its sched domains, and what is admitted for its deadline tasks.
    """
    allowed = everywhere(machine)
    if len(allowed) < 5:
        return None
    taken = some_cpus(rng, allowed[1:], 4)  # CPU 0 is the driver's
    mine, other = taken[:2], taken[2:]
    if rng.random() < 0.5:
        mine, other = other, mine
    kinds = (
        Part("hog", 2, mine, group="a"),
        Part("sleeper", 3, mine, run_us=1000, sleep_us=1000, group="a"),
        Part("hog", 1, allowed, policy="deadline", runtime_us=2000, period_us=10_000, group="a"),
    )
    served = Part("hog", 2, allowed, policy="deadline", runtime_us=3000, period_us=10_000,
                  group="b")  # fmt: skip
    groups = (Cgroup("a", cpus=mine, partition=True), Cgroup("b", cpus=other, partition=True))
    parts = (rng.choice(kinds), rng.choice((served, replace(served, kind="sleeper"))))
    return Load(2000, parts, (Hotplug(mine[0], 300, 800),), groups=groups)


def lone_cpusets(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks whose cpuset has one CPU, which goes offline: they go on elsewhere, and may stay."""
    allowed = everywhere(machine)
    if len(allowed) < 2:
        return None
    cpu = rng.choice(allowed[1:])
    mine = rng.choice((
        Part("hog", rng.randint(1, 3), allowed, group="a"),
        Part("sleeper", 3, allowed, run_us=700, sleep_us=1500, group="a"),
        Part("sleeper", 2, allowed, policy="fifo", priority=10, run_us=700, sleep_us=1500,
             group="a"),
    ))  # fmt: skip
    beside = Part("hog", rng.randint(1, len(allowed)), allowed)
    parts = (mine, beside)[: rng.choice((1, 2))]
    return Load(MS + 500, parts, (Hotplug(cpu, 200, 700),), groups=(Cgroup("a", cpus=(cpu,)),))


FAMILIES: Mapping[Family, float] = {
    long_periods_and_hotplug: 0.4,
    partition_and_hotplug: 0.4,
    lone_cpusets: 0.4,
}
