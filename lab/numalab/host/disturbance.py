"""What on a host makes figures of time less certain, as values; their words are for people."""

from dataclasses import dataclass
from enum import StrEnum

from numalab.cpulist import format_cpulist


class DisturbanceKind(StrEnum):
    """What disturbs: how the host is set, what else it does, or what it did to QEMU's threads."""

    GOVERNOR = "governor"
    BOOST = "boost"
    NUMA_BALANCING = "numa balancing"
    KSM = "ksm"
    STEAL = "steal"
    LOAD = "load"
    SIBLINGS = "siblings"
    SWITCHED_OUT = "switched out"
    WAITED = "waited"
    STOLEN = "stolen"


_IN_WORDS = {
    DisturbanceKind.GOVERNOR: "CPU frequencies follow the governor {subject}, not performance",
    DisturbanceKind.BOOST: "CPUs boost above their nominal frequency when others idle",
    DisturbanceKind.NUMA_BALANCING: "the host's own NUMA balancing may move a guest's memory",
    DisturbanceKind.KSM: "KSM merges pages of guests",
    DisturbanceKind.STEAL: "a hypervisor below takes {percent:.1f} % of the CPUs' time",
    DisturbanceKind.LOAD: "other work runs: a load of {amount:.1f} in the last minute",
    DisturbanceKind.SIBLINGS: "the SMT siblings {cpus} are not kept idle",
    DisturbanceKind.SWITCHED_OUT: "{subject} was switched out {amount:.0f} times a second",
    DisturbanceKind.WAITED: "{subject} waited {amount:.1%} of the time for its host CPU",
    DisturbanceKind.STOLEN: "a hypervisor below took {amount:.1%} of the time of host CPU {cpus}",
}


@dataclass(frozen=True)
class Disturbance:
    """One thing that disturbs.

    `subject` is a thread by its role, or the governors. `cpus`: host CPUs. `amount`: a load, times
    a second, or a part (0 to 1) of the time.
    """

    kind: DisturbanceKind
    subject: str = ""
    cpus: tuple[int, ...] = ()
    amount: float = 0.0

    def __str__(self) -> str:
        """Write it as reports do."""
        return _IN_WORDS[self.kind].format(
            subject=self.subject,
            cpus=format_cpulist(self.cpus),
            amount=self.amount,
            percent=100 * self.amount,
        )
