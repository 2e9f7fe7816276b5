"""How implausible a case is: shrinking accepts only cases that are less implausible.

A kernel developer judges a finding by the machine and the load first. Five hogs without masks on a
line of four nodes are taken seriously; three hogs with odd masks on an odd table are not, although
there are fewer of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from numalab.hunt.case import Case
from numalab.hunt.generate.draw import everywhere
from numalab.hunt.loads.load import Load, Part
from numalab.topology.distances import hops
from numalab.topology.shapes.shape import SHAPES, fitting_keys
from numalab.topology.topology import Topology

Hops = tuple[tuple[int, ...], ...]
_STEP = 10  # of plain distances: 10, 20, 30


@dataclass(frozen=True, order=True)
class Implausibility:
    """Compared field by field, the first one first; a case with the smaller value is preferred.

    `distances` is 0 to 3, see `odd_distances`; `restrictions` counts masks that are not all CPUs,
    starting places, later masks, and cpusets of any kind; `uneven` counts further sizes of nodes,
    and nodes without CPUs or memory; `kinds` counts kinds of parts, settings that differ from the
    default, groups and changes. The rest is the size: nodes, CPUs, tasks, different distances, ms
    of load, CPUs in masks, and the length of the text.
    """

    distances: int
    restrictions: int
    uneven: int
    kinds: int
    nodes: int
    cpus: int
    tasks: int
    values: int
    ms: int
    mask_cpus: int
    text: int


def implausibility(case: Case) -> Implausibility:
    """Return the implausibility of a case, summed over its loads."""
    machine, loads = case.machine, case.loads
    parts = [part for load in loads for part in load.parts]
    every = set(everywhere(machine))
    sizes = {len(node.cpus) for node in machine.nodes if node.cpus}
    bare = sum(not node.cpus or not node.memory_mib for node in machine.nodes)
    return Implausibility(
        distances=odd_distances(machine),
        restrictions=sum(_restrictions(load, every) for load in loads),
        uneven=len(sizes) - 1 + bare,
        kinds=(machine.packaging.threads > 1) + sum(map(_kinds, loads)),
        nodes=len(machine.nodes),
        cpus=machine.cpu_count,
        tasks=sum(load.tasks for load in loads),
        values=len({value for row in machine.distances for value in row}),
        ms=sum(load.ms for load in loads),
        mask_cpus=sum(len(getattr(part, name)) for part in parts for name in cpu_lists(part)),
        text=len(case.text),
    )


def odd_distances(machine: Topology) -> int:
    """Return how odd a table of distances is, 0 to 3.

    One point each: its values are not 10, 20, 30 and so on; it does not go by hops; the links are
    not those of a standard shape.
    """
    values = sorted({value for row in machine.distances for value in row})
    odd = int(values != [_STEP * (place + 1) for place in range(len(values))])
    if machine.shape is not None and SHAPES.is_built_in(machine.shape.kind):
        return odd
    counts = link_hops(machine)
    if counts is None:
        return odd + 2
    by_hops: dict[int, set[int]] = {}
    for row, hop_row in zip(machine.distances, counts, strict=True):
        for value, hop in zip(row, hop_row, strict=True):
            by_hops.setdefault(hop, set()).add(value)
    odd += any(len(one_hop) > 1 for one_hop in by_hops.values())
    return odd + (_signature(counts) not in _standard(len(machine.nodes)))


def link_hops(machine: Topology) -> Hops | None:
    """Return the number of hops between any two nodes.

    Links join the nodes at the smallest distance, or as in a drawing if that does not join all
    nodes. None if the links of a drawing do not either.
    """
    table = machine.distances
    ids = range(len(table))
    least = min((table[a][b] for a in ids for b in ids if a < b), default=0)
    near = tuple((a, b) for a in ids for b in ids if a < b and table[a][b] == least)
    for links in (near, machine.links):
        rows = hops(len(table), links)
        joined = tuple(tuple(hop for hop in row if hop is not None) for row in rows)
        if all(len(row) == len(rows) for row in joined):
            return joined
    return None


def free(part: Part, cpus: tuple[int, ...]) -> Part:
    """Return the part with this mask and no other CPU list."""
    none: dict[str, Any] = dict.fromkeys(cpu_lists(part), ())
    return replace(part, **{**none, "cpus": cpus})


def _signature(counts: Sequence[Sequence[int]]) -> Hops:
    """Return the hops without the order of the nodes; shapes with equal ones look alike."""
    return tuple(sorted(tuple(sorted(row)) for row in counts))


@cache
def _standard(nodes: int) -> frozenset[Hops]:
    """Return the signatures of the built-in shapes with so many nodes."""
    signatures = set()
    for kind in SHAPES.built_in():
        for keys in fitting_keys(kind, nodes):
            shape = SHAPES.find(kind).model_validate({"kind": kind, "distances": (10,), **keys})
            counts = [[hop for hop in row if hop is not None] for row in shape.hops(nodes)]
            signatures.add(_signature(counts))
    return frozenset(signatures)


def cpu_lists(part: Part) -> list[str]:
    """Return the names of the CPU lists that a part has: `cpus`, `start` and others."""
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    return [
        name
        for name, value in values.items()
        if isinstance(value, tuple) and value and all(isinstance(cpu, int) for cpu in value)
    ]


def _restrictions(load: Load, every: set[int]) -> int:
    masks = sum(set(part.cpus) != every for part in load.parts)
    further = sum(len(cpu_lists(part)) - bool(part.cpus) for part in load.parts)
    named = [*(group.cpus for group in load.groups), *(change.cpus for change in load.changes)]
    return masks + further + (load.cpuset is not None) + sum(map(bool, named))


def _kinds(load: Load) -> int:
    kinds = {part.kind for part in load.parts}
    settings = {
        field.name
        for part in load.parts
        for field in fields(part)
        if field.name not in ("kind", "count")
        and not isinstance(value := getattr(part, field.name), tuple)
        and value != field.default
    }
    changes = len(load.hotplug) + len(load.groups) + len(load.changes)
    return len(kinds) + len(settings) + changes
