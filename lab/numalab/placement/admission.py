"""Reserves host CPUs, memory and hugepages for a machine."""

import os
import resource
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from numalab.cpulist import format_cpulist
from numalab.errors import HostBusy, UserError
from numalab.host.budget import (
    Admission,
    CpusInUse,
    NodeMemory,
    Pages,
    Reservation,
    admit,
    cpus_in_use,
)
from numalab.host.facts import Host
from numalab.host.privilege import effective_capabilities
from numalab.host.read import read_host
from numalab.machine.memory import backed_mib
from numalab.machine.model import PAGE_KIB, Machine, Mode, check_by_hand
from numalab.placement.planner import Placement, emulator_cpus, plan
from numalab.topology.predict.firmware import as_guest_numbers, node_numbers
from numalab.topology.topology import Topology

_CAP_SYS_RESOURCE = 24  # linux/capability.h


def admit_machine(machine: Machine) -> tuple[Placement, Admission]:
    """Plan `machine` on this host and reserve its part until the admission is released.

    A guest in mode kvm has exclusive CPUs, unless the machine shares them. Guests in other modes
    share the least used CPUs, but none of a kvm guest. Memory counts where it is locked or made of
    hugepages. Notes of the plan have the node numbers of the guest's kernel. Raises UserError for
    host CPUs that do not exist, HostBusy where other guests have them.
    """
    host = read_host()
    allowed = _allowed(machine, host)
    if machine.shares_cpus and not machine.huge:
        return _place(machine, host, allowed), Admission.of_nothing()
    placements: list[Placement] = []

    def choose(taken: CpusInUse) -> Reservation:
        if machine.shares_cpus:
            placement = _place(machine, host, allowed)
        elif machine.mode == "kvm":
            placement = _alone(machine, host, allowed, taken.cpus)
        else:
            placement = _spread(machine, host, allowed, taken)
        placements.append(placement)
        return reservation_of(machine, placement)

    admission = admit(choose)
    return placements[0], admission


def free_places(mode: Mode, vcpus: int) -> int:
    """Return how many guests with `vcpus` CPUs can start now without sharing host CPUs.

    At least 1: a host that is too small is overcommitted, or refuses the guest.
    """
    host = read_host()
    free = guest_cpus(host) & set(host.cpu_ids) - cpus_in_use().cpus
    if mode != "kvm":
        return max(1, len({host.cpu_of[cpu].siblings for cpu in free}))
    return max(1, len(free) // host_cpus(mode, vcpus))


def host_cpus(mode: Mode, vcpus: int) -> int:
    """Return the best number of host CPUs: in mode kvm, with those of QEMU's own threads."""
    return vcpus + emulator_cpus(vcpus) if mode == "kvm" else 1


def reservation_of(machine: Machine, placement: Placement) -> Reservation:
    """Return the reservation of a machine with this placement."""
    nodes = machine.topology.nodes
    pages: Counter[int] = Counter()
    size = PAGE_KIB[machine.pages]
    if machine.huge:
        for node, host_node in zip(nodes, placement.host_nodes, strict=True):
            pages[host_node] += (backed_mib(node) << 10) // size
    bound: Counter[int] = Counter()
    if placement.dedicated and not machine.huge:
        for node, host_node in zip(nodes, placement.host_nodes, strict=True):
            bound[host_node] += backed_mib(node)
    kept = placement.dedicated or pages
    own = _own_mib(machine) if locks_memory(machine, placement) else 0
    return Reservation(
        cpus=() if machine.shares_cpus else placement.host_cpus,
        memory_mib=sum(map(backed_mib, nodes)) + own if kept else 0,
        pages=tuple(Pages(node, size, count) for node, count in sorted(pages.items())),
        shares=machine.mode != "kvm",
        bound=tuple(NodeMemory(node, mib) for node, mib in sorted(bound.items())),
    )


def locks_memory(machine: Machine, placement: Placement) -> bool:
    """Return whether QEMU locks its memory: only where timing figures may be valid."""
    return placement.dedicated and not machine.shares_cpus and may_lock_memory()


def _own_mib(machine: Machine) -> int:
    """Return the MiB that QEMU locks besides guest memory: NVDIMMs, heap, stacks and code.

    Measured with QEMU 7.2: 83 MiB and 8 MiB for each vCPU are resident. VmLck is larger, because it
    includes memory that malloc reserves without using it.
    """
    with suppress(OSError):
        root = machine.rootfs.stat().st_size >> 20
        return root + machine.job_disk_mib + 83 + 8 * machine.topology.cpu_count
    return 0  # the start raises the error of a missing root


def may_lock_memory() -> bool:
    """Return whether a QEMU started by this process may lock all memory (mlock(2))."""
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] == resource.RLIM_INFINITY:
        return True
    return bool(effective_capabilities() >> _CAP_SYS_RESOURCE & 1)


def _alone(
    machine: Machine, host: Host, allowed: frozenset[int], taken: frozenset[int]
) -> Placement:
    """Place the machine on free CPUs. Raises HostBusy if that makes the placement worse.

    Where it measures time, any other placement is worse: runs on other CPUs are not compared.
    """
    whole = _place(machine, host, allowed)
    if not taken:
        return whole
    free = allowed - taken
    fits = free and set(machine.vcpu_cpus) <= free
    placement = _place(machine, host, free, taken) if fits else None
    if placement is None or placement.most_on_one > whole.most_on_one:
        raise HostBusy(
            f"{machine.topology.cpu_count} vCPUs need more host CPUs than are free:"
            f" {format_cpulist(taken & allowed)} run other guests",
            hint="wait until they have ended, or use another mode than kvm",
        )
    reason, moves = "", (placement.vcpus, placement.emulator) != (whole.vcpus, whole.emulator)
    if machine.measures_time and whole.timing and not placement.timing:
        reason = "its times would not be valid"
    elif machine.measures_time and moves:
        reason = "it would get other CPUs than alone; runs that are compared need the same"
    if reason:
        raise HostBusy(
            f"host CPUs {format_cpulist(taken)} run other guests, and beside them {reason}",
            hint="wait until they have ended, or start numalab on other CPUs (taskset)",
        )
    return placement


def _spread(machine: Machine, host: Host, allowed: frozenset[int], taken: CpusInUse) -> Placement:
    """Place an emulated machine on the least used CPUs, without those of kvm guests."""
    usable = allowed - taken.alone
    if not usable or set(machine.vcpu_cpus) & taken.alone:
        raise HostBusy(
            f"host CPUs {format_cpulist(taken.alone & allowed)} run guests in kvm mode, which have"
            " them to themselves",
            hint="wait until they have ended",
        )
    whole = _place(machine, host, usable)
    for cpus in _by_use(host, usable, taken):
        if len(cpus) < len(usable) and set(machine.vcpu_cpus) <= cpus:
            placement = _place(machine, host, cpus)
            if placement.most_on_one <= whole.most_on_one:
                return placement
    return whole


def _by_use(host: Host, usable: frozenset[int], taken: CpusInUse) -> Iterator[frozenset[int]]:
    """Yield growing sets of CPUs: first those of unused cores, then of busier ones."""

    def use(cpu: int) -> tuple[float, float]:
        core = host.cpu_of[cpu].siblings
        return taken.shared.get(cpu, 0), sum(taken.shared.get(sibling, 0) for sibling in core)

    candidates = usable & set(host.cpu_ids)
    for most in sorted({use(cpu) for cpu in candidates}):
        yield frozenset(cpu for cpu in candidates if use(cpu) <= most)


def _place(
    machine: Machine, host: Host, allowed: frozenset[int], taken: frozenset[int] = frozenset()
) -> Placement:
    placement = plan_guest(
        machine.topology,
        host,
        machine.mode,
        allowed,
        pinned=machine.vcpu_cpus,
        nodes=machine.host_nodes,
        taken=taken,
    )
    # Strict binding to a node that lacks memory ends QEMU, and speed does not matter here.
    return replace(placement, dedicated=False) if machine.shares_cpus else placement


def plan_guest(
    topology: Topology,
    host: Host,
    mode: Mode,
    allowed: Iterable[int] | None = None,
    *,
    pinned: Sequence[int] = (),
    nodes: Sequence[int] = (),
    taken: Iterable[int] = (),
) -> Placement:
    """Plan the guest as its boot does: `plan` with the node numbers of the guest's kernel.

    Notes of the plan have these numbers. `nodes` and the plan's `host_nodes` are in the order of
    `topology`. Raises UserError as `plan` does.
    """
    numbers = node_numbers(topology)
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    check_by_hand(topology, pinned, nodes)
    by_number = [nodes[node] for node in order] if nodes else ()
    guest = as_guest_numbers(topology)
    made = plan(guest, host, mode, allowed, pinned=pinned, nodes=by_number, taken=taken)
    return replace(made, host_nodes=tuple(made.host_nodes[number] for number in numbers))


def _allowed(machine: Machine, host: Host) -> frozenset[int]:
    allowed = guest_cpus(host)
    wrong = set(machine.host_cpus) - allowed
    if wrong:
        raise UserError(
            f"host CPUs {sorted(wrong)} are not among those this process may use",
            key="host_cpus",
            choices=map(str, sorted(allowed)),
        )
    return frozenset(machine.host_cpus or allowed)


def guest_cpus(host: Host) -> frozenset[int]:
    """Return the CPUs of this host that a guest may be pinned to.

    The kernel starts all processes outside isolated CPUs (isolcpus=), which are there to be pinned
    to. So they count as well, unless this process was restricted further (taskset), and as far as
    its cgroup lets it run there.
    """
    own = os.sched_getaffinity(0)
    beside = set(host.cpu_ids) - own
    if not beside or beside - set(host.isolated):
        return frozenset(own)
    try:
        os.sched_setaffinity(0, own | beside)  # of this thread only
        return frozenset(os.sched_getaffinity(0))
    except OSError:
        return frozenset(own)
    finally:
        os.sched_setaffinity(0, own)
