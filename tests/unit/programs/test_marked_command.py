"""The tasks of a marked command: by the forks after the marker, not by the program's name."""

from typing import Any

import polars as pl
import pytest

from numalab.errors import UserError
from numalab.programs.machines import _names_of_tasks
from numalab.programs.marked_command import MarkedCommand, marked_command

SHELL, MARKER, NICE, WORKER, STRANGER = 10, 11, 12, 13, 14
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


def gone(time: int, pid: int) -> Row:
    return {"time_ns": time, "event": "sched_process_exit", "pid": pid, "event_pid": pid}


def mark(time: int, pid: int, text: str) -> Row:
    return {"time_ns": time, "event": "print", "pid": pid, "buf": f"numalab: {text}\n"}


RUN = [
    fork(1_000_000, SHELL, MARKER),
    mark(2_000_000, MARKER, "begin"),
    left(2_500_000, MARKER, "marker"),
    fork(3_000_000, SHELL, NICE),
    left(3_500_000, NICE, "marked"),
    left(4_000_000, NICE, "nice"),
    fork(5_000_000, NICE, WORKER),
    fork(5_500_000, 2, STRANGER),
    left(6_000_000, WORKER, "program"),
    left(7_000_000, WORKER, "worker/0"),
    left(7_500_000, STRANGER, "kworker/0:1"),
    left(8_000_000, NICE, "program"),
    gone(9_000_000, NICE),
    fork(10_000_000, SHELL, MARKER + 10),
    left(11_000_000, MARKER + 10, "marker"),
    mark(12_000_000, MARKER + 10, "end"),
]


def test_all_threads_and_descendants_are_tasks_of_the_command() -> None:
    command = marked_command(pl.DataFrame(RUN, infer_schema_length=None))
    assert command == MarkedCommand(("nice", "program", "worker/0"), 0.006)


@pytest.mark.parametrize(("gone_at", "seconds"), [(9_500_000, 0.0065), (10_500_000, 0.006)])
def test_a_command_ends_with_its_last_task_before_marked_goes_on(
    gone_at: int, seconds: float
) -> None:
    """Its first thread may exit before the others; a daemon runs on."""
    rows = sorted([*RUN, gone(gone_at, WORKER)], key=lambda row: row["time_ns"])
    command = marked_command(pl.DataFrame(rows, infer_schema_length=None))
    assert command is not None
    assert command.seconds == pytest.approx(seconds)


@pytest.mark.parametrize("event", ["print", "sched_process_fork", "sched_process_exit"])
def test_without_a_marker_or_event_nothing_is_known(event: str) -> None:
    rows = [row for row in RUN if row["event"] != event]
    assert marked_command(pl.DataFrame(rows, infer_schema_length=None)) is None


def test_names_that_no_task_has_are_refused() -> None:
    events = pl.DataFrame(RUN, infer_schema_length=None)
    command = marked_command(events)
    assert command is not None
    assert _names_of_tasks(("worker/*",), command, events) == ("worker/*",)
    assert _names_of_tasks((), command, events) == command.tasks
    starred = MarkedCommand(("w*", "sh"), 1.0)
    assert _names_of_tasks((), starred, events) == ("w?", "sh")
    message = r"tasks: no task is called 'wroker'; did you mean worker/0\?"
    with pytest.raises(UserError, match=message):
        _names_of_tasks(("wroker",), command, events)
