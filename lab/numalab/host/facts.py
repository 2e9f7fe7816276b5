"""The host's hardware as the planner uses it, and disturbances of measurements.

Plain values, and pure readers of single sysfs and /proc texts. `read_host` reads them from a host.
"""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property

from numalab.cpulist import format_cpulist


class DisturbanceKind(StrEnum):
    """The kind of a disturbance: a host setting, other load, or an effect on QEMU's threads."""

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
    """A disturbance of timing figures.

    `subject` is a thread by its role, or the governors. `cpus`: host CPUs. `amount`: a load, times
    a second, or a part (0 to 1) of the time.
    """

    kind: DisturbanceKind
    subject: str = ""
    cpus: tuple[int, ...] = ()
    amount: float = 0.0

    def __str__(self) -> str:
        """Return the text for reports."""
        return _IN_WORDS[self.kind].format(
            subject=self.subject,
            cpus=format_cpulist(self.cpus),
            amount=self.amount,
            percent=100 * self.amount,
        )


@dataclass(frozen=True)
class PagePool:
    """The hugepages of one size (in KiB) on one host node: how many there are, how many free."""

    size_kib: int
    total: int
    free: int


@dataclass(frozen=True)
class HostNode:
    """A NUMA node of the host: its number, its CPUs that are online, its memory, its hugepages."""

    id: int
    cpus: tuple[int, ...]
    memory_mib: int
    free_mib: int
    hugepages: tuple[PagePool, ...]


@dataclass(frozen=True)
class HostCpu:
    """A host CPU: its socket, the CPUs of its core (itself too), those with its last-level cache.

    `governor` is empty where the host does not scale frequencies (or does not say so).
    """

    id: int
    socket: int
    siblings: tuple[int, ...]
    llc: tuple[int, ...]
    governor: str


@dataclass(frozen=True)
class Host:
    """A host. `distances[from][to]` goes by place in `nodes`, whose ids may have gaps.

    None is an unknown fact. `steal_percent`: time that a hypervisor below
    took from all CPUs since boot. `load`: tasks that ran or waited, over the last minute.
    """

    nodes: tuple[HostNode, ...]
    distances: tuple[tuple[int, ...], ...]
    cpus: tuple[HostCpu, ...]
    isolated: tuple[int, ...]
    nohz_full: tuple[int, ...]
    boost: bool | None
    numa_balancing: bool | None
    ksm: bool | None
    transparent_hugepages: str
    steal_percent: float | None
    load: float

    @cached_property
    def cpu_ids(self) -> tuple[int, ...]:
        """All CPUs that are online, ascending."""
        return tuple(sorted(cpu.id for cpu in self.cpus))

    @cached_property
    def cpu_of(self) -> dict[int, HostCpu]:
        """The CPUs by number."""
        return {cpu.id: cpu for cpu in self.cpus}

    @cached_property
    def node_of_cpu(self) -> dict[int, int]:
        """The node of each CPU, as its place in `nodes`."""
        return {cpu: place for place, node in enumerate(self.nodes) for cpu in node.cpus}

    @cached_property
    def cache_of(self) -> dict[int, int]:
        """The last-level cache of each CPU, named by its lowest CPU of the same node.

        The kernel links no CPUs of different nodes (`set_cpu_sibling_map()`).
        """
        node = self.node_of_cpu
        return {
            cpu.id: min(other for other in cpu.llc if node[other] == node[cpu.id])
            for cpu in self.cpus
        }

    @cached_property
    def shares_caches(self) -> bool:
        """Whether cores share a cache; no core does where the caches are unknown."""
        return any(set(cpu.llc) - set(cpu.siblings) for cpu in self.cpus)

    @cached_property
    def governors(self) -> tuple[str, ...]:
        """The frequency governors in use."""
        return tuple(sorted({cpu.governor for cpu in self.cpus if cpu.governor}))


def host_to_dict(host: Host) -> dict[str, object]:
    """Return a host as the plain values of a recording, with CPUs as cpulists."""
    return {
        **asdict(host),
        "nodes": [{**asdict(node), "cpus": format_cpulist(node.cpus)} for node in host.nodes],
        "cpus": [
            {
                **asdict(cpu),
                "siblings": format_cpulist(cpu.siblings),
                "llc": format_cpulist(cpu.llc),
            }
            for cpu in host.cpus
        ],
        "isolated": format_cpulist(host.isolated),
        "nohz_full": format_cpulist(host.nohz_full),
    }


def disturbances(host: Host, cpus: Iterable[int]) -> tuple[Disturbance, ...]:
    """Return the disturbances of timing figures of guests on `cpus`."""
    used = [host.cpu_of[cpu] for cpu in sorted(set(cpus)) if cpu in host.cpu_of]
    effects = []
    scaled = sorted({cpu.governor for cpu in used if cpu.governor not in ("", "performance")})
    if scaled:
        effects.append(Disturbance(DisturbanceKind.GOVERNOR, ", ".join(scaled)))
    if host.boost:
        effects.append(Disturbance(DisturbanceKind.BOOST))
    if host.numa_balancing:
        effects.append(Disturbance(DisturbanceKind.NUMA_BALANCING))
    if host.ksm:
        effects.append(Disturbance(DisturbanceKind.KSM))
    if host.steal_percent is not None and host.steal_percent >= 0.1:
        effects.append(Disturbance(DisturbanceKind.STEAL, amount=host.steal_percent / 100))
    if host.load >= 0.5:
        effects.append(Disturbance(DisturbanceKind.LOAD, amount=host.load))
    beside = {other for cpu in used for other in cpu.siblings} - {cpu.id for cpu in used}
    if beside:
        effects.append(Disturbance(DisturbanceKind.SIBLINGS, cpus=tuple(sorted(beside))))
    return tuple(effects)


def parse_meminfo(text: str) -> tuple[int, int]:
    """Parse a node's meminfo into its memory and its free memory, in MiB. Raises ValueError."""
    amounts = {}
    for name in ("MemTotal", "MemFree"):
        match = re.search(rf"{name}:\s+(\d{{1,15}}) kB", text)
        if match is None:
            raise ValueError(f"no {name} in a node's meminfo")
        amounts[name] = int(match[1]) >> 10
    return amounts["MemTotal"], amounts["MemFree"]


def parse_available(text: str) -> int:
    """Parse a node's meminfo into the MiB that can be had there: free, or caches of files.

    What si_mem_available() counts (mm/show_mem.c in 6.12), without its reserves. Raises ValueError.
    """
    names = ("MemFree", r"Active\(file\)", r"Inactive\(file\)", "SReclaimable")
    matches = [re.search(rf"\b{name}:\s+(\d{{1,15}}) kB", text) for name in names]
    if matches[0] is None:
        raise ValueError("no MemFree in a node's meminfo")
    return sum(int(match[1]) for match in matches if match) >> 10


def parse_numbers(text: str) -> tuple[int, ...]:
    """Parse numbers with spaces between them, as in a node's `distance`. Raises ValueError."""
    return tuple(int(word) for word in text.split())


def parse_chosen(text: str) -> str:
    """Parse `always [madvise] never` into the word in brackets; empty where there is none."""
    match = re.search(r"\[([\w+-]+)\]", text)
    return match[1] if match else ""


def parse_steal(text: str) -> float | None:
    """Parse /proc/stat (proc(5)) into the percentage of all CPU time that was stolen.

    Guest time is already part of user time. None where the kernel does not count it.
    """
    words = text.partition("\n")[0].split()
    if len(words) < 9 or words[0] != "cpu":
        return None
    ticks = [int(word) for word in words[1:9]]
    return 100 * ticks[7] / sum(ticks) if sum(ticks) else 0.0


def parse_load(text: str) -> float:
    """Parse /proc/loadavg into the load of the last minute. Raises ValueError."""
    words = text.split()
    if not words:
        raise ValueError("an empty /proc/loadavg")
    return float(words[0])


def parse_switch(text: str) -> bool | None:
    """Parse a file that holds 0 for off and another number for on; None for anything else."""
    text = text.strip()
    return text != "0" if text.isdecimal() else None
