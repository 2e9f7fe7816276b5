"""Installs missing Debian packages with apt and the libvirt binding with pip."""

import importlib
import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence

from numalab.doctor.checks import Check
from numalab.errors import HostError
from numalab.process import CommandFailed, find_program, run

_TIMEOUT = 900  # seconds to wait for the locks of apt


def commands_for(checks: Sequence[Check]) -> tuple[tuple[str, ...], ...]:
    """Return the commands, in order, that install the packages of the failed checks.

    Raises HostError, with the commands for root, where this user cannot become root.
    """
    lacking = [check for check in checks if not check.ok]
    packages = dict.fromkeys(name for check in lacking for name in check.packages)
    python = dict.fromkeys(name for check in lacking for name in check.python)
    commands = []
    if packages:
        apt = ("apt-get", "-q", "-o", f"DPkg::Lock::Timeout={_TIMEOUT}")
        update = (*apt, "update")
        install = (*apt, "install", "--yes", "--no-install-recommends", *packages)
        as_root = () if os.geteuid() == 0 else ("sudo",)
        if as_root and shutil.which("sudo") is None:
            hint = f"run as root: {shlex.join(update)} && {shlex.join(install)}"
            raise HostError("only root can install packages, and there is no sudo", hint=hint)
        commands += [(*as_root, *update), (*as_root, *install)]
    if python:
        commands.append((sys.executable, "-P", "-m", "pip", "install", "--quiet", *python))
    return tuple(commands)


def install(command: Sequence[str], *, timeout: float = _TIMEOUT, pause: float = 5.0) -> None:
    """Run an installation command. Raises HostError with the end of its output.

    Tries again every `pause` seconds, for `timeout` seconds, while another apt has the lock.
    """
    find_program(command[0], "apt")
    deadline = time.monotonic() + timeout
    while True:
        try:
            run(command, env={"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"})
            break
        except CommandFailed as failed:
            output = (failed.completed.stderr.strip() or failed.completed.stdout.strip())[-600:]
            # apt itself waits for the lock of dpkg, but not for the lock of its package lists.
            if "Could not get lock" not in output or time.monotonic() > deadline:
                raise HostError(f"{' '.join(command[:2])} failed:\n{output}") from None
        time.sleep(pause)
    importlib.invalidate_caches()  # make what pip installed importable
