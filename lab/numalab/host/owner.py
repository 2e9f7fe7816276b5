"""Which process something belongs to, told from a later one with the same process id."""

import os
from dataclasses import dataclass
from pathlib import Path

from numalab.errors import HostError


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
    """Tell whether that very process still runs."""
    return start_time(owner.pid) == owner.started


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

    Its command line is looked at, because the process is killed by its number in the end. Raises
    HostError where it is gone, or runs on another host.
    """
    try:
        status = Path(f"/proc/{thread}/status").read_text(encoding="utf-8", errors="replace")
        command = Path(f"/proc/{thread}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        raise HostError("QEMU ended while it was being started") from None
    if f"guest={domain}," not in command:
        raise HostError("QEMU does not run on this host; guests on others cannot be followed")
    return int(next(line for line in status.splitlines() if line.startswith("Tgid:")).split()[1])
