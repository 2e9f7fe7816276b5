"""The planner: which host CPU runs each vCPU, which host node backs each guest node. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from numalab.cpulist import format_cpulist
from numalab.errors import UserError
from numalab.host.facts import Disturbance, Host, HostNode, disturbances
from numalab.machine.model import Mode, check_by_hand, check_cpu_count
from numalab.placement.correspond import NOT_COMPARED, Correspondence, assign, compare
from numalab.placement.cpus import choose, dies_of, flaws, preferred
from numalab.placement.distortions import distortions, short_memory, split_nodes
from numalab.placement.sharing import share
from numalab.topology.topology import Node, Topology

_IMPOSSIBLE = 1 << 50  # more than any guest can lack


@dataclass(frozen=True)
class Placement:
    """The plan of a guest's place on a host.

    `vcpus`: the host CPU of each vCPU. `emulator`: the host CPUs of QEMU's other threads.
    `one_thread`: all vCPUs share one thread (emulation). `distorts`: in words, differences
    from the machine that the topology describes; empty where the plan is one-to-one and the host's
    distances have the guest's order. `host_nodes`: the id of the host node that backs each guest
    node; `bound`: the host has several nodes, so memory is bound. `dedicated`: kvm, and each vCPU
    has an exclusive host CPU, so memory is allocated before the start. `most_on_one`: the most
    vCPUs that share one host CPU. `timing`: timing figures are valid; `disturbs`: disturbances
    that make them less certain.
    """

    vcpus: tuple[int, ...]
    emulator: tuple[int, ...]
    one_thread: bool
    distorts: tuple[str, ...] = ()
    host_nodes: tuple[int, ...] = ()
    bound: bool = False
    dedicated: bool = False
    most_on_one: int = 1
    timing: bool = False
    disturbs: tuple[Disturbance, ...] = ()
    mode: Mode = "kvm"
    distances: Correspondence = NOT_COMPARED

    @property
    def host_cpus(self) -> tuple[int, ...]:
        """All host CPUs that the plan uses, ascending."""
        return tuple(sorted({*self.vcpus, *self.emulator}))

    @property
    def note(self) -> str:
        """The distortions as one text."""
        return "; ".join(self.distorts)


def plan(
    topology: Topology,
    host: Host,
    mode: Mode,
    allowed: Iterable[int] | None = None,
    *,
    pinned: Sequence[int] = (),
    nodes: Sequence[int] = (),
    taken: Iterable[int] = (),
) -> Placement:
    """Plan where the guest `topology` runs on `host`, on the CPUs `allowed` (None: on all).

    Guest nodes go to host nodes of their own where there are enough: those with enough CPUs, then
    with enough memory, then in the order of distances, then with whole cores, then with isolated
    CPUs, then so that near nodes are near. In a node, whole cores come before SMT siblings, among
    those isolated CPUs first; guest cores and dies get host cores and caches (`choose`). Where
    there are fewer host nodes, guest nodes share them (`share`). A host that is too small is
    overcommitted evenly. `pinned`, if given, is the host CPU of each vCPU, and `nodes` the host
    node of each guest node, by their ids; only the rest is planned then. `taken` are host CPUs of
    other guests: CPUs of their cores come last.
    Raises UserError where the host has none of the allowed CPUs, the guest cannot be placed so, or
    it has more CPUs than any guest can have.
    """
    check_cpu_count(topology)
    check_by_hand(topology, pinned, nodes)
    usable = _usable(host, allowed)
    busy = _cores_of(host, taken)
    by_hand = _places_by_hand(topology, host, usable, nodes, follow=mode == "kvm" and not pinned)
    if pinned:
        _check_pinned(usable, mode, pinned)
        vcpus, places = tuple(pinned), by_hand or _places_of(topology, host, pinned)
    elif mode != "kvm":
        vcpus, places = _on_one(topology, host, usable)
        places = by_hand or places
    else:
        places = by_hand or _places(topology, host, usable, busy)
        vcpus = _vcpus(topology, host, usable, places, busy)
    emulator = vcpus[:1] if mode != "kvm" else _emulator(host, usable, vcpus, busy)
    most = max(vcpus.count(cpu) for cpu in set(vcpus))
    distances = compare(topology.distances, host.distances, places)
    distorts = distortions(topology, host, usable, vcpus, places, distances=distances, mode=mode)
    short: tuple[str, ...] = ()
    if mode == "kvm":
        short = short_memory(topology, host, places)
        distorts += (*split_nodes(topology, host, vcpus, places), *short)
    crowded = mode != "kvm" or most > 1 or not set(emulator).isdisjoint(vcpus)
    return Placement(
        vcpus=vcpus,
        emulator=emulator,
        one_thread=mode != "kvm",
        distorts=distorts,
        host_nodes=tuple(host.nodes[place].id for place in places),
        bound=len(host.nodes) > 1,
        dedicated=mode == "kvm" and most == 1,
        most_on_one=most,
        disturbs=disturbances(host, vcpus),
        mode=mode,
        distances=distances,
        timing=not crowded
        and not short
        and not _distances_wrong(places, distances)
        and not split_nodes(topology, host, vcpus, places),
    )


def _usable(host: Host, allowed: Iterable[int] | None) -> set[int]:
    if allowed is None:
        return set(host.cpu_ids)
    wanted = set(allowed)
    if not wanted & set(host.cpu_ids):
        raise UserError(
            f"the host has none of the CPUs {format_cpulist(wanted)}",
            key="host_cpus",
            choices=[format_cpulist(host.cpu_ids)],
        )
    return wanted & set(host.cpu_ids)


def _cores_of(host: Host, cpus: Iterable[int]) -> frozenset[int]:
    """Return all CPUs of the cores to which these belong, as far as they are online."""
    online = (host.cpu_of[cpu] for cpu in cpus if cpu in host.cpu_of)
    return frozenset(sibling for cpu in online for sibling in cpu.siblings)


def _places_by_hand(
    topology: Topology,
    host: Host,
    usable: set[int],
    nodes: Sequence[int],
    *,
    follow: bool,
) -> tuple[int, ...]:
    """Find the places in `host.nodes` of host nodes given by id; none where none are given.

    `follow`: the vCPUs of a guest node run on its host node.
    """
    place_of = {node.id: place for place, node in enumerate(host.nodes)}
    for node, number in zip(topology.nodes, nodes, strict=False):
        if number not in place_of:
            raise UserError(
                f"the host has no node {number}", key="nodes", choices=map(str, place_of)
            )
        if follow and node.cpus and not usable & set(host.nodes[place_of[number]].cpus):
            # vCPUs have one number in a file, in QEMU and in the guest's kernel; nodes have not.
            raise UserError(
                f"host node {number} has no CPU for vCPUs {format_cpulist(node.cpus)}", key="nodes"
            )
    return tuple(place_of[number] for number in nodes)


def _check_pinned(usable: set[int], mode: Mode, pinned: Sequence[int]) -> None:
    missing = sorted(set(pinned) - usable)
    if missing:
        raise UserError(
            f"host CPUs {format_cpulist(missing)} may not be used",
            key="vcpu_cpus",
            choices=[format_cpulist(usable)],
        )
    if mode != "kvm" and len(set(pinned)) > 1:
        raise UserError(f"in {mode} mode all vCPUs share one host CPU", key="vcpu_cpus")


def _places_of(topology: Topology, host: Host, vcpus: Sequence[int]) -> tuple[int, ...]:
    """Find the host node of each guest node from where its first vCPU was pinned.

    A guest node without CPUs lies where the nearest one with CPUs does.
    """
    staffed = [node for node in topology.nodes if node.cpus]
    nearest = [
        min(staffed, key=lambda other: (topology.distances[node.id][other.id], other.id))
        for node in topology.nodes
    ]
    return tuple(host.node_of_cpu[vcpus[node.cpus[0]]] for node in nearest)


def _distances_wrong(places: Sequence[int], fit: Correspondence) -> bool:
    return len(set(places)) < len(places) or fit.reversed + fit.levelled > 0


def _on_one(
    topology: Topology, host: Host, usable: set[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Plan for one thread: the last CPU, and its node for all memory; kvm guests get the first."""
    cpu = preferred(host, usable)[-1]
    return (cpu,) * topology.cpu_count, (host.node_of_cpu[cpu],) * len(topology.nodes)


def _places(
    topology: Topology, host: Host, usable: set[int], busy: frozenset[int]
) -> tuple[int, ...]:
    """Choose the host node (its place in `host.nodes`) of each guest node."""
    free = [len(usable & set(node.cpus)) for node in host.nodes]
    staffed = [node for node in topology.nodes if node.cpus]
    slots = [
        place
        for place, node in enumerate(host.nodes)
        # A host node of memory alone may back a guest node of memory alone.
        if free[place] or (len(staffed) < len(topology.nodes) and not node.cpus and node.memory_mib)
    ]
    table = [[host.distances[a][b] for b in slots] for a in slots]
    if len(slots) < len(topology.nodes) or sum(map(bool, free)) < len(staffed):
        sizes = [(len(node.cpus), node.memory_mib) for node in topology.nodes]
        rooms = [(free[slot], host.nodes[slot].memory_mib) for slot in slots]
        return tuple(slots[slot] for slot in share(topology.distances, table, sizes, rooms))
    needs = [
        [_lack(node, host.nodes[slot], free[slot]) for slot in slots] for node in topology.nodes
    ]
    here = [usable & set(host.nodes[slot].cpus) for slot in slots]
    wishes = []
    for node in topology.nodes:
        dies = dies_of(topology, node.cpus)
        chosen = (choose(host, dies, cpus, busy) if cpus else {} for cpus in here)
        wishes.append([flaws(host, dies, cpus, busy) if cpus else 0 for cpus in chosen])
    return tuple(slots[slot] for slot in assign(topology.distances, table, needs, wishes))


def _lack(guest: Node, host: HostNode, free: int) -> int:
    """Return what a host node with `free` CPUs lacks for a guest node: CPUs, then MiB."""
    if guest.cpus and not free:
        return _IMPOSSIBLE
    cpus, memory = len(guest.cpus) - free, guest.memory_mib - host.memory_mib
    return (max(0, cpus) << 32) + max(0, memory)


def _vcpus(
    topology: Topology,
    host: Host,
    usable: set[int],
    places: Sequence[int],
    busy: frozenset[int],
) -> tuple[int, ...]:
    """Give each vCPU a CPU of its host node."""
    chosen: dict[int, int] = {}
    for place in sorted(set(places)):
        guests = [
            node for node, where in zip(topology.nodes, places, strict=True) if where == place
        ]
        vcpus = [cpu for node in guests for cpu in node.cpus]
        cpus = usable & set(host.nodes[place].cpus)
        chosen |= choose(host, dies_of(topology, vcpus), cpus, busy)
    return tuple(chosen[vcpu] for vcpu in range(topology.cpu_count))


def emulator_cpus(vcpus: int) -> int:
    """Return how many host CPUs QEMU's other threads get in mode kvm: one for each eight vCPUs."""
    return max(1, vcpus // 8)


def _emulator(
    host: Host, usable: set[int], vcpus: Sequence[int], busy: frozenset[int]
) -> tuple[int, ...]:
    """Choose CPUs for QEMU's other threads: spare ones, of idle cores and not isolated if any.

    They are in the first vCPU's node if it has some, and only so many (`emulator_cpus`) that
    several guests can run beside each other. With nothing spare, all that are usable.
    """
    spare = usable - set(vcpus)
    if not spare:
        return tuple(sorted(usable))
    not_idle = busy | _cores_of(host, vcpus)
    home = host.node_of_cpu[vcpus[0]]

    def key(cpu: int) -> tuple[bool, bool, bool, bool, int]:
        elsewhere = host.node_of_cpu[cpu] != home
        return cpu in host.isolated, cpu in not_idle, cpu in busy, elsewhere, cpu

    return tuple(sorted(sorted(spare, key=key)[: emulator_cpus(len(set(vcpus)))]))
