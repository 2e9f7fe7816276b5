"""What a guest needs before it starts, and that nothing of it is left when it has ended."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from numalab.errors import HostError
from numalab.guest import start
from numalab.guest.follow import End
from numalab.guest.run import rescue_trace
from numalab.guest.start import PreparedGuest, prepare, started
from numalab.machine.memory import HeldMemory, Region
from numalab.machine.model import NVDIMM_ALIGNMENT, Job, Machine, PageKind
from numalab.placement.planner import Placement
from numalab.qemu.collect import read_job_disk
from numalab.qemu.hypervisor import Hypervisor
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology

JOB = Job(("echo", "a b"), events=("sched:sched_switch",))


@dataclass
class FakeAdmission:
    """What was taken of the host; notes in `calls` that it was given back."""

    calls: list[str] = field(default_factory=list)

    def release(self) -> None:
        self.calls.append("released")


@pytest.fixture
def admission(monkeypatch: pytest.MonkeyPatch) -> FakeAdmission:
    taken = FakeAdmission()

    def admit(machine: Machine) -> tuple[Placement, FakeAdmission]:
        vcpus = (0,) * machine.topology.cpu_count
        return Placement(vcpus, (0,), one_thread=machine.mode != "kvm"), taken

    monkeypatch.setattr(start, "admit_machine", admit)
    return taken


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    rootfs = tmp_path / "root.erofs"
    with rootfs.open("wb") as file:
        file.truncate(NVDIMM_ALIGNMENT)
    topology = load_topology("ring-2")
    return Machine(topology, tmp_path / "bzImage", rootfs, "icount", 1, "m", job_disk_mib=8)


def test_all_that_a_guest_needs_is_written_and_nothing_of_an_earlier_one_is_left(
    machine: Machine, tmp_path: Path, admission: FakeAdmission
) -> None:
    run_dir = RunDir(tmp_path / "run")
    run_dir.path.mkdir()
    run_dir.console.write_text("of an earlier guest")
    made = prepare(machine, JOB, run_dir)
    assert run_dir.domain_xml.read_text() == made.xml
    assert f"<name>{made.name}</name>" in made.xml and f"<cmdline>{made.cmdline}" in made.xml
    assert not run_dir.console.exists()
    assert run_dir.job_disk.stat().st_size == 8 << 20
    assert made.region is not None and f"@{made.region.address:#x}:" in made.cmdline
    taken = read_job_disk(run_dir.job_disk, tmp_path / "disk", "/")
    assert {"argv", "events", "trace_instance"} <= taken.files.keys()
    assert (tmp_path / "disk" / "argv").read_text() == "set -- echo 'a b'\n"
    assert (tmp_path / "disk" / "trace_instance").read_text() == "lab\n"
    assert admission.calls == []  # it is the guest's until `started` gives it back


def test_a_console_to_type_at_has_a_socket_as_long_as_the_guest(
    machine: Machine, tmp_path: Path, admission: FakeAdmission
) -> None:
    made = prepare(machine, replace(JOB, mode="shell"), RunDir(tmp_path / "run"))
    assert made.socket is not None and f'path="{made.socket}"' in made.xml
    assert len(str(made.socket)) < 108 and made.socket.parent.stat().st_mode & 0o077 == 0
    made.held.close()
    assert not made.socket.parent.exists() and admission.calls == ["released"]
    assert prepare(machine, JOB, RunDir(tmp_path / "job")).socket is None


def test_no_two_guests_have_one_name(
    machine: Machine, tmp_path: Path, admission: FakeAdmission
) -> None:
    names = [prepare(machine, JOB, RunDir(tmp_path / f"{n}")).name for n in range(3)]
    assert len(set(names)) == 3 and all(re.fullmatch(r"m-\d+-\d+", name) for name in names)


def test_without_memory_for_the_trace_the_guest_keeps_its_own(
    machine: Machine, tmp_path: Path, admission: FakeAdmission
) -> None:
    made = prepare(replace(machine, trace_memory_mib=0), JOB, RunDir(tmp_path / "run"))
    assert made.region is None and "trace_instance" not in made.cmdline
    read_job_disk(tmp_path / "run" / "job.img", tmp_path / "disk", "/")
    assert (tmp_path / "disk" / "trace_instance").read_text() == ""


def test_the_memory_model_is_told_of_the_machine(
    machine: Machine, tmp_path: Path, admission: FakeAdmission
) -> None:
    timed = replace(
        machine, mode="timed", emulator=tmp_path / "qemu", memory_model=tmp_path / "memory.so"
    )
    run_dir = RunDir(tmp_path / "run")
    made = prepare(timed, JOB, run_dir)
    assert run_dir.memory_parameters.read_text().startswith("numalab-memory 1\n")
    plugin = f"file={tmp_path / 'memory.so'},parameters={run_dir.memory_parameters}"
    assert plugin in made.xml and f"counts={run_dir.memory_counts}" in made.xml
    assert f"<emulator>{tmp_path / 'qemu'}</emulator>" in made.xml


def test_a_saved_trace_is_put_back_where_it_lay(
    machine: Machine, tmp_path: Path, admission: FakeAdmission
) -> None:
    saved = tmp_path / "saved.bin"
    made = prepare(machine, JOB, RunDir(tmp_path / "run"), restore=(saved, Region(0x1000, 64)))
    assert f"loader,file={saved},addr=0x1000,force-raw=on" in made.xml


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mode": "timed"}, "cannot run mode timed"),
        ({"rootfs": Path("/nowhere/root.erofs")}, "cannot read the root file system"),
    ],
)
def test_what_cannot_start_gives_back_what_it_took(
    change: dict[str, Any], said: str, machine: Machine, tmp_path: Path, admission: FakeAdmission
) -> None:
    with pytest.raises(HostError, match=said):
        prepare(replace(machine, **change), JOB, RunDir(tmp_path / "run"))
    assert admission.calls == ["released"]


@pytest.mark.parametrize("size", [0, NVDIMM_ALIGNMENT + 512])
def test_a_root_that_is_no_whole_nvdimm_is_refused(
    size: int, machine: Machine, tmp_path: Path, admission: FakeAdmission
) -> None:
    with machine.rootfs.open("wb") as file:
        file.truncate(size)
    with pytest.raises(HostError, match=f"has {size} bytes, not a multiple of {NVDIMM_ALIGNMENT}"):
        prepare(machine, JOB, RunDir(tmp_path / "run"))
    assert admission.calls == ["released"]


def test_a_folder_that_cannot_be_made_is_the_hosts_fault(
    machine: Machine, tmp_path: Path, admission: FakeAdmission
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HostError, match=r"cannot write .*file/run: Not a directory"):
        prepare(machine, JOB, RunDir(tmp_path / "file" / "run"))


@dataclass
class FakeGuest:
    """A guest that notes what is done to it."""

    calls: list[str]
    pid: int = 7

    def vcpu_threads(self) -> tuple[int, ...]:
        return (8,)

    def host_address(self, address: int) -> int:
        return 0x7F0000000000 + address

    def versions(self) -> dict[str, str]:
        self.calls.append("asked")
        return {}

    def resume(self) -> None:
        self.calls.append("resumed")

    def end(self) -> None:
        self.calls.append("ended")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls_made: list[str] = []

    class FakeWitness:
        def __init__(self, pid: int, threads: Any, memory: Any, machine: Any, place: Any) -> None:
            assert (pid, threads) == (7, (8,))

        def started(self) -> None:
            calls_made.append("proved")

    class Held(HeldMemory):
        def close(self) -> None:
            calls_made.append("memory let go")

    monkeypatch.setattr(start, "Witness", FakeWitness)
    monkeypatch.setattr(
        start, "hold_memory", lambda pid, sizes, **_: Held((), ((pid, len(sizes)),))
    )
    return calls_made


@contextmanager
def running(machine: Machine, calls: list[str]) -> Iterator[HeldMemory]:
    class FakeHypervisor:
        def start(
            self, name: str, xml: str, console: Path | None, *, writes_at_exit: bool
        ) -> FakeGuest:
            calls.append(f"started {name}")
            return FakeGuest(calls)

        def forget(self, name: str) -> None:
            calls.append(f"forgot {name}")

    placement = Placement((0, 0), (0,), one_thread=True)
    held = ExitStack()
    held.callback(FakeAdmission(calls).release)
    made = PreparedGuest("g", "<x/>", "", placement, None, None, held, None, None)
    hypervisor = cast(Hypervisor, FakeHypervisor())
    with started(hypervisor, machine, made) as (_, memory, _):
        yield memory


LEFT = ["memory let go", "ended", "forgot g", "released"]


def test_a_guest_is_proved_before_it_runs_and_nothing_of_it_is_left(
    machine: Machine, calls: list[str]
) -> None:
    with running(machine, calls):
        assert calls == ["started g", "proved", "asked", "resumed"]
    assert calls[4:] == LEFT


def test_nothing_is_left_either_of_one_whose_end_is_an_error(
    machine: Machine, calls: list[str]
) -> None:
    with pytest.raises(KeyboardInterrupt), running(machine, calls):
        raise KeyboardInterrupt
    assert calls[4:] == LEFT


def test_one_that_does_not_start_gives_back_what_it_took(
    machine: Machine, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int, sizes: Any, *, writable: bool) -> HeldMemory:
        raise HostError(json.dumps([pid, sizes]))

    monkeypatch.setattr(start, "hold_memory", refuse)
    with pytest.raises(HostError, match=r"\[7, \[\d+, \d+\]\]"), running(machine, calls):
        pytest.fail("it ran")
    assert calls == ["started g", "ended", "forgot g", "released"]


def test_anonymous_memory_is_found_by_its_addresses(machine: Machine, calls: list[str]) -> None:
    with running(replace(machine, pages="anonymous"), calls) as memory:
        sizes = [node.memory_mib << 20 for node in machine.topology.nodes]
        assert memory.ranges[0] == (0x7F0000000000, sizes[0])
        assert memory.ranges[1] == (0x7F0000000000 + sizes[0], sizes[1])


@pytest.mark.parametrize(
    ("pages", "note"),
    [
        ("anonymous", "its trace was in anonymous memory, which ended with QEMU"),
        ("memfd", "its trace memory could not be kept"),
    ],
)
def test_trace_memory_that_was_not_kept_is_not_read(
    machine: Machine, tmp_path: Path, pages: PageKind, note: str
) -> None:
    lost = cast(End, SimpleNamespace(phase_began={"boot": 1.0, "workload": 2.0}))
    guest = replace(machine, pages=pages)
    rescue = rescue_trace(cast(Hypervisor, None), guest, JOB, RunDir(tmp_path / "run"), lost)
    assert rescue.note == note
