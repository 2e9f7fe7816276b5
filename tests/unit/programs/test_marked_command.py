"""The tasks of a marked command: by the forks after the marker, not by the program's name."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from numalab.analysis.measures.command import ELAPSED, SYSTEM, USER
from numalab.errors import UserError
from numalab.files import write_json
from numalab.programs.machines import _names_of_tasks
from numalab.programs.marked_command import marked_tasks, measures_of_marked
from numalab.results.stored import StoredMeasure
from numalab.run_dir import RunDir

STARTER, MARKED, NICE, WORKER, STRANGER = 10, 11, 12, 13, 14
Row = dict[str, Any]


def fork(time: int, parent: int, child: int) -> Row:
    return {
        "time_ns": time, "event": "sched_process_fork", "pid": parent,
        "parent_pid": parent, "child_pid": child,
    }  # fmt: skip


def left(time: int, pid: int, comm: str) -> Row:
    return {
        "time_ns": time,
        "event": "sched_switch",
        "pid": pid,
        "prev_pid": pid,
        "prev_comm": comm,
    }


def mark(time: int, pid: int, text: str) -> Row:
    return {"time_ns": time, "event": "print", "pid": pid, "buf": f"numalab: {text}\n"}


RUN = [
    fork(1_000_000, STARTER, MARKED),
    mark(2_000_000, MARKED, "begin"),
    fork(3_000_000, MARKED, NICE),
    left(3_200_000, MARKED, "marked"),
    left(3_500_000, NICE, "marked"),
    left(4_000_000, NICE, "nice"),
    fork(5_000_000, NICE, WORKER),
    fork(5_500_000, 2, STRANGER),
    left(6_000_000, WORKER, "program"),
    left(7_000_000, WORKER, "worker/0"),
    left(7_500_000, STRANGER, "kworker/0:1"),
    left(8_000_000, NICE, "program"),
    mark(12_000_000, MARKED, "end"),
]
TASKS = ("nice", "program", "worker/0")


def test_all_threads_and_descendants_are_tasks_of_the_command() -> None:
    assert marked_tasks(pl.DataFrame(RUN, infer_schema_length=None)) == TASKS


@pytest.mark.parametrize("event", ["print", "sched_process_fork"])
def test_without_a_marker_or_event_nothing_is_known(event: str) -> None:
    rows = [row for row in RUN if row["event"] != event]
    assert marked_tasks(pl.DataFrame(rows, infer_schema_length=None)) is None


def test_names_that_no_task_has_are_refused() -> None:
    events = pl.DataFrame(RUN, infer_schema_length=None)
    assert _names_of_tasks(("worker/*",), TASKS, events) == ("worker/*",)
    assert _names_of_tasks((), TASKS, events) == TASKS
    assert _names_of_tasks((), ("w*", "sh"), events) == ("w?", "sh")
    message = r"tasks: no task is called 'wroker'; did you mean worker/0\?"
    with pytest.raises(UserError, match=message):
        _names_of_tasks(("wroker",), TASKS, events)


@pytest.mark.parametrize(
    ("left", "values"), [("elapsed 2.5\nuser 1.5\nsystem 0.5\n", [2.5, 1.5, 0.5]), ("", [9.0] * 3)]
)
def test_times_are_those_between_the_markers(
    tmp_path: Path, left: str, values: list[float]
) -> None:
    """Where the guest left none, they are those of the job."""
    directory = RunDir(tmp_path)
    families = (ELAPSED, USER, SYSTEM)
    stored = [StoredMeasure.of(family.of(9.0)).model_dump() for family in families]
    write_json(directory.measures, stored)
    directory.marked_times.parent.mkdir()
    directory.marked_times.write_text(left)
    measures = measures_of_marked(directory)
    assert [measures[family.name].value for family in families] == values
