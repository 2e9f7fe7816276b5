"""Chooses the host CPUs of the vCPUs on one host node. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from numalab.host.facts import Host
from numalab.topology.topology import Topology

Core = tuple[int, ...]
Die = tuple[Core, ...]
_Chosen = dict[int, int]


def dies_of(topology: Topology, vcpus: Iterable[int]) -> tuple[Die, ...]:
    """Group vCPUs by last-level cache and core, as the guest's kernel does.

    It links no CPUs of different nodes (`set_cpu_sibling_map()`, arch/x86/kernel/smpboot.c).
    """
    shape = topology.packaging
    cache = shape.die_of if topology.llc == "die" else shape.core_of
    dies: defaultdict[tuple[int, int], defaultdict[int, list[int]]]
    dies = defaultdict(lambda: defaultdict(list))
    for vcpu in sorted(vcpus):
        dies[cache(vcpu), topology.node_of_cpu(vcpu)][shape.core_of(vcpu)].append(vcpu)
    return tuple(tuple(map(tuple, cores.values())) for cores in dies.values())


@dataclass(frozen=True)
class Fit:
    """The differences between the cores and caches of the guest and those of the host.

    `crowded`: vCPUs whose host core runs another guest core on another of its CPUs. `torn`: guest
    cores whose vCPUs are on several host cores. `uncached`: dies of several cores whose vCPUs are
    on several host caches, or share theirs with another die.
    """

    crowded: tuple[int, ...]
    torn: tuple[Core, ...]
    uncached: tuple[Die, ...]


def fit(host: Host, dies: Sequence[Die], chosen: Mapping[int, int]) -> Fit:
    """Compare the vCPUs on the host CPUs `chosen` with the cores and caches of the host."""
    on_core: defaultdict[int, set[tuple[int, Core]]] = defaultdict(set)
    on_cache: defaultdict[int, set[Die]] = defaultdict(set)
    torn, caches = [], {}
    for die in dies:
        for core in die:
            places = {chosen[vcpu]: min(host.cpu_of[chosen[vcpu]].siblings) for vcpu in core}
            for cpu, place in places.items():
                on_core[place].add((cpu, core))
            if len(set(places.values())) > 1:
                torn.append(core)
        caches[die] = {host.cache_of[chosen[vcpu]] for core in die for vcpu in core}
        for cache in caches[die]:
            on_cache[cache].add(die)
    crowded = [
        vcpu
        for die in dies
        for core in die
        for vcpu in core
        if any(
            cpu != chosen[vcpu] and other != core
            for cpu, other in on_core[min(host.cpu_of[chosen[vcpu]].siblings)]
        )
    ]
    uncached = [
        die
        for die, used in caches.items()
        if host.shares_caches
        and len(die) > 1
        and (len(used) > 1 or any(len(on_cache[cache]) > 1 for cache in used))
    ]
    return Fit(tuple(crowded), tuple(torn), tuple(uncached))


def flaws(host: Host, dies: Sequence[Die], chosen: Mapping[int, int], busy: frozenset[int]) -> int:
    """Return how little the CPUs `chosen` suit the vCPUs.

    First count vCPUs on shared cores, then CPUs that are not isolated, then dies without a cache.
    """
    result = fit(host, dies, chosen)
    shared = {*result.crowded, *(vcpu for core in result.torn for vcpu in core)}
    shared |= {vcpu for vcpu, cpu in chosen.items() if cpu in busy}
    exposed = set(chosen.values()) - set(host.isolated)
    return (len(shared) << 32) + (len(exposed) << 16) + len(result.uncached)


def preferred(
    host: Host, cpus: Iterable[int], busy: frozenset[int] = frozenset()
) -> tuple[int, ...]:
    """Sort CPUs by suitability for a vCPU: a core's first CPU before its SMT siblings.

    Then isolated ones first, and those of one last-level cache together. Those of `busy` cores,
    on which other guests run, come last.
    """
    candidates = set(cpus)
    isolated = set(host.isolated)

    def key(cpu: int) -> tuple[bool, int, bool, int, int]:
        info = host.cpu_of[cpu]
        core = sorted(candidates & set(info.siblings), key=lambda cpu: (cpu not in isolated, cpu))
        return cpu in busy, core.index(cpu), cpu not in isolated, min(info.llc), cpu

    return tuple(sorted(candidates, key=key))


def choose(host: Host, dies: Sequence[Die], cpus: Iterable[int], busy: frozenset[int]) -> _Chosen:
    """Return the host CPU of each vCPU, of the CPUs `cpus` of one host node.

    Too few CPUs are dealt out evenly. Otherwise the choice has the fewest flaws (`flaws`) of the
    preferred CPUs in their order, guest cores on host cores, and dies on host caches.
    """
    vcpus = sorted(vcpu for die in dies for core in die for vcpu in core)
    order = preferred(host, cpus, busy)
    if len(vcpus) > len(order):
        # Neighbours together: a guest node's vCPUs on CPUs next to each other.
        order = tuple(sorted(order))
        return {vcpu: order[n * len(order) // len(vcpus)] for n, vcpu in enumerate(vcpus)}
    choices = [dict(zip(vcpus, order, strict=False))]
    if any(len(core) > 1 for die in dies for core in die):
        choices.append(_packed(host, dies, order, caches=False))
    if any(len(die) > 1 for die in dies) and len({host.cache_of[cpu] for cpu in order}) > 1:
        choices.append(_packed(host, dies, order, caches=True))
    if len(choices) == 1:
        return choices[0]
    return min(choices, key=lambda chosen: flaws(host, dies, chosen, busy))


def _packed(host: Host, dies: Sequence[Die], order: Sequence[int], *, caches: bool) -> _Chosen:
    """Give guest cores the siblings of a host core; with `caches`, dies a cache, if they can.

    `order` are the CPUs, the best first. The largest dies choose first: a cache without another
    die if possible, then the fewest CPUs that are not isolated.
    """
    chosen: _Chosen = {}
    full: set[int] = set()  # caches in use
    rank = {cpu: place for place, cpu in enumerate(order)}
    pools: defaultdict[int, list[int]] = defaultdict(list)
    for cpu in order:
        pools[host.cache_of[cpu] if caches else 0].append(cpu)
    late = []
    for die in sorted(dies, key=_size, reverse=True):
        fits, used = [], set(chosen.values())
        for cache, pool in pools.items():
            on_pool = _taken(host, die, [cpu for cpu in pool if cpu not in used])
            if on_pool is not None:
                exposed = len(set(on_pool.values()) - set(host.isolated))
                worst = max(rank[cpu] for cpu in on_pool.values())
                fits.append((cache in full, exposed, worst, cache, on_pool))
        if fits:
            *_, cache, on_pool = min(fits, key=lambda option: option[:4])
            full.add(cache)
            chosen |= on_pool
        else:
            late.append(die)
    for core in (core for die in late for core in die):
        used = set(chosen.values())
        left = [cpu for cpu in order if cpu not in used]
        chosen |= _taken(host, (core,), left) or dict(zip(core, left, strict=False))
    return chosen


def _size(die: Die) -> int:
    return sum(map(len, die))


def _taken(host: Host, die: Die, cpus: Sequence[int]) -> _Chosen | None:
    """Put each guest core on one host core, best CPUs first; None where they do not fit."""
    cores: defaultdict[int, list[int]] = defaultdict(list)
    for cpu in cpus:
        cores[min(host.cpu_of[cpu].siblings)].append(cpu)
    rank = {cpu: place for place, cpu in enumerate(cpus)}
    chosen: _Chosen = {}
    for core in sorted(die, key=len, reverse=True):
        size = len(core)
        fits = [left for left in cores.values() if len(left) >= size]
        if not fits:
            return None
        best = min(fits, key=lambda left: rank[left[size - 1]])
        chosen |= zip(core, best[:size], strict=True)
        del best[:size]
    return chosen
