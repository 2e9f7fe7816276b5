"""Run the loads of one machine on another one."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from numalab.hunt.generate.draw import is_fixed
from numalab.hunt.loads.load import Cpus, CpusetChange, Load, Part
from numalab.topology.predict.firmware import as_guest_numbers
from numalab.topology.topology import Topology


def fitted(rng: random.Random, old: Topology, new: Topology, load: Load) -> Load | None:
    """Return a load of one machine for another one: each node becomes one of the new nodes.

    None for a load with deadlines or real-time hogs: fewer CPUs might not admit its tasks, or leave
    nothing to the driver.
    """
    if any(map(is_fixed, load.parts)):
        return None
    old, new = as_guest_numbers(old), as_guest_numbers(new)
    holders = [node for node in new.nodes if node.cpus]
    targets = {node.id: rng.choice(holders) for node in old.nodes}
    if len(holders) >= len(old.nodes):
        chosen = rng.sample(holders, len(old.nodes))
        targets = {node.id: chosen[place] for place, node in enumerate(old.nodes)}
    memory = [node.id for node in new.nodes if node.memory_mib]
    cpus = {
        cpu: targets[node.id].cpus[place % len(targets[node.id].cpus)]
        for node in old.nodes
        for place, cpu in enumerate(node.cpus)
    }
    cpuset = load.cpuset and CpusetChange(
        _mapped(load.cpuset.before, cpus), _mapped(load.cpuset.after, cpus), load.cpuset.at_ms
    )
    moved = replace(
        load,
        parts=tuple(_moved(part, cpus, memory) for part in load.parts),
        hotplug=tuple(replace(change, cpu=cpus[change.cpu]) for change in load.hotplug),
        cpuset=cpuset,
        groups=tuple(replace(group, cpus=_mapped(group.cpus, cpus)) for group in load.groups),
        changes=tuple(replace(change, cpus=_mapped(change.cpus, cpus)) for change in load.changes),
    )
    gone = {change.cpu for change in moved.hotplug}
    # A task without a CPU may go anywhere (select_fallback_rq()); CPU 0 stays online.
    lost = 0 in gone or any(set(mask) <= gone for mask in _masks(moved))
    return replace(moved, hotplug=()) if lost else moved


def _masks(load: Load) -> Iterator[Cpus]:
    """Return the masks of a load that are not empty."""
    masks = [mask for p in load.parts for mask in (p.cpus, p.start, p.later, p.wakee)]
    masks += [group.cpus for group in load.groups]
    masks += [change.cpus for change in load.changes]
    if load.cpuset is not None:
        masks += [load.cpuset.before, load.cpuset.after]
    yield from filter(None, masks)


def _moved(part: Part, cpus: Mapping[int, int], memory: Sequence[int]) -> Part:
    return replace(
        part,
        cpus=_mapped(part.cpus, cpus),
        start=_mapped(part.start, cpus),
        later=_mapped(part.later, cpus),
        wakee=_mapped(part.wakee, cpus),
        node=None if part.node is None else memory[part.node % len(memory)],
    )


def _mapped(cpus: Cpus, new: Mapping[int, int]) -> Cpus:
    return tuple(sorted({new[cpu] for cpu in cpus}))
