"""Gives a machine its place on this host: CPUs that no other timing guest has, and hugepages."""

import os
import resource
from collections import Counter
from pathlib import Path

from lab.cpulist import format_cpulist
from lab.errors import HostError, UserError
from lab.machine.budget import Admission, Claim, Pages, admit
from lab.machine.host import Host
from lab.machine.machine import PAGE_KIB, Machine
from lab.machine.memory import backed_mib
from lab.machine.placement import Placement, place
from lab.machine.read_host import read_host

_CAP_SYS_RESOURCE = 24  # linux/capability.h


def admit_machine(machine: Machine) -> tuple[Placement, Admission]:
    """Plan `machine` on this host and take what it needs for itself alone, until released.

    That is, in `kvm` mode, its CPUs (unless the machine shares them), and the memory of a guest
    that is locked or made of hugepages. Raises UserError for host CPUs that there are not,
    HostError where other guests have them.
    """
    allowed = _allowed(machine)
    host = read_host()
    alone = machine.mode == "kvm" and not machine.shares_cpus
    placements: list[Placement] = []

    def choose(taken: frozenset[int]) -> Claim:
        placement = _choose(machine, host, allowed, taken if alone else frozenset())
        placements.append(placement)
        return claim_of(machine, placement)

    if not alone and not machine.huge:
        return _place(machine, host, allowed), Admission.of_nothing()
    admission = admit(choose)
    return placements[0], admission


def claim_of(machine: Machine, placement: Placement) -> Claim:
    """Say what a machine needs for itself alone when it is placed so."""
    alone = machine.mode == "kvm" and not machine.shares_cpus
    nodes = machine.topology.nodes
    pages: Counter[int] = Counter()
    size = PAGE_KIB[machine.pages]
    if machine.huge:
        for node, host_node in zip(nodes, placement.host_nodes, strict=True):
            pages[host_node] += (backed_mib(node) << 10) // size
    kept = placement.dedicated or pages
    return Claim(
        cpus=placement.host_cpus if alone else (),
        memory_mib=sum(map(backed_mib, nodes)) if kept else 0,
        pages=tuple(Pages(node, size, count) for node, count in sorted(pages.items())),
    )


def may_lock_memory() -> bool:
    """Tell whether QEMU, started by this process, may lock all its memory (mlock(2))."""
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] == resource.RLIM_INFINITY:
        return True
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return bool(int(value, 16) >> _CAP_SYS_RESOURCE & 1)
    return False


def _choose(
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
        raise HostError(
            f"{machine.topology.cpu_count} vCPUs need more host CPUs than are free:"
            f" {format_cpulist(taken & allowed)} run other guests in kvm mode",
            mend="wait until they have ended, or use another mode than kvm",
        )
    return placement


def _place(machine: Machine, host: Host, allowed: frozenset[int]) -> Placement:
    return place(machine.topology, host, machine.mode, allowed, machine.vcpu_cpus)


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
