"""`numalab doctor --report` on a host that cannot run a guest in kvm mode."""

import json
import stat
from pathlib import Path

import pytest

from numalab.cli.guest import doctor
from numalab.errors import GuestLost, LossCause, UserError
from numalab.guest.kvm import Choice
from numalab.guest.verdicts import DeviceProblem
from support.one_command import invoke


def report(path: Path) -> dict:  # type: ignore[type-arg]
    result = invoke(doctor.command, "--report", path)
    assert result.exit_code in (0, 3), result.output  # 3: a program is missing on this host
    value: dict = json.loads(path.read_text())  # type: ignore[type-arg]
    return value


def test_a_host_without_kvm_is_reported_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "unusable_device", lambda: DeviceProblem.ABSENT)
    path = tmp_path / "report.json"
    value = report(path)
    assert value["probe"]["failed"] == "there is no /dev/kvm"
    assert [plan["topology"] for plan in value["plans"]] == ["ring-2", "ring-4", "mesh-8"]
    assert str(Path.home()) + "/" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_guest_that_is_lost_is_what_the_report_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def lost(*_args: object, **_options: object) -> None:
        raise GuestLost(
            "the guest did not reach its init within 60 s",
            cause=LossCause.GUEST, kept=Path.home() / "boots/x", tail="",
        )  # fmt: skip

    monkeypatch.setattr(doctor, "unusable_device", lambda: None)
    monkeypatch.setattr(doctor, "build", lambda *_a, **_k: None)
    monkeypatch.setattr(doctor, "choose_mode", lambda *_a, **_k: Choice("kvm", "host", "works"))
    monkeypatch.setattr(doctor, "guest", lost)
    path = tmp_path / "report.json"
    failed = report(path)["probe"]["failed"]
    assert "did not reach its init within 60 s" in failed
    assert str(Path.home()) + "/" not in failed


def test_a_report_that_cannot_be_written_is_refused_before_any_guest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "unusable_device", lambda: pytest.fail("a guest was tried"))
    with pytest.raises(UserError):
        report(tmp_path / "no/report.json")
