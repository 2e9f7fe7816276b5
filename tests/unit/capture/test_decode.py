"""Recordings into tables: checked against trace-cmd, and with all that can befall a recording."""

import os
import random
import re
import struct
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from numalab.capture import pages
from numalab.capture.decode import Decoded, decode_guest, decode_trace
from numalab.capture.memory_tables import FIXED, VERSION
from numalab.capture.trace_file import open_trace
from numalab.errors import UserError
from numalab.locality.locality import read_locality
from numalab.process import find_program, run
from numalab.run_dir import RunDir
from numalab.topology.topology import Node, Topology
from support.trace_report import LINE, assert_as_reported, report

RING_4 = Topology(
    name="ring-4",
    summary="",
    source="",
    nodes=tuple(Node(n, (2 * n, 2 * n + 1), 512) for n in range(4)),
    distances=((10, 20, 30, 20), (20, 10, 20, 30), (30, 20, 10, 20), (20, 30, 20, 10)),
    cpu_shape=None,
    llc="none",
)


def decode(path: Path, topology: Topology | None = RING_4) -> tuple[Decoded, pl.DataFrame]:
    table = path.with_suffix(".parquet")
    decoded = decode_trace(path, topology, table)
    return decoded, pl.read_parquet(table)


def decode_bytes(tmp_path: Path, data: bytes) -> tuple[Decoded, pl.DataFrame]:
    path = tmp_path / "trace.dat"
    path.write_bytes(data)
    return decode(path)


def test_every_event_and_field_is_as_trace_cmd_reports_it(ring4_dat: Path) -> None:
    decoded, table = decode(ring4_dat)
    assert decoded.events == table.height == 3408
    assert_as_reported(ring4_dat, table)
    assert decoded.whole
    assert decoded.counts["sched_swap_numa"] == 5
    assert (decoded.first_ns, decoded.last_ns) == (table["time_ns"][0], table["time_ns"][-1])


def test_columns_are_typed_and_nodes_are_the_topologys(ring4_dat: Path) -> None:
    _, table = decode(ring4_dat)
    common: list[tuple[str, Any]] = list(table.schema.items())[:6]
    assert common == [
        ("time_ns", pl.Int64),
        ("cpu", pl.Int16),
        ("node", pl.Int16),
        ("event", pl.String),
        ("pid", pl.Int32),
        ("comm", pl.String),
    ]
    assert table.schema["prev_state"] == pl.Int64
    assert (table["node"] == table["cpu"] // 2).all()
    swap = table.filter(pl.col("event") == "sched_swap_numa").row(0, named=True)
    assert swap["src_nid"] == swap["src_cpu"] // 2
    assert swap["next_pid"] is None


@pytest.mark.parametrize("options", [["--file-version", "6"], ["--compression", "zstd"]])
def test_other_versions_and_packings_give_the_same_table(
    ring4_dat: Path, tmp_path: Path, options: list[str]
) -> None:
    other = tmp_path / "other.dat"
    trace_cmd = find_program("trace-cmd", "trace-cmd")
    run([trace_cmd, "convert", "-i", ring4_dat, "-o", other, *options], timeout=60)
    assert other.read_bytes() != ring4_dat.read_bytes()
    assert decode(other)[1].equals(decode(ring4_dat)[1])


def test_a_table_made_in_small_pieces_is_the_same(
    ring4_dat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded, whole = decode(ring4_dat)
    monkeypatch.setattr(pages, "CHUNK_BYTES", 3 * 4096)
    again, pieced = decode(ring4_dat)
    assert pieced.equals(whole)
    assert again == decoded


def test_a_page_of_a_quiet_cpu_is_read_only_where_it_has_events(
    tmp_path: Path, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "CHUNK_BYTES", 4096)
    wake = write.item(1, write.wakeup(1, b"a", 0))
    busy = b"".join(write.page(100 * i, wake) for i in range(20))
    quiet = write.page(50, wake, write.item(1800, write.wakeup(2, b"b", 1)), missed=3)
    data = write.trace_dat([busy, quiet])
    source = pages.PageSource(open_trace(memoryview(data), tmp_path))
    assert sum(len(chunk.words) for chunk in source.chunks()) == 20 + 2
    source.close()
    decoded, table = decode_bytes(tmp_path, data)
    assert (decoded.lost, decoded.events) == (3, 22)
    assert table["time_ns"].to_list() == sorted([50, 51, 1851, *range(1, 2000, 100)])


HOSTILE = [
    b"x prev_pid=1",
    b"a=b next_pid=7",
    b"new\nline",
    b"\x1b[2Jclear",
    b"==> swapper/0:0",
    b"\xff\xfe not utf-8",
    b"<script>",
    "\u202eright".encode(),
    b"sixteen bytes!!!",
    b"",
]


@pytest.mark.parametrize("comm", HOSTILE)
def test_a_hostile_task_name_stays_a_name(tmp_path: Path, write: Any, comm: bytes) -> None:
    page = write.page(
        1000,
        write.item(5, write.switch(42, comm, 0, 43, b"next")),
        write.item(5, write.wakeup(42, comm, 0)),
    )
    decoded, table = decode_bytes(tmp_path, write.trace_dat([page]))
    name = comm[:16].decode("utf-8", "backslashreplace")
    assert decoded.whole
    assert table["prev_comm"].to_list() == [name, None]
    assert table["event_comm"].to_list() == [None, name]
    assert table["prev_pid"].to_list() == [42, None]
    assert table["next_pid"].to_list() == [43, None]


def test_fields_are_read_as_their_format_says(tmp_path: Path, write: Any) -> None:
    page = write.page(
        7,
        write.item(3, write.executed(11, b"/bin/true")),
        write.item(0, write.marker(11, b"numalab: begin")),
        write.item(1, write.marker(11, b"m" * 300)),
    )
    _, table = decode_bytes(tmp_path, write.trace_dat([page], "11 true\n12 other\n"))
    first = table.row(0, named=True)
    assert (first["filename"], first["event_pid"], first["done"]) == ("/bin/true", 11, True)
    assert first["small"] == -7
    assert first["mask"] == struct.pack("<QQ", 1, 1 << 63).hex()
    assert table["buf"].to_list() == [None, "numalab: begin\n", "m" * 300 + "\n"]
    assert table["time_ns"].to_list() == [10, 10, 11]
    assert table["comm"].to_list() == ["true"] * 3


_MASKS = [
    (b"\x0d" + bytes(7), "0,2-3", [1, 70_000, 4_000_000_000], "1 70000 4000000000"),
    (bytes(7) + b"\x80" + b"\x01" + bytes(7), "63-64", [7], "7"),
    (bytes(8), "", [], ""),
]


def test_arrays_and_masks_are_as_trace_cmd_reports_them(tmp_path: Path, write: Any) -> None:
    """It prints neither numbers below 0 nor arrays of a type that only the kernel knows."""
    records = [
        write.masks(5, mask, struct.pack(f"<{len(loads)}I", *loads), b"idle\0", b"\7\0\xff\0", b"")
        for mask, _, loads, _ in _MASKS
    ]
    records.append(write.masks(5, b"", b"", b"\0", b"\xfe\xff", b"\x01\xab"))
    page = write.page(1, *(write.item(1, record) for record in records))
    _, table = decode_bytes(tmp_path, write.trace_dat([page]))
    columns = ("allowed", "loads", "why", "steps")
    wanted = [(mask, loads, "idle", "7 255") for _, mask, _, loads in _MASKS]
    assert table.select(columns).rows() == [*wanted, ("", "", "", "-2")]
    assert table["pairs"].to_list() == ["", "", "", "01ab"]
    assert table.select("lost", "event_lost").rows() == [(None, -3)] * 4
    fields = re.compile("allowed=(.*) loads=(.*) why=(.*) steps=(.*)")
    shown = [fields.search(line) for line in report(tmp_path / "trace.dat", raw=False)]
    assert [line.groups() for line in shown[:3] if line] == wanted


@pytest.mark.parametrize(
    ("field", "word"),
    [
        (8, 4000 << 16 | 32),  # past the end
        (8, 4 << 16 | 60_000),
        (12, 6 << 16 | 32),  # a part of a number
        (16, 4000 << 16 | 12),
        (20, 4 << 16 | 60_000),
        (24, 1 << 16 | 4096),
    ],
)
def test_an_array_outside_its_record_is_null(
    tmp_path: Path, write: Any, field: int, word: int
) -> None:
    record = bytearray(write.masks(5, b"\x01" + bytes(7), bytes(4), b"\0", b"", b"\x01"))
    struct.pack_into("<I", record, field, word)
    page = write.page(1, write.item(1, bytes(record)))
    _, table = decode_bytes(tmp_path, write.trace_dat([page]))
    read = table.select("allowed", "loads", "why", "steps", "pairs").row(0)
    assert [value is None for value in read] == [at == field for at in range(8, 28, 4)]


def test_times_are_followed_through_extensions_stamps_and_padding(
    tmp_path: Path, write: Any
) -> None:
    wake = write.wakeup(1, b"a", 0)
    stamp = struct.pack("<II", 31 | 5 << 5, 1 << 6)  # the absolute time 2**33 + 5
    discarded = struct.pack("<II", 29 | 10 << 5, 8) + b"\0" * 4
    page = write.page(
        100,
        write.item(1, wake),
        write.item(1 << 30, wake),
        stamp,
        write.item(2, wake),
        discarded,
        write.item(1, wake),
    )
    path = tmp_path / "trace.dat"
    path.write_bytes(write.trace_dat([page]))
    decoded, table = decode(path)
    assert decoded.whole
    start = 101 + (1 << 30)
    times = [101, start, (1 << 33) + 7, (1 << 33) + 18]
    assert table["time_ns"].to_list() == times
    shown = [LINE.match(line) for line in report(path)]
    assert [int(m[4]) * 10**9 + int(m[5]) for m in shown if m] == times


def test_lost_events_are_counted_and_have_a_row_where_they_were(tmp_path: Path, write: Any) -> None:
    wake = write.item(1, write.wakeup(1, b"a", 0))
    first = write.page(100, wake) + write.page(500, wake, missed=12)
    second = write.page(300, wake, missed=-1)
    decoded, table = decode_bytes(tmp_path, write.trace_dat([first, second]))
    assert (decoded.lost, decoded.gaps, decoded.events) == (12, 2, 3)
    assert not decoded.whole
    lost = table.filter(pl.col("event") == "lost_events")
    assert lost.select("time_ns", "cpu", "lost").rows() == [(300, 1, None), (500, 0, 12)]
    assert table["event"].to_list().index("lost_events") == 1


def test_events_of_all_cpus_come_in_the_order_of_their_times(tmp_path: Path, write: Any) -> None:
    def cpu(start: int, step: int, count: int) -> Any:
        wakes = [write.item(step, write.wakeup(i, b"t", 0)) for i in range(count)]
        return write.page(start, *wakes)

    data = write.trace_dat([cpu(0, 10, 30) + cpu(1000, 1, 30), cpu(5, 7, 40), b"", cpu(900, 9, 9)])
    _, table = decode_bytes(tmp_path, data)
    assert table["time_ns"].is_sorted()
    assert table["cpu"].unique().sort().to_list() == [0, 1, 3]
    assert table.height == 109


def test_a_damaged_page_is_read_as_far_as_it_is_sound(tmp_path: Path, write: Any) -> None:
    wake = write.item(1, write.wakeup(1, b"a", 0))
    beyond = struct.pack("<II", 0, 1 << 20)  # a record of 1 MiB in a page of 4 KiB
    data = write.trace_dat([write.page(1, wake, wake, beyond, wake) + write.page(99, wake)])
    decoded, table = decode_bytes(tmp_path, data)
    assert table["time_ns"].to_list() == [2, 3, 100]
    assert decoded.unsound == 1


def with_instance(write: Any, main: bytes, pages: bytes, name: str = "x") -> bytes:
    """A recording of one CPU whose instance `name` has another clock than its main buffer."""

    def option(place: int) -> bytes:
        return struct.pack("<HIQ", 3, 9 + len(name), place) + name.encode() + b"\0"

    place = len(write.trace_dat([main], options=option(0)))
    head = b"flyrecord\0" + struct.pack("<QQQ", place + 4096, len(pages), 7) + b"[local]"
    whole: bytes = write.trace_dat([main], options=option(place))
    return whole + head.ljust(4096, b"\0") + pages


def test_of_several_buffers_only_the_main_one_is_read(tmp_path: Path, write: Any) -> None:
    """An instance has its own clock and its own losses, and often the same events."""
    wake = write.item(1, write.wakeup(1, b"a", 0))
    main, other = write.page(1, wake, wake), write.page(1, wake, missed=3)
    left_out = (f"only the main buffer was read; {LEFT_OUT}: instance 'x'",)
    decoded, table = decode_bytes(tmp_path, with_instance(write, main, other))
    assert table["time_ns"].to_list() == [2, 3]
    assert (decoded.gaps, decoded.clock, decoded.problems) == (0, "mono", left_out)
    trace_cmd, seventh = find_program("trace-cmd", "trace-cmd"), tmp_path / "7.dat"
    options: list[str | Path] = ["-o", seventh, "--compression", "none", "--file-version", "7"]
    run([trace_cmd, "convert", "-i", tmp_path / "trace.dat", *options], timeout=60)
    decoded, again = decode(seventh)
    assert again.equals(table) and decoded.problems == left_out
    decoded, table = decode_bytes(tmp_path, with_instance(write, b"", other))
    assert table["event"].to_list() == ["lost_events", "sched_wakeup"]
    assert (decoded.lost, decoded.clock, decoded.problems) == (3, "local", ())


LEFT_OUT = "`trace-cmd report` of the trace.dat prints the rest"
OF_MAIN = f"{LEFT_OUT}: the main buffer, where trace_printk() writes"


def test_a_buffer_with_texts_alone_gives_way_to_events_of_the_scheduler(
    tmp_path: Path, write: Any
) -> None:
    """trace_printk(), bpf_trace_printk() and trace_marker write into the main buffer."""
    text = write.page(1, write.item(1, write.marker(1, b"x")))
    wake = write.page(5, write.item(1, write.wakeup(1, b"a", 0)))
    decoded, table = decode_bytes(tmp_path, with_instance(write, text, wake))
    assert table["event"].to_list() == ["sched_wakeup"]
    assert decoded.problems == (f"only instance 'x' was read; {OF_MAIN}",)
    _, table = decode_bytes(tmp_path, with_instance(write, text, text))
    assert table["time_ns"].to_list() == [2]


def test_of_a_guest_its_own_instance_is_read(tmp_path: Path, write: Any) -> None:
    """Whatever the guest's programs and kernel wrote into the main buffer."""
    wake = write.item(1, write.wakeup(1, b"a", 0))
    directory = RunDir(tmp_path)
    directory.out.mkdir()
    main, own = write.page(1, wake, wake), write.page(5, wake)
    directory.trace.write_bytes(with_instance(write, main, own, "lab"))
    decoded = decode_guest(directory, RING_4)
    assert pl.read_parquet(directory.events)["time_ns"].to_list() == [6]
    assert (decoded.whole, decoded.notes) == (True, (f"only instance 'lab' was read; {OF_MAIN}",))
    for other in (with_instance(write, main, own), with_instance(write, main, b"", "lab")):
        directory.trace.write_bytes(other)
        with pytest.raises(UserError, match="nothing is in its buffer 'lab'"):
            decode_guest(directory, RING_4)


def test_locality_notes_what_its_recording_lacks(tmp_path: Path, write: Any) -> None:
    wake = write.item(1, write.wakeup(1, b"a", 0))
    beyond = struct.pack("<II", 0, 1 << 20)
    directory = RunDir(tmp_path)
    directory.out.mkdir()
    directory.trace.write_bytes(
        with_instance(write, write.page(1, wake), write.page(1, wake, beyond), "lab")
    )
    directory.maps.write_bytes(b"")
    columns = {directory.memory_counts: len(FIXED) + 12, directory.memory_traffic: 4}
    for file, count in columns.items():
        file.write_bytes(struct.pack("<8Q", 0x656C6361726F, VERSION, count, 4, 10**7, 0, 0, 0))
    notes = read_locality(directory, RING_4).notes
    assert "1 pages are damaged, 0 records fit no event format" in notes
    assert f"only instance 'lab' was read; {OF_MAIN}" in notes


def test_the_search_for_a_buffer_shows_its_progress(
    tmp_path: Path, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"".join(write.page(at, write.item(1, write.marker(1, b"x"))) for at in range(1, 4))
    wake = b"".join(write.page(at, write.item(1, write.wakeup(1, b"a", 0))) for at in range(1, 4))
    trace_dat = tmp_path / "trace.dat"
    trace_dat.write_bytes(with_instance(write, text, wake))
    monkeypatch.setattr(pages, "CHUNK_BYTES", 2 * 4096)
    lines: list[str] = []
    decode_trace(trace_dat, RING_4, tmp_path / "e", lambda text, _: lines.append(text))
    assert lines.count("find events") == 3, "of the main buffer, the instance, and what is read"


def zeroed(whole: bytes, at: int, size: int) -> bytes:
    return whole[:at] + bytes(size) + whole[at + size :]


def test_zeroed_bytes_are_never_whole(ring4_dat: Path, tmp_path: Path) -> None:
    """Whatever is zeroed where the pages are: all events are there, or the loss is told."""
    whole = ring4_dat.read_bytes()
    cpus = open_trace(memoryview(whole), ring4_dat).cpus
    begin = [at for cpu in cpus for at in range(cpu.offset, cpu.offset + cpu.size, 4096)]
    places = [(at, 4096) for at in begin] + [(at + n, 8) for at in begin[::7] for n in (0, 8, 2000)]
    events = decode(ring4_dat)[0].events
    for at, size in places:
        result, _ = decode_bytes(tmp_path, zeroed(whole, at, size))
        assert result.events == events or not result.whole, (at, size)


def test_the_kernels_own_counts_tell_what_is_missing(ring4_dat: Path, tmp_path: Path) -> None:
    """A record that says that it is padding is passed over, and nothing else shows it."""
    data = bytearray(ring4_dat.read_bytes())
    trace = open_trace(memoryview(bytes(data)), ring4_dat)
    assert set(trace.stats) == {(name, cpu) for name in ("", "lab") for cpu in range(8)}
    head = trace.cpus[0].offset + 16
    kind = data[head] & 31
    struct.pack_into("<II", data, head, 29 | 1 << 5, kind * 4)
    result, _ = decode_bytes(tmp_path, bytes(data))
    assert (result.unsound, result.unreadable) == (0, 0)
    counted = trace.stats["lab", 0].read
    assert counted is not None
    text = f"buffer 'lab', CPU 0: {counted - 1} events where the kernel counted {counted}"
    assert result.problems == (text,)


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"dropped events": 9, "commit overrun": 7}, "16 events dropped for lack of room"),
        ({"entries": 5}, "5 events stayed in the kernel's buffer"),
    ],
)
def test_events_that_the_kernel_says_it_dropped_are_told(
    ring4_dat: Path, tmp_path: Path, counts: dict[str, int], text: str
) -> None:
    data = ring4_dat.read_bytes()
    for name, count in counts.items():
        data = data.replace(b"\n%b: 0\n" % name.encode(), b"\n%b: %d\n" % (name.encode(), count))
    result, _ = decode_bytes(tmp_path, data)
    expected = [f"buffer 'lab', CPU {cpu}: {text}" for cpu in range(8)]
    assert (result.problems, result.whole) == (tuple(expected), False)


def test_records_that_fit_no_event_are_counted(tmp_path: Path, write: Any) -> None:
    short = write.item(1, write.wakeup(1, b"a", 0)[:16])
    stranger = write.item(1, struct.pack("<HBBi", 999, 0, 0, 1) + b"\0" * 8)
    data = write.trace_dat(
        [write.page(1, short, stranger, write.item(1, write.wakeup(1, b"a", 0)))]
    )
    decoded, table = decode_bytes(tmp_path, data)
    assert (decoded.unreadable, decoded.events, table.height) == (2, 1, 1)


def test_a_text_outside_its_record_is_null(tmp_path: Path, write: Any) -> None:
    record = bytearray(write.executed(11, b"/bin/true"))
    record[8:12] = struct.pack("<I", 4000 << 16 | 36)
    _, table = decode_bytes(
        tmp_path, write.trace_dat([write.page(1, write.item(1, bytes(record)))])
    )
    assert table["filename"].to_list() == [None]
    assert table["event_pid"].to_list() == [11]


def test_a_recording_without_events_is_an_empty_table(tmp_path: Path, write: Any) -> None:
    decoded, table = decode_bytes(tmp_path, write.trace_dat([b"", b""]))
    assert (decoded.events, table.height) == (0, 0)
    assert "time_ns" in table.columns


def test_a_recording_cut_short_keeps_its_first_pages(tmp_path: Path, write: Any) -> None:
    wakes = [write.item(1, write.wakeup(1, b"a", 0)) for _ in range(50)]
    whole = write.trace_dat([b"".join(write.page(100 * i, *wakes) for i in range(4))])
    decoded, table = decode_bytes(tmp_path, whole[: -2 * 4096 + 1000])
    assert 100 < table.height < 150
    assert (decoded.unsound, decoded.problems) == (
        1,
        ("7192 bytes of the ring buffer are not in the file",),
    )


def test_version_7_without_its_end_is_refused(ring4_dat: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.dat"
    path.write_bytes(ring4_dat.read_bytes()[:-20_000])
    with pytest.raises(UserError, match="nothing says where its ring buffer is"):
        decode(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"not a trace at all, but long enough", "not a trace.dat"),
        (b"\x17\x08\x44tracing8\0", r"version '8' of trace.dat \(valid: 6, 7\)"),
        (b"\x17\x08\x44tracing6\0\x01", "big-endian"),
        (b"\x17\x08\x44tracing6\0\x00\x08", "cut short or damaged"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "trace.dat"
    path.write_bytes(data)
    with pytest.raises(UserError, match=message) as refused:
        decode(path)
    assert refused.value.file == path
    assert not path.with_suffix(".parquet").exists()


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace.dat")
    with pytest.raises(UserError, match="cannot read: not a file"):
        decode(tmp_path / "trace.dat")


def test_a_missing_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        decode(tmp_path / "trace.dat")


def _mutated(source: bytes, chance: random.Random) -> bytes:
    data = bytearray(source)
    for _ in range(chance.choice((1, 2, 40))):
        at = chance.randrange(max(1, len(data)))
        harm = chance.choice((b"\0" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f", chance.randbytes(16)))
        data[at : at + len(harm)] = harm
    return bytes(data)


@pytest.mark.parametrize("seed", range(20))
def test_a_real_recording_with_mutated_pages_never_crashes(
    ring4_dat: Path, tmp_path: Path, seed: int
) -> None:
    source = ring4_dat.read_bytes()
    start = 1_601_536  # where the pages of CPU 0 begin
    end = start + 217_088
    mutated = _mutated(source[start:end], random.Random(seed))
    _, table = decode_bytes(tmp_path, source[:start] + mutated[: end - start] + source[end:])
    assert table["time_ns"].is_sorted()
