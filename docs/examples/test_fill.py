"""Whether memory is where a program or its policy wants it: a test for pytest."""

import subprocess
from pathlib import Path

import pytest

from numalab.api import GuestSession

HERE = Path(__file__).parent
pytestmark = pytest.mark.numa("ring-4", "mesh-2")


@pytest.fixture(scope="session")
def fill(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("programs") / "fill"
    subprocess.run(["gcc", "-O1", "-o", program, HERE / "fill.c", "-lnuma"], check=True)
    return program


def test_the_program_binds_its_memory(guest: GuestSession, fill: Path) -> None:
    result = guest.run([fill, "32", "1"], memory=True).check()
    assert result.memory_share(1) > 0.9


def test_numactl_binds_its_memory(guest: GuestSession, fill: Path) -> None:
    result = guest.run(["numactl", "--membind=0", fill, "32"], memory=True).check()
    assert result.memory_share(0) > 0.9
