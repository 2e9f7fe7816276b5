"""Guests that misbehave: the right error, everything kept, nothing left running."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from guest_types import LIMITS, Boot, MakeMachine

from lab.errors import GuestLost, HostError
from lab.machine import console, embed
from lab.machine.console import Beat
from lab.machine.hypervisor import connect
from lab.machine.jobdisk import Bounds, read_job_disk
from lab.machine.machine import Job, Machine
from lab.machine.run import run_guest
from lab.machine.watch import Limits
from lab.process import find_program, run
from lab.store import RunDir

EVENTS = ("sched:sched_switch",)
MARK = "/usr/lib/numalab/marker"
# Not `sleep`: in icount mode an idle guest's time passes at once.
BUSY = "while :; do :; done"


def qemus(mark: str) -> list[int]:
    """The QEMU processes whose command line holds `mark`, a path of the test."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = path.read_bytes().decode("utf-8", "replace")
            if "qemu-system" in command.split("\0")[0] and mark in command:
                found.append(int(path.parent.name))
    return found


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert qemus(str(tmp_path)) == []
    assert connect().guests == ()
    assert not [path for path in tmp_path.rglob(".*") if path.name not in (".", "..")]


def lose(machine: Machine, script: str, run_dir: RunDir, limits: Limits = LIMITS) -> GuestLost:
    with pytest.raises(GuestLost) as caught:
        run_guest(machine, Job(("sh", "-c", script), events=EVENTS), run_dir, limits=limits)
    assert caught.value.kept == run_dir.path
    assert run_dir.console.stat().st_size > 1000
    return caught.value


def trace_text(run_dir: RunDir) -> str:
    program = find_program("trace-cmd", "trace-cmd")
    return run([program, "report", "-N", run_dir.trace]).stdout


def test_a_panic_keeps_the_trace_up_to_it(make_machine: MakeMachine, tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / "run")
    script = f"echo early; {MARK} 'numalab: before the panic'; echo c >/proc/sysrq-trigger"
    lost = lose(make_machine(), script, run_dir)
    assert lost.exit_code == 4
    assert lost.reason.startswith("the guest's kernel panicked: ")
    assert "Kernel panic - not syncing: sysrq triggered crash" in lost.tail
    text = trace_text(run_dir)
    assert "numalab: before the panic" in text and "sched_switch" in text
    assert run_dir.trace_memory.stat().st_size == 32 << 20
    assert (run_dir.out / "stdout").read_text() == "early\n"
    assert not run_dir.rescue.path.exists()


def test_a_hang_is_noticed_by_its_silence(make_machine: MakeMachine, tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / "run")
    script = f"{MARK} 'numalab: before the hang'; kill -STOP $(pidof numalab-beat); {BUSY}"
    lost = lose(make_machine(), script, run_dir, Limits(boot=120, silence=8, total=400))
    assert lost.reason.startswith("the guest has been silent for 8 s (phase: workload")
    assert "numalab: before the hang" in trace_text(run_dir)


def test_a_guest_that_never_ends(make_machine: MakeMachine, tmp_path: Path) -> None:
    machine = replace(make_machine(), trace_memory_mib=0)
    lost = lose(machine, BUSY, RunDir(tmp_path / "run"), Limits(120, 120, total=14))
    assert lost.reason.startswith("the guest was not done after 14 s")


def test_a_kernel_that_never_reaches_its_init(make_machine: MakeMachine, tmp_path: Path) -> None:
    machine = replace(make_machine(), extra_cmdline=("init=/no/such/init",))
    lost = lose(machine, "true", RunDir(tmp_path / "run"))
    assert "Requested init /no/such/init failed" in lost.reason
    assert "the guest was lost before the recording began" in lost.reason


def test_qemu_killed(make_machine: MakeMachine, tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / "run")
    seen: list[Beat] = []

    def kill(beat: Beat) -> None:
        # At the second beat of the workload, when the marker has been written for sure.
        seen.append(beat)
        if [each.phase for each in seen[-2:]] == ["workload", "workload"]:
            for pid in qemus(str(run_dir.path)):
                os.kill(pid, signal.SIGKILL)

    job = Job(("sh", "-c", f"{MARK} 'numalab: alive'; {BUSY}"), events=EVENTS)
    with pytest.raises(GuestLost) as caught:
        run_guest(make_machine(), job, run_dir, limits=LIMITS, on_beat=kill)
    assert caught.value.reason.startswith("QEMU was killed by SIGKILL")
    assert "numalab: alive" in trace_text(run_dir)
    assert "qemu-system-x86_64" in run_dir.qemu_log.read_text()


@pytest.mark.parametrize(("letter", "said"), [("o", "Power down"), ("b", "Resetting")])
def test_a_guest_that_goes_off_or_reboots_early(
    make_machine: MakeMachine, tmp_path: Path, letter: str, said: str
) -> None:
    run_dir = RunDir(tmp_path / "run")
    machine = replace(make_machine(), trace_memory_mib=0)
    lost = lose(machine, f"echo {letter} >/proc/sysrq-trigger; {BUSY}", run_dir)
    assert lost.reason.startswith("the guest powered off before its command had ended")
    assert said in run_dir.console.read_text()


def test_a_full_job_disk(boot: Boot, make_machine: MakeMachine) -> None:
    machine = replace(make_machine(), job_disk_mib=8, trace_memory_mib=0)
    outcome, run_dir = boot("sh", "-c", "dd if=/dev/zero bs=64k; exit 7", machine=machine)
    assert outcome.status == 7
    assert (run_dir.out / "stdout").stat().st_size > 4 << 20


def test_a_console_flood_is_bounded(
    boot: Boot, make_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "LARGEST_FILE", 1 << 20)
    monkeypatch.setattr(console, "KEPT_OF_FLOOD", 100_000)
    script = (
        "head -c 3000000 /dev/zero | tr '\\0' x >/dev/ttyS0;"
        "head -c 100000 /dev/zero | tr '\\0' y >/dev/ttyS1; echo >/dev/ttyS1; echo alive"
    )
    outcome, run_dir = boot("sh", "-c", script, machine=make_machine())
    assert outcome.status == 0
    assert (run_dir.out / "stdout").read_text() == "alive\n"
    assert run_dir.console.stat().st_size < 2 << 20
    assert "Power down" in run_dir.console.read_text()[-2000:]
    text = "\n".join(outcome.notes)
    assert "its console is cut" in text and "were not beats" in text


def test_a_hostile_guest_leaves_only_plain_files(boot: Boot, make_machine: MakeMachine) -> None:
    script = """
        cd /job/out
        ln -s /etc/passwd link; ln -s ../../../../tmp up; mknod disk b 8 0; mkfifo pipe
        truncate -s 1T bomb; mkdir -p 'a b' many; touch 'a b/x' -- '-rf' "$(printf 'new\\nline')"
        i=0; while [ $i -lt 3000 ]; do : >many/$i; i=$((i+1)); done
        echo fine >fine
    """
    outcome, run_dir = boot("sh", "-c", script, machine=make_machine())
    assert (run_dir.out / "fine").read_text() == "fine\n"
    names = {path.name for path in run_dir.out.rglob("*")}
    assert not names & {"link", "up", "disk", "pipe", "bomb", "x", "-rf"}
    assert all(path.is_file() or path.is_dir() for path in run_dir.out.rglob("*"))
    assert not any(path.is_symlink() for path in run_dir.out.rglob("*"))
    assert sum(1 for _ in run_dir.out.rglob("*")) <= Bounds().entries
    assert any("bomb" in note for note in outcome.notes)


def test_a_missing_image_is_a_host_error(make_machine: MakeMachine, tmp_path: Path) -> None:
    machine = replace(make_machine(), rootfs=tmp_path / "none.erofs")
    with pytest.raises(HostError, match=r"none\.erofs"):
        run_guest(machine, Job(("true",)), RunDir(tmp_path / "run"))


def test_a_kernel_that_qemu_cannot_load(make_machine: MakeMachine, tmp_path: Path) -> None:
    bad = tmp_path / "bzImage"
    bad.write_bytes(b"no kernel")
    with pytest.raises(HostError, match="the guest could not be started"):
        run_guest(replace(make_machine(), bzimage=bad), Job(("true",)), RunDir(tmp_path / "run"))


@pytest.fixture
def cache() -> Iterator[Path]:
    """A cache folder with a name short enough for libvirt's sockets."""
    with tempfile.TemporaryDirectory(prefix="numalab-test-") as folder:
        yield Path(folder)


CHILD = """
    import signal, sys
    from pathlib import Path
    from lab.machine.machine import Job, Machine
    from lab.machine.run import run_guest
    from lab.store import RunDir
    from lab.topology.load import load_topology

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    bzimage, rootfs, run_dir = map(Path, sys.argv[1:4])
    machine = Machine(load_topology("ring-2"), bzimage, rootfs, "icount", 1, "child")
    job = Job(("sh", "-c", "echo started; while :; do :; done"), events=("sched:sched_switch",))

    def tell(beat):
        if beat.phase == "workload":
            print("workload", flush=True)

    run_guest(machine, job, RunDir(run_dir), on_beat=tell)
"""


@contextlib.contextmanager
def child(machine: Machine, run_dir: Path, cache: Path) -> Iterator["subprocess.Popen[str]"]:
    """Run a guest in another process, and yield when its workload runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), machine.bzimage, machine.rootfs, run_dir],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "NUMALAB_CACHE": str(cache)},
        start_new_session=True,
    )
    timer = threading.Timer(180, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "workload\n"
        time.sleep(1.0)
        yield process
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_guest_and_keeps_what_there_was(
    make_machine: MakeMachine, tmp_path: Path, cache: Path, number: signal.Signals
) -> None:
    run_dir = RunDir(tmp_path / "run")
    with child(make_machine(), run_dir.path, cache) as process:
        assert len(qemus(str(run_dir.path))) == 1
        process.send_signal(number)
        assert process.wait(60) != 0
    assert qemus(str(run_dir.path)) == []
    assert (run_dir.out / "stdout").read_text() == "started\n"
    assert run_dir.trace_memory.exists() and run_dir.console.stat().st_size > 1000


def test_the_next_start_ends_what_a_killed_numalab_left(
    make_machine: MakeMachine, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with child(make_machine(), tmp_path / "dead", cache) as process:
        process.kill()
        process.wait()
    assert len(qemus(str(tmp_path / "dead"))) == 1
    with child(make_machine(), tmp_path / "alive", cache) as other:
        assert qemus(str(tmp_path / "dead")) == []
        # A third one finds the second's guest, which has an owner, and lets it be.
        monkeypatch.setenv("NUMALAB_CACHE", str(cache))
        embed.take_root().release()
        assert len(qemus(str(tmp_path / "alive"))) == 1
        other.send_signal(signal.SIGINT)
        other.wait(60)
    assert qemus(str(tmp_path / "alive")) == []


def test_reading_the_disk_of_a_lost_guest_again(make_machine: MakeMachine, tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / "run")
    lose(
        replace(make_machine(), trace_memory_mib=0), "echo x; echo c >/proc/sysrq-trigger", run_dir
    )
    collected = read_job_disk(run_dir.job_disk, tmp_path / "again")
    assert collected.files["stdout"] == 2
