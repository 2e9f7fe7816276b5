"""QEMU's exit status, where libvirt's embedded driver runs in this process.

libvirt starts QEMU as a daemon: its parent exits at once, and process 1 would inherit it. As a
child subreaper (prctl(2)) this process inherits it instead: it learns what QEMU died of, and no
zombie is left for libvirt to wait for, which it does in steps of 0.2 s.
"""

import contextlib
import ctypes
import os
import threading
import time
from pathlib import Path

from lab.process import is_running_child

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
    """Return the signal that killed a QEMU that is gone; None if it exited, or it is not known."""
    return _killed_by.get(pid)


def _collect() -> None:
    while True:
        try:
            # Sleeps until some child has ended, but leaves it: it may be somebody else's.
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            ended = None
        if ended is None or not _is_orphan(ended.si_pid):
            time.sleep(_PAUSE)
            continue
        if ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
            _killed_by[ended.si_pid] = ended.si_status
        with contextlib.suppress(ChildProcessError):
            os.waitpid(ended.si_pid, 0)


def _is_orphan(pid: int) -> bool:
    """Tell whether this is a QEMU that nobody else will collect.

    libvirt waits itself for a QEMU that it only asks something; that one is in our session. One
    that runs as a daemon has left it. What lab.process started, it collects.
    """
    try:
        comm = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace")
        outside = os.getsid(pid) != os.getsid(0)
    except OSError:
        return False
    return comm.startswith(_QEMU) and outside and not is_running_child(pid)
