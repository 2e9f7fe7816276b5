"""Installs what `doctor` misses: Debian's packages with apt, the libvirt binding with pip."""

import importlib
import os
import sys
import time
from collections.abc import Sequence

from numalab.doctor.checks import Check
from numalab.errors import HostError
from numalab.process import CommandFailed, find_program, run

_PATIENCE = 900  # seconds that apt waits for its locks
_PAUSE = 5.0


def commands_for(checks: Sequence[Check]) -> tuple[tuple[str, ...], ...]:
    """Return the commands that install what is missing, in order; pure. None where nothing is."""
    lacking = [check for check in checks if not check.ok]
    packages = dict.fromkeys(name for check in lacking for name in check.packages)
    python = dict.fromkeys(name for check in lacking for name in check.python)
    commands = []
    if packages:
        apt = ("apt-get", "-q", "-o", f"DPkg::Lock::Timeout={_PATIENCE}")
        as_root = () if os.geteuid() == 0 else ("sudo",)
        commands.append((*as_root, *apt, "update"))
        commands.append((*as_root, *apt, "install", "--yes", "--no-install-recommends", *packages))
    if python:
        commands.append((sys.executable, "-m", "pip", "install", "--quiet", *python))
    return tuple(commands)


def install(command: Sequence[str]) -> None:
    """Run one of them. Raises HostError with the end of what it printed."""
    find_program(command[0], "apt")
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            run(command, env={"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"})
            break
        except CommandFailed as failed:
            said = (failed.completed.stderr.strip() or failed.completed.stdout.strip())[-600:]
            # apt waits for dpkg's lock by itself, and not for that of its lists of packages.
            if "Could not get lock" not in said or time.monotonic() > deadline:
                raise HostError(f"{' '.join(command[:2])} failed:\n{said}") from None
        time.sleep(_PAUSE)
    importlib.invalidate_caches()  # what pip has just installed can be imported
