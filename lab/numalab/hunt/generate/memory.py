"""Generate loads of tasks that use memory of some node, for NUMA balancing."""

import random
from collections.abc import Mapping

from numalab.hunt.generate.draw import Family, everywhere
from numalab.hunt.loads.load import Load, Part
from numalab.topology.topology import Node, Topology


def _areas(rng: random.Random) -> int:
    """NUMA balancing decides for each VMA whether a task scans it (vma_is_accessed(), 6.12)."""
    return rng.choice((1, 1, 1, 8, 64))


def _holders(machine: Topology) -> list[Node]:
    return [node for node in machine.nodes if node.cpus and node.memory_mib]


def memory(rng: random.Random, machine: Topology) -> Load | None:
    """Memory users whose memory was first touched elsewhere: on another node or without CPUs."""
    if len(machine.nodes) < 2:
        return None
    allowed = everywhere(machine)
    node = rng.choice([node.id for node in machine.nodes if node.memory_mib])
    count = max(1, min(len(allowed) // 2, rng.randint(1, 3)))
    apart = [cpu for cpu in allowed if machine.node_of_cpu(cpu) != node] or list(allowed)
    start = (rng.choice(apart),)
    part = Part(
        "memory", count, allowed, start, mib=rng.choice((2, 4)), node=node, areas=_areas(rng)
    )
    return Load(3000, (part,))


def shared_memory(rng: random.Random, machine: Topology) -> Load | None:
    """Two processes whose threads share memory, with idle CPUs or without."""
    allowed = everywhere(machine)
    if len(machine.nodes) < 2 or len(allowed) < 4:
        return None
    count = rng.choice((len(allowed) // 4, len(allowed) // 2))
    parts = tuple(
        Part("memory", max(1, count), allowed, mib=4, threads=True, node=node.id, areas=_areas(rng))
        for node in rng.sample([node for node in machine.nodes if node.memory_mib], 1)
    )
    return Load(3000, parts * 2)


def exchanged_memory(rng: random.Random, machine: Topology) -> Load | None:
    """Two crowds whose memory lies where the other one starts: all want to move at once."""
    holders = _holders(machine)
    if len(holders) < 2:
        return None
    home, far = rng.sample(holders, 2)
    threads = rng.random() < 0.3
    allowed = tuple(sorted({*home.cpus, *far.cpus})) if rng.random() < 0.3 else everywhere(machine)
    parts = tuple(
        Part("memory", rng.randint(1, len(node.cpus) + 1), allowed, node.cpus, mib=2,
             node=other.id, threads=threads)
        for node, other in ((home, far), (far, home))
    )  # fmt: skip
    return Load(2500, parts)


def local_memory(rng: random.Random, machine: Topology) -> Load | None:
    """Threads that share memory of the node to which they are bound: there is nothing to improve.

    Not one alone: of a process with one thread, pages that are local are left out of the scan.
    """
    holders = _holders(machine)
    if len(machine.nodes) < 2 or not holders:
        return None
    node = rng.choice(holders)
    count = rng.randint(2, max(2, len(node.cpus)))
    part = Part(
        "memory",
        count,
        node.cpus,
        mib=rng.choice((2, 4)),
        threads=True,
        node=node.id,
        areas=_areas(rng),
    )
    return Load(3000, (part,))


def bound_memory(rng: random.Random, machine: Topology) -> Load | None:
    """Memory users on full nodes, some bound to one CPU: only a swap of tasks helps."""
    allowed = everywhere(machine)
    holders = _holders(machine)
    if len(holders) < 2 or len(allowed) < 3:
        return None
    home, far = rng.sample(holders, 2)
    half = tuple(sorted(rng.sample(allowed, max(1, len(allowed) // 2))))
    parts = (
        Part("memory", len(home.cpus), allowed, home.cpus, mib=2, node=far.id),
        *(Part("memory", 1, (cpu,), mib=2, node=home.id) for cpu in far.cpus),
        Part("memory", max(1, len(half) // 2), half, mib=2, node=home.id),
    )
    return Load(2500, parts)


def kept_memory(rng: random.Random, machine: Topology) -> Load | None:
    """Memory users whose memory stays on its node: only their own moves make accesses local.

    There are CPUs enough for them on these nodes, or there is one too few.
    """
    holders = _holders(machine)
    if len(holders) < 2:
        return None
    allowed = everywhere(machine)
    parts = []
    for node in rng.sample(holders, rng.randint(1, min(3, len(holders)))):
        apart = [cpu for cpu in allowed if cpu not in node.cpus]
        count = max(1, len(node.cpus) + rng.choice((-1, -1, 0, 1)))
        threads = count > 1 and rng.random() < 0.4
        parts.append(
            Part("memory", count, allowed, (rng.choice(apart),) if rng.random() < 0.6 else (),
                 mib=rng.choice((1, 2)), node=node.id, bound=True, threads=threads)
        )  # fmt: skip
    return Load(2500, tuple(parts))


def swapped_memory(rng: random.Random, machine: Topology) -> Load | None:
    """A memory user on each CPU of some nodes, whose memory stays: only swaps make it local."""
    holders = _holders(machine)
    if len(holders) < 2:
        return None
    nodes = rng.sample(holders, rng.randint(2, min(3, len(holders))))
    starts = [cpu for node in nodes for cpu in node.cpus]
    homes = [node.id for node in nodes for _ in node.cpus]
    shift = rng.randint(1, len(homes) - 1)
    allowed = tuple(sorted(starts))
    parts = tuple(
        Part("memory", 1, allowed, (cpu,), mib=1, node=home, bound=True)
        for cpu, home in zip(starts, homes[shift:] + homes[:shift], strict=True)
    )
    return Load(2500, parts)


def crowded_memory(rng: random.Random, machine: Topology) -> Load | None:
    """Memory users whose memory stays on a node that is full of hogs: other nodes are left.

    NUMA balancing looks at all nodes then; a part of the memory is on one with idle CPUs.
    """
    holders = _holders(machine)
    if len(holders) < 3:
        return None
    full, second = rng.sample(holders, 2)
    allowed = everywhere(machine)
    apart = [cpu for cpu in allowed if cpu not in (*full.cpus, *second.cpus)]
    threads = rng.random() < 0.5
    users = [
        Part("memory", 2 if threads else 1, allowed, (rng.choice(apart),), mib=1, node=node.id,
             bound=True, threads=threads)
        for node in (full, *((full, second)[: rng.randint(0, 2)]))
    ]  # fmt: skip
    return Load(2500, (Part("hog", rng.choice((1, 2)) * len(full.cpus), full.cpus), *users))


def resting_memory(rng: random.Random, machine: Topology) -> Load | None:
    """Memory that is untouched for a while, and whose user then runs on another node."""
    holders = _holders(machine)
    if len(holders) < 2:
        return None
    home, far = rng.sample(holders, 2)
    part = Part("memory", 1, home.cpus, later=far.cpus, mib=2, rest=True, areas=_areas(rng))
    return Load(4000, (part,))


def freed(rng: random.Random, machine: Topology) -> Load:
    """Memory users on random CPUs, each on one, which may go anywhere from half of the time on.

    Half of them have their memory where they start. No CPU has two.
    """
    allowed = everywhere(machine)
    nodes = [node.id for node in machine.nodes if node.memory_mib]
    some = rng.sample(allowed, max(1, len(allowed) * rng.choice((1, 2, 3)) // 4))
    parts = tuple(
        Part("memory", 1, (cpu,), later=allowed, mib=rng.choice((1, 2)),
             node=rng.choice((None, rng.choice(nodes))))
        for cpu in sorted(some)
    )  # fmt: skip
    return Load(3000, parts)


FAMILIES: Mapping[Family, float] = {
    memory: 1.2,
    shared_memory: 0.6,
    exchanged_memory: 0.8,
    local_memory: 0.6,
    bound_memory: 1.0,
    kept_memory: 1.0,
    swapped_memory: 0.8,
    crowded_memory: 0.8,
    resting_memory: 0.6,
}
