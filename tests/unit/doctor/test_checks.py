"""Checks of a host, with the fix of each miss."""

from pathlib import Path

import pytest

from numalab.doctor import checks as doctor
from numalab.errors import HostError
from numalab.qemu.hypervisor import disconnect_all


def test_the_doctor_finds_this_host_able() -> None:
    results = {check.name: check for check in doctor.checks()}
    assert {"QEMU", "libvirt", "KVM", "trace-cmd", "memory", "disk", "hugepages"} <= results.keys()
    for check in results.values():
        assert check.finding
        assert check.ok or check.hint or not check.needed
    disconnect_all()


def test_the_doctor_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, package: str) -> Path:
        raise HostError(f"{name} is not installed", hint=f"apt-get install {package}")

    monkeypatch.setattr(doctor, "find_program", missing)
    monkeypatch.setattr(doctor, "version_line", missing)
    results = {check.name: check for check in doctor.checks()}
    assert not results["QEMU"].ok
    assert results["QEMU"].hint == "apt-get install qemu-system-x86"
    assert results["trace-cmd"].hint == "apt-get install trace-cmd"
    assert "trace-cmd is not installed" in results["trace-cmd"].finding
    disconnect_all()


def test_the_doctor_on_a_small_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_NEEDED_MEMORY", 1 << 60)
    monkeypatch.setattr(doctor, "_NEEDED_DISK", 1 << 60)
    results = {check.name: check for check in (doctor._memory(), doctor._disk())}
    assert not results["memory"].ok and "4 GiB" in results["memory"].hint
    assert not results["disk"].ok and "NUMALAB_CACHE" in results["disk"].hint
