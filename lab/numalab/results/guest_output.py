"""The texts that a guest left of a run, and the machine that they describe."""

import re
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from numalab.errors import WorkloadFailed
from numalab.files import left_by_guest
from numalab.run_dir import RunDir
from numalab.topology.guest_view import GuestView, is_cut, parse_guest_view

_STAMP = re.compile(r"\[ *(\d{1,9}\.\d{1,9})\]")


def guest_text(path: Path) -> str:
    """Return a text that a guest left. Raises WorkloadFailed where it left none."""
    return left_by_guest(path).decode("utf-8", "replace")


def guest_text_if_any(path: Path) -> str:
    """Return a text that a guest left; empty where it left none."""
    with suppress(WorkloadFailed):
        return guest_text(path)
    return ""


def read_kernel_log(directory: RunDir) -> str:
    """Return the kernel log of a guest; empty where it left none.

    A beginning that the kernel's buffer lost is the console's, as far as that has it.
    """
    log = guest_text_if_any(directory.dmesg)
    if not is_cut(log):
        return log
    first = _STAMP.search(log)
    start = float(first[1]) if first else 0.0

    def is_before(line: str) -> bool:
        stamp = _STAMP.match(line)
        return stamp is None or float(stamp[1]) < start

    lines = guest_text_if_any(directory.console).splitlines()
    return "\n".join([*takewhile(is_before, lines), log])


def read_guest_view(directory: RunDir) -> GuestView:
    """Return the machine as its guest reports it. Raises WorkloadFailed where it did not."""
    nodes = directory.sysfs
    return parse_guest_view(
        {str(path.relative_to(nodes)): guest_text(path) for path in sorted(nodes.glob("node*/*"))},
        guest_text(directory.sched_domains),
        read_kernel_log(directory),
        cut=is_cut(guest_text_if_any(directory.dmesg)),
    )
