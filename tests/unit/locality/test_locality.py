"""Accesses by thread and by node within two marks: worked out by hand."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from numalab.analysis.findings import TaskMemory
from numalab.capture.joined_tables import JoinedTables
from numalab.capture.memory_places import PAGE
from numalab.locality.count_places import RECORDER
from numalab.locality.locality import BARRIERS, COMMAND, NodeAccesses, locality
from numalab.locality.locality_text import locality_lines
from numalab.topology.topology import Topology, renumbered
from support.small_traces import Trace

MS = 1_000_000


def row(start_ms: int, node: int, pid: int, memory: list[int], stalled_ms: int) -> dict[str, Any]:
    """A row of three nodes with a CPU each, 10 ms long; a tenth of the wait is in queues."""
    return {
        "cpu": node, "node": node, "pid": pid, "comm": f"task{pid}",
        "start_ns": start_ms * MS, "end_ns": (start_ms + 10) * MS,
        "stalled_ps": stalled_ms * 10**9, "waited_ps": stalled_ms * 10**8,
        **{f"memory_{place}": count for place, count in enumerate(memory)},
        **{f"{kind}_{place}": 0 for kind in ("cache", "pages") for place in range(3)},
    }  # fmt: skip


ROWS = [
    row(100, 1, 7, [1000, 0, 0], 9),  # initialisation: before the mark
    row(110, 1, 7, [0, 30, 10], 4),
    row(110, 2, 9, [0, 0, 20], 1),
    row(115, 1, 7, [40, 0, 0], 6),  # half of it in the window
]
EMPTY = pl.DataFrame(schema={"start_ns": pl.Int64})


@pytest.fixture
def events(trace: Trace) -> pl.DataFrame:
    return trace.table(
        trace.mark(100 * MS, COMMAND[0], pid=6),
        trace.switch(100 * MS, 1, "idle", "first:7"),
        trace.switch(100 * MS, 2, "idle", "second:9"),
        trace.mark(110 * MS, "work"),
        trace.mark(115 * MS, "done"),
        trace.mark(120 * MS, "done"),
        trace.mark(130 * MS, COMMAND[1]),
    )


def test_only_what_lies_between_the_marks_counts(
    events: pl.DataFrame, three_nodes: Topology
) -> None:
    accesses = locality(
        events, three_nodes, JoinedTables(pl.DataFrame(ROWS), EMPTY), ("work", "done")
    )
    assert accesses.window_ms == 10
    assert accesses.threads == (
        TaskMemory(7, "first", 10.0, 7.0, 0.7, 30.0, (20.0, 30.0, 10.0)),
        TaskMemory(9, "second", 10.0, 1.0, 0.1, 20.0, (0.0, 0.0, 20.0)),
    )
    assert accesses.nodes == (
        NodeAccesses(1, 7.0, 0.7, 30.0, (20.0, 30.0, 10.0)),
        NodeAccesses(2, 1.0, 0.1, 20.0, (0.0, 0.0, 20.0)),
    )
    lines = list(locality_lines(accesses))
    assert lines[2].split() == ["first/7", "7.0", "0.7", "50.0", "20", "30", "10"]
    assert lines[-1].split() == ["CPUs", "of", "node", "2", "1.0", "0.1", "100.0", "0", "0", "20"]


def test_nodes_have_the_numbers_of_the_guest_and_a_note(
    events: pl.DataFrame, three_nodes: Topology
) -> None:
    tables = JoinedTables(pl.DataFrame(ROWS), EMPTY)
    accesses = locality(events, renumbered(three_nodes, (0, 2, 1)), tables)
    (note,) = accesses.notes
    assert note.endswith("differ from this file: 1 becomes 2, 2 becomes 1")
    assert replace(accesses, notes=()) == locality(events, three_nodes, tables)


def test_the_whole_command_has_its_initialisation(
    events: pl.DataFrame, three_nodes: Topology
) -> None:
    accesses = locality(events, three_nodes, JoinedTables(pl.DataFrame(ROWS), EMPTY))
    assert accesses.window_ms == 30
    assert accesses.threads[0].lines == (1040.0, 30.0, 10.0)


def test_what_runs_beside_the_command_is_not_of_it(trace: Trace, three_nodes: Topology) -> None:
    tasks = {1: "init", 3: "marked", 4: RECORDER, 5: "marked", 6: "marker", 7: "prog"}
    tasks |= {8: "kworker/0", 9: "kthreadd"}
    events = trace.table(
        trace.mark(100 * MS, COMMAND[0], pid=6),
        *(
            trace.switch((100 + pid) * MS, 0, "idle", f"{name}:{pid}")
            for pid, name in tasks.items()
        ),
        trace.switch(100 * MS, 1, "idle", "marker:99"),
        trace.switch(110 * MS, 1, "dm_worker:9", "idle"),
        trace.mark(130 * MS, COMMAND[1]),
    )
    rows = [row(100, 1, pid, [9, 0, 0], 1) for pid in (*tasks, 99)]
    place = {"since_ns": 0, "time_ns": 100 * MS, "kind": PAGE, "vaddr": 4096, "line": 1, "node": 1,
             "home": 0, "lines": 9, "local": 0, "moves": 0, "stalled_ps": 9,
             "written": 0, "read": 1}  # fmt: skip
    unsigned = {"written": pl.UInt64, "read": pl.UInt64}
    places = pl.DataFrame(
        [{**place, "pid": pid} for pid in (*tasks, 99)], schema_overrides=unsigned
    )
    accesses = locality(events, three_nodes, JoinedTables(pl.DataFrame(rows), EMPTY, places))
    assert [task.pid for task in accesses.threads] == [7]
    (region,) = accesses.places.regions
    assert [(thread.pid, thread.name) for thread in region.threads] == [(7, "prog")]
    assert sum(accesses.nodes[0].lines) == 9 * (len(tasks) + 1), "all that the node's CPUs fetched"


def test_a_command_that_was_never_interrupted_has_the_name_by_which_it_ended(
    trace: Trace, three_nodes: Topology
) -> None:
    events = trace.table(
        trace.switch(90 * MS, 0, "idle", f"{RECORDER}:8"),  # `marked` was the recorder's parent
        trace.mark(100 * MS, COMMAND[0], pid=6),
        trace.switch(100 * MS, 1, "marked:6", "marked:9"),
        trace.switch(110 * MS, 1, "prog:9", "marked:6"),
        trace.mark(130 * MS, COMMAND[1], pid=6),
    )
    rows = [row(100, 1, pid, [9, 0, 0], 1) for pid in (6, 8, 9)]
    accesses = locality(events, three_nodes, JoinedTables(pl.DataFrame(rows), EMPTY))
    assert [task.pid for task in accesses.threads] == [9]


def test_a_command_s_threads_may_have_any_names(trace: Trace, three_nodes: Topology) -> None:
    names = {7: "prog", 8: RECORDER, 9: "marked", 10: "kworker/0:1", 11: "kthreadd", 12: "marker"}
    events = trace.table(
        trace.mark(100 * MS, COMMAND[0], pid=6),
        *(trace.switch((100 + pid) * MS, 0, "idle", f"prog:{pid}") for pid in names),
        *(
            trace.switch((120 + pid) * MS, 0, f"{name}:{pid}", "idle")
            for pid, name in names.items()
        ),
        trace.mark(140 * MS, COMMAND[1]),
    )
    rows = [row(100, 1, pid, [9, 0, 0], 1) for pid in names]
    accesses = locality(events, three_nodes, JoinedTables(pl.DataFrame(rows), EMPTY))
    assert {task.pid for task in accesses.threads} == set(names)


def test_without_the_mark_at_its_start_the_command_began_after_the_recorder(
    trace: Trace, three_nodes: Topology
) -> None:
    tasks = {1: "init", 4: RECORDER, 7: "prog"}
    events = trace.table(
        *(
            trace.switch((100 + pid) * MS, 0, "idle", f"{name}:{pid}")
            for pid, name in tasks.items()
        ),
        trace.mark(110 * MS, "work"),
        trace.mark(120 * MS, "done"),
    )
    rows = [row(110, 1, pid, [9, 0, 0], 1) for pid in tasks]
    tables = JoinedTables(pl.DataFrame(rows), EMPTY)
    accesses = locality(events, three_nodes, tables, ("work", "done"))
    assert [task.pid for task in accesses.threads] == [7]


def test_all_threads_of_a_command_count_whatever_ran_beside_it(
    trace: Trace, three_nodes: Topology
) -> None:
    """Tasks that were there before it waited longer; the text has the threads that waited most."""
    pids = range(1, 200)
    events = trace.table(
        trace.mark(100 * MS, COMMAND[0], pid=100),
        *(trace.switch(100 * MS + pid, 0, "idle", f"prog:{pid}") for pid in pids),
        trace.mark(130 * MS, COMMAND[1], pid=300),
    )
    rows = [row(100, 1, pid, [9, 0, 0], 1000 - pid) for pid in pids]
    accesses = locality(events, three_nodes, JoinedTables(pl.DataFrame(rows), EMPTY))
    assert [task.pid for task in accesses.threads] == list(range(101, 200))
    lines = list(locality_lines(accesses))
    assert lines[65].startswith("prog/164 ")
    assert lines[66] == "... and 35 threads that waited less (--json)"
    assert lines[67].startswith("CPUs of node 1 ")


@pytest.mark.parametrize(
    ("between", "note"),
    [
        (("start", "done"), "nothing wrote the mark 'start'; written were 'work', 'done'"),
        (
            ("done", "work"),
            "nothing wrote the mark 'work' after 'done'; written were 'work', 'done'",
        ),
    ],
)
def test_a_missing_mark_is_named(
    events: pl.DataFrame, three_nodes: Topology, between: tuple[str, str], note: str
) -> None:
    accesses = locality(events, three_nodes, JoinedTables(pl.DataFrame(ROWS), EMPTY), between)
    assert (accesses.threads, accesses.nodes) == ((), ())
    assert list(locality_lines(accesses)) == [f"numalab: {note}"]


def test_a_command_that_was_ended_counts_to_the_end_of_the_recording(
    events: pl.DataFrame, three_nodes: Topology
) -> None:
    tables = JoinedTables(pl.DataFrame(ROWS), EMPTY)
    ended = events.filter(pl.col("time_ns") < 130 * MS)
    accesses = locality(ended, three_nodes, tables)
    assert accesses.window_ms == 20
    assert accesses.threads[0].lines == (1020.0, 30.0, 10.0)
    (note,) = accesses.notes
    assert note.startswith("the end of the command is not in the recording (was it ended by --tim")
    (reason,) = locality(ended, three_nodes, tables, ("work", "end")).notes
    assert reason == "nothing wrote the mark 'end' after 'work'; written were 'work', 'done'"


def test_repeated_marks_make_one_window_and_a_note(trace: Trace, three_nodes: Topology) -> None:
    events = trace.table(
        trace.switch(100 * MS, 1, "idle", "first:7"),
        *(trace.mark((100 + at) * MS, text) for at, text in enumerate(("a", "b", "a", "b", "a"))),
    )
    accesses = locality(events, three_nodes, JoinedTables(pl.DataFrame(ROWS), EMPTY), ("a", "b"))
    assert accesses.window_ms == 3
    assert accesses.notes == ("'a' was written 2 times: counted is from the first to the last 'b'",)


def test_without_a_barrier_the_whole_command_counts(
    events: pl.DataFrame, three_nodes: Topology
) -> None:
    tables = JoinedTables(pl.DataFrame(ROWS), EMPTY)
    accesses = locality(events, three_nodes, tables, BARRIERS)
    assert accesses.threads == locality(events, three_nodes, tables).threads
    (note,) = accesses.notes
    assert note.startswith("no thread of the command called a barrier (pthread_barrier_wait, ")
    assert note.endswith(
        "GOMP_barrier, __kmpc_barrier): these are the accesses of the whole command"
    )


def test_counts_on_no_clock_give_the_note_of_the_join(
    events: pl.DataFrame, three_nodes: Topology
) -> None:
    unjoined = pl.DataFrame(ROWS).with_columns(start_ns=pl.lit(None, pl.Int64))
    accesses = locality(events, three_nodes, JoinedTables(unjoined, EMPTY), notes=("not joined",))
    assert list(locality_lines(accesses)) == ["numalab: not joined"]
    assert (accesses.window_ms, accesses.threads) == (0.0, ())
