"""Which process something belongs to, told so that a number used again is not mistaken for it."""

import os
from dataclasses import dataclass
from pathlib import Path


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
