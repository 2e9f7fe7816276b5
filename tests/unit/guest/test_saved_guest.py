"""Saved guests: what decides a state is in its name, and a damaged one is never used."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.artifact.digest import hash_file
from numalab.guest.saved_guest_artifact import read_saved, saved_digest
from numalab.machine.model import NVDIMM_ALIGNMENT, Job, Machine
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology

JOB = Job(("sh", "session.sh"), mode="shell")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    rootfs, qemu, kernel = (tmp_path / name for name in ("root.erofs", "qemu", "bzImage"))
    with rootfs.open("wb") as file:
        file.truncate(NVDIMM_ALIGNMENT)
    qemu.write_bytes(b"qemu")
    kernel.write_bytes(b"kernel")
    return Machine(load_topology("ring-2"), kernel, rootfs, "icount", 1, "m", emulator=qemu)


def test_a_state_is_for_one_machine_kernel_emulator_job_and_seed(
    machine: Machine, tmp_path: Path
) -> None:
    kernel, qemu = tmp_path / "other-kernel", tmp_path / "other-qemu"
    kernel.write_bytes(b"patched")
    qemu.write_bytes(b"newer")
    digests = {
        saved_digest(machine, JOB),
        saved_digest(replace(machine, topology=load_topology("mesh-2")), JOB),
        saved_digest(replace(machine, bzimage=kernel), JOB),
        saved_digest(replace(machine, initrd=kernel), JOB),
        saved_digest(replace(machine, emulator=qemu), JOB),
        saved_digest(replace(machine, seed=2), JOB),
        saved_digest(replace(machine, extra_cmdline=("nosmt",)), JOB),
        saved_digest(replace(machine, mode="tcg"), JOB),
        saved_digest(machine, replace(JOB, events=("sched:sched_switch",))),
        saved_digest(machine, replace(JOB, files={"session.sh": b"newer"})),
    }
    assert len(digests) == 10


def test_where_the_host_has_its_files_and_cpus_decides_nothing(
    machine: Machine, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    moved.write_bytes(machine.bzimage.read_bytes())
    elsewhere = replace(machine, bzimage=moved, name="m-2", host_cpus=(0,))
    assert saved_digest(elsewhere, JOB) == saved_digest(machine, JOB)


@pytest.fixture
def saved(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path / "saved")
    run_dir.path.mkdir()
    files = (run_dir.saved_state, run_dir.job_disk, run_dir.console, run_dir.heartbeat)
    for path in files:
        path.write_bytes(path.name.encode() * 100)
    hashes = {path.name: hash_file(path) for path in files}
    (run_dir.path / "saved.json").write_text(json.dumps({"machine": "m", "sha256": hashes}))
    return run_dir


def test_a_whole_state_is_used(saved: RunDir) -> None:
    assert read_saved(saved.path) == saved


@pytest.mark.parametrize("name", ["state", "job.img", "console.log", "heartbeat.jsonl"])
@pytest.mark.parametrize("damage", ["flipped", "short", "gone"])
def test_a_damaged_state_is_not_used(saved: RunDir, name: str, damage: str) -> None:
    path = saved.path / name
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data if damage == "flipped" else data[:-1])
    assert read_saved(saved.path) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"machine": "m", "sha256": {}}'])
def test_a_state_with_a_damaged_record_is_not_used(saved: RunDir, text: str) -> None:
    (saved.path / "saved.json").write_text(text)
    assert read_saved(saved.path) is None


def test_there_is_no_state(tmp_path: Path) -> None:
    assert read_saved(tmp_path / "nothing") is None
