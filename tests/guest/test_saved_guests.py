"""Sessions that continue a saved guest, and what happens when they cannot."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from numalab.api import machine
from numalab.artifact.digest import hash_file
from numalab.guest.saved_guest_artifact import read_saved
from numalab.image.image_artifact import BuiltImage
from numalab.kernel.kernel_build import BuiltKernel
from numalab.programs.machines import LabMachine
from numalab.run_dir import RunDir

BOOT_LOG = ["sh", "-c", "busybox dmesg"]


@pytest.fixture(scope="module", params=["tcg"])
def ring(request: pytest.FixtureRequest, kernel: BuiltKernel, image: BuiltImage) -> LabMachine:
    return machine("ring-4", mode=request.param)


@pytest.fixture
def cache(ring: LabMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, for saved guests; `ring` has its kernel and image."""
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/saved-guests"


def boot_log(ring: LabMachine, *, cold: bool = False) -> str:
    """What the kernel said while it booted, with its time stamps: in tcg, no boot is another."""
    with ring.boot(cold=cold) as guest:
        assert guest.run(["numactl", "-H"]).check().stdout.startswith("available: 4 nodes")
        return guest.run(BOOT_LOG).check().stdout.partition("Run /")[0]


def saved_guests(cache: Path) -> list[Path]:
    return sorted(path for path in cache.glob("[!.]*") if path.is_dir())


def test_later_guests_continue_where_the_first_was_saved(ring: LabMachine, cache: Path) -> None:
    logs = [boot_log(ring) for _ in range(3)]
    assert "Linux version 6.12" in logs[0]
    assert logs[0] == logs[1] == logs[2]
    assert len(saved_guests(cache)) == 1
    assert boot_log(ring, cold=True) != logs[0]


@pytest.mark.parametrize("ring", ["icount"], indirect=True)
def test_what_a_guest_does_is_not_in_the_next_one(ring: LabMachine, cache: Path) -> None:
    with ring.boot() as first, ring.boot() as second:
        first.run(["sh", "-c", "echo 1 >/tmp/left; echo 1 >/job/left; sync"]).check()
        assert second.run(["ls", "/tmp/left", "/job/left"]).status == 2
    with ring.boot() as third:
        assert third.run(["ls", "/tmp/left", "/job/left"]).status == 2
        filled = third.run(["sh", "-c", "yes | head -c 80m >/tmp/x; wc -c </tmp/x"]).check()
        assert filled.stdout == f"{80 << 20}\n"


@pytest.mark.parametrize("damage", ["flipped", "refused"])
def test_a_damaged_state_is_replaced(ring: LabMachine, cache: Path, damage: str) -> None:
    boot_log(ring)
    saved = RunDir(saved_guests(cache)[0])
    data = bytearray(saved.saved_state.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
        saved.saved_state.write_bytes(data)
    else:  # whole by its record, but nothing that QEMU takes
        saved.saved_state.write_bytes(data[: len(data) // 2])
        record = saved.path / "saved.json"
        values = json.loads(record.read_text())
        values["sha256"]["state"] = hash_file(saved.saved_state)
        record.write_text(json.dumps(values))
    damaged = saved.saved_state.read_bytes()
    again = [boot_log(ring) for _ in range(3)][1:]
    assert again[0] == again[1]
    assert read_saved(saved.path) == saved
    assert saved.saved_state.read_bytes() != damaged


SESSION = """
import sys
from numalab.api import machine
with machine("ring-4", mode=sys.argv[1]).boot() as guest:
    print(guest.run(["numactl", "-H"]).check().stdout, flush=True)
"""


def test_a_killed_lab_leaves_nothing_that_looks_whole(ring: LabMachine, cache: Path) -> None:
    """Kill a process at many moments of saving and loading; the next one works."""
    boot_log(ring)
    base = cache.parent
    shared = Path(ring.builds.image.path).parents[2]
    for name in ("kernels", "images", "files", "packages", "apt"):
        if (shared / name).exists() and not (base / name).exists():
            (base / name).symlink_to(shared / name)
    argv = [sys.executable, "-c", SESSION, ring.mode]
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    whole = time.monotonic() - began
    for part in range(1, 8):
        if part % 3 == 0:
            for saved in saved_guests(cache):
                RunDir(saved).saved_state.unlink(missing_ok=True)  # the next one saves
        running = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(whole * part / 7)
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
    assert boot_log(ring) == boot_log(ring)
    assert len(saved_guests(cache)) == 1
    # The next process of this cache ends the guests of those that were killed.
    assert subprocess.run(argv, capture_output=True, check=False).returncode == 0
    assert running_in(base) == []


def running_in(folder: Path) -> list[str]:
    """Return the command lines of processes that name a folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            lines.append(path.read_text(errors="replace").replace("\0", " "))
    return [line for line in lines if f"{folder}/" in line]
