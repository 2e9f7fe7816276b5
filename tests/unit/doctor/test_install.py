"""What `doctor --fix` runs: a command for all Debian packages, one for all of PyPI's."""

import os
import sys
from pathlib import Path

import pytest

from numalab.doctor import install as module
from numalab.doctor.checks import Check
from numalab.doctor.install import commands_for, install
from numalab.errors import HostError

QEMU = Check("QEMU", False, "missing", packages=("qemu-system-x86", "seabios"))
BINDING = Check("libvirt", False, "missing", packages=("seabios",), python=("libvirt-python",))
FINE = Check("gcc", True, "12", packages=("gcc",))


def test_nothing_is_installed_where_nothing_is_missing() -> None:
    assert commands_for([FINE]) == ()
    assert commands_for([Check("KVM", False, "no device")]) == ()


@pytest.mark.parametrize(("user", "before"), [(0, ()), (1000, ("sudo",))])
def test_packages_are_installed_together_and_once(
    monkeypatch: pytest.MonkeyPatch, user: int, before: tuple[str, ...]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    update, packages, python = commands_for([QEMU, FINE, BINDING])
    assert update[: len(before) + 1] == (*before, "apt-get") and update[-1] == "update"
    assert packages[: len(before) + 1] == (*before, "apt-get")
    assert packages[-2:] == ("qemu-system-x86", "seabios")
    assert python == (sys.executable, "-m", "pip", "install", "--quiet", "libvirt-python")


def test_what_a_failed_command_says_is_told(tmp_path: Path) -> None:
    install(("true",))
    script = tmp_path / "apt-get"
    script.write_text("#!/bin/sh\necho $DEBIAN_FRONTEND: no such package >&2\nexit 100\n")
    script.chmod(0o755)
    with pytest.raises(HostError, match="install failed:\nnoninteractive: no such package"):
        install((str(script), "install"))
    with pytest.raises(HostError, match="is not installed"):
        install(("no-such-program",))


def test_the_lock_of_apts_lists_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apt-get takes no option for that: `update` fails at once while another one runs."""
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    script = tmp_path / "apt-get"
    script.write_text(
        f"#!/bin/sh\necho >>{tmp_path}/tried\ntest $(wc -l <{tmp_path}/tried) -gt 2 && exit\n"
        "echo 'E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7' >&2\n"
        "exit 100\n"
    )
    script.chmod(0o755)
    install((str(script), "update"))
    assert (tmp_path / "tried").read_text() == "\n\n\n"
    monkeypatch.setattr(module, "_PATIENCE", -1)
    (tmp_path / "tried").unlink()
    with pytest.raises(HostError, match="Could not get lock"):
        install((str(script), "update"))
