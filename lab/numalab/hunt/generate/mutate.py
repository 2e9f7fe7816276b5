"""Vary a load: a few small changes, or a combination with another one."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from numalab.hunt.generate.changes import GAPS_MS, MS, in_turn
from numalab.hunt.generate.draw import everywhere, is_admitted, is_fixed, node_cpus, some_cpus
from numalab.hunt.generate.groups import grouped
from numalab.hunt.loads.load import CHANNELS, Hotplug, Load, LoadChange, Part
from numalab.topology.topology import Topology

_MOST_PARTS = 5
_MOST_TASKS = 48
Mutation = Callable[[random.Random, Part, Topology], Part]


def varied(
    rng: random.Random, load: Load, machine: Topology, companions: Sequence[Load] = ()
) -> Load:
    """Return the load with one to three changes, or together with one of `companions`.

    All loads are of the same machine. A change that does not fit leaves the load as it is.
    """
    if companions and rng.random() < 0.25:
        return combined(load, rng.choice(companions))
    for _ in range(rng.randint(1, 3)):
        if rng.random() < 0.15:
            load = rng.choice(_OF_LOADS)(rng, load, machine)
            continue
        place = rng.randrange(len(load.parts))
        part = rng.choice(_OF_PARTS)(rng, load.parts[place], machine)
        new = replace(load, parts=(*load.parts[:place], part, *load.parts[place + 1 :]))
        load = new if is_admitted(new) else load  # a change may give it a deadline later
    return load


def combined(load: Load, other: Load) -> Load:
    """Return both loads at the same time, if they fit together; else the first."""
    apart = not (other.groups and load.groups) and not (other.cpuset or load.cpuset)
    # Together they could leave no CPU to fair tasks.
    apart &= not (_fills_cpus(load) and _fills_cpus(other))
    few = len(load.parts) + len(other.parts) <= _MOST_PARTS
    if not apart or not few or load.tasks + other.tasks > _MOST_TASKS:
        return load
    moved = tuple(
        change if change.part is None else replace(change, part=change.part + len(load.parts))
        for change in other.changes
    )
    both = Load(
        max(load.ms, other.ms),
        load.parts + other.parts,
        load.hotplug or other.hotplug,
        groups=load.groups + other.groups,
        changes=load.changes + moved,
        scan_mib=load.scan_mib or other.scan_mib,
    )
    return both if is_admitted(both) else load


def _fills_cpus(load: Load) -> bool:
    """Whether it has hogs of fifo or rr."""
    return any(part.kind == "hog" and part.policy in ("fifo", "rr") for part in load.parts)


def _count(rng: random.Random, part: Part, _machine: Topology) -> Part:
    count = max(1, part.count + rng.choice((-2, -1, 1, 2)))
    return part if is_fixed(part) else replace(part, count=count)


def _turns(rng: random.Random, part: Part, _machine: Topology) -> Part:
    factors = rng.choice(((1, 2), (2, 1), (4, 1), (1, 4)))
    run, sleep = part.run_us * factors[0], part.sleep_us * factors[1]
    return replace(part, run_us=min(run, 20_000), sleep_us=min(sleep, 40_000))


def _nice(rng: random.Random, part: Part, _machine: Topology) -> Part:
    return replace(part, nice=rng.choice((-10, -5, 0, 5, 10, 19)))


def _mask(rng: random.Random, part: Part, machine: Topology) -> Part:
    if is_fixed(part):
        return part
    cpus = everywhere(machine)
    mask = rng.choice(
        (cpus, node_cpus(rng, machine), some_cpus(rng, cpus, rng.randint(1, len(cpus))))
    )
    return replace(part, cpus=mask)


def _start(rng: random.Random, part: Part, machine: Topology) -> Part:
    if is_fixed(part):
        return part
    return replace(part, start=rng.choice(((), some_cpus(rng, everywhere(machine), 1))))


def _policy(rng: random.Random, part: Part, _machine: Topology) -> Part:
    if part.kind not in ("sleeper", "waker", "forker") or is_fixed(part):
        return part
    if rng.random() < 0.4:
        return replace(part, policy=rng.choice(("fifo", "rr")), priority=rng.choice((10, 40)))
    return replace(part, policy=rng.choice(("fair", "batch", "idle")), priority=0)


def _slice(rng: random.Random, part: Part, _machine: Topology) -> Part:
    fair = part.policy in ("fair", "batch") and part.kind not in ("memory", "locker")
    return replace(part, slice_us=rng.choice((0, 200, 1000, 20_000))) if fair else part


def _waking(rng: random.Random, part: Part, machine: Topology) -> Part:
    cpus = everywhere(machine)
    if part.kind == "forker":
        return replace(part, execs=not part.execs, burst=max(1, min(24, part.burst * 2)))
    if part.kind != "waker":
        return part
    return replace(
        part,
        over=rng.choice(CHANNELS),
        burst=rng.choice((1, 2, 4, min(16, len(cpus)))),
        wakee=rng.choice(((), node_cpus(rng, machine), some_cpus(rng, cpus, len(cpus) // 2))),
    )


def _unplug(rng: random.Random, load: Load, machine: Topology) -> Load:
    """A CPU goes and comes back early in the load; nobody is bound to it, nor has a deadline."""
    cpus = everywhere(machine)
    alone = {part.cpus[0] for part in load.parts if len(part.cpus) == 1}
    free = [cpu for cpu in cpus if cpu and cpu not in alone]
    if load.hotplug or load.cpuset or load.groups or not free:
        return load
    if any(part.policy == "deadline" for part in load.parts):
        return load
    return replace(load, ms=max(load.ms, 1500), hotplug=(Hotplug(rng.choice(free), 150, 350),))


def _group(rng: random.Random, load: Load, _machine: Topology) -> Load:
    return grouped(rng, load)


def _changes(rng: random.Random, load: Load, machine: Topology) -> Load:
    """The mask or the weight of a part changes time and again."""
    place = rng.randrange(len(load.parts))
    part = load.parts[place]
    if load.changes or part.later or is_fixed(part):
        return load
    some = some_cpus(rng, part.cpus, rng.randint(1, len(part.cpus)))
    pairs = (
        (LoadChange(0, part=place, cpus=some), LoadChange(0, part=place, cpus=part.cpus)),
        (LoadChange(0, part=place, nice=rng.choice((-5, 10))), LoadChange(0, part=place, nice=0)),
    )
    changes = in_turn(*rng.choice(pairs), rng.choice(GAPS_MS))
    return replace(load, ms=max(load.ms, MS), changes=changes)


def _longer(_rng: random.Random, load: Load, _machine: Topology) -> Load:
    return replace(load, ms=min(4000, load.ms + load.ms // 2))


_OF_PARTS: tuple[Mutation, ...] = (
    _count, _count, _turns, _nice, _mask, _mask, _start, _policy, _slice, _waking,
)  # fmt: skip
_OF_LOADS: tuple[Callable[[random.Random, Load, Topology], Load], ...] = (
    _unplug, _group, _longer, _changes,
)  # fmt: skip
