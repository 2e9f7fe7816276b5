"""The tasks of a command that `marked` runs between its markers, and how long it took."""

from dataclasses import dataclass

import polars as pl

from numalab.recording.window import BEGIN, marks
from numalab.workload.starters import MARKED_TASK

_FORK, _EXIT, _SWITCH = "sched_process_fork", "sched_process_exit", "sched_switch"
_NEEDED = {"buf", "parent_pid", "child_pid", "event_pid", "prev_pid", "prev_comm"}


@dataclass(frozen=True)
class MarkedCommand:
    """All names that the command's tasks had, and the seconds from its fork to its end.

    The tasks are its threads and descendants, whatever they are called. The end is the last exit of
    one of them before `marked` goes on: a first thread may exit before the others.
    """

    tasks: tuple[str, ...]
    seconds: float


def marked_command(events: pl.DataFrame) -> MarkedCommand | None:
    """Find the command in the events of a run; None where markers, forks or exits are missing.

    `marked` is a shell: it forks what writes the first marker, then the command.
    """
    begun = marks(events).filter(pl.col("text") == BEGIN)
    if not len(begun) or not set(events.columns) >= _NEEDED:
        return None
    begin_ns = int(begun["time_ns"][0])
    forks = events.filter(pl.col("event") == _FORK).select("time_ns", "parent_pid", "child_pid")
    is_marker = (pl.col("event") == "print") & (pl.col("time_ns") == begin_ns)
    marker = forks.filter(pl.col("child_pid").is_in(events.filter(is_marker)["pid"].to_list()))
    later = forks.filter(pl.col("time_ns") > begin_ns).sort("time_ns")
    mine = later.filter(pl.col("parent_pid").is_in(marker["parent_pid"].to_list()))
    if not len(mine):
        return None
    start_ns, _, pid = mine.row(0)
    exits = events.filter(pl.col("event") == _EXIT).select("time_ns", "event_pid")
    gone = exits.filter(pl.col("event_pid") == pid)["time_ns"]
    if not len(gone):
        return None
    until_ns = mine["time_ns"][1] if len(mine) > 1 else gone[0]
    members = {pid}
    for _, parent, child in later.iter_rows():
        if parent in members:
            members.add(child)
    ran = events.filter((pl.col("event") == _SWITCH) & pl.col("prev_pid").is_in(list(members)))
    names = set(ran["prev_comm"].drop_nulls().to_list()) - {MARKED_TASK}
    left = pl.col("event_pid").is_in(list(members)) & (pl.col("time_ns") <= until_ns)
    end_ns = exits.filter(left)["time_ns"].to_list()
    if not end_ns:
        return None
    return MarkedCommand(tuple(sorted(names)), (max(end_ns) - start_ns) / 1e9)
