"""A machine's place on this host: what it takes for itself alone, and what others leave it."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.errors import HostBusy, HostError, UserError
from numalab.host.budget import CpusInUse, NodeMemory, Pages, Reservation, admit, cpus_in_use
from numalab.host.budget import _release_all as release_all
from numalab.machine.model import Machine, Mode, with_memory_first
from numalab.placement import admission as admission_room
from numalab.placement.admission import (
    admit_machine,
    free_places,
    host_cpus,
    may_lock_memory,
    reservation_of,
)
from numalab.placement.planner import Placement
from numalab.topology.load import load_topology
from numalab.topology.topology import CpuShape
from support.host_tree import small_host

RING = load_topology("ring-2")
ONE = replace(RING, nodes=(replace(RING.nodes[0], cpus=(0,), memory_mib=256),), distances=((10,),))
CPUS = tuple(sorted(os.sched_getaffinity(0)))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path))


@pytest.fixture(autouse=True)
def not_nice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpriority", lambda *_: 0)


def machine(mode: Mode) -> Machine:
    topology = replace(ONE, cpu_shape=CpuShape(1, 1, 1, 1))
    return Machine(topology, Path("/k"), Path("/r"), mode, 1, "m")


def test_a_kvm_guest_has_its_cpus_for_itself_until_it_ends() -> None:
    placement, admission = admit_machine(replace(machine("kvm"), host_cpus=CPUS[:1]))
    assert placement.vcpus == CPUS[:1]
    assert cpus_in_use().alone == set(CPUS[:1])
    with pytest.raises(HostError, match=f"{CPUS[0]} run other guests"):
        admit_machine(replace(machine("kvm"), host_cpus=CPUS[:1]))
    with pytest.raises(HostError, match="run guests in kvm mode, which have them to themselves"):
        admit_machine(replace(machine("icount"), host_cpus=CPUS[:1]))
    admission.release()
    assert cpus_in_use().alone == frozenset()


@pytest.mark.parametrize("mode", ["tcg", "icount"])
def test_emulated_guests_share_their_cpus_with_each_other_only(mode: Mode) -> None:
    wanted = replace(machine(mode), host_cpus=CPUS[:1])
    first, second = admit_machine(wanted)[1], admit_machine(wanted)[1]
    assert cpus_in_use() == CpusInUse(frozenset(), {CPUS[0]: 2})
    with pytest.raises(HostError, match=f"{CPUS[0]} run other guests"):
        admit_machine(replace(wanted, mode="kvm"))
    first.release()
    second.release()
    assert cpus_in_use() == CpusInUse(frozenset(), {})


def on_host(monkeypatch: pytest.MonkeyPatch, cpus: int, threads: int) -> None:
    """Let this be a host with `cpus` CPUs, all of them allowed."""
    monkeypatch.setattr(
        "numalab.placement.admission.read_host", lambda: small_host(1, cpus // threads, threads)
    )
    monkeypatch.setattr(
        "numalab.placement.admission.os.sched_getaffinity", lambda _: set(range(cpus))
    )


@pytest.mark.parametrize(
    ("own", "group", "vcpus"),
    [
        ({0, 1, 4, 5}, set(range(8)), (2, 3, 6, 7)),  # as the kernel starts a process
        ({0, 1, 4, 5}, {0, 1, 4, 5}, (0, 1, 4, 5)),  # its cgroup lets it run nowhere else
        ({0, 1, 4}, set(range(8)), (0, 1, 4)),  # by taskset
    ],
)
def test_isolated_cpus_are_used_by_a_process_that_was_started_outside(
    monkeypatch: pytest.MonkeyPatch, own: set[int], group: set[int], vcpus: tuple[int, ...]
) -> None:
    host = small_host(2, 4, 1, isolated=(2, 3, 6, 7))
    masks = [own]
    monkeypatch.setattr("numalab.placement.admission.read_host", lambda: host)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: masks[-1])
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: masks.append(cpus & group))
    placement, admission = admit_machine(replace(machine("kvm"), topology=load_topology("ring-2")))
    admission.release()
    assert set(placement.vcpus) == set(vcpus)
    assert masks[-1] == own


def test_each_icount_guest_gets_a_core_of_its_own_while_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_host(monkeypatch, cpus=6, threads=2)
    siblings = {frozenset(cpu.siblings) for cpu in small_host(1, 3, 2).cpus}
    eight = replace(machine("icount"), topology=load_topology("ring-4"))
    assert free_places("icount", 8) == 3
    cores = []
    for _ in range(3):
        (cpu,) = admit_machine(eight)[0].host_cpus
        cores.append(next(core for core in siblings if cpu in core))
    assert set(cores) == siblings  # no two on one core
    assert free_places("icount", 8) == 3  # the other threads of the cores
    rest = [admit_machine(eight)[0].host_cpus for _ in range(3)]
    assert cpus_in_use().shared == dict.fromkeys(range(6), 1)
    assert len(set(rest)) == 3
    assert free_places("icount", 8) == 1
    admit_machine(eight)
    assert sorted(cpus_in_use().shared.values()) == [1, 1, 1, 1, 1, 2]
    release_all()


def test_emulated_guests_keep_off_what_a_kvm_guest_has(monkeypatch: pytest.MonkeyPatch) -> None:
    on_host(monkeypatch, cpus=8, threads=1)
    admit_machine(replace(machine("kvm"), host_cpus=(0, 1, 2)))
    assert cpus_in_use().alone == {0, 1}
    four = replace(machine("tcg"), topology=load_topology("ring-2"))
    assert admit_machine(four)[0].vcpus == (7, 7, 7, 7)
    assert admit_machine(four)[0].vcpus == (6, 6, 6, 6)
    assert admit_machine(four)[0].vcpus == (5, 5, 5, 5)
    assert free_places("kvm", 1) == 1 and free_places("kvm", 4) == 1
    with pytest.raises(HostError, match="4 vCPUs need more host CPUs than are free: "):
        admit_machine(replace(four, mode="kvm"))
    release_all()


def wide(*sizes: int) -> Machine:
    """A machine in mode kvm with nodes of these many CPUs."""
    numbers = iter(range(sum(sizes)))
    nodes = tuple(
        replace(ONE.nodes[0], id=i, cpus=tuple(next(numbers) for _ in range(size)))
        for i, size in enumerate(sizes)
    )
    rows = range(len(sizes))
    distances = tuple(tuple(10 if a == b else 20 for b in rows) for a in rows)
    return replace(
        machine("kvm"), topology=replace(ONE, nodes=nodes, distances=distances, cpu_shape=None)
    )


def measuring(*sizes: int) -> Machine:
    return replace(wide(*sizes), measures_time=True)


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (wide(4), measuring(3), "its times would not be valid"),  # no CPU for QEMU's other threads
        (wide(7), measuring(2, 2), "its times would not be valid"),  # both nodes on one host node
        (wide(2), wide(3), ""),
        (wide(2), measuring(3), "it would get other CPUs than alone"),
        (measuring(2), wide(3), ""),
    ],
)
def test_a_second_kvm_guest_gets_other_cpus_where_that_costs_it_nothing(
    monkeypatch: pytest.MonkeyPatch, first: Machine, second: Machine, reason: str
) -> None:
    many = len(second.topology.nodes)
    host = small_host(many, 8, 1)
    monkeypatch.setattr("numalab.placement.admission.read_host", lambda: host)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8 * many)))
    before = admit_machine(first)[0]
    if reason:
        with pytest.raises(HostBusy, match=f"run other guests, and beside them {reason}"):
            admit_machine(second)
        release_all()
    else:
        assert admit_machine(second)[0].host_cpus == (3, 4, 5, 6)
        release_all()
    assert before.timing and admit_machine(second)[0].timing
    release_all()


@pytest.mark.parametrize(
    ("size", "vcpus", "emulator"), [(3, (8, 10, 12), 14), (6, (8, 10, 12, 14, 9, 11), 13)]
)
def test_a_second_kvm_guest_keeps_off_the_cores_of_the_first(
    monkeypatch: pytest.MonkeyPatch, size: int, vcpus: tuple[int, ...], emulator: int
) -> None:
    """CPUs of a core have neighbouring numbers here, so those that the first left come first."""
    host = small_host(1, 8, 2)
    cpus = tuple(replace(cpu, siblings=(cpu.id & ~1, cpu.id | 1)) for cpu in host.cpus)
    monkeypatch.setattr("numalab.placement.admission.read_host", lambda: replace(host, cpus=cpus))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    assert admit_machine(wide(3))[0].host_cpus == (0, 2, 4, 6)
    second = admit_machine(wide(size))[0]
    release_all()
    assert (second.vcpus, second.emulator) == (vcpus, (emulator,))


def test_as_many_kvm_guests_start_as_have_room_with_qemus_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A guest of 32 CPUs takes 36 host CPUs."""
    on_host(monkeypatch, cpus=66, threads=1)
    node = replace(ONE.nodes[0], cpus=tuple(range(32)))
    topology = replace(ONE, nodes=(node,), cpu_shape=CpuShape(1, 1, 32, 1))
    big = replace(machine("kvm"), topology=topology)
    assert free_places("kvm", 32) == 1
    placement = admit_machine(big)[0]
    assert len(placement.host_cpus) == host_cpus("kvm", 32) == 36
    with pytest.raises(HostError, match="32 vCPUs need more host CPUs than are free"):
        admit_machine(big)
    release_all()


def test_a_guest_that_measures_nothing_runs_anywhere() -> None:
    held = admit(lambda _: Reservation(CPUS, 0))
    assert free_places("kvm", 1) == 1
    placement, admission = admit_machine(replace(machine("kvm"), shares_cpus=True))
    assert set(placement.host_cpus) <= set(CPUS)
    assert not placement.dedicated  # so its memory need not be of one host node
    admission.release()
    held.release()


@pytest.mark.skipif(len(CPUS) < 2, reason="hardware: needs two CPUs")
def test_a_guest_pinned_by_hand_gets_its_cpus_or_nothing() -> None:
    last = replace(machine("kvm"), vcpu_cpus=CPUS[-1:])
    placement, admission = admit_machine(last)
    assert placement.vcpus == CPUS[-1:]
    with pytest.raises(HostError, match="run other guests"):
        admit_machine(replace(last, host_cpus=CPUS))
    admission.release()


def test_notes_have_the_node_numbers_of_the_guests_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """QEMU's first node has memory: here the guest's node 1."""
    host = small_host(2, 8, 1)
    monkeypatch.setattr("numalab.placement.admission.read_host", lambda: host)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    three = wide(2, 2, 2)
    bare = replace(three.topology.nodes[0], memory_mib=0)
    topology = replace(three.topology, nodes=(bare, *three.topology.nodes[1:]))
    asked = replace(
        three, topology=topology, host_nodes=(0, 1, 1), vcpu_cpus=(8, 9, 10, 11, 12, 13)
    )
    in_qemu = with_memory_first(asked)
    assert in_qemu.topology.nodes[0].cpus == (2, 3)
    placement = admit_machine(in_qemu)[0]
    release_all()
    assert "vCPUs of guest node 0 run on host CPUs of another node" in placement.note
    assert placement.host_nodes == in_qemu.host_nodes == (1, 0, 1)


def test_host_cpus_that_there_are_not() -> None:
    with pytest.raises(UserError, match=r"host CPUs \[8191\] are not among those"):
        admit_machine(replace(machine("kvm"), host_cpus=(8191,)))


def test_hugepages_are_claimed_on_the_nodes_that_back_the_guest() -> None:
    big = replace(machine("kvm"), topology=load_topology("ring-4"), pages="2M")
    placement = Placement(tuple(range(8)), (8,), False, (), (0, 1, 1, 0), True, True)
    sizes = [node.memory_mib // 2 for node in big.topology.nodes]
    claim = reservation_of(big, placement)
    assert claim.pages == (
        Pages(0, 2048, sizes[0] + sizes[3]),
        Pages(1, 2048, sizes[1] + sizes[2]),
    )
    assert claim.cpus == tuple(range(9))
    assert claim.memory_mib == big.topology.memory_mib
    loose = replace(placement, dedicated=False)
    tcg = reservation_of(replace(big, mode="tcg", pages="memfd"), loose)
    assert tcg == Reservation(tuple(range(9)), 0, (), shares=True)


def test_what_qemu_locks_beside_the_guests_memory_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_room, "may_lock_memory", lambda: True)
    rootfs = tmp_path / "root.erofs"
    with rootfs.open("wb") as file:
        file.truncate(190 << 20)
    big = replace(machine("kvm"), topology=load_topology("ring-4"), rootfs=rootfs)
    placement = Placement(tuple(range(8)), (8,), False, (), (0, 1, 1, 0), True, True)
    reservation = reservation_of(big, placement)
    assert reservation.memory_mib == big.topology.memory_mib + 190 + 128 + 83 + 8 * 8
    sizes = [node.memory_mib for node in big.topology.nodes]
    assert reservation.bound == (
        NodeMemory(0, sizes[0] + sizes[3]),
        NodeMemory(1, sizes[1] + sizes[2]),
    )
    assert reservation_of(replace(big, shares_cpus=True), placement).memory_mib == (
        big.topology.memory_mib
    )
    assert reservation_of(replace(big, pages="2M"), placement).bound == ()


def test_whether_memory_may_be_locked_is_known() -> None:
    assert may_lock_memory() in (True, False)
