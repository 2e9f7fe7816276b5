"""Placement on the real host: firmware alone runs under KVM even where a kernel does not."""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.errors import HostError, PlacementMismatch
from numalab.guest.proof import Proof
from numalab.guest.start import PreparedGuest, prepare, started
from numalab.guest.verdicts import unusable_device
from numalab.host.budget import cpus_in_use
from numalab.host.facts import HostNode
from numalab.host.privilege import privilege
from numalab.host.read import read_host
from numalab.machine.memory import backed_mib
from numalab.machine.model import PAGE_KIB, Job, Machine, PageKind
from numalab.placement.admission import may_lock_memory
from numalab.qemu.guest import Guest
from numalab.qemu.hypervisor import connect
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology
from numalab.topology.topology import CpuShape

CPUS = tuple(sorted(os.sched_getaffinity(0)))
pytestmark = [
    pytest.mark.usefixtures("own_budget"),
    pytest.mark.skipif(bool(unusable_device()), reason=f"hardware: {unusable_device()}"),
    pytest.mark.skipif(len(CPUS) < 2, reason="hardware: needs two host CPUs"),
]


def firmware_machine(scratch: Path, pages: PageKind = "memfd") -> Machine:
    """Two nodes of one CPU. It is never resumed as far as its kernel, which is none."""
    ring = load_topology("ring-2")
    nodes = tuple(replace(node, cpus=(node.id,), memory_mib=256) for node in ring.nodes)
    topology = replace(ring, nodes=nodes, cpu_shape=CpuShape(2, 1, 1, 1))
    rootfs = scratch / "root.erofs"
    rootfs.write_bytes(bytes(2 << 20))
    return Machine(
        topology, scratch / "none", rootfs, "kvm", 1, "firmware",
        host_cpus=CPUS[:2], cpu_model="qemu64", pages=pages,
    )  # fmt: skip


def bare(xml: str) -> str:
    """Leave the kernel out of a domain; only the firmware runs then."""
    lines = xml.splitlines()
    return "\n".join(line for line in lines if "<kernel>" not in line and "<cmdline>" not in line)


@contextmanager
def running(machine: Machine, run_dir: RunDir) -> Iterator[tuple[int, Proof]]:
    """Start the firmware; gives QEMU's process id and the proof."""
    prepared = prepare(machine, Job(("true",)), run_dir)
    prepared = replace(prepared, xml=bare(prepared.xml))
    with started(connect(), machine, prepared) as (guest, _, witness):
        yield guest.pid, witness.proof


def status(pid: int, name: str) -> str:
    """Return the first word of a field of /proc/<pid>/status."""
    text = Path(f"/proc/{pid}/status").read_text()
    return text.partition(f"\n{name}:")[2].split()[0]


def pools() -> list[tuple[int, int, int]]:
    return [
        (node.id, pool.size_kib, pool.total)
        for node in read_host().nodes
        for pool in node.hugepages
    ]


@pytest.mark.parametrize("pages", ["memfd", "anonymous", "2M"])
def test_vcpus_are_pinned_and_memory_is_there_before_the_start(
    pages: PageKind, tmp_path: Path
) -> None:
    machine = firmware_machine(tmp_path, pages)
    before = pools()
    if pages == "2M" and not (os.geteuid() == 0 and before):
        pytest.skip("hardware: hugepages cannot be reserved by this user")
    if pages == "2M":  # a busy host may have no two free MiB side by side
        Path("/proc/sys/vm/compact_memory").write_text("1", encoding="ascii")
    with running(machine, RunDir(tmp_path / "run")) as (_, proof):
        vcpus = {t.role: t.allowed for t in proof.threads if t.role.startswith("vcpu")}
        assert vcpus == {"vcpu 0": CPUS[:1], "vcpu 1": CPUS[1:2]}
        assert cpus_in_use().alone >= set(CPUS[:2])
        size = PAGE_KIB[pages]
        for memory, node in zip(proof.memory, machine.topology.nodes, strict=True):
            assert memory.page_kib == size
            assert sum(memory.pages.values()) * size == backed_mib(node) << 10
        if pages == "2M":
            grown = sum(total for _, kib, total in pools() if kib == 2048)
            assert grown - sum(total for _, kib, total in before if kib == 2048) == 256
    assert pools() == before
    assert not cpus_in_use().alone & set(CPUS[:2])


HOLDER = """
    import sys
    from numalab.host.budget import Reservation, Pages, admit

    admit(lambda taken: Reservation((), 16, (Pages(int(sys.argv[1]), 2048, 8),)))
    print("taken", flush=True)
    sys.stdin.read()
"""


def test_hugepages_of_a_killed_process_are_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pools()
    if not (os.geteuid() == 0 and before):
        pytest.skip("hardware: hugepages cannot be reserved by this user")
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path))
    node = str(read_host().nodes[0].id)
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), node],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "taken\n"
        assert pools() != before
        process.kill()
    assert cpus_in_use().alone == frozenset()  # whoever looks next gives them back
    assert pools() == before


def test_memory_is_bound_where_the_host_has_several_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = read_host()
    if len(host.nodes) == 1:  # let it have another one, without CPUs or memory
        nodes = (*host.nodes, HostNode(host.nodes[0].id + 1, (), 0, 0, ()))
        host = replace(host, nodes=nodes, distances=((10, 20), (20, 10)))
    monkeypatch.setattr("numalab.placement.admission.read_host", lambda: host)
    with running(firmware_machine(tmp_path), RunDir(tmp_path / "run")) as (pid, proof):
        assert all(thread.allowed == thread.planned for thread in proof.threads)
        maps = Path(f"/proc/{pid}/numa_maps").read_text().splitlines()
        policies = [line.split()[1] for line in maps if "memory-backend-memfd" in line]
        expected = [f"bind:{node}" for proof in proof.memory for node in proof.pages]
        assert sorted(policies) == sorted(expected) and len(expected) == 2


def test_a_second_guest_may_not_have_the_cpus_of_the_first(tmp_path: Path) -> None:
    machine = firmware_machine(tmp_path)
    with (
        running(machine, RunDir(tmp_path / "first")),
        pytest.raises(HostError, match="run other guests"),
    ):
        prepare(machine, Job(("true",)), RunDir(tmp_path / "second"))


def test_memory_on_the_wrong_node_ends_a_guest_that_measures_timing(tmp_path: Path) -> None:
    machine = replace(firmware_machine(tmp_path), measures_time=True)

    def planned_wrong(machine: Machine) -> PreparedGuest:
        prepared = prepare(machine, Job(("true",)), RunDir(tmp_path / "run"))
        placement = replace(prepared.placement, host_nodes=(0, 77))
        return replace(prepared, xml=bare(prepared.xml), placement=placement)

    what = "guest node 1 lies on host nodes 0, planned 77"
    with (
        pytest.raises(PlacementMismatch, match=what),
        started(connect(), machine, planned_wrong(machine)),
    ):
        pytest.fail("the guest was let run")
    assert not cpus_in_use().alone & set(CPUS[:2])
    noted = replace(machine, measures_time=False)
    with started(connect(), noted, planned_wrong(noted)) as (_, _, witness):
        witness.workload_began()
        witness.workload_ended()
        # For placement measures it is a note.
        assert [str(misplaced) for misplaced in witness.proof.differs] == [what]


def wait_until_it_runs(guest: Guest, proof: Proof) -> None:
    """Wait for the first instructions of a guest with one vCPU: KVM starts its own thread there.

    The monitor says "running" before that; a busy host takes long to let the vCPU run.
    """
    vcpu = next(t.thread for t in proof.threads if t.vcpus)
    ran = Path(f"/proc/{guest.pid}/task/{vcpu}/schedstat")
    before = int(ran.read_text().split()[0])
    deadline = time.monotonic() + 60
    while int(ran.read_text().split()[0]) < before + 20_000_000 and time.monotonic() < deadline:
        time.sleep(0.05)


def test_what_kvm_starts_itself_runs_beside_the_vcpus(tmp_path: Path) -> None:
    """One vCPU on the last host CPU, and all else elsewhere, also what appears once it runs."""
    two = firmware_machine(tmp_path)
    node = replace(two.topology.nodes[0], memory_mib=256)
    single = replace(
        two.topology, nodes=(node,), distances=((10,),), cpu_shape=CpuShape(1, 1, 1, 1)
    )
    machine = replace(two, topology=single, vcpu_cpus=CPUS[1:2], measures_time=True)
    prepared = prepare(machine, Job(("true",)), RunDir(tmp_path / "run"))
    with started(connect(), machine, replace(prepared, xml=bare(prepared.xml))) as (
        guest,
        _,
        observer,
    ):
        wait_until_it_runs(guest, observer.proof)
        observer.workload_began()
        observer.workload_ended()
        observer.check()
        helpers = [t for t in observer.proof.threads if not t.role.startswith("vcpu")]
        assert helpers and all(t.allowed == CPUS[:1] for t in helpers)
        usage = observer.proof.usage
        assert usage is not None and usage.seconds > 0
        assert {t.thread for t in usage.threads} >= {t.thread for t in observer.proof.threads}
        assert set(usage.stolen_ms) == {CPUS[1]}
        locked = status(guest.pid, "VmLck")
        if may_lock_memory():
            assert int(locked) >= 256 << 10
        else:
            assert locked == "0"


def test_qemu_is_not_root_when_the_guest_runs(tmp_path: Path) -> None:
    how = privilege(embedded=True)
    with running(firmware_machine(tmp_path), RunDir(tmp_path / "run")) as (pid, proof):
        assert status(pid, "Seccomp") == "2" and status(pid, "NoNewPrivs") == "1"
        if how.run_as is None:
            assert int(status(pid, "Uid")) == os.geteuid()
        else:
            assert int(status(pid, "Uid")) == how.run_as[0] != 0
            assert int(status(pid, "Gid")) == how.run_as[1]
            assert int(status(pid, "CapEff"), 16) == 0
        assert proof.memory and not proof.differs  # and what it does can still be read
