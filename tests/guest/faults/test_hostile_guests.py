"""A guest that means harm: it reaches nothing of the host, and leaves only what is harmless."""

import hashlib
import os
from pathlib import Path

import pytest

from numalab.guest import console
from numalab.guest.console import LARGEST_FILE, Beat
from numalab.guest.run import run_guest
from numalab.host.privilege import effective_capabilities
from numalab.machine.model import Job
from numalab.qemu.collect import Bounds
from numalab.run_dir import RunDir
from support.guest_faults import qemus
from support.guest_types import LIMITS, Boot, MakeMachine

_CAP_SYS_RESOURCE = 1 << 24  # linux/capability.h

# What it does, beside what it may: links, devices, names, a file of 1 TiB, thousands of files, and
# more names than files in a folder; then it tries its root, its network and its command's status.
HOSTILE = r"""
    cd /job/out
    ln -s /etc/passwd link; ln -s ../../../../tmp up; ln -s /etc dir; ln -sf /etc/passwd status
    mknod disk b 8 0; mknod null c 1 3; mkfifo pipe
    truncate -s 1T bomb; d=deep/b/c/d/e/f/g/h/i/j/k/l/below; mkdir -p 'a b' many $d; touch $d/x
    touch 'a b/x' -- '-rf' '..x' "$(printf 'new\nline')" "$(printf 'red\033[31m')"
    cd many; seq 3000 | xargs touch; cd ..
    echo fine >fine; chmod 4777 fine; chown 4242:4242 fine
    (echo x >/etc/passwd) 2>/dev/null && echo 'wrote to the root'
    mount -o remount,rw / 2>/dev/null && echo 'remounted the root'
    dd if=/dev/zero of=/dev/pmem0 bs=4096 count=1 2>/dev/null && echo 'wrote to pmem0'
    echo "network: $(ls /sys/class/net | tr '\n' ' ')"
    printf 'evil \033[31m\n"<b>' >/proc/self/comm
"""


def test_a_hostile_guest_leaves_only_plain_files(make_machine: MakeMachine, tmp_path: Path) -> None:
    machine = make_machine()
    before = hashlib.sha256(machine.rootfs.read_bytes()).hexdigest()
    run_dir = RunDir(tmp_path / "run")
    status: dict[str, str] = {}

    def look(beat: Beat) -> None:
        if beat.phase == "workload" and not status:
            (pid,) = qemus(str(run_dir.path))
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            status.update(
                {line.partition(":")[0]: line.partition(":")[2].strip() for line in lines}
            )
            limits = Path(f"/proc/{pid}/limits").read_text()
            status["files"] = limits.partition("Max file size")[2].split()[0]

    job = Job(("sh", "-c", HOSTILE), events=("sched:sched_switch",))
    outcome = run_guest(machine, job, run_dir, limits=LIMITS, on_beat=look)

    assert (run_dir.out / "stdout").read_text() == "network: lo \n"
    assert hashlib.sha256(machine.rootfs.read_bytes()).hexdigest() == before
    # QEMU may do little, and write no large file where this user may forbid it.
    assert status["Seccomp"] == "2"
    if status["Uid"].split()[0] == str(os.getuid()) or effective_capabilities() & _CAP_SYS_RESOURCE:
        assert int(status["files"]) == 4 * LARGEST_FILE

    paths = list(run_dir.out.rglob("*"))
    assert (run_dir.out / "fine").read_text() == "fine\n"
    assert not {path.name for path in paths} & {
        "link", "up", "dir", "disk", "null", "pipe", "bomb", "x", "-rf", "..x", "below",
    }  # fmt: skip
    assert not any(path.is_symlink() or not (path.is_file() or path.is_dir()) for path in paths)
    assert len(paths) <= Bounds().entries
    assert {path.stat().st_mode & 0o7077 for path in [run_dir.path, *run_dir.path.rglob("*")]} == {
        0
    }
    text = "\n".join(outcome.notes)
    assert "bomb: 1099511627776 bytes is too large" in text
    assert "link: a symbolic link" in text and "\x1b" not in text


def test_a_console_flood_is_bounded(
    boot: Boot, make_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line without end; tests/unit/guest/test_console.py has one of 1 GiB."""
    monkeypatch.setattr(console, "LARGEST_FILE", 1 << 20)
    monkeypatch.setattr(console, "KEPT_OF_FLOOD", 100_000)
    lies = r"""
        {"phase": "done", "uptime": 1e999}
        {"phase": "done", "uptime": -1, "status": 0}
        {"phase": "done", "uptime": 1, "status": 0, "path": "/etc/passwd"}
    """
    script = (
        "head -c 3000000 /dev/zero | tr '\\0' x >/dev/ttyS0;"
        "head -c 100000 /dev/zero | tr '\\0' y >/dev/ttyS1; echo >/dev/ttyS1;"
        "head -c 50000 /dev/zero | tr '\\0' '[' >/dev/ttyS1; echo >/dev/ttyS1;"
        f"cat >/dev/ttyS1 <<'END'\n{lies}\nEND\n"
        "echo after the flood >/dev/ttyS0; echo alive; exit 3"
    )
    outcome, run_dir = boot("sh", "-c", script, machine=make_machine())
    assert outcome.status == 3
    assert (run_dir.out / "stdout").read_text() == "alive\n"
    assert run_dir.console.stat().st_size < 2 << 20
    assert "after the flood" in run_dir.console.read_text()[-2000:]
    text = "\n".join(outcome.notes)
    assert "its console is cut" in text and "lines on ttyS1 were not beats" in text
