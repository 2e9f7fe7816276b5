"""Recordings that a guest wrote to do harm: numbers, texts and lists that never end."""

import struct
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from numalab.capture import decode, pages
from numalab.capture.columns import Cells, place
from numalab.capture.decode import Decoded, decode_trace
from numalab.capture.trace_file import MAX_CPUS
from numalab.errors import UserError


def decoded(folder: Path, data: bytes) -> Decoded:
    (folder / "trace.dat").write_bytes(data)
    return decode_trace(folder / "trace.dat", None, folder / "events.parquet")


def with_options(data: bytes, *options: tuple[int, bytes]) -> bytes:
    """Put options into a recording of version 6 without any, and leave its pages in their place."""
    body = b"".join(struct.pack("<HI", number, len(text)) + text for number, text in options)
    before, mark, after = data.partition(b"options  \0")
    return before + mark + body + after


def test_a_layout_of_numbers_without_end(tmp_path: Path, write: Any) -> None:
    data = write.trace_dat([b""])
    text = b"offset:16;\tsize:4080;"
    long = text.replace(b"4080", b"9" * 5000)
    at = data.index(text) - data[: data.index(text)].rindex(b"header_page\0") - 12
    assert at > 0
    size = struct.pack("<Q", len(write.header_page))
    assert size in data
    more = struct.pack("<Q", len(write.header_page) + len(long) - len(text))
    with pytest.raises(UserError, match="no layout of the ring buffer's pages"):
        decoded(tmp_path, data.replace(size, more, 1).replace(text, long))


def test_instances_that_share_their_place_are_counted(tmp_path: Path, write: Any) -> None:
    """An instance takes 30 bytes of a file, and may say that it has 8192 CPUs."""
    data = write.trace_dat([b""] * 64)
    place = data.index(b"flyrecord\0")
    instance = (3, struct.pack("<Q", place) + b"x\0")
    data = with_options(data, *[instance] * 200_000)
    place = data.index(b"flyrecord\0")
    data = data.replace(struct.pack("<Q", place - 200_000 * 16), struct.pack("<Q", place))
    result = decoded(tmp_path, data)
    assert result.events == 0
    assert any("buffers of CPUs" in text for text in result.problems)
    assert len(result.problems) < 2 * MAX_CPUS


@pytest.mark.parametrize("tsc", [(1, 1 << 31, 0), (1, 63, 0), (1, 5, 1 << 63)])
def test_a_conversion_of_time_that_no_clock_has(
    tmp_path: Path, write: Any, tsc: tuple[int, int, int]
) -> None:
    item = write.item(0, write.marker(5, b"hello"))
    data = write.trace_dat([write.page(1000, item)]).replace(b"[mono]", b"[x86-tsc]")
    data = data.replace(struct.pack("<Q", 6) + b"[x86", struct.pack("<Q", 9) + b"[x86")
    with pytest.raises(UserError, match="its clock, x86-tsc, does not count nanoseconds"):
        decoded(tmp_path, with_options(data, (14, struct.pack("<IIQ", *tsc))))


def test_an_event_of_fields_without_end(
    tmp_path: Path, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = write.item(0, write.marker(5, b"hello"))
    data = write.trace_dat([write.page(1000 * at, item) for at in range(1, 40)])
    whole = decoded(tmp_path, data)
    monkeypatch.setattr(pages, "MOST_CELLS", 20_000)
    assert decoded(tmp_path, data) == whole  # page by page
    monkeypatch.setattr(pages, "MOST_CELLS", 1000)
    with pytest.raises(UserError, match="columns"):
        decoded(tmp_path, data)


def test_late_events_of_all_pages_come_piece_by_piece(
    tmp_path: Path, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page begins early and goes on at the end of the recording, where they all meet."""
    late = [write.item(0, write.marker(5, b"late"))] * 40

    def page(at: int) -> bytes:
        first = write.item(0, write.marker(5, b"early"))
        then = write.item((1 << 20) - at, write.marker(5, b"then"))
        whole: bytes = write.page(at, first, then, *late, missed=at % 7)
        return whole

    cpus = [b"".join(page(2 * at + cpu) for at in range(60)) for cpu in range(2)]
    whole = decoded(tmp_path, write.trace_dat(cpus))
    table = pl.read_parquet(tmp_path / "events.parquet")
    assert whole.events == 2 * 60 * 42
    monkeypatch.setattr(pages, "MOST_CELLS", 20_000)
    sizes: list[int] = []

    def counted(values: Any, schema: Any, rows: int) -> dict[str, Cells]:
        sizes.append(rows)
        return place(values, schema, rows)

    monkeypatch.setattr(decode, "place", counted)
    assert decoded(tmp_path, write.trace_dat(cpus)) == whole
    again = pl.read_parquet(tmp_path / "events.parquet")
    assert again["time_ns"].is_sorted()
    assert again.sort(pl.all()).equals(table.sort(pl.all()))
    assert max(sizes) < 20_000 // table.width + 10
