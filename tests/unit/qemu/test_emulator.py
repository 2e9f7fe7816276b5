"""The version of a QEMU, by what it prints of itself."""

from pathlib import Path

import pytest

from numalab.qemu.emulator import parse_qemu_version, qemu_version


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


@pytest.mark.parametrize(("text", "version"), [("10.0.13", (10, 0)), ("unknown", ())])
def test_a_result_says_its_version_alone(text: str, version: tuple[int, ...]) -> None:
    assert parse_qemu_version(text) == version
