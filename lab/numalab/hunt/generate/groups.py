"""Generate loads in cgroups: weights, quotas, cpusets, and groups within groups."""

import random
from collections.abc import Mapping
from dataclasses import replace

from numalab.hunt.generate.draw import Family, everywhere, some_cpus
from numalab.hunt.loads.load import Cgroup, Hotplug, Load, LoadChange, Part
from numalab.topology.topology import Topology

_AMPLE_MS = 10_000  # for a hundred CPUs


def weighted_groups(rng: random.Random, machine: Topology) -> Load | None:
    """Groups of hogs of different weight on the same CPUs: all of them, or one."""
    allowed = everywhere(machine)
    cpus = some_cpus(rng, allowed, 1) if rng.random() < 0.4 else allowed
    groups = _two_groups(rng.choice(((100, 100), (100, 300), (50, 200), (100, 1000))))
    parts = (
        Part("hog", len(cpus), cpus, group="a"),
        Part("hog", len(cpus) * rng.choice((1, 2, 3)), cpus, group="b"),
    )
    changes: tuple[LoadChange, ...] = ()
    if rng.random() < 0.3:
        changes = (LoadChange(300, group="a", weight=rng.choice((20, 500))),)
    return Load(1500, parts, groups=groups, changes=changes)


def feather_groups(rng: random.Random, machine: Topology) -> Load | None:
    """Many tasks in a group of the least weight, beside hogs of the usual one on all CPUs.

    The load of such a task is next to nothing, and may be rounded to 0 (`task_h_load()`, 6.12).
    """
    allowed = everywhere(machine)
    if len(allowed) < 2:
        return None
    count = min(64, rng.choice((4, 6, 8)) * len(allowed))
    start = rng.choice(((), some_cpus(rng, allowed, len(allowed) // 2)))
    many = rng.choice((
        Part("hog", count, allowed, start=start, group="a"),
        Part("sleeper", count, allowed, start=start, run_us=500, sleep_us=500, group="a"),
    ))  # fmt: skip
    beside = rng.choice((
        Part("hog", len(allowed), allowed, group="b"),
        Part("sleeper", len(allowed), allowed, run_us=2000, sleep_us=1000, group="b"),
    ))  # fmt: skip
    return Load(1200, (many, beside), groups=(Cgroup("a", weight=1), Cgroup("b")))


def nested_groups(rng: random.Random, machine: Topology) -> Load | None:
    """Groups within a group, beside another one and beside tasks in none."""
    allowed = everywhere(machine)
    weights = rng.choice(((100, 100), (200, 50)))
    groups = (
        Cgroup("a", weight=weights[0], quota_ms=rng.choice((0, 0, 50 * len(allowed)))),
        Cgroup("b", parent="a"),
        Cgroup("c", parent="a", weight=rng.choice((100, 300))),
        Cgroup("d", weight=weights[1], idle=rng.random() < 0.2),
    )
    parts = [
        Part("hog", max(1, len(allowed) // 2), allowed, group="b"),
        Part("hog", max(1, len(allowed) // 2), allowed, group="c"),
        Part("hog", len(allowed), allowed, group="d"),
        Part("sleeper", 1, allowed, run_us=500, sleep_us=1500),
    ]
    return Load(1500, tuple(rng.sample(parts, len(parts) - rng.choice((0, 1)))), groups=groups)


def quotas(rng: random.Random, machine: Topology) -> Load | None:
    """A group whose quota is less than its tasks want, alone or beside other tasks."""
    allowed = everywhere(machine)
    count = rng.randint(1, len(allowed))
    quota = max(10, 100 * count * rng.choice((20, 50, 80)) // 100)
    parts = [Part("hog", count, allowed, group="a")]
    if rng.random() < 0.5:
        parts.append(Part("hog", rng.randint(1, len(allowed)), allowed))
    if rng.random() < 0.3:
        parts.append(Part("sleeper", 2, allowed, run_us=2000, sleep_us=2000, group="a"))
    changes = (LoadChange(400, group="a", quota_ms=quota * 2),) if rng.random() < 0.3 else ()
    return Load(1600, tuple(parts), groups=(Cgroup("a", quota_ms=quota),), changes=changes)


def tight_quotas(rng: random.Random, machine: Topology) -> Load | None:
    """A quota of few slices for tasks on many CPUs, of two groups within one that has a quota too.

    Tasks that sleep often give back what they did not use.
    """
    allowed = everywhere(machine)
    quota = rng.choice((4, 10, 25, 60))
    run, sleep = rng.choice(((300, 100), (1000, 200), (2000, 3000)))
    count = rng.randint(1, 2 * len(allowed))
    some = Part("sleeper", count, allowed, run_us=run, sleep_us=sleep, group="b")
    parts = [some if rng.random() < 0.6 else replace(some, kind="hog")]
    groups = [Cgroup("a", quota_ms=quota), Cgroup("b", parent="a", quota_ms=quota // 2)]
    if rng.random() < 0.5:
        groups.append(Cgroup("c", parent="a", idle=rng.random() < 0.3))
        parts.append(Part("hog", rng.randint(1, len(allowed)), allowed, group="c"))
    else:
        groups = [Cgroup("b", quota_ms=quota)]
    if rng.random() < 0.4:
        parts.append(Part("sleeper", 1, allowed, run_us=500, sleep_us=1500))
    return Load(1600, tuple(parts), groups=tuple(groups))


def scarce_quotas(rng: random.Random, machine: Topology) -> Load | None:
    """Hogs on as many CPUs, whose quota is for few of them: each gets its turn."""
    allowed = everywhere(machine)[:10]  # a part of the load for each
    if len(allowed) < 3:
        return None
    quota, period = rng.choice(((4, 20), (3, 20), (2, 20), (5, 50)))
    parts = [Part("hog", len(allowed), allowed, group="a")]
    if rng.random() < 0.8:
        parts = [Part("hog", 1, (cpu,), group="a") for cpu in allowed]
    return Load(1600, tuple(parts), groups=(Cgroup("a", quota_ms=quota, period_ms=period),))


def nested_quotas(rng: random.Random, machine: Topology) -> Load | None:
    """A quota three groups deep, on few CPUs that groups beside it on each level use, too.

    Where it stops tasks, the groups above go on with the others.
    """
    few = some_cpus(rng, everywhere(machine), rng.choice((1, 1, 2)))
    groups = (
        Cgroup("a", weight=rng.choice((100, 300)), quota_ms=rng.choice((0, 0, 80 * len(few)))),
        Cgroup("b", parent="a", quota_ms=rng.choice((0, 0, 40 * len(few)))),
        Cgroup("c", parent="b", quota_ms=rng.choice((10, 20, 30)), idle=rng.random() < 0.3),
        Cgroup("d", parent="b", idle=rng.random() < 0.3),
        Cgroup("e", parent="a", weight=rng.choice((100, 200)), idle=rng.random() < 0.3),
    )
    run = rng.choice((1000, 5000))
    brief = Part("sleeper", len(few), few, run_us=run, sleep_us=run // 2, group="c")
    limited = rng.choice((brief, Part("hog", rng.choice((1, 2)) * len(few), few, group="c")))
    beside = [Part("hog", len(few), few, group=name) for name in ("d", "e", "")]
    if rng.random() < 0.5:  # then a group above can wait for its delayed dequeue
        beside[0] = replace(beside[0], kind="sleeper", run_us=300, sleep_us=run)
    return Load(1600, (limited, *rng.sample(beside, rng.choice((2, 3)))), groups=groups)


def loose_quotas(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks that sleep often and want less than a quota, of which each CPU keeps a slice."""
    allowed = everywhere(machine)
    run, sleep = rng.choice(((300, 1700), (700, 4300), (1500, 8500)))
    count = rng.randint((len(allowed) + 1) // 2, len(allowed))
    wanted = 100 * count * run // (run + sleep)
    quota = 2 * wanted + 8 * len(allowed)
    parts = [Part("sleeper", count, allowed, run_us=run, sleep_us=sleep, group="a")]
    if rng.random() < 0.4:
        parts.append(Part("hog", rng.randint(1, len(allowed)), allowed))
    return Load(1200, tuple(parts), groups=(Cgroup("a", quota_ms=quota),))


def saved_quotas(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks that rest for periods and then need more than a quota, which they may have saved."""
    allowed = everywhere(machine)
    period = rng.choice((20, 50, 100))
    quota = max(4, period * rng.choice((20, 40, 80)) // 100)
    burst = rng.choice((quota, quota // 2))
    rest, run = 1000 * rng.choice((period, 3 * period)), 1000 * rng.choice((quota, 2 * quota))
    count = rng.randint(1, max(1, len(allowed) // 2))
    some = Part("sleeper", count, allowed, run_us=run, sleep_us=rest, group="a")
    parts = (some, Part("hog", rng.randint(1, len(allowed)), allowed))
    group = Cgroup("a", quota_ms=quota, period_ms=period, burst_ms=burst)
    changes = (LoadChange(400, group="a", quota_ms=2 * quota),) if rng.random() < 0.4 else ()
    return Load(1600, parts[: rng.choice((1, 2))], groups=(group,), changes=changes)


def cpusets(rng: random.Random, machine: Topology) -> Load | None:
    """Two groups with CPUs of their own, which change under the tasks."""
    allowed = everywhere(machine)
    if len(allowed) < 3:
        return None
    mine = some_cpus(rng, allowed, rng.randint(1, len(allowed) - 1))
    rest = tuple(cpu for cpu in allowed if cpu not in mine)
    groups = (Cgroup("a", cpus=mine), Cgroup("b", cpus=rng.choice((rest, allowed))))
    parts = (
        Part("hog", len(mine) + rng.choice((0, 1)), allowed, group="a"),
        Part("sleeper", 2, mine, run_us=700, sleep_us=1500, group="a"),
        Part("hog", max(1, len(rest)), allowed, group="b"),
    )
    change = LoadChange(400, group=rng.choice("ab"), cpus=rng.choice((rest, allowed, mine)))
    return Load(1500, parts, groups=groups, changes=(change,) if rng.random() < 0.7 else ())


def leaving_cpuset(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks bound to a CPU of their cpuset that goes offline: the rest of the cpuset is theirs."""
    allowed = everywhere(machine)
    if len(allowed) < 4:
        return None
    cpu = rng.choice(allowed[1:])
    rest = [other for other in allowed if other != cpu]
    mine = tuple(sorted({cpu, *some_cpus(rng, rest, rng.randint(1, len(rest) // 2))}))
    parts = (
        Part("hog", 1, (cpu,), group="a"),
        Part("sleeper", 2, (cpu,), run_us=700, sleep_us=1500, group="a"),
        Part("hog", rng.randint(1, len(mine)), mine, group="a"),
    )
    return Load(2000, parts, (Hotplug(cpu, 200, 700),), groups=(Cgroup("a", cpus=mine),))


def groups_after_hotplug(rng: random.Random, machine: Topology) -> Load | None:
    """Two groups on few CPUs, of which one goes offline: the rest is theirs, by their weights.

    One may have a quota, which holds on the CPU again when it comes back.
    """
    allowed = everywhere(machine)
    if len(allowed) < 2:
        return None
    gone = rng.choice(allowed[1:])
    stays = rng.choice([cpu for cpu in allowed if cpu != gone])
    both = tuple(sorted((gone, stays)))
    groups = _two_groups(rng.choice(((100, 100), (100, 100), (100, 300))))
    if rng.random() < 0.5:
        limited = replace(groups[0], quota_ms=rng.choice((10, 40, 80)))
        groups = (limited, groups[1])
    parts = (
        Part("hog", rng.choice((1, 2, 3)), both, start=rng.choice(((), (gone,))), group="a"),
        Part("hog", rng.choice((1, 2)), rng.choice(((stays,), both, allowed)), group="b"),
    )
    return Load(2000, parts, (Hotplug(gone, 300, rng.choice((900, 1800))),), groups=groups)


def ranked_groups(rng: random.Random, machine: Topology) -> Load | None:
    """Real-time tasks in a group, which go before what a group of fair tasks may use.

    Weights and quotas are of fair tasks only; the account of a group is of all.
    """
    allowed = everywhere(machine)
    count, hogs = rng.randint(1, len(allowed)), rng.randint(1, len(allowed))
    run = rng.choice((1000, 4000))
    kinds = (
        Part("sleeper", count, allowed, policy="fifo", priority=20, run_us=run, sleep_us=run),
        Part("sleeper", count, allowed, policy="rr", priority=20, run_us=run, sleep_us=run // 2),
        Part("hog", max(1, count // 2), allowed, policy="deadline", runtime_us=4 * run,
             period_us=10 * run),
    )  # fmt: skip
    parts = [replace(rng.choice(kinds), group="a"), Part("hog", hogs, allowed, group="b")]
    if rng.random() < 0.4:
        parts.append(Part("hog", rng.randint(1, 2), allowed, group="a"))
    quota = rng.choice((0, 0, 50, 100))
    groups = (Cgroup("a", quota_ms=quota), Cgroup("b", weight=rng.choice((100, 300))))
    return Load(1200, tuple(parts), groups=groups)


def _two_groups(weights: tuple[int, int]) -> tuple[Cgroup, ...]:
    """Return the groups a and b with these weights."""
    return tuple(Cgroup(name, weight=weight) for name, weight in zip("ab", weights, strict=True))


def grouped(rng: random.Random, load: Load) -> Load:
    """Put each part of a load into a group of its own, or all into one; the weights are equal.

    They may be below others, of which the first may have a quota that stops nobody.
    """
    if load.groups or load.cpuset:
        return load
    names = "abcdefgh"[: len(load.parts)]
    shared = rng.random() < 0.5 or len(names) < len(load.parts)
    parts = [
        replace(part, group="a" if shared else names[place])
        for place, part in enumerate(load.parts)
    ]
    above = [Cgroup("top", quota_ms=rng.choice((0, 0, _AMPLE_MS))), Cgroup("mid", parent="top")]
    above = above[: rng.choice((0, 1, 2))]
    parent = above[-1].name if above else ""
    groups = (Cgroup(name, parent=parent) for name in ("a" if shared else names))
    return replace(load, parts=tuple(parts), groups=(*above, *groups))


FAMILIES: Mapping[Family, float] = {
    weighted_groups: 1.0,
    feather_groups: 0.5,
    nested_groups: 0.6,
    quotas: 0.7,
    tight_quotas: 0.7,
    scarce_quotas: 0.5,
    nested_quotas: 0.6,
    loose_quotas: 0.4,
    saved_quotas: 0.5,
    cpusets: 0.8,
    leaving_cpuset: 0.4,
    groups_after_hotplug: 0.6,
    ranked_groups: 0.6,
}
