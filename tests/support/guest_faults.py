"""What the tests of guests and hosts that misbehave share."""

import contextlib
import os
from pathlib import Path

import pytest

from numalab.errors import GuestLost
from numalab.guest.run import run_guest
from numalab.guest.watch import Limits
from numalab.machine.model import Job, Machine
from numalab.process import find_program, run
from numalab.run_dir import RunDir
from support.guest_types import LIMITS

EVENTS = ("sched:sched_switch",)
MARK = "/usr/lib/numalab/marker"
# Not `sleep`: in icount mode an idle guest's time passes at once.
BUSY = "while :; do :; done"


def qemus(mark: str) -> list[int]:
    """Return the QEMU processes whose command line holds `mark`, a path of the test."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = path.read_bytes().decode("utf-8", "replace")
            if "qemu-system" in command.split("\0")[0] and mark in command:
                pids.append(int(path.parent.name))
    return pids


def held_files(folder: Path) -> list[str]:
    """Return the files below `folder` that this process has open or locked."""
    names = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(link.readlink()).startswith(str(folder)):
                names.append(str(link.readlink()))
    inodes = {str(path.lstat().st_ino) for path in folder.rglob("*")}
    for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
        fields = line.split()
        if fields[4] == str(os.getpid()) and fields[5].split(":")[-1] in inodes:
            names.append(line)
    return names


def lose(
    machine: Machine,
    job: str | Job,
    run_dir: RunDir,
    limits: Limits = LIMITS,
) -> GuestLost:
    """Run a guest that is lost; a job that is a shell script records EVENTS."""
    if isinstance(job, str):
        job = Job(("sh", "-c", job), events=EVENTS)
    with pytest.raises(GuestLost) as caught:
        run_guest(machine, job, run_dir, limits=limits)
    lost = caught.value
    assert lost.exit_code == 4
    assert lost.kept == run_dir.path
    assert f"kept: {run_dir.path}" in str(lost)
    assert run_dir.console.stat().st_size > 1000
    return lost


def trace_text(run_dir: RunDir) -> str:
    """Return what trace-cmd makes of the trace that was kept."""
    program = find_program("trace-cmd", "trace-cmd")
    return run([program, "report", "-N", run_dir.trace]).stdout
