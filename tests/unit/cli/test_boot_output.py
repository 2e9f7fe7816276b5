"""What `numalab boot` prints of a guest that has ended."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.analysis.findings import TaskMemory
from numalab.campaign.boot import Booted
from numalab.cli.guest.boot import command, printed_if_lost, put_page, show_booted
from numalab.errors import GuestLost, TopologyMismatch, UserError, WorkloadFailed
from numalab.guest.proof import Proof
from numalab.guest.run import Outcome, Remark, RemarkKind
from numalab.guest.witness import Timing
from numalab.locality.locality import Locality, NodeAccesses
from numalab.qemu.collect import Collected
from numalab.topology.topology import Topology


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


FOUND = Locality(
    12.5,
    (TaskMemory(7, "hog\x1b[2J", 10.0, 8.0, 2.0, 40.0, (40.0, 60.0)),),
    (NodeAccesses(0, 8.5, 2.0, 45.0, (45.0, 60.0)),),
)


def test_accesses_go_to_stderr_without_control_characters(
    capfd: pytest.CaptureFixture[str],
) -> None:
    show_booted(replace(booted(), locality=FOUND), as_json=False)
    out, err = capfd.readouterr()
    assert out == "out\n"
    assert "memory accesses in 12.5 ms" in err
    assert re.search(r"hog.*/7 +8\.0 +2\.0 +40\.0 +40 +60\n", err)
    assert re.search(r"CPUs of node 0 +8\.5 +2\.0 +42\.9 +45 +60\n", err)
    assert "\x1b" not in err


def test_json_has_the_accesses(capfd: pytest.CaptureFixture[str]) -> None:
    show_booted(replace(booted(), locality=FOUND), as_json=True)
    accesses = json.loads(capfd.readouterr().out)["locality"]
    assert accesses["window_ms"] == 12.5
    assert accesses["threads"][0]["lines"] == [40.0, 60.0]
    assert accesses["nodes"][0]["stalled_ms"] == 8.5


def test_without_accesses_there_is_no_page(
    tmp_path: Path, three_nodes: Topology, capfd: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    nothing = replace(booted(), locality=Locality(0.0, (), (), ("not joined",)))
    with pytest.raises(WorkloadFailed, match=r"no accesses were counted$"):
        put_page(None, ["prog"], three_nodes, nothing)
    with pytest.raises(WorkloadFailed, match=r"no accesses were counted; .*page.html is not wr"):
        put_page(page, ["prog"], three_nodes, nothing)
    failed = replace(nothing, outcome=replace(nothing.outcome, status=3))
    put_page(page, ["prog"], three_nodes, failed)
    assert "page.html is not written" in capfd.readouterr().err
    assert not page.exists()
    put_page(page, ["prog"], three_nodes, replace(booted(), locality=FOUND))
    assert page.exists()


@pytest.mark.parametrize("as_json", [False, True])
def test_what_a_lost_guest_had_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], as_json: bool
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/stdout").write_text("before the panic\n")
    with pytest.raises(GuestLost), printed_if_lost(as_json=as_json):
        raise GuestLost("it panicked", kept=tmp_path)
    assert capfd.readouterr() == ("" if as_json else "before the panic\n", "")
    error = TopologyMismatch("another machine")
    error.printed = (b"done\n", b"a warning\n")
    with pytest.raises(TopologyMismatch), printed_if_lost(as_json=as_json):
        raise error
    assert capfd.readouterr() == (("", "") if as_json else ("done\n", "a warning\n"))


@pytest.mark.parametrize("text", ["", "begin", "begin,", ",end", "a,b,c"])
def test_a_window_is_the_command_or_two_marks(text: str) -> None:
    with pytest.raises(UserError, match="is no window") as refused:
        command("ring-4", ["true"], locality=text)
    assert refused.value.key == "--locality"


def test_a_page_is_of_the_locality() -> None:
    with pytest.raises(UserError, match="needs --locality") as refused:
        command("ring-4", ["true"], page=Path("page.html"))
    assert refused.value.key == "--page"
