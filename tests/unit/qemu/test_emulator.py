"""The version of a QEMU, by what it prints of itself."""

from pathlib import Path

import pytest

from numalab.qemu.emulator import qemu_version


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)", (7, 2)),
        ("QEMU emulator version 10.0.13 (numalab)", (10, 0)),
        ("something else", ()),
    ],
)
def test_a_program_tells_its_version(
    printed: str, version: tuple[int, ...], tmp_path: Path
) -> None:
    program = tmp_path / "qemu"
    program.write_text(f"#!/bin/sh\necho '{printed}'\n")
    program.chmod(0o755)
    assert qemu_version(program) == version
    assert qemu_version(tmp_path / "none") == ()
