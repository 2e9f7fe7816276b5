"""The file between numalab and the plugin, and the calls in each load that follow from it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from numalab.errors import HostError
from numalab.hunt.calls.count_file import MOST_MARKS, read_marks, write_functions
from numalab.hunt.calls.counting import counts_file, read_calls
from numalab.hunt.calls.functions import CountedFunctions
from numalab.hunt.property import describe_property, function_of, is_property
from numalab.reach.lines import LineCode
from numalab.run_dir import RunDir

NAMES = ("pick", "move", "stop")
FUNCTIONS = CountedFunctions(NAMES, (0x100, 0x200, 0x300), 0x400)
MARKS = ("numalab: begin", "hunt: load 0 begin", "hunt: load 0 half", "hunt: load 0 end",
         "hunt: load 1 begin", "hunt: load 2 begin", "hunt: load 2 end")  # fmt: skip


def recording(*texts: str) -> pl.DataFrame:
    """Return a recording that holds marks only."""
    return pl.DataFrame(
        {"time_ns": range(len(texts)), "cpu": 0, "event": "print", "buf": [f"{t}\n" for t in texts]}
    )


def counted(folder: Path, rows: list[list[int]]) -> RunDir:
    """Write a file as the plugin leaves it, with counts at each mark."""
    run_dir = RunDir(folder)
    write_functions(counts_file(run_dir), FUNCTIONS.addresses, FUNCTIONS.mark)
    data = bytearray(counts_file(run_dir).read_bytes())
    data[32:40] = len(rows).to_bytes(8, "little")
    start = 8 * (5 + len(NAMES)) + 4 * len(NAMES)
    kept = np.array(rows, np.uint32).tobytes()
    data[start : start + len(kept)] = kept
    counts_file(run_dir).write_bytes(data)
    return run_dir


ROWS = [[1, 0, 0], [2, 0, 5], [4, 0, 5], [9, 3, 5], [9, 3, 5], [20, 3, 5], [21, 3, 6]]


def test_calls_are_counted_between_the_marks_of_a_load(tmp_path: Path) -> None:
    run_dir = counted(tmp_path, ROWS)
    calls, findings = read_calls(run_dir, FUNCTIONS, recording(*MARKS))
    assert calls == {0: {"pick": 7, "move": 3}, 2: {"pick": 1, "stop": 1}}
    assert not findings
    assert read_calls(run_dir, None, recording(*MARKS)) == ({}, ())


def test_judged_calls_are_findings_in_both_directions(tmp_path: Path) -> None:
    judged = CountedFunctions(NAMES, FUNCTIONS.addresses, FUNCTIONS.mark, judged=True)
    calls, findings = read_calls(counted(tmp_path, ROWS), judged, recording(*MARKS))
    assert not calls
    values = {(item.prop, item.load): item.measured for item in findings}
    assert values["more-calls-of-pick", 0] == values["less-calls-of-pick", 0] == 7
    assert values["less-calls-of-stop", 0] == 0
    assert len(values) == 2 * len(NAMES) * 2
    assert all(item.differential and is_property(item.prop) for item in findings)
    assert function_of("more-calls-of-pick") == "pick"
    assert describe_property("more-calls-of-pick").startswith("pick() is called as often")
    block = "less-runs-of-pick+0x1f/0x60"
    assert function_of(block) == "pick+0x1f/0x60" and is_property(block)
    assert describe_property(block) == "pick+0x1f/0x60 runs as often as with the reference kernel"
    line = "more-runs-of-pick:if-is_far-cpu.2"
    assert function_of(line) == "pick:if-is_far-cpu.2" and is_property(line)
    assert not is_property("less-runs-of-pick") and not is_property(block.replace("runs", "calls"))
    assert function_of("more-switches") is None and not is_property("more-calls-of-")


def test_a_line_runs_as_often_as_its_copies_together(tmp_path: Path) -> None:
    copies = (((0x100,), (0x200,)), ((0x300,),))  # the first one has two points
    lines = {"pick:return-cpu": LineCode(copies, (), ("pick",))}
    calls, _ = read_calls(
        counted(tmp_path, ROWS), replace(FUNCTIONS, lines=lines), recording(*MARKS)
    )
    assert calls[0] == {"pick": 7, "move": 3, "pick:return-cpu": 7}
    assert calls[2] == {"pick": 1, "stop": 1, "pick:return-cpu": 2}


def test_marks_that_do_not_match_the_recording_count_nothing(tmp_path: Path) -> None:
    assert read_calls(counted(tmp_path, ROWS), FUNCTIONS, recording(*MARKS[1:])) == ({}, ())


def test_more_marks_than_fit_are_left_out(tmp_path: Path) -> None:
    run_dir = counted(tmp_path, ROWS)
    data = bytearray(counts_file(run_dir).read_bytes())
    data[32:40] = (MOST_MARKS + 9).to_bytes(8, "little")
    counts_file(run_dir).write_bytes(data)
    assert read_marks(counts_file(run_dir)).shape == (MOST_MARKS, len(NAMES))


@pytest.mark.parametrize("damage", [b"", b"short", bytes(400)])
def test_another_file_is_an_error(tmp_path: Path, damage: bytes) -> None:
    run_dir = RunDir(tmp_path)
    counts_file(run_dir).write_bytes(damage)
    with pytest.raises(HostError, match="cannot read the counts of calls"):
        read_calls(run_dir, FUNCTIONS, recording(*MARKS))
    whole = counts_file(counted(tmp_path, ROWS)).read_bytes()
    counts_file(run_dir).write_bytes(whole[:100])
    with pytest.raises(HostError, match="cut short"):
        read_calls(run_dir, FUNCTIONS, recording(*MARKS))
