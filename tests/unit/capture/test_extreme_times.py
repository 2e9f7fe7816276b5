"""Times that no clock has: an event is in the table, or the recording is not whole."""

import random
import shutil
import struct
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numalab.capture.decode import Decoded, decode_trace
from numalab.errors import UserError
from support.trace_report import assert_as_reported

MOST = (1 << 63) - 1
EXTREMES = [0, 1, (1 << 27) - 1, 1 << 59, MOST - 1000, MOST - 1, MOST, 1 << 63, (1 << 64) - 1]
DELTAS = [0, 1, (1 << 27) - 1, 1 << 27, (1 << 59) - 1]


def decoded(folder: Path, data: bytes) -> tuple[Decoded, pl.DataFrame]:
    (folder / "trace.dat").write_bytes(data)
    result = decode_trace(folder / "trace.dat", None, folder / "events.parquet")
    return result, pl.read_parquet(folder / "events.parquet")


def stamp(time: int, payload: bytes) -> bytes:
    """Write a record after an absolute time, of which it has the lower 59 bits."""
    low = time & ((1 << 59) - 1)
    head = struct.pack("<II", 31 | (low & 0x7FFFFFF) << 5, low >> 27)
    return head + struct.pack("<I", len(payload) // 4) + payload


@pytest.mark.parametrize("time", EXTREMES)
def test_an_event_is_in_the_table_or_counted(tmp_path: Path, write: Any, time: int) -> None:
    pages = [write.page(at, write.item(0, write.marker(5, b"hello"))) for at in (1000, time)]
    result, table = decoded(tmp_path, write.trace_dat([b"".join(pages)]))
    in_range = time < MOST
    assert result.whole == (in_range and time >= 1000)
    assert result.events == table.height == 1 + in_range
    assert sorted(table["time_ns"]) == sorted([1000, *([time] if in_range else [])])


@settings(max_examples=300, deadline=None)
@given(
    pages=st.lists(
        st.tuples(
            st.sampled_from(EXTREMES) | st.integers(0, (1 << 64) - 1),
            st.lists(
                st.tuples(st.booleans(), st.sampled_from(DELTAS) | st.integers(0, (1 << 59) - 1)),
                min_size=1,
                max_size=4,
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_whole_means_that_no_event_is_missing(
    tmp_path_factory: pytest.TempPathFactory, write: Any, pages: list[tuple[int, list[Any]]]
) -> None:
    marker = write.marker(5, b"hello")
    expected, in_order, last_page = [], True, 0
    data = b""
    for time, items in pages:
        in_order &= last_page <= time
        now = last_page = time
        body = b""
        for absolute, delta in items:
            after = (now & ~((1 << 59) - 1)) | delta if absolute else now + delta
            body += stamp(delta, padded(marker)) if absolute else write.item(delta, marker)
            in_order &= now <= after < MOST
            now = after
            expected.append(now)
        data += write.page(time, body)
    folder = tmp_path_factory.mktemp("recording")
    result, table = decoded(folder, write.trace_dat([data]))
    assert result.whole == in_order
    assert table["time_ns"].is_sorted()
    assert set(table["time_ns"]) <= {time for time in expected if time < MOST}
    if in_order:
        assert sorted(table["time_ns"]) == sorted(expected)


def padded(payload: bytes) -> bytes:
    return payload + b"\0" * (-len(payload) % 4)


@pytest.mark.skipif(shutil.which("trace-cmd") is None, reason="needs trace-cmd")
@pytest.mark.parametrize("seed", range(4))
def test_sound_times_are_those_of_trace_cmd(tmp_path: Path, write: Any, seed: int) -> None:
    rng = random.Random(seed)
    time, data = 0, b""
    for _ in range(rng.randrange(1, 5)):
        time += rng.choice([0, 1, 1 << 30, 1 << 58])
        delta = rng.choice(DELTAS[:4])
        first, second = (write.switch(7, b"x", 0, 8, b"y"), write.switch(8, b"y", 0, 7, b"x"))
        data += write.page(time, write.item(delta, first), write.item(delta, second))
        time += 2 * delta
    result, table = decoded(tmp_path, write.trace_dat([data], "7 x\n8 y\n"))
    assert result.whole
    assert_as_reported(tmp_path / "trace.dat", table)


@pytest.mark.parametrize(
    ("multiplier", "shift", "offset"), [(1, 5, 0), ((1 << 32) - 1, 10, 1 << 40), (3, 31, 0)]
)
def test_a_conversion_that_overflows_is_counted(
    tmp_path: Path, write: Any, multiplier: int, shift: int, offset: int
) -> None:
    latest = min(MOST, ((MOST - offset) << shift) // multiplier)
    option = struct.pack("<HI", 14, 16) + struct.pack("<IIQ", multiplier, shift, offset)
    for time, whole in ((latest - 1, True), (latest + 1, False)):
        page = write.page(time, write.item(0, write.marker(5, b"hello")))
        data = write.trace_dat([page], options=option, of_clock="x86-tsc")
        result, table = decoded(tmp_path, data)
        assert result.whole == whole
        assert table.height == whole
        if whole:
            assert table["time_ns"].to_list() == [(time * multiplier >> shift) + offset]


@pytest.mark.parametrize("clock", ["counter", "uptime", "x86-tsc", "tsc2nsec"])
def test_times_that_are_no_nanoseconds_are_refused(tmp_path: Path, write: Any, clock: str) -> None:
    page = write.page(1000, write.item(0, write.marker(5, b"hello")))
    with pytest.raises(UserError, match=f"its clock, {clock}, does not count nanoseconds"):
        decoded(tmp_path, write.trace_dat([page], of_clock=clock))
    assert not (tmp_path / "events.parquet").exists()
