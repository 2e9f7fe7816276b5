"""Small recordings of version 7 whose packed sections take much memory when they are unpacked."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from support.memory_peak import MOST, asked

OPTIONS, HEADER, FTRACE, EVENTS, BUFFER, CMDLINES = 0, 16, 17, 18, 3, 21


def blob(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def section(number: int, data: bytes) -> bytes:
    packed = zstandard.compress(data)
    body = struct.pack("<II", len(packed), len(data)) + packed
    return struct.pack("<HHIQ", number, 1, 0, len(body)) + body


def recording(header_page: str, sections: dict[int, bytes], options: bytes = b"") -> bytes:
    """Write a recording of version 7 with more options than where its sections are."""
    header = b"header_page\0" + blob(header_page.encode()) + b"header_event\0" + blob(b"")
    parts = {HEADER: header, FTRACE: bytes(4), EVENTS: bytes(4), CMDLINES: blob(b""), **sections}
    start = b"\x17\x08\x44tracing7\0" + struct.pack("<BBI", 0, 8, 4096) + b"zstd\0001\0"
    out, places = start + bytes(8), b""
    for number, data in parts.items():
        places += struct.pack("<HIQ", number, 8, len(out))
        out += section(number, data)
    where = struct.pack("<Q", len(out))
    out += section(OPTIONS, options + places + struct.pack("<HIQ", 0, 8, 0))
    return out[: len(start)] + where + out[len(start) + 8 :]


def tasks(count: int) -> bytes:
    """Return the lines of `saved_cmdlines` with different pids of eight digits."""
    lines = np.empty((count, 11), np.uint8)
    pids = np.arange(count, dtype=np.uint32)
    for digit in range(8):
        lines[:, 7 - digit] = pids // 10**digit % 10 + ord("0")
    lines[:, 8:] = np.frombuffer(b" a\n", np.uint8)
    return lines.tobytes()


def names(_: Any) -> tuple[dict[int, bytes], bytes]:
    return {CMDLINES: blob(tasks(28_000_000))}, b""


def lines(_: Any) -> tuple[dict[int, bytes], bytes]:
    return {CMDLINES: blob(b"\n" * (250 << 20))}, b""


def some_names(_: Any) -> tuple[dict[int, bytes], bytes]:
    return {CMDLINES: blob(tasks(1_500_000))}, b""


def formats(_: Any) -> tuple[dict[int, bytes], bytes]:
    system = b"x\0" + struct.pack("<I", 65_536) + bytes(8) * 65_536
    return {EVENTS: struct.pack("<I", 100) + system * 100}, b""


def buffers(_: Any) -> tuple[dict[int, bytes], bytes]:
    return {}, struct.pack("<HI", BUFFER, 0) * 10_000_000


@pytest.mark.parametrize("bomb", [names, lines, some_names, formats, buffers])
def test_a_packed_section(
    tmp_path: Path, write: Any, bomb: Callable[[Any], tuple[dict[int, bytes], bytes]]
) -> None:
    path = tmp_path / "trace.dat"
    path.write_bytes(recording(write.header_page, *bomb(write)))
    answers = asked(path, "trace")
    assert answers["peak"] < MOST
    assert len(answers["trace"]) < 2000


def test_a_small_recording_of_version_7_is_read(tmp_path: Path, write: Any) -> None:
    path = tmp_path / "trace.dat"
    path.write_bytes(recording(write.header_page, {}))
    assert asked(path, "trace")["trace"] == ""
