"""The kernel's event format texts, and packed blocks of a trace.dat."""

import zlib

import numpy as np
import polars as pl
import pytest

from numalab.capture.columns import (
    EventFormat,
    Field,
    column_name,
    parse_event_format,
    place,
    schema_of,
)
from numalab.capture.texts import Texts
from numalab.capture.trace_file import Damaged, unpack

TEXT = """\
name: sched_migrate_task
ID: 371
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:__data_loc char[] comm;\toffset:8;\tsize:4;\tsigned:0;
\tfield:pid_t pid;\toffset:12;\tsize:4;\tsigned:1;
\tfield:unsigned long mem_allowed[16];\toffset:16;\tsize:128;\tsigned:0;
\tfield:bool dead;\toffset:144;\tsize:1;\tsigned:0;
\tfield:char old[16];\toffset:145;\tsize:16;\tsigned:0;
\tfield:const char * why;\toffset:168;\tsize:8;\tsigned:0;
\tfield:__rel_loc char[] where;\toffset:176;\tsize:4;\tsigned:0;
\tfield:__data_loc cpumask_t allowed;\toffset:180;\tsize:4;\tsigned:0;
\tfield:__data_loc unsigned long[] loads;\toffset:184;\tsize:4;\tsigned:0;
\tfield:__rel_loc __s16[] steps;\toffset:188;\tsize:4;\tsigned:1;
\tfield:__data_loc struct pair[] pairs;\toffset:192;\tsize:4;\tsigned:0;

print fmt: "field:int fake;\toffset:1;\tsize:4;\tsigned:1;", REC->comm
"""


def test_fields_are_read_with_their_kinds() -> None:
    parsed = parse_event_format(TEXT, "sched")
    assert (parsed.id, parsed.system, parsed.name) == (371, "sched", "sched_migrate_task")
    assert parsed.fields == (
        Field("comm", "located text", 8, 4, signed=False),
        Field("pid", "int", 12, 4, signed=True),
        Field("mem_allowed", "bytes", 16, 128, signed=False),
        Field("dead", "bool", 144, 1, signed=False),
        Field("old", "text", 145, 16, signed=False),
        Field("why", "int", 168, 8, signed=False),
        Field("where", "located text", 176, 4, signed=False, relative=True),
        Field("allowed", "located array", 180, 4, signed=False, items="cpus"),
        Field("loads", "located array", 184, 4, signed=False, items="<u8"),
        Field("steps", "located array", 188, 4, signed=True, relative=True, items="<i2"),
        Field("pairs", "located array", 192, 4, signed=False),
    )
    assert parsed.least_bytes == 196


@pytest.mark.parametrize("text", ["", "name: x\n", "ID: 1\n", "name: x\nID: 99999999999\n"])
def test_a_text_without_name_or_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an event format"):
        parse_event_format(text, "sched")


def _event(name: str, size: int, *, signed: bool) -> EventFormat:
    return EventFormat(1, "s", name, (Field("value", "int", 8, size, signed=signed),))


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [
        ([(4, True), (4, True)], "Int32"),
        ([(4, True), (8, True)], "Int64"),
        ([(4, False), (2, False)], "UInt32"),
        ([(8, False), (4, False)], "UInt64"),
        ([(4, True), (4, False)], "Int64"),
        ([(1, False), (2, True)], "Int16"),
        ([(8, True), (8, False)], "Int64"),
    ],
)
def test_events_share_a_column_that_holds_both(sizes: list[tuple[int, bool]], kind: str) -> None:
    events = [_event(str(i), size, signed=signed) for i, (size, signed) in enumerate(sizes)]
    assert str(schema_of(events)["value"]) == kind


def test_a_number_and_a_text_of_one_name_share_a_text_column() -> None:
    text = EventFormat(2, "s", "t", (Field("value", "text", 8, 16, signed=False),))
    assert str(schema_of([_event("n", 4, signed=True), text])["value"]) == "String"


def test_an_events_own_pid_is_not_the_running_tasks() -> None:
    names = [column_name(name) for name in ("pid", "comm", "lost", "prev_pid")]
    assert names == ["event_pid", "event_comm", "event_lost", "prev_pid"]


def test_packed_blocks_are_unpacked_and_bombs_refused() -> None:
    packed = memoryview(zlib.compress(b"x" * 1000))
    assert unpack(packed, 1000, "zlib") == b"x" * 1000
    for plain, compression in ((999, "zlib"), (1 << 40, "zlib"), (1000, "zstd"), (1000, "lzo")):
        with pytest.raises(Damaged):
            unpack(packed, plain, compression)


def test_values_of_several_events_share_a_column_and_what_does_not_fit_is_null() -> None:
    first, second = np.array([0, 2]), np.array([3])
    big, small = np.array([7, 1 << 63], np.uint64), np.array([-1], np.int32)
    texts = Texts(pl.Series(["a", None]), np.array([0, 1]))
    placed = place(
        {"number": [(first, big), (second, small)], "text": [(first, texts), (second, small)]},
        {"number": pl.Int64(), "text": pl.String(), "none": pl.Int8()},
        4,
    )
    assert set(placed) == {"number", "text"}
    number, text = placed["number"], placed["text"]
    assert number.rows is not None and number.rows.tolist() == [0, 3]
    assert isinstance(number.values, np.ndarray) and number.values.tolist() == [7, -1]
    assert text.rows is not None and text.rows.tolist() == [0, 3]
    assert isinstance(text.values, Texts)
    assert text.values.different.gather(text.values.which).to_list() == ["a", "-1"]
