"""Untrusted output of the guest: the kernel log on ttyS0 and the heartbeat on ttyS1.

Lines and files are cut at a maximum size. Malformed beats are counted and dropped.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

Phase = Literal["boot", "held", "setup", "workload", "collect", "done", "rescue"]
PHASES: tuple[Phase, ...] = get_args(Phase)

LONGEST_LINE = 64 << 10
LARGEST_FILE = 16 << 20
KEPT_OF_FLOOD = 1 << 20
_READ = 1 << 20
_LONGEST_MESSAGE = 4096
EXCERPT_LINES = 12
_CUT_HERE = b"[numalab: cut here, the guest printed too much]\n"

_STAMP = r"^(?:<\d+>)?(?:\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?)?"
_PANIC = re.compile(_STAMP + r"Kernel panic - not syncing")
_PANIC_END = re.compile(r"---\[ end Kernel panic")
_POWER_OFF = re.compile(_STAMP + r"reboot: (?:Power down|Restarting system|System halted)")
# First lines of error reports in Linux 6.12 and 7.3: kernel/panic.c, lib/bug.c, lib/ubsan.c,
# kernel/locking/lockdep.c, kernel/watchdog.c, kernel/rcu/tree_stall.h, kernel/hung_task.c,
# arch/x86/kernel/dumpstack.c.
_REPORTS = (
    r"WARNING: |BUG: |kernel BUG at |INFO: .{0,99}(?:stall|blocked)|Oops|general protection|UBSAN"
    r"|Watchdog detected hard LOCKUP"
)
_REPORT = re.compile(_REPORTS)
# Errors that the scheduler prints without a report (kernel/sched/, 5.10 to 7.3). Left out is `DL
# replenish lagged too much`, which late timers of a sound guest bring about.
_SCHEDULER = re.compile(
    _STAMP
    + r"(?:psi: (?:inconsistent task state|task underflow)|bad: scheduling from the idle thread"
    r"|sched: DL de-boosted task)"
)
# Also what ends a guest or a task: kernel/panic.c, drivers/tty/sysrq.c, mm/oom_kill.c. A subsystem
# such as `watchdog: CPU0: ` may come first.
_TROUBLE = re.compile(
    _STAMP
    + r"(?:[\w ]{1,40}: ){0,2}(?:"
    + _REPORTS
    + r"|Kernel panic - not syncing|sysrq: Trigger a crash|Out of memory: Killed process)"
)


@dataclass(frozen=True)
class Beat:
    """A line of the heartbeat: the guest's phase, and its uptime in guest seconds."""

    phase: Phase
    uptime: float
    status: int | None = None
    message: str = ""


def parse_beat(line: str) -> Beat:
    """Parse one line of ttyS1. Raises ValueError for anything that is not exactly a beat."""
    if len(line) > LONGEST_LINE:
        raise ValueError("a line that is too long")
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError(f"not JSON: {line[:80]!r}") from None
    if not isinstance(data, dict) or not data.keys() <= {"phase", "uptime", "status", "message"}:
        raise ValueError(f"not a beat: {line[:80]!r}")
    phase, uptime = data.get("phase"), data.get("uptime")
    status, message = data.get("status"), data.get("message", "")
    if phase not in PHASES:
        raise ValueError(f"no such phase: {str(phase)[:40]!r}")
    if not isinstance(uptime, int | float) or uptime is True or not 0 <= uptime < 1e9:
        raise ValueError("uptime is not a number of seconds")
    if status is not None and (type(status) is not int or not 0 <= status <= 255):
        raise ValueError("status is not an exit status")
    if not isinstance(message, str) or len(message) > _LONGEST_MESSAGE:
        raise ValueError("message is not a short text")
    return Beat(phase, float(uptime), status, message)


def is_panic(line: str) -> bool:
    """Return whether a line of the kernel log is the first of a panic."""
    return _PANIC.search(line) is not None


def is_panic_end(line: str) -> bool:
    """Return whether a line of the kernel log is the last of a panic."""
    return _PANIC_END.search(line) is not None


def is_power_off(line: str) -> bool:
    """Return whether a line of the kernel log is the last of a kernel that ends (kernel/reboot.c).

    It stops the other CPUs then, and warns of work that reaches one of them (stop_this_cpu()).
    """
    return _POWER_OFF.match(line) is not None


def is_report(text: str) -> bool:
    """Return whether a text holds the first line of an error report of the kernel."""
    return _REPORT.search(text) is not None


def is_scheduler_error(line: str) -> bool:
    """Return whether a line of the kernel log says that the scheduler's own state is wrong."""
    return _SCHEDULER.search(line) is not None


def is_trouble(line: str) -> bool:
    """Return whether a line of the kernel log begins an error report, a panic or an OOM kill."""
    return _TROUBLE.search(line) is not None


def excerpt(lines: Iterable[str], count: int = EXCERPT_LINES) -> str:
    """Return `count` lines from the first error report on, or else the last lines.

    Control characters are replaced, so that a guest cannot write to the user's terminal.
    """
    shown = [printable(line) for line in lines]
    for number, line in enumerate(shown):
        if is_trouble(line):
            return "\n".join(shown[number : number + count])
    return "\n".join(shown[-count:])


def printable(text: str) -> str:
    """Replace unprintable characters by `?`, and cut the text at 400 characters."""
    return "".join(char if char.isprintable() or char == "\t" else "?" for char in text)[:400]


class Follower:
    """Reads lines as they are appended to a file, and limits the size of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._partial = b""
        self.floods = 0

    def lines(self) -> list[str]:
        """Return the complete lines since the last call, each at most 64 KiB."""
        return self._split(self._new())

    def rest(self) -> list[str]:
        """Return the last lines of a file that is complete, an unfinished line included."""
        lines: list[str] = []
        while data := self._new():
            lines += self._split(data)
        last, self._partial = self._partial, b""
        return [*lines, _text(last)] if last else lines

    def _split(self, data: bytes) -> list[str]:
        *whole, rest = (self._partial + data).split(b"\n")
        # Keep the beginning of a line that is too long.
        self._partial = rest[: LONGEST_LINE + 1]
        return [_text(line) for line in whole]

    def _new(self) -> bytes:
        try:
            size = self._path.stat().st_size
            if size > LARGEST_FILE:
                self._cut(size)
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(_READ)
        except OSError:
            return b""
        self._offset += len(data)
        return data

    def _cut(self, size: int) -> None:
        """Keep only the end of the file. QEMU opened it for appending and continues there."""
        self.floods += 1
        with self._path.open("r+b") as file:
            begin = size - KEPT_OF_FLOOD
            file.seek(begin)
            kept = _CUT_HERE + file.read()
            file.truncate(0)
            file.seek(0)
            file.write(kept)
        self._offset = len(_CUT_HERE) + max(0, self._offset - begin)


def _text(line: bytes) -> str:
    return line[:LONGEST_LINE].decode("utf-8", "replace").rstrip("\r")
