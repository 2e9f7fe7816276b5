"""Saved guests: what decides a state is in its name, and a damaged one is never used."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.artifact.kinds import entry_lock
from numalab.errors import HostError
from numalab.guest import saved_guest_artifact
from numalab.guest.hold import turns_left
from numalab.guest.saved_guest_artifact import (
    SavedGuest,
    mapped_files,
    read_saved,
    save_when_held,
    saved_entry,
)
from numalab.locks import locked
from numalab.machine.memory import HeldMemory, read_blocks, write_blocks
from numalab.machine.model import NVDIMM_ALIGNMENT, Machine, Plugin
from numalab.qemu.guest import Guest
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology

CMDLINE = "console=ttyS0 NUMALAB_HOLD=1"
BLOCK = 64 << 10
MIB = 1 << 20


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    rootfs, qemu, kernel = (tmp_path / name for name in ("root.erofs", "qemu", "bzImage"))
    with rootfs.open("wb") as file:
        file.truncate(NVDIMM_ALIGNMENT)
    qemu.write_bytes(b"qemu")
    kernel.write_bytes(b"kernel")
    return Machine(load_topology("ring-2"), kernel, rootfs, "icount", 1, "m", emulator=qemu)


def entry_of(machine: Machine, cmdline: str = CMDLINE) -> Path:
    entry = saved_entry(machine, cmdline, machine.emulator)
    assert entry is not None
    return entry


def counting(folder: Path, sites: bytes) -> Plugin:
    program, counts = folder / "reach.so", folder / f"counts-{sites.hex()}"
    program.write_bytes(b"plugin")
    counts.write_bytes(sites)
    return Plugin(program, {"counts": str(counts)}, mapped=counts)


def test_a_state_is_for_one_machine_kernel_emulator_and_command_line(
    machine: Machine, tmp_path: Path
) -> None:
    kernel, qemu = tmp_path / "other-kernel", tmp_path / "other-qemu"
    kernel.write_bytes(b"patched")
    qemu.write_bytes(b"newer")
    entries = {
        entry_of(machine),
        entry_of(machine, f"{CMDLINE} nosmt"),
        entry_of(replace(machine, topology=load_topology("mesh-2"))),
        entry_of(replace(machine, bzimage=kernel)),
        entry_of(replace(machine, initrd=kernel)),
        entry_of(replace(machine, emulator=qemu)),
        entry_of(replace(machine, mode="tcg")),
        saved_entry(machine, CMDLINE, machine.emulator, interactive=True),
        entry_of(replace(machine, job_disk_mib=64)),
        entry_of(replace(machine, plugins=(counting(tmp_path, b"1"),))),
        entry_of(replace(machine, plugins=(counting(tmp_path, b"2"),))),
    }
    assert len(entries) == 11


def test_neither_the_seed_nor_where_the_host_has_its_files_decides_anything(
    machine: Machine, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    moved.write_bytes(machine.bzimage.read_bytes())
    elsewhere = replace(machine, bzimage=moved, name="m-2", host_cpus=(0,), seed=99)
    assert entry_of(elsewhere) == entry_of(machine)


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "kvm"},
        {"pages": "2M"},
        {"gdb": Path("gdb.socket")},
        {"plugins": (Plugin(Path("counts-outside.so")),)},
    ],
)
def test_some_machines_always_boot(machine: Machine, change: dict[str, object]) -> None:
    other = replace(machine, **change)  # type: ignore[arg-type]
    assert saved_entry(other, CMDLINE, other.emulator) is None


@pytest.mark.parametrize(("version", "saved"), [((7, 2), False), ((10, 0), True), ((), False)])
def test_mode_timed_needs_an_emulator_that_saves_its_clocks(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], saved: bool
) -> None:
    monkeypatch.setattr(saved_guest_artifact, "qemu_version", lambda _: version)
    timed = replace(machine, mode="timed")
    assert (saved_entry(timed, CMDLINE, timed.emulator) is not None) is saved


def test_a_model_that_begins_anew_decides_by_its_code_and_parameters(
    machine: Machine, tmp_path: Path
) -> None:
    program, parameters, changed = (tmp_path / name for name in ("memory.so", "first", "second"))
    for path in (program, parameters, changed):
        path.write_bytes(path.name.encode())
    first = Plugin(program, {"counts": "run-1/counts"}, begins_anew=parameters)
    model = replace(machine, plugins=(first,))
    moved = replace(first, arguments={"counts": "run-2/counts"})
    assert entry_of(replace(model, plugins=(moved,))) == entry_of(model)
    assert entry_of(replace(model, memory_model=program)) == entry_of(model)
    second = replace(model, plugins=(replace(first, begins_anew=changed),))
    assert len({entry_of(model), entry_of(second), entry_of(machine)}) == 3


def registers(*cpus: tuple[int, int, int, int], turns: int = 0) -> str:
    """What QEMU's monitor prints, with R12, R13, CPL and HLT of each CPU, and turns in R14."""
    return "".join(
        f"\r\nCPU#{number}\r\nRAX=0000000000000000 R11=0000000000000246\r\n"
        f"R12={r12:016x} R13={r13:016x} R14={turns:016x}\r\n"
        f"RIP=0000000000401671 RFL=00000246 [---Z-P-] CPL={cpl} II=0 A20=1 SMM=0 HLT={hlt}\r\n"
        for number, (r12, r13, cpl, hlt) in enumerate(cpus)
    )


LOOP = (0x6E756D616C616221, 0x7374617274206D65, 3, 0)
HALTED = (5, 6, 0, 1)


def test_a_guest_is_held_if_its_first_cpu_is_in_the_loop_and_the_others_halted() -> None:
    assert turns_left(registers(LOOP, HALTED, HALTED), 3) == 0
    assert turns_left(registers(LOOP), 1) == 0
    assert turns_left(registers(LOOP, turns=24_000), 1) == 24_000


@pytest.mark.parametrize(
    ("cpus", "count"),
    [
        ((LOOP, HALTED), 3),  # QEMU did not print all
        ((LOOP, HALTED, (5, 6, 0, 0)), 3),  # one is awake
        (((*LOOP[:2], 0, 0), HALTED), 2),  # an interrupt in the loop
        (((LOOP[0], 1, 3, 0), HALTED), 2),
        ((HALTED, LOOP), 2),
        ((HALTED, HALTED), 2),
    ],
)
def test_else_it_is_not(cpus: tuple[tuple[int, int, int, int], ...], count: int) -> None:
    assert turns_left(registers(*cpus), count) is None


@given(st.text())
def test_whatever_the_monitor_prints(text: str) -> None:
    assert turns_left(text, 2) is None


def memfd(*blocks: tuple[int, bytes], size: int = 4 * MIB) -> int:
    descriptor = os.memfd_create("memory")
    os.ftruncate(descriptor, size)
    for number, data in blocks:
        os.pwrite(descriptor, data, number * BLOCK)
    return descriptor


def test_memory_comes_back_without_its_zeros(tmp_path: Path) -> None:
    memory = memfd((0, b"a"), (3, b"b" * BLOCK), (4, bytes(BLOCK)), (63, b"c" * BLOCK))
    numbers = write_blocks(memory, tmp_path / "node0")
    assert numbers == (0, 3, 63)
    assert (tmp_path / "node0").stat().st_size == 3 * BLOCK
    copy = memfd()
    read_blocks(tmp_path / "node0", numbers, copy)
    assert os.pread(copy, 4 * MIB, 0) == os.pread(memory, 4 * MIB, 0)
    with pytest.raises(OSError, match="too short"):
        read_blocks(tmp_path / "node0", (*numbers, 5), copy)


class FakeGuest(Guest):
    """A guest that is in its hold for some looks at its registers."""

    def __init__(self, *looks: bool) -> None:
        self.looks = list(looks)
        self.did: list[str] = []
        self.loaded: Path | None = None

    def registers(self) -> str:
        held = self.looks.pop(0) if self.looks else False
        return registers(LOOP if held else HALTED, *[HALTED] * 3, turns=4_000)

    def stop(self) -> None:
        self.did.append("stop")

    def resume(self) -> None:
        self.did.append("resume")

    def save_state(self, path: Path) -> None:
        self.did.append("save")
        path.write_bytes(b"state")

    def load_state(self, path: Path) -> None:
        self.loaded = path


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path / "run")
    run_dir.path.mkdir()
    run_dir.console.write_text("the kernel's log\n")
    run_dir.heartbeat.write_text('{"phase": "held", "uptime": 1.0}\n')
    return run_dir


def save(machine: Machine, guest: Guest, run_dir: RunDir) -> bool:
    memory = HeldMemory((memfd((1, b"x" * BLOCK)), memfd()))
    return save_when_held(entry_of(machine), machine, guest, memory, run_dir)


@pytest.fixture
def saved(machine: Machine, run_dir: RunDir, tmp_path: Path) -> SavedGuest:
    counted = replace(machine, plugins=(counting(tmp_path, b"sites"),))
    assert save(counted, FakeGuest(False, True, True, True), run_dir)
    guest = read_saved(entry_of(counted))
    assert guest is not None
    return guest


def test_a_saved_guest_gives_its_memory_logs_and_counts(saved: SavedGuest, tmp_path: Path) -> None:
    target, plugin = RunDir(tmp_path / "next"), counting(tmp_path, b"later")
    target.path.mkdir()
    saved.copy_files(target, (plugin,))
    assert target.console.read_text() == "the kernel's log\n"
    assert "held" in target.heartbeat.read_text()
    assert [path.read_bytes() for path in mapped_files((plugin,))] == [b"sites"]
    assert {path.stat().st_mode & 0o077 for path in target.path.iterdir()} == {0}
    guest, memory = FakeGuest(), HeldMemory((memfd(), memfd()))
    saved.load(guest, memory)
    assert os.pread(memory.fds[0], 3 * BLOCK, 0) == bytes(BLOCK) + b"x" * BLOCK + bytes(BLOCK)
    assert guest.loaded == saved.directory.saved_state
    saved.forget()
    assert read_saved(saved.directory.path) is None


def test_it_is_saved_while_it_is_stopped(machine: Machine, run_dir: RunDir) -> None:
    guest = FakeGuest(True, True, True)
    assert save(machine, guest, run_dir)
    assert guest.did == ["stop", "save", "resume"]
    again = FakeGuest(True, True, True)  # another process has saved it
    assert save(machine, again, run_dir)
    assert again.did == []


class Passing(FakeGuest):
    """A guest whose hold goes on from look to look."""

    def __init__(self, *turns: int) -> None:
        super().__init__()
        self.turns = turns
        self.looked = 0

    def registers(self) -> str:
        turns = self.turns[min(self.looked, len(self.turns) - 1)]
        self.looked += 1
        return registers(LOOP, *[HALTED] * 3, turns=turns)


@pytest.mark.parametrize(
    ("turns", "looks"),
    [
        ((22_000, 9_000, 5_000), 2),
        ((23_000, 21_500, 20_000, 5_000), 4),  # the host is fast
        ((9_000,), 1),  # slow
    ],
)
def test_it_is_saved_when_the_turns_of_a_few_looks_are_left(
    machine: Machine, run_dir: RunDir, turns: tuple[int, ...], looks: int
) -> None:
    guest = Passing(*turns)
    assert save(machine, guest, run_dir)
    assert guest.did == ["stop", "save", "resume"]
    assert guest.looked == looks + 2  # and once more when it is stopped, and when it goes on


def test_a_hold_that_is_not_met_is_not_tried_again_soon(machine: Machine, run_dir: RunDir) -> None:
    assert not save(machine, FakeGuest(), run_dir)
    guest = FakeGuest(True, True, True)
    assert save(machine, guest, run_dir)
    assert guest.did == []
    assert read_saved(entry_of(machine)) is None
    missed = next(entry_of(machine).parent.glob(".*.missed"))
    os.utime(missed, (0, 0))
    assert save(machine, FakeGuest(True, True, True), run_dir)
    assert read_saved(entry_of(machine)) is not None
    assert not missed.exists()


def test_a_guest_that_was_stopped_too_late_is_not_what_it_was(
    machine: Machine, run_dir: RunDir
) -> None:
    guest = FakeGuest(True, False)
    assert not save(machine, guest, run_dir)
    assert guest.did == ["stop", "resume"]
    assert read_saved(entry_of(machine)) is None


def test_a_guest_whose_hold_is_about_to_end_is_not_saved(machine: Machine, run_dir: RunDir) -> None:
    guest = Passing(6_000, 1_400)
    assert not save(machine, guest, run_dir)
    assert guest.did == ["stop", "resume"]
    assert read_saved(entry_of(machine)) is None


def test_a_guest_that_went_on_too_late_is_saved_and_not_what_it_was(
    machine: Machine, run_dir: RunDir
) -> None:
    guest = Passing(6_000, 5_000, 900)
    assert not save(machine, guest, run_dir)
    assert guest.did == ["stop", "save", "resume"]
    assert read_saved(entry_of(machine)) is not None


def test_a_full_disk_only_means_that_there_is_no_saved_guest(
    machine: Machine, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_self: Guest, _path: Path) -> None:
        raise HostError("no space")

    monkeypatch.setattr(FakeGuest, "save_state", full)
    guest = FakeGuest(True, True, True)
    assert save(machine, guest, run_dir)
    assert guest.did == ["stop", "resume"]
    assert list(entry_of(machine).parent.glob("[!.]*")) == []


def test_nothing_is_saved_on_a_disk_that_is_almost_full(
    machine: Machine, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numalab.guest.saved_guest_artifact.free_space", lambda _: 1 << 30)
    guest = FakeGuest(True, True, True)
    assert save(machine, guest, run_dir)
    assert guest.did == []


def test_only_one_process_saves(machine: Machine, run_dir: RunDir) -> None:
    guest = FakeGuest(True, True, True)
    with locked(entry_lock(entry_of(machine))):
        assert save(machine, guest, run_dir)
    assert guest.did == []


def test_the_entries_used_least_recently_go(machine: Machine, run_dir: RunDir) -> None:
    for number in range(42):
        other = replace(machine, job_disk_mib=2 * number + 2)
        assert save(other, FakeGuest(True, True, True), run_dir)
        os.utime(entry_of(other), (number, number))
    kept = sorted(entry_of(machine).parent.glob("[!.]*"), key=lambda path: path.stat().st_mtime)
    assert len(kept) == 40
    assert entry_of(replace(machine, job_disk_mib=2)) not in kept


@pytest.mark.parametrize("name", ["state", "node0", "node1", "console.log", "counts0"])
@pytest.mark.parametrize("damage", ["flipped", "short", "gone", "more"])
def test_a_damaged_state_is_not_used(saved: SavedGuest, name: str, damage: str) -> None:
    path = saved.directory.path / name
    data = bytearray(path.read_bytes() or b"?")
    if damage == "gone":
        path.unlink()
    elif damage == "flipped":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    else:
        path.write_bytes(data[:-1] if damage == "short" and len(data) > 1 else bytes(data) + b"?")
    assert read_saved(saved.directory.path) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"machine": "m", "sha256": {}, "blocks": {}}'])
def test_a_state_with_a_damaged_record_is_not_used(saved: SavedGuest, text: str) -> None:
    (saved.directory.path / "saved.json").write_text(text)
    assert read_saved(saved.directory.path) is None


def test_a_state_whose_blocks_do_not_fit_is_not_loaded(saved: SavedGuest) -> None:
    record = saved.directory.path / "saved.json"
    values = json.loads(record.read_text())
    values["blocks"] = {"node0": [1, 2, 3], "node1": []}
    record.write_text(json.dumps(values))
    damaged = read_saved(saved.directory.path)
    assert damaged is not None
    with pytest.raises(HostError, match="too short"):
        damaged.load(FakeGuest(), HeldMemory((memfd(), memfd())))


def test_the_state_of_another_user_is_not_used(
    saved: SavedGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert read_saved(saved.directory.path) is None
