"""What `trace-cmd report` says about a recording, and whether a table says the same."""

import re
from pathlib import Path
from typing import Any

import polars as pl

from numalab.process import find_program, run

LINE = re.compile(r"^(?:\w+:)?\s*(.*)-(\d+)\s+\[(\d+)\]\s+(\d+)\.(\d{9}): (\S+):\s*(.*)$")
_OWN = {"time_ns", "cpu", "node", "event", "pid", "comm", "lost"}
_KERNEL_HALF = 1 << 63


def report(path: Path, *, raw: bool = True) -> list[str]:
    """Return the lines of `trace-cmd report` that stand for events, their fields `raw` or not."""
    trace_cmd = find_program("trace-cmd", "trace-cmd")
    options = ["-R"] if raw else []
    text = run([trace_cmd, "report", "-t", *options, path], timeout=120).stdout
    return [line for line in text.splitlines() if LINE.match(line)]


def assert_as_reported(path: Path, table: pl.DataFrame) -> None:
    """Check that a table has the events and fields of the report, in its order."""
    for line, row in zip(report(path), table.iter_rows(named=True), strict=True):
        _assert_event(line, row)


def _assert_event(line: str, row: dict[str, Any]) -> None:
    match = LINE.match(line)
    assert match is not None
    comm, pid, cpu, seconds, nanoseconds, event, fields = match.groups()
    assert row["comm"] == (None if comm.strip() == "<...>" else comm.strip())
    assert (row["pid"], row["cpu"], row["event"]) == (int(pid), int(cpu), event)
    assert row["time_ns"] == int(seconds) * 10**9 + int(nanoseconds)
    shown = dict(re.findall(r"(\w+)=(.*?)(?= \w+=|$)", fields))
    mine = {k.removeprefix("event_"): v for k, v in row.items() if k not in _OWN and v is not None}
    assert set(mine) == set(shown), line
    for name, value in mine.items():
        assert _same(value, shown[name]), f"{name} {value!r}: {line}"


def _same(value: str | int, shown: str) -> bool:
    if isinstance(value, str):
        array = re.fullmatch(r"ARRAY\[(.*)\]", shown)
        return value.rstrip("\n") == (array[1].replace(", ", "") if array else shown)
    # Formats print zeros in front, hexadecimal without 0x, modes of files as octal.
    plain = shown.lower().removeprefix("0x").lstrip("0").replace("(nil)", "") or "0"
    if value >= _KERNEL_HALF and not re.fullmatch(r"[0-9a-f]+", plain):
        return True  # a function of the kernel, printed as its symbol
    return plain in (f"{value:d}", f"{value:x}", f"{value:o}")
