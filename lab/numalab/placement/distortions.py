"""Names, in words, the differences between a placement and the machine of the topology. Pure."""

from collections.abc import Sequence

from numalab.cpulist import format_cpulist
from numalab.host.facts import Host
from numalab.machine.model import Mode
from numalab.placement.correspond import Correspondence
from numalab.placement.cpus import dies_of, fit
from numalab.topology.topology import Topology
from numalab.units import counted, format_size


def split_nodes(
    topology: Topology, host: Host, vcpus: Sequence[int], places: Sequence[int]
) -> tuple[str, ...]:
    """Name guest nodes whose vCPUs were pinned to other host nodes than their memory's."""
    return tuple(
        f"vCPUs of guest node {node.id} run on host CPUs of another node than its memory"
        for node, place in zip(topology.nodes, places, strict=True)
        if any(host.node_of_cpu[vcpus[vcpu]] != place for vcpu in node.cpus)
    )


def short_memory(topology: Topology, host: Host, places: Sequence[int]) -> tuple[str, ...]:
    """Name host nodes that have less memory than the guest nodes on them."""
    short = []
    for place in sorted(set(places)):
        here = zip(topology.nodes, places, strict=True)
        need = sum(node.memory_mib for node, where in here if where == place)
        has = host.nodes[place].memory_mib
        if need > has:
            short.append(
                f"host node {host.nodes[place].id} has {format_size(has << 20)},"
                f" and its guest nodes {format_size(need << 20)}"
            )
    return tuple(short)


def distortions(
    topology: Topology,
    host: Host,
    usable: set[int],
    vcpus: Sequence[int],
    places: Sequence[int],
    *,
    distances: Correspondence,
    mode: Mode,
) -> tuple[str, ...]:
    """Name how cores, caches, nodes and distances on the host differ from the guest's."""
    if mode != "kvm":
        if len(vcpus) == 1:
            return ()
        return (f"all {len(vcpus)} vCPUs share one thread on host CPU {vcpus[0]}",)
    named = []
    used = set(vcpus)
    most = max(vcpus.count(cpu) for cpu in used)
    if most > 1:
        named.append(
            f"overcommitted: {len(vcpus)} vCPUs on {len(used)} host CPUs"
            f" ({format_cpulist(used)}), up to {most} vCPUs on one"
        )
    elif usable <= used:
        named.append("the emulator shares its CPUs with the vCPUs")
    on_host = fit(host, dies_of(topology, range(len(vcpus))), dict(enumerate(vcpus)))
    if on_host.crowded:
        named.append(
            f"{len(on_host.crowded)} vCPUs share their host core with another guest core (SMT)"
        )
    if on_host.torn:
        torn = counted(len(on_host.torn), "guest core")
        named.append(f"{torn} with threads on different host cores (SMT)")
    if most == 1:
        named += _uncached(topology, host, vcpus)
    own = len(set(places))
    if own < len(places):
        named.append(f"{len(places)} guest nodes share {own} host node{'s' if own > 1 else ''}")
    else:
        if distances.reversed or distances.levelled:
            named.append(_order(distances))
        if distances.parted:
            named.append(
                f"distances that are equal in the guest differ on the host: {distances.parted}"
            )
    return tuple(named)


def _uncached(topology: Topology, host: Host, vcpus: Sequence[int]) -> tuple[str, ...]:
    """Name dies without a host cache; nodes that share a host node are named as such."""
    chosen = dict(enumerate(vcpus))
    fits = (fit(host, dies_of(topology, node.cpus), chosen) for node in topology.nodes)
    dies = [die for on_host in fits for die in on_host.uncached]
    if not dies:
        return ()
    lacking = format_cpulist([vcpu for die in dies for core in die for vcpu in core])
    return (f"{counted(len(dies), 'guest die')} without a host cache of its own (vCPUs {lacking})",)


def _order(fit: Correspondence) -> str:
    """Return how the order of distances differs on the host."""
    rho = "none" if fit.rank_correlation is None else f"{fit.rank_correlation:.2f}"
    return (
        f"distances have another order on the host (rank correlation {rho}):"
        f" {_share(fit.reversed, fit.compared)} of the comparisons are reversed,"
        f" {_share(fit.levelled, fit.compared)} level; {fit.worst}"
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "none"
