"""Which host CPU each vCPU is to run on. Pure."""

from dataclasses import dataclass

from lab.cpulist import format_cpulist
from lab.machine.machine import Mode


@dataclass(frozen=True)
class Placement:
    """The plan: one host CPU for each vCPU, the emulator's host CPUs, and what is wrong with it.

    `one_thread`: all vCPUs share one thread (icount). `note` says in words what the plan distorts;
    empty where every vCPU has a host CPU of its own.
    """

    vcpus: tuple[int, ...]
    emulator: tuple[int, ...]
    one_thread: bool
    note: str

    @property
    def host_cpus(self) -> tuple[int, ...]:
        """All host CPUs that the plan uses, ascending."""
        return tuple(sorted({*self.vcpus, *self.emulator}))


def plan_placement(vcpu_count: int, host_cpus: tuple[int, ...], mode: Mode) -> Placement:
    """Plan where `vcpu_count` vCPUs run, given the host CPUs they may use (at least one).

    icount has one thread for everything, which gets the first CPU. Otherwise one CPU is left to
    the emulator where that still gives each vCPU its own; where it does not, vCPUs are dealt out
    evenly, neighbours together (node by node), and the emulator may run anywhere.
    """
    if mode == "icount":
        only = host_cpus[0]
        note = f"all {vcpu_count} vCPUs share one thread on host CPU {only}"
        return Placement((only,) * vcpu_count, (only,), True, note if vcpu_count > 1 else "")
    if len(host_cpus) >= vcpu_count:
        spare = host_cpus[vcpu_count:]
        note = "" if spare else "the emulator shares its CPUs with the vCPUs"
        return Placement(host_cpus[:vcpu_count], spare or host_cpus, False, note)
    share = len(host_cpus) / vcpu_count
    vcpus = tuple(host_cpus[int(vcpu * share)] for vcpu in range(vcpu_count))
    most = max(vcpus.count(cpu) for cpu in host_cpus)
    note = (
        f"overcommitted: {vcpu_count} vCPUs on {len(host_cpus)} host CPUs"
        f" ({format_cpulist(host_cpus)}), up to {most} vCPUs on one"
    )
    return Placement(vcpus, host_cpus, False, note)
