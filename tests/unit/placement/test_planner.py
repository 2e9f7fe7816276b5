"""The planner: one-to-one where the host is large enough, even where it is not."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numalab.cli.guest import place
from numalab.errors import UserError
from numalab.host.facts import Host
from numalab.host.read import read_host, read_host_file
from numalab.machine.model import Mode
from numalab.placement.correspond import assign, compare
from numalab.placement.cpus import preferred
from numalab.placement.distortions import short_memory
from numalab.placement.planner import plan
from numalab.placement.sharing import share
from numalab.topology.load import list_topologies, load_topology
from numalab.topology.topology import CpuShape, Topology
from support.host_tree import SERVERS, Server, small_host, write_tree
from support.one_command import invoke

HOSTS = Path(__file__).parents[2] / "data/machine/hosts"
TWO, FOUR, EIGHT = (read_host_file(HOSTS / f"{name}.json") for name in SERVERS)
MESH = load_topology("mesh-8")
Rows = list[list[int]]


def test_mesh_8_is_one_to_one_on_an_eight_node_server() -> None:
    made = plan(MESH, EIGHT, "kvm")
    assert sorted(made.host_nodes) == list(range(8))
    assert made.host_nodes != tuple(range(8))  # its nodes are numbered otherwise
    assert made.distances.rank_correlation == pytest.approx(1.0)
    assert len(set(made.vcpus)) == MESH.cpu_count
    assert all(
        made.vcpus[vcpu] in EIGHT.nodes[made.host_nodes[node.id]].cpus
        for node in MESH.nodes
        for vcpu in node.cpus
    )
    assert made.distorts == () and made.timing
    assert not set(made.emulator) & set(made.vcpus)


def test_mesh_8_on_a_small_host_is_overcommitted_evenly_and_says_so() -> None:
    made = plan(MESH, small_host(1, 2, 1), "kvm")
    assert made.vcpus == (0,) * 8 + (1,) * 8
    assert made.emulator == (0, 1)
    assert made.distorts == (
        "overcommitted: 16 vCPUs on 2 host CPUs (0-1), up to 8 vCPUs on one",
        "8 guest nodes share 1 host node",
        "host node 0 has 1 GiB, and its guest nodes 3 GiB",
    )
    assert not made.timing


def test_a_ring_on_a_two_socket_server_loses_the_order_of_its_distances() -> None:
    made = plan(load_topology("ring-4"), FOUR, "kvm")
    assert sorted(made.host_nodes) == [0, 1, 2, 3]
    assert "distances have another order on the host (rank correlation 0.50)" in made.distorts[0]
    assert not made.timing


def test_a_ring_is_found_in_a_mesh() -> None:
    made = plan(load_topology("ring-4"), EIGHT, "kvm")
    assert made.distances.rank_correlation == pytest.approx(1.0)


def test_nodes_that_do_not_fit_share_host_nodes_evenly() -> None:
    made = plan(load_topology("ring-8"), FOUR, "kvm")
    assert Counter(made.host_nodes) == {0: 2, 1: 2, 2: 2, 3: 2}
    assert made.most_on_one == 1
    assert made.distorts == ("8 guest nodes share 4 host nodes",)


@pytest.mark.parametrize(
    ("sizes", "guest_mib", "host_mib", "nodes"),
    [
        ([4, 4, 0], 64, (1024, 1024), (0, 1, 0)),
        ([0, 4, 4], 64, (1024, 1024), (0, 0, 1)),
        ([4, 4, *[0] * 18], 64, (4096, 4096), (0, 1)),  # too many assignments to compare
        ([1, 4, 1, 3, *[0] * 14], 64, (4096, 4096), ()),
        ([2, 1, 1], 512, (2048, 0), (0, 0, 0)),
        ([1, 1, 1], 512, (512, 1024), (0, 1, 1)),
        ([1, 1, 1, 1], 512, (1000, 4096), (0, 1, 1, 1)),
    ],
)
def test_host_nodes_are_shared_by_cpus_and_memory(
    sizes: list[int], guest_mib: int, host_mib: tuple[int, int], nodes: tuple[int, ...]
) -> None:
    machine, host = guest(sizes), small_host(2, 5, 1)
    machine = replace(
        machine,
        nodes=tuple(replace(node, memory_mib=guest_mib) for node in machine.nodes),
        distances=flat(len(sizes)),
    )
    parts = zip(host.nodes, host_mib, strict=True)
    host = replace(host, nodes=tuple(replace(node, memory_mib=mib) for node, mib in parts))
    made = plan(machine, host, "kvm")
    assert made.host_nodes[: len(nodes)] == nodes
    assert made.most_on_one == 1 and made.dedicated
    own = len({*made.host_nodes})
    assert made.distorts == (f"{len(sizes)} guest nodes share {own} host node{'s'[: own - 1]}",)


def test_a_host_of_one_node_that_is_too_small_loads_no_scipy() -> None:
    program = (
        "import sys; from numalab.placement.sharing import share;"
        " assert share([[10, 20], [20, 10]], [[10]], [(4, 9), (4, 9)], [(4, 10)]) == (0, 0);"
        " assert 'numalab.placement.correspond' in sys.modules and 'scipy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_isolated_cpus_come_first_and_housekeeping_ones_run_the_emulator() -> None:
    made = plan(load_topology("ring-4"), FOUR, "kvm")
    assert set(made.vcpus) <= set(FOUR.isolated)
    assert not set(made.emulator) & set(FOUR.isolated)


def test_a_node_with_too_few_cpus_is_passed_over() -> None:
    host = small_host(3, 4, 1)
    assert (
        1
        not in plan(load_topology("ring-2"), host, "kvm", {0, 1, 2, 3, 4, 8, 9, 10, 11}).host_nodes
    )


@pytest.mark.parametrize("poor", [0, 1, 2, 3])
def test_a_node_with_too_little_memory_is_passed_over(poor: int) -> None:
    host = small_host(4, 4, 1)
    nodes = tuple(
        replace(node, memory_mib=0 if node.id == poor else node.memory_mib) for node in host.nodes
    )
    made = plan(load_topology("ring-2"), replace(host, nodes=nodes), "kvm")
    assert poor not in made.host_nodes
    assert made.timing
    # Where all are needed, it is used and named.
    whole = plan(load_topology("ring-4"), replace(host, nodes=nodes), "kvm")
    assert sorted(whole.host_nodes) == [0, 1, 2, 3] and not whole.timing


@pytest.mark.parametrize(
    ("sizes", "memory", "isolated", "nodes"),
    [
        ([4, 1], [256, 256], (), (1, 0)),  # host node 0 has two usable CPUs
        ([1, 1], [768, 256], (), (1, 0)),  # and 512 MiB
        ([1], [256], (8, 9, 10, 11), (1,)),
        ([4], [768], (0, 1), (1,)),
        ([3], [256], (), (1,)),
        ([2], [256], (), (0,)),
    ],
)
def test_a_guest_node_gets_the_host_node_that_fits_it(
    sizes: list[int], memory: list[int], isolated: tuple[int, ...], nodes: tuple[int, ...]
) -> None:
    host = small_host(2, 8, 1, isolated)
    host = replace(host, nodes=(replace(host.nodes[0], memory_mib=512), host.nodes[1]))
    machine = guest(sizes)
    parts = zip(machine.nodes, memory, strict=True)
    machine = replace(machine, nodes=tuple(replace(node, memory_mib=mib) for node, mib in parts))
    made = plan(machine, host, "kvm", (0, 1, *range(8, 16)))
    assert (made.host_nodes, made.distorts, made.timing) == (nodes, (), True)


def test_whole_cores_beside_other_guests_are_worth_another_node() -> None:
    host = small_host(2, 4, 2)
    assert plan(guest([2]), host, "kvm").host_nodes == (0,)
    taken = host.nodes[0].cpus[:3]
    made = plan(guest([2]), host, "kvm", set(host.cpu_ids) - set(taken), taken=taken)
    assert made.host_nodes == (1,)


def test_a_host_node_of_memory_alone_backs_a_guest_node_of_memory_alone() -> None:
    host = small_host(3, 4, 1)
    bare = replace(host.nodes[2], cpus=())
    host = replace(host, nodes=(*host.nodes[:2], bare), cpus=host.cpus[:8])
    made = plan(guest([2, 2, 0]), host, "kvm")
    assert (made.host_nodes, made.distorts, made.timing) == ((0, 1, 2), (), True)
    assert 2 not in plan(guest([2, 2]), host, "kvm").host_nodes
    # Without memory it is of no use.
    host = replace(host, nodes=(*host.nodes[:2], replace(bare, memory_mib=0)))
    assert "3 guest nodes share 2 host nodes" in plan(guest([2, 2, 0]), host, "kvm").distorts


def test_nodes_that_share_use_host_nodes_of_memory_alone() -> None:
    host = small_host(3, 8, 1)
    memory = replace(host.nodes[2], cpus=())
    table = ((10, 21, 24), (21, 10, 44), (24, 44, 10))
    host = replace(host, nodes=(*host.nodes[:2], memory), cpus=host.cpus[:16], distances=table)
    machine = replace(
        guest([4, 4, 0, 0]),
        distances=((10, 21, 24, 24), (21, 10, 44, 44), (24, 44, 10, 24), (24, 44, 24, 10)),
    )
    nodes = tuple(replace(node, memory_mib=256) for node in machine.nodes)
    made = plan(replace(machine, nodes=nodes), host, "kvm")
    assert made.host_nodes == (0, 1, 2, 2)
    assert made.distances.rank_correlation == pytest.approx(0.83, abs=0.01)
    # Memory comes before distances: room for a single node of memory alone.
    sizes, rooms = [(4, 256), (4, 256), (0, 256), (0, 256)], [(8, 512), (8, 512), (0, 256)]
    places = share(machine.distances, table, sizes, rooms)
    assert places[:2] == (0, 1) and places.count(2) == 1
    # Distances come before equal numbers of nodes: memory of two speeds near each socket.
    tiers = (
        (10, 21, 13, 23, 24, 44),
        (21, 10, 23, 13, 44, 24),
        (13, 23, 10, 23, 28, 44),
        (23, 13, 23, 10, 44, 28),
        (24, 44, 28, 44, 10, 64),
        (44, 24, 44, 28, 64, 10),
    )
    sizes, rooms = [(4, 64)] * 2 + [(0, 64)] * 4, [(8, 512), (8, 512), (0, 512)]
    places = share(tiers, table, sizes, rooms)
    assert compare(tiers, table, places).rank_correlation == pytest.approx(0.64, abs=0.01)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 2), min_size=3, max_size=6).filter(any), st.integers(1, 3))
def test_nodes_with_cpus_spread_over_host_nodes_with_cpus(cpus: list[int], bare: int) -> None:
    host = small_host(2 + bare, 12, 1)
    nodes = tuple(replace(n, memory_mib=8192, cpus=n.cpus[: 12 * (n.id < 2)]) for n in host.nodes)
    made = plan(guest(cpus), replace(host, nodes=nodes, cpus=host.cpus[:24]), "kvm")
    used = [place for place, count in zip(made.host_nodes, cpus, strict=True) if count]
    assert set(used) <= {0, 1} and len(set(used)) == min(2, len(used))
    assert made.most_on_one == 1


@settings(max_examples=60)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=9).filter(any), st.integers(2, 4))
def test_no_host_node_is_unused_where_nodes_share(cpus: list[int], nodes: int) -> None:
    machine, host = guest(cpus), small_host(nodes, 18, 1)
    host = replace(host, nodes=tuple(replace(node, memory_mib=8192) for node in host.nodes))
    line = Counter(plan(machine, host, "kvm").host_nodes)
    assert len(line) == min(nodes, len(cpus))
    # Nodes that are all equally far are dealt out evenly.
    machine = replace(machine, distances=flat(len(cpus)))
    host = replace(host, distances=flat(nodes))
    places = Counter(plan(machine, host, "kvm").host_nodes)
    assert len(places) == min(nodes, len(cpus))
    assert max(places.values()) - min(places.values()) <= 1


@pytest.mark.parametrize("mode", ["icount", "tcg"])
def test_emulation_has_one_cpu_and_its_node(mode: Mode) -> None:
    made = plan(MESH, FOUR, mode)
    assert set(made.vcpus) == set(made.emulator) == {127}  # the last one
    assert set(made.host_nodes) == {3}
    assert made.one_thread and not made.timing
    assert made.distorts == ("all 16 vCPUs share one thread on host CPU 127",)


def test_a_placement_is_dedicated_in_kvm_with_a_cpu_for_each_vcpu() -> None:
    ring, host = load_topology("ring-4"), small_host(1, 10, 1)
    kvm = plan(ring, host, "kvm", range(0, 10))
    assert (kvm.vcpus, kvm.emulator) == (tuple(range(8)), (8,))
    assert kvm.dedicated and not kvm.bound and kvm.host_nodes == (0, 0, 0, 0)
    assert kvm.note.startswith("4 guest nodes share 1 host node; host node 0 has 1 GiB")
    small = plan(ring, host, "kvm", (3, 5))
    assert small.vcpus == (3, 3, 3, 3, 5, 5, 5, 5) and not small.dedicated
    assert small.note.startswith(
        "overcommitted: 8 vCPUs on 2 host CPUs (3,5), up to 4 vCPUs on one"
    )
    for mode in ("icount", "tcg"):
        emulated = plan(ring, host, mode, (3, 5))
        assert emulated.host_cpus == (5,) and emulated.one_thread and not emulated.dedicated
    assert plan(MESH, EIGHT, "kvm", EIGHT.cpu_ids).bound


def test_vcpus_can_be_pinned_by_hand() -> None:
    ring = load_topology("ring-2")
    made = plan(ring, TWO, "kvm", None, pinned=(32, 33, 0, 1))
    assert made.vcpus == (32, 33, 0, 1) and made.host_nodes == (1, 0)
    assert made.distorts == () and made.timing
    torn = plan(ring, TWO, "kvm", None, pinned=(0, 33, 32, 1))
    assert not torn.timing and "vCPUs of guest node 0 run on host CPUs of" in torn.note
    apart = plan(load_topology("memoryless-4"), FOUR, "kvm", None, pinned=tuple(range(8)))
    assert apart.host_nodes == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("mode", "pinned", "message"),
    [
        ("kvm", (0, 1, 2), "3 host CPUs for 4 vCPUs"),
        ("kvm", (0, 1, 2, 500), "host CPUs 500 may not be used (valid: 0-127)"),
        ("icount", (0, 1, 0, 1), "all vCPUs share one host CPU"),
    ],
)
def test_vcpus_that_cannot_be_pinned_so(mode: Mode, pinned: tuple[int, ...], message: str) -> None:
    with pytest.raises(UserError) as caught:
        plan(load_topology("ring-2"), TWO, mode, None, pinned=pinned)
    assert message in str(caught.value)


def test_guest_nodes_can_be_put_on_host_nodes_by_hand() -> None:
    ring = load_topology("ring-2")
    made = plan(ring, FOUR, "kvm", None, nodes=(3, 1))
    assert made.host_nodes == (3, 1)
    assert {FOUR.node_of_cpu[cpu] for cpu in made.vcpus[:2]} == {3}
    assert {FOUR.node_of_cpu[cpu] for cpu in made.vcpus[2:]} == {1}
    both = plan(ring, FOUR, "kvm", None, pinned=made.vcpus, nodes=(1, 3))
    assert both.host_nodes == (1, 3) and not both.timing
    assert "vCPUs of guest node 0 run on host CPUs of another node than its memory" in both.distorts
    assert plan(ring, FOUR, "icount", None, nodes=(2, 2)).host_nodes == (2, 2)
    # All vCPUs of an emulated guest share a CPU, so that the nodes of its memory need none.
    assert plan(ring, FOUR, "icount", FOUR.nodes[0].cpus, nodes=(0, 3)).host_nodes == (0, 3)
    # Memory alone may lie on a node without usable CPUs.
    home = FOUR.nodes[0].cpus
    far = plan(ring, FOUR, "kvm", home, pinned=home[:4], nodes=(3, 3))
    assert far.host_nodes == (3, 3)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((0, 9), "nodes: the host has no node 9 (valid: 0, 1, 2, 3)"),
        ((0,), "nodes: 1 host nodes for 2 guest nodes"),
        ((0, 3), "nodes: host node 3 has no CPU for vCPUs 2-3"),
    ],
)
def test_nodes_that_cannot_be_put_so(nodes: tuple[int, ...], message: str) -> None:
    with pytest.raises(UserError) as caught:
        plan(load_topology("ring-2"), FOUR, "kvm", FOUR.nodes[0].cpus, nodes=nodes)
    assert str(caught.value) == message


def test_a_guest_with_too_many_cpus_has_no_plan() -> None:
    ring = load_topology("ring-2")
    wide = replace(ring.nodes[0], cpus=tuple(range(300)))
    with pytest.raises(UserError, match="the last with APIC id 299"):
        plan(replace(ring, nodes=(wide,), cpu_shape=CpuShape(300, 1, 1, 1)), FOUR, "kvm")


def test_a_host_node_with_too_little_memory_is_named() -> None:
    ring, host = load_topology("ring-2"), small_host(1, 8, 1)
    made = plan(ring, host, "kvm")
    assert made.distorts[-1] == "host node 0 has 1 GiB, and its guest nodes 1.5 GiB"
    assert short_memory(ring, host, (0, 0)) == made.distorts[-1:]
    assert not made.timing


def test_cpus_that_the_host_lacks() -> None:
    with pytest.raises(UserError, match=r"none of the CPUs 900"):
        plan(MESH, TWO, "kvm", (900,))


def test_siblings_used_together_are_said() -> None:
    made = plan(MESH, small_host(1, 8, 2), "kvm")
    assert made.most_on_one == 1
    assert any("16 vCPUs share their host core" in what for what in made.distorts)


@pytest.mark.parametrize("name", list_topologies())
@pytest.mark.parametrize("host", [TWO, FOUR, EIGHT], ids=list(SERVERS))
def test_every_shipped_machine_has_a_plan(name: str, host: Host) -> None:
    topology = load_topology(name)
    made = plan(topology, host, "kvm")
    assert len(made.vcpus) == topology.cpu_count
    assert len(made.host_nodes) == len(topology.nodes)
    assert made.most_on_one == 1


def guest(sizes: list[int]) -> Topology:
    """Nodes of these many CPUs in a line."""
    first = load_topology("ring-2")
    numbers = iter(range(sum(sizes)))
    nodes = tuple(
        replace(first.nodes[0], id=i, cpus=tuple(next(numbers) for _ in range(size)))
        for i, size in enumerate(sizes)
    )
    count = range(len(sizes))
    distances = tuple(tuple(10 + 10 * abs(a - b) for b in count) for a in count)
    return replace(first, nodes=nodes, distances=distances, cpu_shape=None)


def flat(nodes: int) -> tuple[tuple[int, ...], ...]:
    """Distances of nodes that are all equally far from each other."""
    return tuple(tuple(10 if a == b else 20 for b in range(nodes)) for a in range(nodes))


sizes = st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any)


@settings(max_examples=150)
@given(sizes, st.integers(1, 4), st.integers(1, 4), st.integers(1, 2), st.data())
def test_plans_are_whole_and_even(
    cpus: list[int], nodes: int, cores: int, threads: int, data: st.DataObject
) -> None:
    host = small_host(nodes, cores, threads)
    host = replace(host, isolated=tuple(data.draw(st.sets(st.sampled_from(host.cpu_ids)))))
    allowed = data.draw(st.sets(st.sampled_from(host.cpu_ids), min_size=1))
    topology = guest(cpus)
    made = plan(topology, host, "kvm", allowed)
    assert len(made.vcpus) == topology.cpu_count
    assert {*made.vcpus, *made.emulator} <= allowed
    for number in range(len(host.nodes)):
        usable = allowed & set(host.nodes[number].cpus)
        here = Counter(cpu for cpu in made.vcpus if host.node_of_cpu[cpu] == number)
        if sum(here.values()) > len(usable):  # overcommitted: every CPU, evenly
            assert set(here) == usable
            assert max(here.values()) - min(here.values()) <= 1
        else:
            assert set(here.values()) <= {1}
            for cpu in here:  # a sibling only where no whole core is left
                used = len(set(host.cpu_of[cpu].siblings) & set(here))
                idle = [c for c in usable if not set(host.cpu_of[c].siblings) & set(here)]
                assert used == 1 or not idle
    for node in topology.nodes:  # no guest node is torn apart
        assert all(
            host.nodes[host.node_of_cpu[made.vcpus[vcpu]]].id == made.host_nodes[node.id]
            for vcpu in node.cpus
        )
    if len(topology.nodes) <= sum(bool(allowed & set(n.cpus)) for n in host.nodes):
        assert len(set(made.host_nodes)) == len(topology.nodes)
    assert made.most_on_one == max(Counter(made.vcpus).values())
    assert (made.most_on_one > 1) == any("overcommitted" in what for what in made.distorts)


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("cxl-3", "xeon-6980p-snc3"),
        ("cxl-3", "xeon-max-9462"),
        ("kunpeng-920", "ring-8"),
        ("kunpeng-920", "xeon-6980p-snc3"),
        ("xeon-max-9462", "ring-8"),
        ("xeon-max-9462", "xeon-6980p-snc3"),
    ],
)
def test_an_order_of_distances_that_a_host_has_is_found(name: str, host: str) -> None:
    distances, table = load_topology(name).distances, load_topology(host).distances
    fit = compare(distances, table, assign(distances, table))
    assert (fit.reversed, fit.levelled) == (0, 0)


def tables(rows: int, columns: int, values: st.SearchStrategy[int]) -> st.SearchStrategy[Rows]:
    row = st.lists(values, min_size=columns, max_size=columns)
    return st.lists(row, min_size=rows, max_size=rows)


@settings(max_examples=150)
@given(st.integers(1, 4), st.integers(0, 1), st.data())
def test_no_assignment_is_better_than_the_chosen_one(
    count: int, more: int, data: st.DataObject
) -> None:
    places = count + more
    distance = st.sampled_from([10, 20, 21, 32])
    guest = data.draw(tables(count, count, distance))
    host = data.draw(tables(places, places, distance))
    needs = data.draw(st.none() | tables(count, places, st.integers(0, 2)))
    wishes = data.draw(st.none() | tables(count, places, st.integers(0, 2)))
    pairs = list(permutations(range(count), 2))
    mean = Fraction(sum(guest[i][j] for i, j in pairs), max(1, len(pairs)))
    even = [[0] * places] * count

    def worth(slots: tuple[int, ...]) -> tuple[Fraction | int, ...]:
        fit = compare(guest, host, slots)
        return (
            sum(row[slot] for row, slot in zip(needs or even, slots, strict=True)),
            fit.reversed + fit.levelled,
            sum(row[slot] for row, slot in zip(wishes or even, slots, strict=True)),
            sum(
                (mean - guest[i][j] + Fraction(1, 100)) * host[slots[i]][slots[j]] for i, j in pairs
            ),
        )

    chosen = assign(guest, host, needs, wishes)
    assert chosen == min(permutations(range(places), count), key=worth)


def test_nodes_of_a_large_host_fit_and_keep_the_order_of_distances() -> None:
    """With 12 nodes there are too many assignments to compare."""
    count = range(12)
    guest = [[10 + 10 * min((a - b) % 12, (b - a) % 12) for b in count] for a in count]
    order = [5, 0, 7, 2, 11, 9, 4, 1, 3, 10, 8, 6]
    host = [[guest[a][b] for b in order] for a in order]
    for fits in (range(12), [3]):  # guest node 0 does on these
        needs = [[int(node == 0 and slot not in fits) for slot in count] for node in count]
        chosen = assign(guest, host, needs)
        fit = compare(guest, host, chosen)
        assert (fit.reversed, fit.levelled, chosen[0] in fits) == (0, 0, True)


@given(st.permutations(range(8)))
@settings(max_examples=10)
def test_a_renumbered_machine_is_recognised(order: list[int]) -> None:
    host = [[MESH.distances[a][b] for b in order] for a in order]
    fit = compare(MESH.distances, host, assign(MESH.distances, host))
    assert (fit.reversed, fit.levelled) == (0, 0)


def test_the_order_of_distances_is_compared() -> None:
    line = ((10, 20, 30), (20, 10, 20), (30, 20, 10))
    fit = compare(line, line, (1, 0, 2))
    assert fit.compared == 8
    assert (fit.reversed, fit.levelled) == (4, 4)
    assert fit.rank_correlation == pytest.approx(-0.5)
    assert fit.worst.startswith("nodes ")


def test_equal_distances_that_differ_on_the_host_are_named() -> None:
    full = replace(load_topology("ring-4"), distances=flat(4))
    made = plan(full, FOUR, "kvm")
    assert made.distorts == (
        "distances that are equal in the guest differ on the host: nodes 0 and 1 are as far apart"
        " as 0 and 2 (20), but their host nodes are 12 and 32 apart",
    )
    assert made.timing and made.distances.rank_correlation is None
    assert compare(flat(4), flat(4), (3, 1, 0, 2)).parted == ""
    assert compare(((10,),), ((10,),), (0,)).parted == ""


def test_preferred_takes_isolated_threads_of_different_cores_first() -> None:
    assert preferred(small_host(1, 2, 2, isolated=(1, 2)), range(4)) == (1, 2, 0, 3)


def test_host_nodes_are_named_by_their_own_numbers(tmp_path: Path) -> None:
    host = read_host(
        write_tree(Server(((10, 20), (20, 10)), 2, 2, 1, 2, 4096, ids=(0, 8)), tmp_path)
    )
    assert set(plan(load_topology("ring-2"), host, "kvm").host_nodes) == {0, 8}


def test_the_command_prints_a_plan_for_a_recorded_host() -> None:
    words = ["mesh-8", "--host", str(HOSTS / "eight-node.json"), "--json"]
    done = invoke(place.command, *words)
    assert done.exit_code == 0
    value = json.loads(done.stdout)
    assert value["timing"] is True and value["most_on_one"] == 1
    done = invoke(place.command, *words[:-1])
    assert "one-to-one: distorts nothing" in done.stdout
    assert "\nQEMU " in done.stdout and "\nemulator " not in done.stdout  # a build has that word


def test_the_command_predicts_the_plan_of_a_boot(tmp_path: Path) -> None:
    """The kernel numbers the node of CPU 0 first, and the first of equal nodes gets the first."""
    file = tmp_path / "moved.toml"
    file.write_text(
        'summary = "x"\nnodes = 2\ncpus = ["1,3", "0,2"]\nmemory_mib = 512\n'
        "links = [[0, 1]]\ndistances = [10, 20]\n"
    )
    words = [str(file), "--host", str(HOSTS / "two-node.json")]
    value = json.loads(invoke(place.command, *words, "--json").stdout)
    assert value["host_nodes"] == [1, 0]
    assert [TWO.node_of_cpu[cpu] for cpu in value["vcpus"]] == [0, 1, 0, 1]
    by_hand = invoke(place.command, *words, "--nodes", "0,1", "--json").stdout
    assert json.loads(by_hand)["host_nodes"] == [0, 1]
    # Table, distortions and note have the numbers of the guest's kernel.
    shown = invoke(place.command, *words).stdout
    assert "the kernel's node numbers differ from this file: 0 becomes 1" in shown
    torn = invoke(place.command, *words, "--pin", "32,0,33,1", "--nodes", "0,0").stdout
    rows = [" ".join(line.split()) for line in torn.splitlines()]
    assert rows[1:3] == ["0 0 0,2 32,33", "1 0 1,3 0,1"]
    assert "vCPUs of guest node 0 run on host CPUs of another node than its memory" in torn


def test_the_command_uses_the_cpus_of_this_host_that_a_guest_gets() -> None:
    own = os.sched_getaffinity(0)
    first, *rest = sorted(own)
    os.sched_setaffinity(0, {first})
    try:
        value = json.loads(invoke(place.command, "ring-2", "--json").stdout)
        assert {*value["vcpus"], *value["emulator"]} == {first}
        if rest:
            with pytest.raises(UserError, match=rf"--cpus: host CPUs {rest[0]} are not among"):
                invoke(place.command, "ring-2", "--cpus", str(rest[0]))
    finally:
        os.sched_setaffinity(0, own)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mode", "xen"], "--mode: unknown mode 'xen' (valid: kvm, tcg, icount, timed)"),
        (["--cpus", "3-1"], "--cpus: range '3-1' is backwards"),
        (["--pin", "0,x"], "--pin: not a cpulist: 'x'"),
        (["--pin", "0,1"], "2 host CPUs for 16 vCPUs"),
        (["--host", "/none.json"], "/none.json: cannot read"),
    ],
)
def test_the_command_refuses(words: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        invoke(place.command, "mesh-8", *words)
    assert message in str(caught.value)
