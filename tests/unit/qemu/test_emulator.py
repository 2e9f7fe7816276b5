"""The version of a QEMU, by what it prints of itself."""

from pathlib import Path

import pytest

from numalab.qemu.emulator import qemu_version, turns_are_fair


@pytest.mark.parametrize(
    ("printed", "version", "fair"),
    [
        ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)", (7, 2), False),
        ("QEMU emulator version 8.1.0", (8, 1), True),
        ("QEMU emulator version 10.0.13 (numalab)", (10, 0), True),
        ("something else", (), True),
    ],
)
def test_a_program_tells_its_version_and_so_whether_turns_are_fair(
    printed: str, version: tuple[int, ...], fair: bool, tmp_path: Path
) -> None:
    program = tmp_path / "qemu"
    program.write_text(f"#!/bin/sh\necho '{printed}'\n")
    program.chmod(0o755)
    assert qemu_version(program) == version
    assert turns_are_fair(program) is fair
    assert qemu_version(tmp_path / "none") == ()
