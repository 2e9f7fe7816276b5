"""The error reports in the kernel log of a guest, which is untrusted."""

import re

from numalab.guest.console import is_report, printable

_MOST = 20
_STAMP = re.compile(r"^(?:<\d+>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?")
_WARNING = re.compile(r"WARNING: (?:.* )?at (?:.* )?([\w.]+)\+0x")
# Clones that a compiler makes of a function, by its own choice in each kernel.
_CLONE = re.compile(r"(?<=\w)(?:\.(?:cold|isra|part|constprop|llvm)\b(?:\.\d+)*)+")
_NUMBER = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+")


def report_names(log: str) -> tuple[str, ...]:
    """Return what a kernel log reports, in order and each once, at most 20.

    Numbers are left out: they differ between two runs, and lines between two kernels. So are the
    suffixes of a function's clones.
    """
    names = dict.fromkeys(_name(line) for line in log.splitlines() if is_report(line))
    return tuple(names)[:_MOST]


def _name(line: str) -> str:
    text = _CLONE.sub("", _STAMP.sub("", printable(line)))
    if warning := _WARNING.search(text):
        return f"WARNING at {warning[1]}()"
    return _NUMBER.sub("N", text).strip()[:120]
