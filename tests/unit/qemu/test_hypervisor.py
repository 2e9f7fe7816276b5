"""Connections: what libvirt's test driver accepts, and what is refused with a way out."""

import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path

import libvirt
import pytest

from numalab.errors import HostError, UserError
from numalab.guest.run import run_guest
from numalab.machine.model import Job, Machine
from numalab.places import cache_dir
from numalab.process import run
from numalab.qemu import hypervisor
from numalab.qemu.embed import take_root
from numalab.qemu.hypervisor import connect
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology

GOLDEN = Path(__file__).parents[2] / "data" / "golden"


@pytest.mark.parametrize(
    "name", ["ring-4-tcg", "ring-4-icount", "ring-4-kvm", "slow-memory-3-icount"]
)
def test_libvirts_test_driver_defines_the_domain(name: str) -> None:
    """It reads and validates as the QEMU driver does; only the kind of guest is its own."""
    text = (GOLDEN / "machine" / f"{name}.xml").read_text()
    text = re.sub(r'(<domain [^>]*)type="\w+"', r'\1type="test"', text)
    text = re.sub(r"<qemu:commandline>.*</qemu:commandline>", "", text, flags=re.DOTALL)
    connection = libvirt.open("test:///default")
    try:
        domain = connection.defineXMLFlags(text, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
        cells = re.findall(r"<cell id='(\d+)'", domain.XMLDesc(0))
        assert cells == [str(node) for node in range(len(cells))] and len(cells) > 2
        domain.undefine()
    finally:
        connection.close()


def test_the_test_driver_runs_no_guest(tmp_path: Path) -> None:
    machine = Machine(load_topology("ring-2"), Path("/k"), Path("/r"), "tcg", 1, "m")
    with pytest.raises(
        UserError, match=r"test driver runs no guest \(valid: qemu:///embed, qemu:///session"
    ):
        run_guest(machine, Job(("true",)), RunDir(tmp_path), connection="test:///default")


def test_guests_on_another_host_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    class Elsewhere:
        def getHostname(self) -> str:  # noqa: N802
            return "server.example"

        def close(self) -> int:
            closed.append(True)
            return 0

    monkeypatch.setattr(libvirt, "open", lambda _: Elsewhere())
    with pytest.raises(HostError) as caught:
        connect("qemu+ssh://server.example/system")
    assert "runs guests on server.example: their consoles" in str(caught.value)
    assert "hint: ssh server.example numalab" in str(caught.value)
    assert closed == [True] and "qemu+ssh://server.example/system" not in hypervisor._open


def test_a_cache_whose_path_has_spaces_and_more() -> None:
    """libvirt reads the folder out of a URI; it is a short one, or another would be taken."""
    code = "from numalab.qemu.hypervisor import connect; print(connect().embedded)"
    with tempfile.TemporaryDirectory(prefix="a b&#%20?") as cache:
        done = run([sys.executable, "-c", code], env={"NUMALAB_CACHE": cache})
        assert done.stdout == "True\n"
        assert (Path(cache) / "libvirt" / "0" / "etc" / "qemu.conf").exists()


def test_a_short_name_that_another_user_has_taken_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deep cache has a short folder below /tmp, whose name anybody can work out."""
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / ("deep" * 20)))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    digest = hashlib.sha256(str(cache_dir("libvirt")).encode()).hexdigest()[:8]
    (tmp_path / f"numalab-{os.getuid()}-{digest}").touch()
    with pytest.raises(HostError, match="belongs to somebody else"):
        take_root()


def test_a_connection_that_is_not_there(tmp_path: Path) -> None:
    uri = f"qemu+unix:///session?socket={tmp_path}/none"
    with pytest.raises(HostError, match="Failed to connect socket"):
        connect(uri)
