"""Guests that continue a saved one, and what happens when they cannot."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from numalab.api import machine
from numalab.artifact.digest import hash_file
from numalab.emulator.emulator_artifact import ensure_emulator
from numalab.emulator.emulator_specs import find_emulator
from numalab.emulator.memory_plugin_artifact import memory_plugin
from numalab.errors import HostError
from numalab.guest.run import run_guest
from numalab.guest.saved_guest_artifact import read_saved
from numalab.image.image_artifact import BuiltImage
from numalab.kernel.kernel_build import BuiltKernel
from numalab.machine.model import Job, Machine
from numalab.programs.machines import LabMachine
from numalab.run_dir import RunDir
from support.guest_types import LIMITS, MakeMachine

BOOT_LOG = ["sh", "-c", "busybox dmesg"]
MOST_BOOTS = 6  # until one of them is saved: on a busy host, a hold may be over too soon
HURRY = -15  # the nice value of who has to meet a hold, which takes a tenth of a second


@pytest.fixture(autouse=True)
def hurried() -> Iterator[None]:
    """Come before what else this host runs, if this user may."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        be_nice(HURRY)
    yield
    with suppress(PermissionError):
        be_nice(own)


def be_nice(value: int) -> None:
    """Set the nice value of all threads of this process, and of those that they will start."""
    for thread in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), value)


@pytest.fixture(scope="module", params=["tcg"])
def ring(request: pytest.FixtureRequest, kernel: BuiltKernel, image: BuiltImage) -> LabMachine:
    return machine("ring-4", mode=request.param)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, for saved guests."""
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/saved-guests"


def saved_guests(cache: Path) -> list[Path]:
    return sorted(path for path in cache.glob("[!.]*") if read_saved(path) is not None)


def boot_log(ring: LabMachine, *, cold: bool = False) -> str:
    """What the kernel said while it booted, with its time stamps: in tcg, no boot is another."""
    with ring.boot(cold=cold) as guest:
        assert guest.run(["numactl", "-H"]).check().stdout.startswith("available: 4 nodes")
        return guest.run(BOOT_LOG).check().stdout.partition("Run /")[0]


def try_again(cache: Path) -> None:
    """Let the next boot save its guest, even if the last one missed the hold."""
    for missed in cache.glob(".*.missed"):
        missed.unlink()


def save(ring: LabMachine, cache: Path) -> str:
    """Boot until a guest is saved, and return its log."""
    for _ in range(MOST_BOOTS):
        try_again(cache)
        log = boot_log(ring)
        if saved_guests(cache):
            return log
    raise AssertionError("no guest was saved")


def test_later_guests_continue_where_the_first_was_saved(ring: LabMachine, cache: Path) -> None:
    first = save(ring, cache)
    assert "Linux version 6.12" in first
    assert first == boot_log(ring) == boot_log(ring)
    assert len(saved_guests(cache)) == 1
    assert boot_log(ring, cold=True) != first


WORK = """
for task in 1 2 3 4 5; do (i=0; while [ $i -lt 4000 ]; do i=$((i+1)); done) & done; wait
cat /proc/schedstat /proc/uptime /proc/stat /proc/interrupts /proc/self/maps
head -c 64 /dev/urandom | md5sum
"""


@dataclass(frozen=True)
class Traced:
    """What a guest printed and recorded, the tables of its memory, and how long it booted."""

    stdout: bytes
    recording: bytes
    tables: tuple[bytes, ...]
    boot_seconds: float = field(compare=False)


def traced(machine: Machine, folder: Path) -> Traced:
    """Run `WORK`."""
    folder.mkdir()
    job = Job(("sh", "-c", WORK), events=("sched:sched_switch", "sched:sched_wakeup"))
    run_dir = RunDir(folder / "run")
    outcome = run_guest(machine, job, run_dir, limits=LIMITS)
    tables = (run_dir.memory_counts, run_dir.memory_traffic)
    return Traced(
        run_dir.stdout.read_bytes(),
        run_dir.trace.read_bytes(),
        tuple(table.read_bytes() for table in tables if machine.memory_model is not None),
        outcome.wall_seconds["boot"],
    )


@pytest.fixture(params=["icount ring-2", "icount mesh-8", "icount slow-memory-3", "timed ring-2"])
def guest(request: pytest.FixtureRequest, make_machine: MakeMachine) -> Machine:
    """A machine; in mode timed, with the emulator and the model of the shared cache."""
    mode, topology = request.param.split()
    machine = make_machine(topology, mode)
    if mode != "timed":
        return machine
    try:
        emulator = ensure_emulator(find_emulator())
    except HostError as error:
        pytest.skip(str(error))
    return replace(machine, emulator=emulator.program, memory_model=memory_plugin(emulator))


def test_a_guest_that_continues_does_to_the_byte_what_one_that_boots_does(
    guest: Machine, cache: Path, tmp_path: Path
) -> None:
    cold = traced(replace(guest, cold=True), tmp_path / "cold")
    assert not saved_guests(cache)
    runs = [traced(guest, tmp_path / "0")]
    while not saved_guests(cache) and len(runs) < MOST_BOOTS:
        try_again(cache)
        runs.append(traced(guest, tmp_path / str(len(runs))))
    warm = [traced(guest, tmp_path / f"warm-{number}") for number in range(2)]
    assert {cold, *runs, *warm} == {cold}
    assert saved_guests(cache), f"{len(runs)} guests, and none was saved"
    other = traced(replace(guest, seed=8), tmp_path / "seed")
    assert all(run.boot_seconds < cold.boot_seconds / 3 for run in (*warm, other))
    assert other.stdout != cold.stdout
    assert other.recording != cold.recording


@pytest.mark.parametrize("ring", ["icount"], indirect=True)
def test_what_a_guest_does_is_not_in_the_next_one(ring: LabMachine, cache: Path) -> None:
    save(ring, cache)
    with ring.boot() as first, ring.boot() as second:
        first.run(["sh", "-c", "echo 1 >/tmp/left; echo 1 >/job/left; sync"]).check()
        assert second.run(["ls", "/tmp/left", "/job/left"]).status == 2
    with ring.boot() as third:
        assert third.run(["ls", "/tmp/left", "/job/left"]).status == 2
        filled = third.run(["sh", "-c", "yes | head -c 80m >/tmp/x; wc -c </tmp/x"]).check()
        assert filled.stdout == f"{80 << 20}\n"


@pytest.mark.parametrize("file", ["state", "node1"])
@pytest.mark.parametrize("damage", ["flipped", "refused"])
def test_a_damaged_state_is_replaced(ring: LabMachine, cache: Path, file: str, damage: str) -> None:
    save(ring, cache)
    entry = saved_guests(cache)[0]
    path = entry / file
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    else:  # whole by its record, but nothing that starts
        path.write_bytes(data[: len(data) // 2])
        record = entry / "saved.json"
        values = json.loads(record.read_text())
        values["sha256"][file] = hash_file(path)
        record.write_text(json.dumps(values))
    damaged = path.read_bytes()
    boot_log(ring)  # by booting
    again = save(ring, cache)
    assert again == boot_log(ring)
    assert read_saved(entry) is not None
    assert path.read_bytes() != damaged


SESSION = """
import sys
from numalab.api import machine
with machine("ring-4", mode=sys.argv[1]).boot() as guest:
    print(guest.run(["numactl", "-H"]).check().stdout, flush=True)
"""


def test_a_killed_lab_leaves_nothing_that_looks_whole(
    ring: LabMachine, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill a process at many moments of saving and loading; the next one works."""
    base = cache.parent
    shared = Path(ring.builds.image.path).parents[2]
    base.mkdir()
    for name in ("kernels", "images", "files", "packages", "apt"):
        if (shared / name).exists():
            (base / name).symlink_to(shared / name)
    argv = [sys.executable, "-c", SESSION, ring.mode]
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    whole = time.monotonic() - began
    for part in range(1, 8):
        if part % 3 == 0:
            for entry in saved_guests(cache):
                (entry / "state").unlink()  # the next one saves
        running = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(whole * part / 7)
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
    assert save(ring, cache) == boot_log(ring)
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
