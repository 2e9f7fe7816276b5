"""What of a plan a domain is rendered from, and its proof compared with. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from numalab.host.disturbance import Disturbance
from numalab.host.facts import Host
from numalab.machine.model import Mode
from numalab.placement.planner import plan
from numalab.topology.model import Topology


@dataclass(frozen=True)
class Placement:
    """The plan: one host CPU for each vCPU, the emulator's host CPUs, and what is wrong with it.

    `one_thread`: all vCPUs share one thread. `note` says in words what the plan distorts;
    empty where every vCPU has a host CPU of its own. `host_nodes`: the id of the host node that
    backs each guest node; `bound`: the host has several, so memory has to be bound. `dedicated`:
    kvm, and each vCPU has a host CPU to itself, so memory is to be there before the start.
    `timing`: timing figures mean something; `disturbs`: what on the host makes them less certain.
    """

    vcpus: tuple[int, ...]
    emulator: tuple[int, ...]
    one_thread: bool
    note: str
    host_nodes: tuple[int, ...] = ()
    bound: bool = False
    dedicated: bool = False
    most_on_one: int = 1
    timing: bool = False
    disturbs: tuple[Disturbance, ...] = ()

    @property
    def host_cpus(self) -> tuple[int, ...]:
        """All host CPUs that the plan uses, ascending."""
        return tuple(sorted({*self.vcpus, *self.emulator}))


def place(
    topology: Topology,
    host: Host,
    mode: Mode,
    allowed: Iterable[int],
    *,
    pinned: Sequence[int] = (),
    nodes: Sequence[int] = (),
) -> Placement:
    """Plan where `topology` runs on the CPUs `allowed` of `host`. Raises UserError, as `plan`."""
    made = plan(topology, host, mode, allowed, pinned=pinned, nodes=nodes)
    return Placement(
        vcpus=made.vcpus,
        emulator=made.emulator,
        one_thread=made.one_thread,
        note="; ".join(made.distorts),
        host_nodes=made.host_nodes,
        bound=len(host.nodes) > 1,
        dedicated=mode == "kvm" and made.most_on_one == 1,
        most_on_one=made.most_on_one,
        timing=made.timing,
        disturbs=made.disturbs,
    )
