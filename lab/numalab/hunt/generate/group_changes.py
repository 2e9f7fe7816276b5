"""Generate loads whose groups change time and again: their quotas, and whether they are idle."""

import random
from collections.abc import Mapping

from numalab.hunt.generate.changes import GAPS_MS, MS, in_turn
from numalab.hunt.generate.draw import Family, everywhere, some_cpus
from numalab.hunt.loads.load import Cgroup, Load, LoadChange, Part
from numalab.topology.topology import Topology


def limits_in_turn(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks of a group, or of one within it, whose quota, period or burst changes in turn.

    The last change leaves a quota, or none.
    """
    allowed = everywhere(machine)
    quota, period = rng.choice(((10, 20), (10, 50), (20, 100), (100, 100)))
    inner = rng.choice(("a", "b"))
    groups = (
        Cgroup("a", quota_ms=quota, period_ms=period),
        Cgroup("b", parent="a", quota_ms=rng.choice((0, 0, quota // 2))),
    )
    count = rng.randint(1, len(allowed))
    run = rng.choice((300, 2000))
    mine = rng.choice((
        Part("hog", count, allowed, group=inner),
        Part("sleeper", count, allowed, run_us=run, sleep_us=run, group=inner),
    ))  # fmt: skip
    parts = (mine, Part("hog", rng.randint(1, len(allowed)), allowed))
    limited = LoadChange(0, group="a", quota_ms=quota)
    pairs = [
        (LoadChange(0, group="a", quota_ms=0), limited),
        (limited, LoadChange(0, group="a", quota_ms=0)),
        (LoadChange(0, group="a", quota_ms=4 * quota), limited),
        (
            LoadChange(0, group="a", period_ms=2 * period),
            LoadChange(0, group="a", period_ms=period),
        ),
        (LoadChange(0, group="a", burst_ms=quota), LoadChange(0, group="a", burst_ms=0)),
        (
            LoadChange(0, group="a", quota_ms=2 * quota, period_ms=2 * period, burst_ms=quota),
            LoadChange(0, group="a", quota_ms=quota, period_ms=period, burst_ms=quota // 2),
        ),
    ]
    changes = in_turn(*rng.choice(pairs), rng.choice(GAPS_MS))
    used = groups if inner == "b" else groups[:1]
    return Load(MS + 500, parts[: rng.choice((1, 2))], groups=used, changes=changes)


def idle_in_turn(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks on all CPUs in a group that is idle and is not in turn, with one within, or a quota."""
    allowed = everywhere(machine)
    quota = rng.choice((0, 0, 20 * len(allowed)))
    groups = (
        Cgroup("a", weight=rng.choice((100, 300)), quota_ms=quota, idle=rng.random() < 0.3),
        Cgroup("b", parent="a", idle=rng.random() < 0.3),
        Cgroup("c"),
    )
    parts = [
        Part("hog", len(allowed), allowed, group="b"),
        Part("sleeper", len(allowed), allowed, run_us=500, sleep_us=1000, group="b"),
        Part("hog", rng.randint(1, len(allowed)), allowed, group="c"),
        Part("sleeper", len(allowed), allowed, run_us=1000, sleep_us=2000),
    ]
    first, *rest = parts[: rng.choice((1, 2))], *parts[2:]
    name = rng.choice(("a", "b"))
    changes = in_turn(
        LoadChange(0, group=name, idle=True),
        LoadChange(0, group=name, idle=False),
        rng.choice(GAPS_MS),
    )
    chosen = (*first, *rng.sample(rest, rng.randint(1, 2)))
    return Load(MS, chosen, groups=groups, changes=changes)


def moved_while_stopped(rng: random.Random, machine: Topology) -> Load | None:
    """Stopped tasks that change their group, and go on where another group has a task.

    The load that they bring to their old CPUs, on which their new group has none, fades away.
    """
    allowed = everywhere(machine)
    if len(allowed) < 2:
        return None
    target = rng.choice(allowed)
    rest = [cpu for cpu in allowed if cpu != target]
    before = some_cpus(rng, rest, rng.randint(1, min(4, len(rest))))
    parts = (
        Part("hog", len(before), before, group="c"),
        Part("hog", rng.choice((1, 1, 2)), (target,), group="b"),
    )
    groups = (Cgroup("a", weight=rng.choice((100, 300))), Cgroup("b"), Cgroup("c"))
    changes = (
        LoadChange(300, part=0, stop=True),
        LoadChange(330, part=0, into="a"),
        LoadChange(360, part=0, cpus=(target,), go=True),
    )
    return Load(MS, parts, groups=groups, changes=changes)


FAMILIES: Mapping[Family, float] = {
    moved_while_stopped: 0.6,
    limits_in_turn: 0.7,
    idle_in_turn: 0.5,
}
