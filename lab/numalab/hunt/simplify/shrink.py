"""Shrink a case: boot smaller cases as long as one still violates the property."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from numalab.hunt.case import Case, machine_of
from numalab.hunt.generate.draw import is_admitted, is_fixed
from numalab.hunt.loads.load import Cpus, CpusetChange, Load, Part
from numalab.hunt.simplify.implausibility import cpu_lists, free, implausibility
from numalab.hunt.simplify.plainer import plainer_on_other_nodes, plainer_on_own_nodes
from numalab.topology.topology import Topology

LEAST_MS = 600
_AT_ONCE = 6  # loads of one boot
_POLICY = ("policy", "priority", "runtime_us", "period_us", "deadline_us")  # which go together
_MOST_PLAINER = 8  # standard machines tried in one step
# Returns, for each load of each case, whether it violates the property.
Violates = Callable[[Sequence[Case]], list[list[bool]]]
# Returns whether a case that violates in a few boots also does so in all final boots.
Settles = Callable[[Case], bool]


@dataclass(frozen=True)
class Shrunk:
    """The smallest case that violates, and the number of cases tried."""

    case: Case
    tried: int


def shrink(
    case: Case, violates: Violates, goes_on: Callable[[], bool], settles: Settles = lambda _: True
) -> Shrunk:
    """Return the least implausible case that violates, of a case with at most one load.

    Stops when no less implausible case violates, or `goes_on` returns False. `violates` boots each
    case a few times; each step takes the least implausible one that also `settles`, so that a
    violation by chance does not mislead the search. A step may add nodes or CPUs, if distances or
    masks become plainer (see `Implausibility`). The order is fixed: the same case gives the same
    result.
    """
    tried = 0
    offered: set[str] = set()
    while goes_on():
        better = None
        for batch in _batches(case, offered):
            if not goes_on():
                break
            tried += sum(len(smaller_case.loads) for smaller_case in batch)
            violating = sorted(_violating(batch, violates(batch)), key=implausibility)
            violating = [v for v in violating if implausibility(v) < implausibility(case)]
            better = next((smaller for smaller in violating if settles(smaller)), None)
            if better is not None:
                break
        if better is None:
            break
        case = better
    return Shrunk(case, tried)


def _violating(batch: Sequence[Case], held: Sequence[Sequence[bool]]) -> Iterator[Case]:
    for case, flags in zip(batch, held, strict=True):
        for load, bad in zip(case.loads, flags, strict=True):
            if bad:
                yield case.only(load)


def _batches(case: Case, offered: set[str]) -> Iterator[list[Case]]:
    """Yield less implausible cases, those of a boot together; add standard machines to `offered`.

    First regular distances and loads without masks on the same nodes, then smaller machines in
    pairs, then smaller loads, several in one boot, and last standard machines of other sizes.
    """
    least = implausibility(case)
    yield from _plainer(case, plainer_on_own_nodes(case), offered)
    machines = [small for small in _machines(case) if implausibility(small) < least]
    for first in range(0, len(machines), 2):
        yield machines[first : first + 2]
    loads = [
        load
        for old in case.loads
        for load in dict.fromkeys(_loads(old, case.machine))
        if implausibility(case.only(load)) < least
    ]
    for first in range(0, len(loads), _AT_ONCE):
        yield [case.only(*loads[first : first + _AT_ONCE])]
    if (least.distances, least.restrictions, least.uneven) > (0, 0, 0):
        yield from _plainer(case, plainer_on_other_nodes(case), offered)


def _plainer(case: Case, plainer: Iterator[Case], offered: set[str]) -> Iterator[list[Case]]:
    """Yield each machine with the loads that make the case less implausible, each pair once."""
    least = implausibility(case)
    batches = 0
    for other in plainer:
        loads = [
            load
            for load in other.loads
            if implausibility(other.only(load)) < least
            and other.only(load).text not in offered
            and _is_admitted_too(case, load)
        ]
        offered.update(other.only(load).text for load in loads)
        if loads and batches < _MOST_PLAINER:
            batches += 1
            yield [other.only(*loads)]


def _machines(case: Case) -> Iterator[Case]:
    machine = case.machine
    used = set().union(*(load.every_cpu for load in case.loads)) if case.loads else set()
    counts = [len(node.cpus) for node in machine.nodes]
    # One CPU a node; then without one node, nodes that no task may use first.
    if max(counts) > 1:
        yield from _cut(case, {node.id: node.cpus[:1] for node in machine.nodes})
    order = sorted(machine.nodes, key=lambda node: (bool(used & set(node.cpus)), -node.id))
    for node in order:
        if len(machine.nodes) > 1:
            yield from _cut(case, {n.id: n.cpus for n in machine.nodes if n.id != node.id})
    for node in machine.nodes:
        if len(node.cpus) > 1:
            kept = {n.id: n.cpus[:-1] if n.id == node.id else n.cpus for n in machine.nodes}
            yield from _cut(case, kept)
    if (step := machine.packaging.dies * machine.packaging.threads) > 1:  # a core of each die
        yield from _cut(case, {n.id: n.cpus[:-step] or n.cpus for n in machine.nodes})
    if machine.packaging.threads > 1:
        yield from _cut(case, {n.id: n.cpus for n in machine.nodes}, threads=1)
    if machine.packaging.dies > 1:
        yield from _cut(case, {n.id: n.cpus for n in machine.nodes}, dies=1)
    values = sorted({value for row in machine.distances for value in row} - {10})
    usual = {10: 10, **{value: 20 + 10 * place for place, value in enumerate(values)}}
    fewer = {10: 10, **{value: values[max(0, place - 1)] for place, value in enumerate(values)}}
    for table in (fewer, usual):
        yield from _cut(case, {n.id: n.cpus for n in machine.nodes}, distances=table)


def _cut(
    case: Case,
    kept: Mapping[int, Cpus],
    *,
    threads: int | None = None,
    dies: int | None = None,
    distances: Mapping[int, int] | None = None,
) -> Iterator[Case]:
    """Yield the case with only these nodes and CPUs, renumbered, if it is valid."""
    machine = case.machine
    nodes, cpus = list(kept), [cpu for node in kept for cpu in kept[node]]
    new = {cpu: place for place, cpu in enumerate(cpus)}
    rows = [[machine.distances[a][b] for b in nodes] for a in nodes]
    if distances is not None:
        rows = [[distances[value] for value in row] for row in rows]
    memory = [machine.nodes[node].memory_mib for node in nodes]
    memory[0] = max(memory[0], machine.nodes[0].memory_mib)
    text = [
        'summary = "Shrunk by numalab hunt"',
        f"nodes = {len(nodes)}",
        f"cpus = {[len(kept[node]) for node in nodes]}",
        f"memory_mib = {memory}",
        f"matrix = {rows}",
    ]
    text += _packaging(
        [len(kept[node]) for node in nodes if kept[node]],
        machine.packaging.threads if threads is None else threads,
        machine.packaging.dies if dies is None else dies,
    )
    small = machine_of("\n".join(text) + "\n")
    loads = [_renumbered(load, new, nodes) for load in case.loads]
    whole = [load for load in loads if load is not None]
    admitted = all(_is_admitted_too(case, load) for load in whole)
    if small is not None and len(whole) == len(case.loads) and admitted:
        yield Case(small, tuple(whole))


def _is_admitted_too(case: Case, load: Load) -> bool:
    """Whether the kernel admits the deadline tasks of a load as it did those of a case."""
    return is_admitted(load) or not all(map(is_admitted, case.loads))


def _packaging(cpus: Sequence[int], threads: int, dies: int) -> list[str]:
    """Return the lines for nodes with these CPUs, a socket each; no dies or threads if uneven."""
    cores, rest = divmod(min(cpus, default=0), threads)
    if rest or len(set(cpus)) != 1 or threads * dies == 1:
        return []
    dies = dies if cores % dies == 0 else 1
    return ["", "[cpu]", f"sockets = {len(cpus)}", f"dies = {dies}", f"threads = {threads}"]


def _renumbered(load: Load, new: Mapping[int, int], nodes: Sequence[int]) -> Load | None:
    """Return a load on fewer CPUs; None if no part is left."""

    def cut(cpus: Cpus) -> Cpus:
        return tuple(sorted(new[cpu] for cpu in cpus if cpu in new))

    kept, parts = [], []
    for place, part in enumerate(load.parts):
        cpus, later, start = cut(part.cpus), cut(part.later), cut(part.start)
        wakee = cut(part.wakee)
        gone = (part.later and not later) or (part.start and not start)
        if not cpus or gone or (part.wakee and not wakee):
            continue
        if part.node is not None and part.node not in nodes:
            continue
        node = None if part.node is None else list(nodes).index(part.node)
        kept.append(place)
        parts.append(replace(part, cpus=cpus, later=later, start=start, node=node, wakee=wakee))
    if not parts:
        return None
    load = load.keep(kept)
    changes = tuple(
        replace(change, cpus=cut(change.cpus))
        for change in load.changes
        if not change.cpus or cut(change.cpus)
    )
    groups = tuple(replace(group, cpus=cut(group.cpus)) for group in load.groups)
    if any(old.cpus and not group.cpus for old, group in zip(load.groups, groups, strict=True)):
        return None
    hotplug = tuple(replace(h, cpu=new[h.cpu]) for h in load.hotplug if new.get(h.cpu))
    cpuset = load.cpuset
    if cpuset is not None:
        before, after = cut(cpuset.before), cut(cpuset.after)
        cpuset = CpusetChange(before, after, cpuset.at_ms) if before and after else None
    return replace(
        load, parts=tuple(parts), hotplug=hotplug, cpuset=cpuset, groups=groups, changes=changes
    )


def _loads(load: Load, machine: Topology) -> Iterator[Load]:
    places = range(len(load.parts))
    for place in places:
        if len(load.parts) > 1:
            yield load.keep([other for other in places if other != place])
    for place in range(len(load.changes)):
        yield replace(load, changes=(*load.changes[:place], *load.changes[place + 1 :]))
    if load.groups and not any(change.group or change.into for change in load.changes):
        yield replace(load, groups=(), parts=tuple(replace(part, group="") for part in load.parts))
    if load.hotplug:
        yield replace(load, hotplug=())
    if load.scan_mib:
        yield replace(load, scan_mib=0)
    if load.cpuset is not None:
        yield replace(load, cpuset=None)
    for place, part in enumerate(load.parts):
        masks = () if _is_fixed(load, place) else _masks(part, machine)
        for small in (*_parts(part, machine), *masks):
            yield replace(load, parts=(*load.parts[:place], small, *load.parts[place + 1 :]))
    if load.ms // 2 >= LEAST_MS and not (load.hotplug or load.cpuset or load.changes):
        yield replace(load, ms=load.ms // 2)


def _is_fixed(load: Load, place: int) -> bool:
    """Whether the tasks of a part need all of its CPUs, by its policy or a later one."""
    part = load.parts[place]
    policies = [part.policy, *(change.policy for change in load.changes if change.part == place)]
    return any(is_fixed(replace(part, policy=policy)) for policy in policies if policy)


def _parts(part: Part, machine: Topology) -> Iterator[Part]:
    every = tuple(sorted(cpu for node in machine.nodes for cpu in node.cpus))
    yield free(part, every)
    yield replace(part, cpus=every)
    for name in cpu_lists(part):
        if name != "cpus":
            yield _with(part, name, ())
    for count in (1, 2, part.count // 2, part.count - 1):
        if 0 < count < part.count:
            yield replace(part, count=count)
    if part.burst > 1:
        yield replace(part, burst=part.burst // 2)
    for field in fields(part):
        usual = field.default
        if field.name not in _POLICY and not isinstance(usual, tuple) and usual is not MISSING:
            yield _with(part, field.name, usual)
    if part.policy != "fair":
        yield replace(part, policy="fair", priority=0, runtime_us=0, period_us=0, deadline_us=0)


def _masks(part: Part, machine: Topology) -> Iterator[Part]:
    """Yield the part with other masks: whole nodes first, then without a node, without a CPU."""
    nodes = {cpu: node.cpus for node in machine.nodes for cpu in node.cpus}
    yield replace(part, cpus=tuple(sorted({c for cpu in part.cpus for c in nodes[cpu]})))
    if len(part.start) > 1:
        yield replace(part, start=part.start[:1])
    groups = [*(node.cpus for node in machine.nodes), *((cpu,) for cpu in part.cpus)]
    for group in groups:
        rest = tuple(cpu for cpu in part.cpus if cpu not in group)
        if rest and len(rest) < len(part.cpus) and not set(part.start) - set(rest):
            yield replace(part, cpus=rest)


def _with(part: Part, name: str, value: object) -> Part:
    changed: dict[str, Any] = {name: value}
    return replace(part, **changed)
