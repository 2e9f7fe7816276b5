"""Which version a QEMU is, for what it is asked in other words than the one before it."""

import re
from functools import cache
from pathlib import Path

from numalab.errors import HostError
from numalab.process import find_program, run

_FAIR_TURNS = (8, 1)


@cache
def qemu_version(program: Path | None) -> tuple[int, ...]:
    """Return major and minor version of a program, None for the host's QEMU; () where unknown.

    Asked once: what a program is does not change while this process runs.
    """
    try:
        program = program or find_program("qemu-system-x86_64", "qemu-system-x86")
        text = run([program, "--version"], check=False, timeout=20).stdout
    except HostError:  # starting the guest will say why
        return ()
    return parse_qemu_version(text)


def turns_are_fair(program: Path | None) -> bool:
    """Whether busy CPUs get a turn each in icount mode, or the version is not known.

    From QEMU 8.1 on ("accel/tcg/tcg-accel-ops-rr: ensure fairness with icount") the time until the
    next timer of any CPU is shared out among them; before, one may get all of it.
    """
    version = qemu_version(program)
    return not version or version >= _FAIR_TURNS


def parse_qemu_version(text: str) -> tuple[int, ...]:
    """Parse what `--version` prints into major and minor version; () where it says none."""
    match = re.search(r"version (\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else ()
