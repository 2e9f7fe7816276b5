"""`doctor --fix` runs one command for all Debian packages and one for all of PyPI's."""

import os
import sys
from pathlib import Path

import pytest

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
    monkeypatch.setattr("shutil.which", lambda _name: "/usr/bin/sudo")
    update, packages, python = commands_for([QEMU, FINE, BINDING])
    assert update[: len(before) + 1] == (*before, "apt-get") and update[-1] == "update"
    assert packages[: len(before) + 1] == (*before, "apt-get")
    assert packages[-2:] == ("qemu-system-x86", "seabios")
    assert python == (sys.executable, "-P", "-m", "pip", "install", "--quiet", "libvirt-python")


def test_without_sudo_the_commands_are_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr("shutil.which", lambda _name: None)
    with pytest.raises(HostError, match=r"as root: apt-get .* update && apt-get .* seabios$"):
        commands_for([QEMU])
    binding = Check("libvirt", False, "missing", python=("libvirt-python",))
    assert len(commands_for([binding])) == 1


def test_an_error_holds_the_output_of_the_command(tmp_path: Path) -> None:
    install(("true",))
    script = tmp_path / "apt-get"
    script.write_text("#!/bin/sh\necho $DEBIAN_FRONTEND: no such package >&2\nexit 100\n")
    script.chmod(0o755)
    with pytest.raises(HostError, match="install failed:\nnoninteractive: no such package"):
        install((str(script), "install"))
    with pytest.raises(HostError, match="is not installed"):
        install(("no-such-program",))


def test_install_waits_for_the_lock_of_the_package_lists(tmp_path: Path) -> None:
    """apt-get has no option for that: `update` fails at once while another one runs."""
    script = tmp_path / "apt-get"
    script.write_text(
        f"#!/bin/sh\necho >>{tmp_path}/tried\ntest $(wc -l <{tmp_path}/tried) -gt 2 && exit\n"
        "echo 'E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7' >&2\n"
        "exit 100\n"
    )
    script.chmod(0o755)
    install((str(script), "update"), pause=0.0)
    assert (tmp_path / "tried").read_text() == "\n\n\n"
    (tmp_path / "tried").unlink()
    with pytest.raises(HostError, match="Could not get lock"):
        install((str(script), "update"), timeout=-1)
