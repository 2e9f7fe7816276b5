"""The tasks and the measures of a command that `marked` runs between its markers."""

from dataclasses import replace

import polars as pl

from numalab.analysis.measures.command import ELAPSED, SYSTEM, USER
from numalab.capture.counters import parse_times
from numalab.measure import Measure
from numalab.recording.window import BEGIN, marks
from numalab.results.guest_output import guest_text_if_any
from numalab.results.reader import read_measures
from numalab.run_dir import RunDir
from numalab.workload.starters import MARKED_TASK

_FORK, _SWITCH = "sched_process_fork", "sched_switch"
_NEEDED = {"buf", "parent_pid", "child_pid", "prev_pid", "prev_comm"}


def marked_tasks(events: pl.DataFrame) -> tuple[str, ...] | None:
    """Return all names that the command's tasks had, sorted; None without a marker or forks.

    The tasks are its threads and descendants, whatever they are called. `marked` writes the first
    marker and then forks the command.
    """
    begun = marks(events).filter(pl.col("text") == BEGIN)
    if not len(begun) or not set(events.columns) >= _NEEDED:
        return None
    begin_ns = int(begun["time_ns"][0])
    is_marker = (pl.col("event") == "print") & (pl.col("time_ns") == begin_ns)
    members = set(events.filter(is_marker)["pid"].to_list())
    later = events.filter((pl.col("event") == _FORK) & (pl.col("time_ns") > begin_ns))
    marked = frozenset(members)
    for parent, child in later.sort("time_ns").select("parent_pid", "child_pid").iter_rows():
        if parent in members:
            members.add(child)
    if not (members := members - marked):
        return None
    ran = events.filter((pl.col("event") == _SWITCH) & pl.col("prev_pid").is_in(list(members)))
    return tuple(sorted(set(ran["prev_comm"].drop_nulls().to_list()) - {MARKED_TASK}))


def measures_of_marked(directory: RunDir) -> dict[str, Measure]:
    """Return the measures of a run by name; times are of the command, without what starts it."""
    measures = dict(read_measures(directory.measures))
    if times := parse_times(guest_text_if_any(directory.marked_times)):
        for family, value in ((ELAPSED, times.elapsed), (USER, times.user), (SYSTEM, times.system)):
            measures[family.name] = replace(measures[family.name], value=value)
    return measures
