"""Checks of a host, with the fix of each miss."""

import grp
import os
from pathlib import Path

import pytest

from numalab.doctor import checks
from numalab.errors import HostError
from numalab.qemu.hypervisor import disconnect_all


def test_every_miss_has_a_finding_and_a_hint() -> None:
    results = {check.name: check for check in checks.checks()}
    assert {"QEMU", "libvirt", "KVM", "trace-cmd", "memory", "disk", "hugepages"} <= results.keys()
    for check in results.values():
        assert check.found
        assert check.ok or check.hint or not check.needed
    disconnect_all()


def test_no_check_raises_where_the_cache_or_a_list_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "lacking_packages", tuple)
    with monkeypatch.context() as other:
        (tmp_path / "emulator-configs").mkdir()
        (tmp_path / "emulator-configs/emulators.toml").write_text("?")
        other.setenv("NUMALAB_HOME", str(tmp_path))
        assert "emulators.toml" in checks.check_emulator().found
    monkeypatch.setenv("NUMALAB_CACHE", "/proc/none")
    results = {check.name: check for check in checks.checks()}
    for name in ("emulator", "disk", "KVM"):
        assert not results[name].ok
        assert results[name].found.startswith("cannot create /proc/none")
        assert "NUMALAB_CACHE" in results[name].hint
    disconnect_all()


def test_a_missing_program_has_a_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, package: str) -> Path:
        raise HostError(f"{name} is not installed", hint=f"apt-get install {package}")

    monkeypatch.setattr(checks, "find_program", missing)
    monkeypatch.setattr(checks, "version_line", missing)
    results = {check.name: check for check in checks.checks()}
    assert not results["QEMU"].ok
    assert results["QEMU"].hint == "apt-get install qemu-system-x86"
    assert results["trace-cmd"].hint == "apt-get install trace-cmd"
    assert "trace-cmd is not installed" in results["trace-cmd"].found
    disconnect_all()


@pytest.mark.parametrize(
    ("script", "ok"),
    [
        ("echo 3.1", True),
        ("echo 3.1; exit 255", True),  # trace-cmd -V
        ("echo 'libtracefs.so.1: cannot open shared object file' >&2; exit 127", False),
        ("kill -SEGV $$", False),
    ],
)
def test_a_program_that_does_not_start_is_a_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, *, ok: bool
) -> None:
    program = tmp_path / "trace-cmd"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    check = checks.check_program("trace-cmd", "trace-cmd", "-V", "records")
    assert (check.ok, check.found.startswith("it does not start: ")) == (ok, not ok)


def test_the_hint_for_a_device_follows_its_group_and_mode(tmp_path: Path) -> None:
    device = tmp_path / "kvm"
    device.touch()
    group = grp.getgrgid(os.getgid() or 1)
    os.chown(device, -1, group.gr_gid)
    device.chmod(0o660)
    assert checks.device_hint(device).startswith("as root: adduser ")
    assert checks.device_hint(device).endswith(f" {group.gr_name}; then log in again")
    for mode in (0o600, 0o640):
        device.chmod(mode)
        assert checks.device_hint(device).startswith(
            f"as root: groupadd -f -r kvm; chown root:kvm {device}; chmod 660 {device}; adduser "
        )
    if os.getuid() == 0:
        os.chown(device, -1, 0)
        device.chmod(0o660)
        assert "chown root:kvm" in checks.device_hint(device)


def test_a_small_host_lacks_memory_and_disk() -> None:
    memory, disk = checks.check_memory(needed=1 << 60), checks.check_disk(needed=1 << 60)
    assert not memory.ok and "4 GiB" in memory.hint
    assert not disk.ok and "NUMALAB_CACHE" in disk.hint


def test_a_user_who_cannot_build_images_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise HostError("cannot build an image without root: no line", hint="usermod ...")

    monkeypatch.setattr("os.getuid", lambda: 12345)
    monkeypatch.setattr(checks, "choose_mode", refuse)
    check = checks.check_user_namespaces()
    assert (check.ok, check.hint) == (False, "usermod ...")
    assert check.found == "cannot build an image without root: no line"
    monkeypatch.setattr(checks, "choose_mode", lambda: "unshare")
    assert checks.check_user_namespaces().ok
