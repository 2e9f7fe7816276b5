"""Stored boots of strangers: each is not there, or is read and shown without harm."""

import json
import os
import random
from pathlib import Path

import pytest

from numalab.hunt.workers import read_boot

FINDING = {"prop": "fair", "load": 1, "value": 2.0, "most": 1.0, "text": "it was"}
STORED = {"findings": [FINDING], "seconds": 1.5, "error": ""}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return tmp_path / "boot.json"


def test_a_boot_is_read(stored: Path) -> None:
    stored.write_text(json.dumps(STORED))
    result = read_boot(stored)
    assert result is not None
    assert result.findings[0].text == "it was"


@pytest.mark.parametrize("kind", ["fifo", "device", "link", "folder", "kmsg"])
def test_what_is_no_file_is_no_boot(stored: Path, kind: str) -> None:
    """Reading a pipe could wait for ever, and a device may never end."""
    (stored.parent / "whole.json").write_text(json.dumps(STORED))
    match kind:
        case "fifo":
            os.mkfifo(stored)
        case "device":
            stored.symlink_to("/dev/zero")
        case "link":
            stored.symlink_to(stored.parent / "whole.json")
        case "folder":
            stored.mkdir()
        case "kmsg":
            stored.symlink_to("/proc/kmsg")
    assert read_boot(stored) is None


@pytest.mark.parametrize("seed", range(50))
def test_bytes_that_are_no_utf_8(stored: Path, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(json.dumps(STORED).encode())
    for _ in range(rng.choice([1, 5])):
        data[rng.randrange(len(data))] = rng.randrange(128, 256)
    stored.write_bytes(data)
    assert read_boot(stored) is None


@pytest.mark.parametrize("text", ["\x1b[2J", "\x1b]0;title\a", "a\nb", "\u202e", "\x9b31m"])
def test_no_text_reaches_the_terminal_as_control_characters(stored: Path, text: str) -> None:
    finding = {**FINDING, "text": text, "prop": text}
    stored.write_text(json.dumps({**STORED, "findings": [finding]}))
    result = read_boot(stored)
    assert result is not None
    assert result.findings[0].text.isprintable()
    assert result.findings[0].prop.isprintable()


def test_a_boot_that_is_too_large(stored: Path) -> None:
    stored.write_bytes(b'{"findings": [' + b"{}," * 3_000_000 + b'{}], "seconds": 1}')
    assert read_boot(stored) is None
    os.truncate(stored, 1 << 40)
    assert read_boot(stored) is None
