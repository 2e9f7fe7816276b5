"""Plainer cases to try: standard machines, and loads without masks.

A violation found on an odd machine often shows on a standard one too, with other numbers of tasks.
So each plainer machine is booted with several loads. The machine may have more nodes and CPUs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from numalab.hunt.case import Case, machine_of
from numalab.hunt.generate.draw import everywhere, is_fixed
from numalab.hunt.loads.load import Cpus, Load, LoadChange
from numalab.hunt.simplify.implausibility import free, link_hops
from numalab.topology.topology import Topology

_MOST_CPUS = 12
_MOST_LOADS = 12  # of one boot
_COUNTS = 4  # numbers of tasks that are tried for each kind of mask
_SHAPES = ("line", "ring", "full")
_STEP = 10
_FIRST_MIB, _NODE_MIB = 512, 256


def plainer_on_own_nodes(case: Case) -> Iterator[Case]:
    """Yield the case with regular distances, the closest tables first.

    Each case has several loads: the original ones and loads without masks.
    """
    machine = case.machine
    sizes = [len(node.cpus) for node in machine.nodes]
    even = [max(set(sizes), key=lambda size: (sizes.count(size), size))] * len(sizes)
    matrix = _by_hops(machine)
    shapes = [_shape(kind, len(sizes)) for kind in _SHAPES]
    # A shape that has the same distances is shorter to write than the table.
    same = [table for table in shapes if matrix and _distances(table, len(sizes)) == matrix]
    tables = [*(same or ([[f"matrix = {matrix}"]] if matrix else [])), *shapes]
    for table in tables:
        for cpus in dict.fromkeys((tuple(sizes), tuple(even))):
            yield from _on(case, cpus, table)


def plainer_on_other_nodes(case: Case) -> Iterator[Case]:
    """Yield loads like those of the case on standard machines of any size, small ones first."""
    for nodes in (2, 4, 3, 6, 8):
        for kind in _SHAPES:
            for per_node in (1, 2, 3):
                if nodes * per_node <= _MOST_CPUS:
                    yield from _on(case, (per_node,) * nodes, _shape(kind, nodes))


def without_masks(load: Load, machine: Topology) -> Load:
    """Return a load whose tasks may run on all CPUs and start anywhere."""
    every = everywhere(machine)
    parts = tuple(free(part, every) for part in load.parts)
    groups = tuple(replace(group, cpus=(), partition=False) for group in load.groups)
    changes = tuple(filter(None, map(_without_cpus, load.changes)))
    return replace(load, parts=parts, cpuset=None, groups=groups, changes=changes)


def _without_cpus(change: LoadChange) -> LoadChange | None:
    """Return what else a change does; None for nothing."""
    left = replace(change, cpus=())
    nothing = LoadChange(left.at_ms, left.times, left.every_ms, left.part, left.group)
    return None if change.cpus and left == nothing else left


def _on(case: Case, cpus: Sequence[int], table: Sequence[str]) -> Iterator[Case]:
    memory = [_FIRST_MIB, *[_NODE_MIB] * (len(cpus) - 1)]
    lines = ['summary = "Shrunk by numalab hunt"', f"nodes = {len(cpus)}", f"cpus = {list(cpus)}"]
    machine = machine_of("\n".join([*lines, f"memory_mib = {memory}", *table, ""]))
    if machine is None or machine.cpu_count < 2:
        return
    same_cpus = [len(node.cpus) for node in case.machine.nodes] == list(cpus)
    loads = [load for load in case.loads if same_cpus]
    old = everywhere(case.machine)
    for load in case.loads:
        if _fits(load, machine):
            masks = any(p.cpus != old for p in load.parts) and not any(map(is_fixed, load.parts))
            loads += _loads(load, machine, masks=masks)
    if loads:
        yield Case(machine, tuple(dict.fromkeys(loads))[:_MOST_LOADS])


def _fits(load: Load, machine: Topology) -> bool:
    every = everywhere(machine)
    nodes = {part.node for part in load.parts} - {None}
    return {change.cpu for change in load.hotplug} < set(every) and all(
        node < len(machine.nodes) for node in nodes if node is not None
    )


def _loads(load: Load, machine: Topology, *, masks: bool) -> Iterator[Load]:
    """Yield loads like this one: without masks, from one node, and between two far nodes."""
    plain = without_masks(load, machine)
    ids = [node.id for node in machine.nodes if node.cpus]
    first = machine.nodes[ids[0]]
    far = max(ids, key=lambda node: (machine.distances[first.id][node], -node))
    two = tuple(sorted({*first.cpus, *machine.nodes[far].cpus}))
    starts = any(part.start for part in load.parts)
    choices = [_Masks(everywhere(machine), ())]
    choices += [_Masks(everywhere(machine), first.cpus)] if starts else []
    choices += [_Masks(two, first.cpus if starts else ())] if masks else []
    for choice in choices:
        for count in _counts(plain, choice.cpus):
            parts = [
                replace(part, cpus=choice.cpus, start=choice.start, count=count or part.count)
                for part in plain.parts
            ]
            yield replace(plain, parts=tuple(parts))


@dataclass(frozen=True)
class _Masks:
    cpus: Cpus
    start: Cpus


def _counts(load: Load, cpus: Cpus) -> list[int]:
    """Return the numbers of tasks to try; 0: as it is. Loads of several parts keep theirs."""
    if len(load.parts) > 1:
        return [0]
    count, room = load.parts[0].count, len(cpus)
    wanted = (count, room // 2 - 1, room - 1, room + 1, room // 2, count + 2)
    return list(dict.fromkeys(n for n in wanted if n > 0))[:_COUNTS]


def _by_hops(machine: Topology) -> list[list[int]] | None:
    counts = link_hops(machine)
    return [[_STEP * (1 + hop) for hop in row] for row in counts] if counts else None


def _distances(table: Sequence[str], nodes: int) -> list[list[int]] | None:
    lines = ['summary = "s"', f"nodes = {nodes}", f"cpus = {[1] * nodes}", "memory_mib = 256"]
    machine = machine_of("\n".join([*lines, *table, ""]))
    return [list(row) for row in machine.distances] if machine else None


def _shape(kind: str, nodes: int) -> list[str]:
    hops = {"line": nodes - 1, "ring": nodes // 2, "full": min(1, nodes - 1)}[kind]
    distances = [_STEP * (1 + hop) for hop in range(hops + 1)]
    return ["", "[shape]", f'kind = "{kind}"', f"distances = {distances}"]
