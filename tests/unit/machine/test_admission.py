"""A machine's place on this host: what it takes for itself alone, and what others leave it."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from host_tree import small_host

from lab.errors import HostError, UserError
from lab.machine.admission import admit_machine, claim_of, may_lock_memory, room
from lab.machine.budget import Claim, Pages, Taken, admit, taken
from lab.machine.budget import _release_all as release_all
from lab.machine.machine import Machine, Mode
from lab.machine.placement import Placement
from lab.topology.load import load_topology
from lab.topology.model import CpuShape

RING = load_topology("ring-2")
ONE = replace(RING, nodes=(replace(RING.nodes[0], cpus=(0,), memory_mib=256),), distances=((10,),))
CPUS = tuple(sorted(os.sched_getaffinity(0)))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path))


def machine(mode: Mode) -> Machine:
    topology = replace(ONE, cpu_shape=CpuShape(1, 1, 1, 1))
    return Machine(topology, Path("/k"), Path("/r"), mode, 1, "m")


def test_a_kvm_guest_has_its_cpus_for_itself_until_it_ends() -> None:
    placement, admission = admit_machine(replace(machine("kvm"), host_cpus=CPUS[:1]))
    assert placement.vcpus == CPUS[:1]
    assert taken().alone == set(CPUS[:1])
    with pytest.raises(HostError, match=f"{CPUS[0]} run other guests"):
        admit_machine(replace(machine("kvm"), host_cpus=CPUS[:1]))
    with pytest.raises(HostError, match="run guests in kvm mode, which have them to themselves"):
        admit_machine(replace(machine("icount"), host_cpus=CPUS[:1]))
    admission.release()
    assert taken().alone == frozenset()


@pytest.mark.skipif(len(CPUS) < 2, reason="hardware: needs two CPUs")
def test_a_second_guest_gets_other_cpus() -> None:
    held = admit(lambda _: Claim(CPUS[:1], 0))
    placement, admission = admit_machine(replace(machine("kvm"), host_cpus=CPUS[:2]))
    assert placement.host_cpus == CPUS[1:2]
    admission.release()
    held.release()


@pytest.mark.parametrize("mode", ["tcg", "icount"])
def test_emulated_guests_share_their_cpus_with_each_other_only(mode: Mode) -> None:
    wanted = replace(machine(mode), host_cpus=CPUS[:1])
    first, second = admit_machine(wanted)[1], admit_machine(wanted)[1]
    assert taken() == Taken(frozenset(), {CPUS[0]: 2})
    with pytest.raises(HostError, match=f"{CPUS[0]} run other guests"):
        admit_machine(replace(wanted, mode="kvm"))
    first.release()
    second.release()
    assert taken() == Taken(frozenset(), {})


def on_host(monkeypatch: pytest.MonkeyPatch, cpus: int, threads: int) -> None:
    """Let this be a host with `cpus` CPUs, all of them allowed."""
    monkeypatch.setattr(
        "lab.machine.admission.read_host", lambda: small_host(1, cpus // threads, threads)
    )
    monkeypatch.setattr("lab.machine.admission.os.sched_getaffinity", lambda _: set(range(cpus)))


def test_each_icount_guest_gets_a_core_of_its_own_while_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_host(monkeypatch, cpus=6, threads=2)
    siblings = {frozenset(cpu.siblings) for cpu in small_host(1, 3, 2).cpus}
    eight = replace(machine("icount"), topology=load_topology("ring-4"))
    assert room("icount", 8) == 3
    cores = []
    for _ in range(3):
        (cpu,) = admit_machine(eight)[0].host_cpus
        cores.append(next(core for core in siblings if cpu in core))
    assert set(cores) == siblings  # no two on one core
    assert room("icount", 8) == 3  # the other threads of the cores
    rest = [admit_machine(eight)[0].host_cpus for _ in range(3)]
    assert taken().shared == dict.fromkeys(range(6), 1)
    assert len(set(rest)) == 3
    assert room("icount", 8) == 1
    admit_machine(eight)
    assert sorted(taken().shared.values()) == [1, 1, 1, 1, 1, 2]
    release_all()


def test_emulated_guests_keep_off_what_a_kvm_guest_has(monkeypatch: pytest.MonkeyPatch) -> None:
    on_host(monkeypatch, cpus=8, threads=1)
    admit_machine(replace(machine("kvm"), host_cpus=(0, 1, 2)))
    assert taken().alone == {0, 1}
    four = replace(machine("tcg"), topology=load_topology("ring-2"))
    assert admit_machine(four)[0].vcpus == (2, 2, 2, 2)
    assert admit_machine(four)[0].vcpus == (3, 3, 3, 3)
    assert admit_machine(four)[0].vcpus == (4, 4, 4, 4)
    assert room("kvm", 1) == 1 and room("kvm", 4) == 1
    with pytest.raises(HostError, match="4 vCPUs need more host CPUs than are free: "):
        admit_machine(replace(four, mode="kvm"))
    release_all()


def test_a_guest_that_measures_nothing_runs_anywhere() -> None:
    held = admit(lambda _: Claim(CPUS, 0))
    assert room("kvm", 1) == 1
    placement, admission = admit_machine(replace(machine("kvm"), shares_cpus=True))
    assert set(placement.host_cpus) <= set(CPUS)
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


def test_host_cpus_that_there_are_not() -> None:
    with pytest.raises(UserError, match=r"host CPUs \[8191\] are not among those"):
        admit_machine(replace(machine("kvm"), host_cpus=(8191,)))


def test_hugepages_are_claimed_on_the_nodes_that_back_the_guest() -> None:
    big = replace(machine("kvm"), topology=load_topology("ring-4"), pages="2M")
    placement = Placement(tuple(range(8)), (8,), False, "", (0, 1, 1, 0), True, True)
    sizes = [node.memory_mib // 2 for node in big.topology.nodes]
    claim = claim_of(big, placement)
    assert claim.pages == (
        Pages(0, 2048, sizes[0] + sizes[3]),
        Pages(1, 2048, sizes[1] + sizes[2]),
    )
    assert claim.cpus == tuple(range(9))
    assert claim.memory_mib == big.topology.memory_mib
    loose = replace(placement, dedicated=False)
    tcg = claim_of(replace(big, mode="tcg", pages="memfd"), loose)
    assert tcg == Claim(tuple(range(9)), 0, (), shares=True)


def test_whether_memory_may_be_locked_is_known() -> None:
    assert may_lock_memory() in (True, False)
