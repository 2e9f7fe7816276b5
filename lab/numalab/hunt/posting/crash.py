"""What a kernel says when it fails, from the console of a guest, which is untrusted."""

import re
from collections.abc import Sequence

from numalab.guest.console import printable

CONSOLE = "console.txt"
_MOST_LINES, _BEFORE = 200, 20
_MOST_CALLS = 6
_STAMP = re.compile(r"^(?:<\d+>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?")
# First lines of reports (lib/bug.c, kernel/panic.c, arch/x86/kernel/dumpstack.c in Linux 6.12).
_REPORT = re.compile(r"[Kk]ernel BUG at |BUG: |WARNING: |Oops: |general protection|Kernel panic")
_CALL = re.compile(r" *[\w.]+\+0x[0-9a-f]+/0x[0-9a-f]+")  # without those that are uncertain ("?")


def console_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Return at most 200 lines of a console, about the first report or else the last ones."""
    start = _start(lines)
    part = lines[-_MOST_LINES:] if start is None else lines[max(0, start - _BEFORE) :]
    return tuple(map(printable, part[:_MOST_LINES]))


def crash_lines(console: Sequence[str]) -> list[str]:
    """Return the first report of a console: where it is, and the calls; [] without a report."""
    start = _start(console)
    if start is None:
        return []
    first, *further = (_STAMP.sub("", line) for line in console[start:])
    place = next((line for line in further if line.startswith("RIP: ")), None)
    lines = [first, *([place] if place else [])]
    if "Call Trace:" in further:
        after = further[further.index("Call Trace:") :]
        calls = [line for line in after if _CALL.fullmatch(line)][:_MOST_CALLS]
        lines += ["Call Trace:", *calls]
    return lines


def _start(lines: Sequence[str]) -> int | None:
    return next((place for place, line in enumerate(lines) if _REPORT.search(line)), None)
