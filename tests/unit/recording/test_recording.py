"""What a recording can tell, by the events that it was made of."""

from collections.abc import Collection

import polars as pl
import pytest

from numalab.recording.recording import NUMA_EVENTS, RecordedRun, read_run
from numalab.topology.model import Topology
from support.small_traces import Trace

WAKING = ("sched:sched_wakeup", "sched:sched_wakeup_new", "sched:sched_migrate_task")
MOVES = ("sched:sched_move_numa", "sched:sched_swap_numa")


def read(
    events: pl.DataFrame, topology: Topology | None, recorded: Collection[str] | None
) -> RecordedRun:
    return read_run(
        events, topology, tasks=["a"], allowed_cpus=None, recorded=recorded, samples=None, rows=100
    )


def small(trace: Trace) -> pl.DataFrame:
    table: pl.DataFrame = trace.table(
        trace.mark(0, "numalab: begin"),
        trace.switch(1_000, 0, "idle", "a:1"),
        trace.numa_move(5_000, "a:1", 0, 1, tgid=1),
        trace.migrate(5_000, "a:1", 0, 1),
        trace.switch(5_001, 0, "a:1", "idle"),
        trace.switch(6_000, 1, "idle", "a:1"),
        trace.mark(9_000, "numalab: end"),
    )
    return table


def test_without_a_word_of_what_was_asked_all_was_where_tasks_took_turns(
    trace: Trace, three_nodes: Topology
) -> None:
    assert read(small(trace), three_nodes, None).asked is None
    quiet = trace.table(trace.wakeup(1, "a:1", 0), trace.mark(9, "x"))
    asked = read(quiet, three_nodes, None).asked
    assert asked is not None
    assert "sched_switch" not in asked
    assert asked >= {*NUMA_EVENTS, "sched_wakeup"}


@pytest.mark.parametrize(
    ("recorded", "ran", "movers"),
    [
        (["sched"], True, True),
        (["sched:sched_switch"], True, False),
        (["sched:sched_switch", *WAKING, *MOVES], True, True),
        ([*WAKING, *MOVES], False, False),
        ([], False, False),
    ],
)
def test_what_was_asked_for_decides_what_can_be_told(
    trace: Trace, three_nodes: Topology, recorded: list[str], ran: bool, movers: bool
) -> None:
    run = read(small(trace), three_nodes, recorded)
    assert (run.has("sched_switch"), run.tells_movers()) == (ran, movers)


def test_nothing_is_told_of_nodes_that_nobody_knows(trace: Trace, three_nodes: Topology) -> None:
    unknown, known = (read(small(trace), each, None) for each in (None, three_nodes))
    assert (unknown.if_nodes(3.0), known.if_nodes(3.0)) == (None, 3.0)
    assert not unknown.tells_movers()


def test_a_decision_a_migration_and_the_process_of_the_task(
    trace: Trace, three_nodes: Topology
) -> None:
    run = read(small(trace), three_nodes, None)
    assert run.done.select("kind", "pid", "from_node", "to_node").rows() == [("move", 1, 0, 1)]
    assert run.moved.height == run.returned.height == 1
    assert run.returned["mover"].to_list() == ["numa"]
    (task,) = run.residents["task"]
    (process,) = run.residents["process"]
    assert (task.id, process.id) == (1, 1)
    assert run.residents["group"] == ()
