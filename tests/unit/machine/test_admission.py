"""A machine's place on this host: what it takes for itself alone, and what others leave it."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from lab.errors import HostError, UserError
from lab.machine.admission import admit_machine, claim_of, may_lock_memory
from lab.machine.budget import Claim, Pages, admit, taken_cpus
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
    assert taken_cpus() == set(CPUS[:1])
    with pytest.raises(HostError, match=f"{CPUS[0]} run other guests in kvm mode"):
        admit_machine(replace(machine("kvm"), host_cpus=CPUS[:1]))
    admission.release()
    assert taken_cpus() == frozenset()


@pytest.mark.skipif(len(CPUS) < 2, reason="hardware: needs two CPUs")
def test_a_second_guest_gets_other_cpus() -> None:
    held = admit(lambda _: Claim(CPUS[:1], 0))
    placement, admission = admit_machine(replace(machine("kvm"), host_cpus=CPUS[:2]))
    assert placement.host_cpus == CPUS[1:2]
    admission.release()
    held.release()


@pytest.mark.parametrize("mode", ["tcg", "icount"])
def test_emulated_guests_take_nothing(mode: Mode, tmp_path: Path) -> None:
    _, admission = admit_machine(machine(mode))
    assert taken_cpus() == frozenset()
    admission.release()


def test_a_guest_that_measures_nothing_runs_anywhere() -> None:
    held = admit(lambda _: Claim(CPUS, 0))
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
    assert claim_of(replace(big, mode="tcg", pages="memfd"), loose) == Claim((), 0)


def test_whether_memory_may_be_locked_is_known() -> None:
    assert may_lock_memory() in (True, False)
