"""The report that a user sends of a host: its content, and no private names."""

import json
from pathlib import Path

import pytest

from numalab.doctor import checks as doctor
from numalab.doctor.checks import Check
from numalab.doctor.private import (
    clean,
    names_here,
    private_names,
    without_private,
)
from numalab.doctor.report import ProbeResult, render_report
from numalab.guest.proof import MemoryProof, Proof, ThreadProof
from numalab.guest.verdicts import Verdict
from numalab.guest.witness import Timing
from numalab.host.facts import Disturbance, DisturbanceKind
from numalab.host.read import read_host
from numalab.topology.load import load_topology

NAMES = private_names(
    homes=["/home/ada", "/srv/Ada L"], users=["ada", "x"], hosts=["engine.lovelace.example"]
)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("12 GiB free at /home/ada/.cache/numalab", "12 GiB free at <path>"),
        ("cannot open '/srv/Ada L/images/a.img'", "cannot open '<path>'"),
        ("in:/home/ada/x, (/opt/big)", "in:<path>, (<path>)"),
        ("/home/adam/x", "<path>"),
        ("/dev/kvm opens, /usr/bin/bc, /proc/1/maps", "/dev/kvm opens, /usr/bin/bc, /proc/1/maps"),
        ("/device", "<path>"),
        ("qemu:///embed opens", "qemu:///embed opens"),
        ("from http://jane:s3cret@mirror.example/x now", "from http:<path> now"),
        ("file:///opt/secret, a:/opt/secret", "file:<path>, a:<path>"),
        ("adduser ada kvm; Ada's; canada", "adduser <user> kvm; <user>'s; canada"),
        ("engine.lovelace.example", "<host>"),
        ("6.12.1-engine+ of lovelace.example", "6.12.1-<host>+ of <host>"),
        ("serial 6e756d61-6C61-4b00-8000-000000000000", "serial <uuid>"),
        ("52:54:00:12:34:ab", "<address>"),
        ("root on localhost has 3 x 2", "root on localhost has 3 x 2"),
    ],
)
def test_what_is_private_goes_and_the_rest_stays(text: str, cleaned: str) -> None:
    assert clean(text, NAMES) == cleaned


def test_the_folders_of_numalab_are_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", "/srv/Acme Corp Titan/c")
    text = "36 GiB free at /srv/Acme Corp Titan/c/images"
    assert clean(text, names_here()) == "36 GiB free at <path>"


def test_texts_are_cleaned_wherever_they_are() -> None:
    value = {"/home/ada": [{"a": ("ada", 3, None, True)}, "/home/ada"]}
    assert without_private(value, NAMES) == {"<path>": [{"a": ["<user>", 3, None, True]}, "<path>"]}


def test_the_names_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "grace")
    monkeypatch.setenv("HOME", "/somewhere/grace")
    monkeypatch.setattr("platform.node", lambda: "cobol.example")
    names = names_here()
    assert "grace" in names.users and "root" not in names.users
    assert "/somewhere/grace" in names.homes
    assert names.hosts == ("cobol.example", "example", "cobol")


def test_a_report_says_what_differs_and_nothing_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "components", lambda: (("QEMU", "7.2"),))
    probe = ProbeResult(
        "ring-2", "2M", status=0, wall_seconds={"boot": 1.5}, guest_seconds=1.0,
        timing=Timing(True, (), (Disturbance(DisturbanceKind.KSM),)),
        proof=Proof(
            (ThreadProof("vcpu 0", 12, (4,), (4,), (0,)),), (MemoryProof(0, {1: 384}, 2048, 1),), ""
        ),
    )  # fmt: skip
    checks = [
        Check("disk", True, "12 GiB free at /home/ada/.cache/numalab"),
        Check("KVM", False, "/dev/kvm may not be opened by this user", "adduser ada kvm"),
    ]
    verdict = Verdict(False, "host", "QEMU: cannot open /home/ada/.cache/x", at=1.0)
    value = render_report(
        read_host(), checks, verdict, [load_topology("ring-2")], probe, version="1", names=NAMES
    )
    text = json.dumps(value, allow_nan=False)
    assert "ada" not in text.lower().replace("canada", "")
    assert value == json.loads(text)
    assert set(value) == {
        "report", "numalab", "versions", "cpu", "kvm", "rights", "host", "checks", "plans", "probe",
    }  # fmt: skip
    assert value["probe"]["proof"]["memory"][0]["pages"] == {"1": 384}  # type: ignore[index]
    assert value["kvm"]["verdict"]["reason"] == "QEMU: cannot open <path>"  # type: ignore[index]
    assert "hint" not in value["checks"][1]  # type: ignore[index]
    planned = value["plans"][0]  # type: ignore[index]
    assert planned["topology"] == "ring-2" and len(planned["vcpus"]) == 4


def test_a_host_that_lacks_everything_has_a_report_too(tmp_path: Path) -> None:
    failed = ProbeResult("ring-2", "memfd", failed="there is no /dev/kvm")
    value = render_report(
        read_host(), [], None, [], failed, version="1", names=NAMES, root=tmp_path
    )
    assert value["cpu"] == {"flags": []} and value["plans"] == []
    assert value["probe"]["failed"] == "there is no /dev/kvm"  # type: ignore[index]
