"""Processes on this host: their identity, and the exit status of QEMU.

libvirt's embedded driver starts QEMU as a daemon: its parent exits at once, and process 1 would
inherit it. As a child subreaper (prctl(2)) this process inherits it instead. It then reads which
signal killed QEMU, and libvirt waits for no zombie, which takes it steps of 0.2 s.
"""

import contextlib
import ctypes
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from numalab.errors import HostError
from numalab.process import is_running_child


@dataclass(frozen=True)
class Owner:
    """A process: its id, and when it started in clock ticks after the host's boot."""

    pid: int
    started: int


def this_process() -> Owner:
    """Return the process that runs this."""
    started = start_time(os.getpid())
    assert started is not None
    return Owner(os.getpid(), started)


def is_alive(owner: Owner) -> bool:
    """Return whether the process still runs, and not another with the same id."""
    return start_time(owner.pid) == owner.started


def boot_id() -> str:
    """Return the id of this boot of the host: random(4)."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks after boot; None if there is no such process.

    Field 22 of /proc/<pid>/stat, proc(5). A zombie counts as gone.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command name, in brackets, may hold anything.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def qemu_process(thread: int, domain: str) -> int:
    """Return the process of `domain` that a host thread belongs to.

    Checks the command line, because the process is later killed by its id. Raises HostError where
    it is gone, or runs on another host.
    """
    try:
        status = Path(f"/proc/{thread}/status").read_text(encoding="utf-8", errors="replace")
        command = Path(f"/proc/{thread}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        raise HostError("QEMU ended while it was being started") from None
    if f"guest={domain}," not in command:
        raise HostError("QEMU does not run on this host; guests on others cannot be followed")
    return int(next(line for line in status.splitlines() if line.startswith("Tgid:")).split()[1])


_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_QEMU = "qemu-system-"
_PAUSE = 0.02

_killed_by: dict[int, int] = {}
_thread: threading.Thread | None = None


def adopt_orphans() -> None:
    """Become the parent of every QEMU that is started from now on, and collect those that end."""
    global _thread  # noqa: PLW0603 - a process is a subreaper once
    if _thread is None:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _thread = threading.Thread(target=_collect, name="orphans", daemon=True)
        _thread.start()


def killed_by(pid: int) -> int | None:
    """Return the signal that killed a QEMU; None if it exited or is unknown."""
    return _killed_by.get(pid)


def oom_kills() -> int:
    """Return how many processes the OOM killer has ended since boot.

    From /proc/vmstat, oom_kill; 0 where it is missing.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return 0


def _collect() -> None:
    while True:
        # Sleeps until some child has ended, but leaves it: it may be somebody else's. As long as
        # that one is not collected, it is all that waitid tells of, so every child is looked at.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            for pid in _children():
                if _is_orphan(pid):
                    _take(pid)
        time.sleep(_PAUSE)


def _children() -> set[int]:
    """Return the children of all threads of this process, those that have ended as well."""
    children: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread is gone
            children.update(map(int, path.read_text(encoding="ascii").split()))
    return children


def _take(pid: int) -> None:
    """Collect a child if it has ended, after recording the signal that killed it."""
    with contextlib.suppress(ChildProcessError):
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return
        if ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
            _killed_by[pid] = ended.si_status
        os.waitpid(pid, 0)


def _is_orphan(pid: int) -> bool:
    """Return whether this is a QEMU that no other code collects.

    libvirt waits itself for a QEMU that it only asks something; that one is in our session. One
    that runs as a daemon has left it. What numalab.process started, it collects.
    """
    try:
        comm = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace")
        outside = os.getsid(pid) != os.getsid(0)
    except OSError:
        return False
    return comm.startswith(_QEMU) and outside and not is_running_child(pid)
