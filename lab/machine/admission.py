"""Gives a machine its place on this host: CPUs beside those of other guests, and hugepages."""

import os
import resource
from collections import Counter
from collections.abc import Iterator

from lab.cpulist import format_cpulist
from lab.errors import HostBusy, UserError
from lab.machine.budget import Admission, Claim, Pages, Taken, admit, taken
from lab.machine.host import Host
from lab.machine.machine import PAGE_KIB, Machine, Mode
from lab.machine.memory import backed_mib
from lab.machine.placement import Placement, place
from lab.machine.privilege import effective_capabilities
from lab.machine.read_host import read_host

_CAP_SYS_RESOURCE = 24  # linux/capability.h


def admit_machine(machine: Machine) -> tuple[Placement, Admission]:
    """Plan `machine` on this host and take what it needs, until that is released.

    A guest in `kvm` mode has its CPUs to itself (unless the machine shares them); the others share
    theirs, but take the least used ones, and none that a `kvm` guest has. Memory counts where it
    is locked or made of hugepages. Raises UserError for host CPUs that there are not, HostBusy
    where other guests have them.
    """
    allowed = _allowed(machine)
    host = read_host()
    if machine.shares_cpus and not machine.huge:
        return _place(machine, host, allowed), Admission.of_nothing()
    placements: list[Placement] = []

    def choose(taken: Taken) -> Claim:
        if machine.shares_cpus:
            placement = _place(machine, host, allowed)
        elif machine.mode == "kvm":
            placement = _alone(machine, host, allowed, taken.cpus)
        else:
            placement = _spread(machine, host, allowed, taken)
        placements.append(placement)
        return claim_of(machine, placement)

    admission = admit(choose)
    return placements[0], admission


def room(mode: Mode, vcpus: int) -> int:
    """Say how many guests of `vcpus` CPUs can start now without a host CPU shared with another.

    At least 1: a host that is too small is overcommitted, or refuses the guest.
    """
    host = read_host()
    free = os.sched_getaffinity(0) & set(host.cpu_ids) - taken().cpus
    if mode != "kvm":
        return max(1, len({host.cpu_of[cpu].siblings for cpu in free}))
    return max(1, len(free) // host_cpus(mode, vcpus))


def host_cpus(mode: Mode, vcpus: int) -> int:
    """Say how many host CPUs a guest is best given: in `kvm` mode one is for QEMU's own threads."""
    return vcpus + 1 if mode == "kvm" else 1


def claim_of(machine: Machine, placement: Placement) -> Claim:
    """Say what a machine takes of the host when it is placed so."""
    nodes = machine.topology.nodes
    pages: Counter[int] = Counter()
    size = PAGE_KIB[machine.pages]
    if machine.huge:
        for node, host_node in zip(nodes, placement.host_nodes, strict=True):
            pages[host_node] += (backed_mib(node) << 10) // size
    kept = placement.dedicated or pages
    return Claim(
        cpus=() if machine.shares_cpus else placement.host_cpus,
        memory_mib=sum(map(backed_mib, nodes)) if kept else 0,
        pages=tuple(Pages(node, size, count) for node, count in sorted(pages.items())),
        shares=machine.mode != "kvm",
    )


def may_lock_memory() -> bool:
    """Tell whether QEMU, started by this process, may lock all its memory (mlock(2))."""
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] == resource.RLIM_INFINITY:
        return True
    return bool(effective_capabilities() >> _CAP_SYS_RESOURCE & 1)


def _alone(
    machine: Machine, host: Host, allowed: frozenset[int], taken: frozenset[int]
) -> Placement:
    """Place the machine on what is free; other guests must not make its place worse."""
    whole = _place(machine, host, allowed)
    if not taken & allowed:
        return whole
    free = allowed - taken
    fits = free and set(machine.vcpu_cpus) <= free
    placement = _place(machine, host, free) if fits else None
    if placement is None or placement.most_on_one > whole.most_on_one:
        raise HostBusy(
            f"{machine.topology.cpu_count} vCPUs need more host CPUs than are free:"
            f" {format_cpulist(taken & allowed)} run other guests",
            mend="wait until they have ended, or use another mode than kvm",
        )
    return placement


def _spread(machine: Machine, host: Host, allowed: frozenset[int], taken: Taken) -> Placement:
    """Place an emulated machine on the least used CPUs, and on none that a kvm guest has."""
    usable = allowed - taken.alone
    if not usable or set(machine.vcpu_cpus) & taken.alone:
        raise HostBusy(
            f"host CPUs {format_cpulist(taken.alone & allowed)} run guests in kvm mode, which have"
            " them to themselves",
            mend="wait until they have ended",
        )
    whole = _place(machine, host, usable)
    for cpus in _by_use(host, usable, taken):
        if len(cpus) < len(usable) and set(machine.vcpu_cpus) <= cpus:
            placement = _place(machine, host, cpus)
            if placement.most_on_one <= whole.most_on_one:
                return placement
    return whole


def _by_use(host: Host, usable: frozenset[int], taken: Taken) -> Iterator[frozenset[int]]:
    """Give ever larger sets of CPUs: first those of cores that nobody uses, then busier ones."""

    def use(cpu: int) -> tuple[int, int]:
        core = host.cpu_of[cpu].siblings
        return taken.shared.get(cpu, 0), sum(taken.shared.get(each, 0) for each in core)

    there = usable & set(host.cpu_ids)
    for most in sorted({use(cpu) for cpu in there}):
        yield frozenset(cpu for cpu in there if use(cpu) <= most)


def _place(machine: Machine, host: Host, allowed: frozenset[int]) -> Placement:
    return place(
        machine.topology,
        host,
        machine.mode,
        allowed,
        pinned=machine.vcpu_cpus,
        nodes=machine.host_nodes,
    )


def _allowed(machine: Machine) -> frozenset[int]:
    allowed = os.sched_getaffinity(0)
    wrong = set(machine.host_cpus) - allowed
    if wrong:
        raise UserError(
            f"host CPUs {sorted(wrong)} are not among those this process may use",
            key="host_cpus",
            choices=map(str, sorted(allowed)),
        )
    return frozenset(machine.host_cpus or allowed)
