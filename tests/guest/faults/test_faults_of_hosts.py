"""What goes wrong around a guest: QEMU, the disk, libvirt, and numalab itself."""

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

from numalab.errors import GuestLost, HostError, LossCause
from numalab.guest.console import Beat
from numalab.guest.run import run_guest
from numalab.machine.model import Job, Machine
from numalab.process import run
from numalab.qemu import embed
from numalab.qemu.hypervisor import connect
from numalab.run_dir import RunDir
from support.guest_faults import BUSY, EVENTS, MARK, qemus, trace_text
from support.guest_types import LIMITS, Boot, MakeMachine

NUMALAB = [sys.executable, "-c", "from numalab.cli.entry import main; main()"]
READY_SECONDS = 180


def test_qemu_killed(make_machine: MakeMachine, tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / "run")
    beats: list[Beat] = []

    def kill(beat: Beat) -> None:
        # At the second beat of the workload, when the marker has been written for sure.
        beats.append(beat)
        if [beat.phase for beat in beats[-2:]] == ["workload", "workload"]:
            for pid in qemus(str(run_dir.path)):
                os.kill(pid, signal.SIGKILL)

    job = Job(("sh", "-c", f"{MARK} 'numalab: alive'; {BUSY}"), events=EVENTS)
    with pytest.raises(GuestLost) as caught:
        run_guest(make_machine(), job, run_dir, limits=LIMITS, on_beat=kill)
    assert caught.value.reason.startswith("QEMU was killed by SIGKILL")
    assert caught.value.cause is LossCause.HOST
    assert "numalab: alive" in trace_text(run_dir)
    assert "qemu-system-x86_64" in run_dir.qemu_log.read_text()


def test_a_disk_that_fills_while_the_guest_runs(make_machine: MakeMachine, tmp_path: Path) -> None:
    """QEMU drops what it cannot write; that is told, and not taken for a silent guest."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    small = tmp_path / "small"
    small.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", small])
    machine = replace(make_machine(), job_disk_mib=8, trace_memory_mib=0)

    def fill(beat: Beat) -> None:
        if beat.phase == "workload":
            with contextlib.suppress(OSError), (small / "other").open("wb") as file:
                file.write(b"x" * (12 << 20))

    try:
        with pytest.raises(HostError, match="no space left for ") as caught:
            job = Job(("sh", "-c", BUSY))
            run_guest(machine, job, RunDir(small / "run"), limits=LIMITS, on_beat=fill)
        assert "hint: " in str(caught.value)
        assert (small / "run" / "console.log").stat().st_size > 1000
    finally:
        run(["umount", small])


def test_a_lost_connection_to_libvirt(
    boot: Boot, make_machine: MakeMachine, tmp_path: Path
) -> None:
    """The guest is ended, what there was is kept, and the next one gets a new connection."""
    run_dir = RunDir(tmp_path / "lost")
    hypervisor = connect()

    def lose_it(beat: Beat) -> None:
        if beat.phase == "workload":
            hypervisor.on_close()

    job = Job(("sh", "-c", f"echo started; {BUSY}"), events=EVENTS)
    with pytest.raises(HostError, match="the connection to libvirt was lost"):
        run_guest(make_machine(), job, run_dir, limits=LIMITS, on_beat=lose_it)
    assert qemus(str(tmp_path)) == []
    assert run_dir.trace_memory.exists() and run_dir.console.stat().st_size > 1000
    outcome, _ = boot("true")
    assert outcome.status == 0
    assert connect() is not hypervisor


def test_a_missing_image_is_a_host_error(make_machine: MakeMachine, tmp_path: Path) -> None:
    machine = replace(make_machine(), rootfs=tmp_path / "none.erofs")
    with pytest.raises(HostError, match=r"none\.erofs"):
        run_guest(machine, Job(("true",)), RunDir(tmp_path / "run"))


def test_a_kernel_that_qemu_cannot_load(make_machine: MakeMachine, tmp_path: Path) -> None:
    bad = tmp_path / "bzImage"
    bad.write_bytes(b"no kernel")
    with pytest.raises(HostError, match="the guest could not be started"):
        run_guest(replace(make_machine(), bzimage=bad), Job(("true",)), RunDir(tmp_path / "run"))


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_an_interrupt_ends_the_guest_and_keeps_what_there_was(
    make_machine: MakeMachine, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    make_machine()  # the kernel and the image are there
    run_dir = RunDir(tmp_path / "run")
    # A process that was started with nohup(1) ignores SIGHUP, and so do its children.
    program = ["env", "--default-signal=HUP", *NUMALAB]
    command = [*program, "boot", "ring-2", "--mode", "icount", "--event", *EVENTS]
    process = subprocess.Popen(
        [*command, "--keep", str(run_dir.path), "--", "sh", "-c", f"echo started; {BUSY}"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + READY_SECONDS
        # At the second beat of the workload it runs for sure.
        while _read(run_dir.heartbeat).count('"workload"') < 2:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        assert len(qemus(str(run_dir.path))) == 1
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == code
    assert "numalab: interrupted" in stderr and "Traceback" not in stderr
    assert run_dir.trace_memory.exists() and run_dir.console.stat().st_size > 1000
    assert run_dir.stdout.read_text() == "started\n"


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.fixture
def cache() -> Iterator[Path]:
    """A cache folder with a name short enough for libvirt's sockets."""
    with tempfile.TemporaryDirectory(prefix="numalab-test-") as folder:
        yield Path(folder)


CHILD = """
    import sys
    from pathlib import Path
    from numalab.machine.model import Job, Machine
    from numalab.guest.run import run_guest
    from numalab.run_dir import RunDir
    from numalab.topology.load import load_topology

    bzimage, rootfs, run_dir = map(Path, sys.argv[1:4])
    machine = Machine(load_topology("ring-2"), bzimage, rootfs, "icount", 1, "child")
    job = Job(("sh", "-c", "while :; do :; done"), events=("sched:sched_switch",))

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
    timer = threading.Timer(READY_SECONDS, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "workload\n"
        yield process
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


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
