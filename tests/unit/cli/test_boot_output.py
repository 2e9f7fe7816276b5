"""What `numalab boot` prints of a guest that has ended."""

import pytest

from numalab.campaign.boot import Booted
from numalab.cli.guest.boot import show_booted
from numalab.guest.proof import Proof
from numalab.guest.run import Outcome, Remark, RemarkKind
from numalab.guest.witness import Timing
from numalab.qemu.collect import Collected


def booted(*remarks: Remark) -> Booted:
    outcome = Outcome(
        status=0,
        wall_seconds={},
        guest_seconds=1.0,
        proof=Proof((), (), ""),
        timing=Timing(False, (), ()),
        collected=Collected({}, ()),
        cmdline="",
        versions={},
        remarks=remarks,
    )
    return Booted(b"out\n", b"err\n", outcome, (), None)


def test_remarks_on_this_run_go_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    made = booted(
        Remark(RemarkKind.PLAN, "all 8 vCPUs share one thread on host CPU 0"),
        Remark(RemarkKind.LEFT_OUT, "not taken from the guest: bomb: too large"),
        Remark(RemarkKind.FLOOD, "the guest printed too much; its console is cut"),
    )
    show_booted(made, as_json=False)
    out, err = capfd.readouterr()
    assert out == "out\n"
    assert err == (
        "numalab: not taken from the guest: bomb: too large\n"
        "numalab: the guest printed too much; its console is cut\nerr\n"
    )


def test_json_has_all_of_them(capfd: pytest.CaptureFixture[str]) -> None:
    show_booted(booted(Remark(RemarkKind.PLAN, "all 8 vCPUs share")), as_json=True)
    assert '"all 8 vCPUs share"' in capfd.readouterr().out
