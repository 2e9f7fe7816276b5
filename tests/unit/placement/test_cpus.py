"""The cores and caches of a guest lie on those of the host where that is possible."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numalab.host.facts import Host
from numalab.placement.cpus import choose, dies_of, fit, flaws, preferred
from numalab.placement.planner import plan
from numalab.topology.load import load_topology
from numalab.topology.topology import CpuShape, Topology
from support.host_tree import small_host

RING = load_topology("ring-2")


def machine(shape: CpuShape, nodes: int = 1) -> Topology:
    """A machine whose CPUs are dealt out to nodes in order."""
    size = shape.cpus // nodes
    first = replace(RING.nodes[0], memory_mib=64)
    return replace(
        RING,
        nodes=tuple(
            replace(first, id=n, cpus=tuple(range(n * size, (n + 1) * size))) for n in range(nodes)
        ),
        distances=tuple(tuple(10 if a == b else 20 for b in range(nodes)) for a in range(nodes)),
        cpu_shape=shape,
    )


def cached(cores: int, threads: int, per_cache: int, nodes: int = 1) -> Host:
    """A host with so many cores a node, of which neighbours share a last-level cache."""
    host, total = small_host(nodes, cores, threads), nodes * cores

    def cache(cpu: int) -> int:
        return cpu % total // per_cache

    ids = host.cpu_ids
    cpus = (
        replace(cpu, llc=tuple(other for other in ids if cache(other) == cache(cpu.id)))
        for cpu in host.cpus
    )
    return replace(host, cpus=tuple(cpus))


@pytest.mark.parametrize(
    ("shape", "host", "vcpus", "distorts"),
    [
        (CpuShape(1, 1, 2, 2), small_host(1, 3, 2), (0, 3, 1, 4), ()),
        (CpuShape(1, 1, 2, 2), small_host(1, 3, 4), (0, 3, 1, 4), ()),
        (
            CpuShape(1, 1, 4, 2),
            small_host(1, 3, 4),
            (0, 3, 1, 4, 2, 5, 6, 9),
            ("4 vCPUs share their host core with another guest core (SMT)",),
        ),
        (
            CpuShape(1, 1, 2, 2),
            small_host(1, 5, 1),
            (0, 1, 2, 3),
            ("2 guest cores with threads on different host cores (SMT)",),
        ),
        (CpuShape(1, 2, 2, 1), cached(8, 1, 4), (0, 1, 4, 5), ()),
        (CpuShape(1, 2, 3, 1), cached(8, 1, 4), (0, 1, 2, 4, 5, 6), ()),
        (CpuShape(1, 2, 2, 2), cached(4, 2, 2), (0, 4, 1, 5, 2, 6, 3, 7), ()),
        (
            CpuShape(1, 1, 6, 1),
            cached(8, 1, 4),
            (0, 1, 2, 3, 4, 5),
            ("1 guest die without a host cache of its own (vCPUs 0-5)",),
        ),
        (
            CpuShape(1, 3, 2, 1),
            cached(8, 1, 4),
            (0, 1, 2, 3, 4, 5),
            ("2 guest dies without a host cache of its own (vCPUs 0-3)",),
        ),
        # Whole cores come before a cache.
        (
            CpuShape(1, 1, 3, 1),
            cached(4, 2, 2),
            (0, 1, 2),
            ("1 guest die without a host cache of its own (vCPUs 0-2)",),
        ),
        (CpuShape(1, 2, 2, 1), small_host(1, 8, 1), (0, 1, 2, 3), ()),  # unknown caches
    ],
)
def test_cores_and_dies_lie_on_those_of_the_host(
    shape: CpuShape, host: Host, vcpus: tuple[int, ...], distorts: tuple[str, ...]
) -> None:
    made = plan(machine(shape), host, "kvm")
    named = tuple(text for text in made.distorts if "emulator" not in text)
    assert (made.vcpus, named) == (vcpus, distorts)
    assert made.timing == ("emulator" not in made.note)


def test_isolated_cpus_come_before_a_cache() -> None:
    host = replace(cached(8, 1, 4), isolated=(2, 3, 4, 5))
    assert plan(machine(CpuShape(1, 1, 4, 1)), host, "kvm").vcpus == (2, 3, 4, 5)
    host = replace(host, isolated=(2, 3, 4, 5, 6))
    assert plan(machine(CpuShape(1, 1, 3, 1)), host, "kvm").vcpus == (4, 5, 6)
    # Where one of two CPUs is not isolated in any case, both share a cache.
    host = replace(cached(4, 1, 2), isolated=(3,))
    assert plan(machine(CpuShape(1, 1, 2, 1)), host, "kvm").vcpus == (3, 2)


def test_without_a_cache_of_dies_none_is_compared() -> None:
    split = replace(machine(CpuShape(1, 1, 6, 1)), llc="none")
    assert plan(split, cached(8, 1, 4), "kvm").distorts == ()


def test_nodes_on_one_host_node_get_caches_of_their_own() -> None:
    made = plan(machine(CpuShape(2, 1, 2, 1), 2), cached(8, 1, 4), "kvm")
    assert made.vcpus == (0, 1, 4, 5)
    assert made.distorts == ("2 guest nodes share 1 host node",)


def test_a_host_node_that_keeps_guest_cores_whole_is_chosen() -> None:
    host = small_host(2, 4, 2)
    allowed = {*host.nodes[0].cpus[:4], *host.nodes[1].cpus}  # no siblings in node 0
    made = plan(machine(CpuShape(1, 1, 2, 2)), host, "kvm", allowed)
    assert (made.host_nodes, made.distorts) == ((1,), ())


def test_vcpus_that_share_a_host_core_are_counted() -> None:
    made = plan(machine(CpuShape(2, 1, 4, 2), 2), small_host(1, 3, 2), "kvm")
    assert "16 vCPUs share their host core with another guest core (SMT)" in made.distorts


@settings(max_examples=150)
@given(
    st.builds(CpuShape, st.just(1), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 3),
    st.data(),
)
def test_no_guest_core_or_die_is_split_without_need(
    shape: CpuShape, caches: int, per_cache: int, threads: int, data: st.DataObject
) -> None:
    host = cached(caches * per_cache, threads, per_cache)
    if data.draw(st.booleans()):
        host = replace(host, isolated=tuple(data.draw(st.sets(st.sampled_from(host.cpu_ids)))))
    guest = machine(shape)
    dies = dies_of(guest, range(guest.cpu_count))
    chosen = choose(host, dies, host.cpu_ids, frozenset())
    assert sorted(chosen) == list(range(shape.cpus))
    if shape.cpus > len(host.cpu_ids):
        return
    assert len(set(chosen.values())) == shape.cpus
    lies = fit(host, dies, chosen)
    if shape.threads <= threads and shape.dies * shape.cores <= caches * per_cache:
        assert (lies.crowded, lies.torn) == ((), ())
        if shape.dies <= caches and shape.cores <= per_cache and not host.isolated:
            assert lies.uncached == ()
    if shape.threads == 1:  # whole cores first, and isolated CPUs, whatever the dies
        plain = dict(enumerate(preferred(host, host.cpu_ids)[: shape.cpus]))
        none = frozenset[int]()
        assert flaws(host, dies, chosen, none) <= flaws(host, dies, plain, none)
        assert shape.cores > 1 or chosen == plain
