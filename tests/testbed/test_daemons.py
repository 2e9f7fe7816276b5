"""Guests that libvirt's daemons start: the system's, and an ordinary user's own."""

import pytest

from testbed.bed import Bed
from testbed.lying import nodes, policies, run_beside, vcpus


@pytest.fixture
def system(bed: Bed) -> None:
    assert bed.run("mkdir", "-p", "/var/log/libvirt").status == 0
    for daemon in ("virtlogd", "libvirtd"):
        started = bed.run("sh", "-c", f"pidof {daemon} || {daemon} -d")
        assert started.status == 0, started.output()


@pytest.mark.usefixtures("system")
def test_the_systems_daemon_starts_a_guest_that_lies_as_planned(bed: Bed) -> None:
    lies_as_planned(bed, "qemu:///system", "root")


def test_a_users_daemon_starts_a_guest_that_lies_as_planned(bed: Bed) -> None:
    lies_as_planned(bed, "qemu:///session", "user")


def lies_as_planned(bed: Bed, connection: str, user: str) -> None:
    words = ("ring-2", "--connect", connection, "--", "sleep", "40")
    ((qemu, result),) = run_beside(bed, words, user=user)
    assert "libvirtd" in qemu["asked"][0] or qemu["starter"] == 1
    assert len(set(vcpus(qemu))) == 4
    assert [cpu // 3 for cpu in vcpus(qemu)] == [n for n in nodes(qemu) for _ in range(2)]
    assert policies(qemu) == [f"bind:{n}" for n in nodes(qemu)]
    assert result["proof"]["differs"] == [] and result["timing"]["means"]
