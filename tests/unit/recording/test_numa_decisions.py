"""What NUMA balancing decided, counted by hand on small traces."""

import numpy as np
import polars as pl
import pytest

from numalab.analysis.analyse import matrices
from numalab.recording.numa_decisions import (
    done_moves,
    nearer,
    numa_decisions,
    success_percent,
    with_outcomes,
)
from numalab.recording.recording import RecordedMachine
from numalab.recording.window import Window
from numalab.topology.topology import Topology
from support.small_traces import Trace

NODE_OF = {0: 0, 1: 1, 2: 2}
WINDOW = Window(100, 1000)


def some(trace: Trace) -> pl.DataFrame:
    """A move, a swap, one of each that fails, and sticks of both other kinds."""
    events = trace.table(
        trace.numa_move(50, "early:9", 0, 1),
        trace.numa_move(100, "a:1", 0, 2),
        trace.numa_pair(200, "swap", "a:1", 2, 1, 2),
        trace.numa_move(300, "a:1", 1, 0),
        trace.numa_pair(320, "stick", "c:3", 1, -1, 0),
        trace.numa_pair(350, "stick", "a:1", 1, 0, 0),
        trace.numa_pair(400, "swap", "b:2", 2, 0, 3),
        trace.numa_pair(500, "stick", "b:2", 2, 0, 3),
        trace.numa_pair(600, "stick", "b:2", 2, 0, 3),
        trace.numa_move(1001, "late:9", 0, 1),
    )
    return with_outcomes(numa_decisions(events, WINDOW, NODE_OF))


def test_each_stick_has_its_reason_and_each_failed_move_is_known(trace: Trace) -> None:
    rows = some(trace).select("time_ns", "kind", "failed", "reason").rows()
    assert rows == [
        (100, "move", False, ""),
        (200, "swap", False, ""),
        (300, "move", True, ""),
        (320, "stick", False, "no destination"),
        (350, "stick", False, "failed"),
        (400, "swap", True, ""),
        (500, "stick", False, "failed"),
        # announced by nothing: the task may not run there
        (600, "stick", False, "not allowed there"),
    ]


def test_success_counts_attempts_and_not_the_answers_to_them(trace: Trace) -> None:
    # done: 2; failed: 2; sticks of their own: 2
    assert success_percent(some(trace)) == pytest.approx(100 * 2 / 6)
    nothing = with_outcomes(numa_decisions(trace.table(), WINDOW, NODE_OF))
    assert success_percent(nothing) is None


def test_a_swap_takes_two_tasks(trace: Trace) -> None:
    moved = done_moves(some(trace)).select("time_ns", "pid", "from_node", "to_node").rows()
    assert moved == [(100, 1, 0, 2), (200, 1, 2, 1), (200, 2, 1, 2)]


def test_matrices_are_weighted_by_hops_and_distance(trace: Trace, three_nodes: Topology) -> None:
    ground = RecordedMachine.of(three_nodes)
    plain, hops, distance = matrices(done_moves(some(trace)), "moves", "Moves", ground)
    assert np.array_equal(plain.cells, [[0, 0, 1], [0, 0, 1], [0, 1, 0]])
    assert np.array_equal(hops.cells, [[0, 0, 2], [0, 0, 1], [0, 1, 0]])
    assert np.array_equal(distance.cells, [[0, 0, 30], [0, 0, 20], [0, 20, 0]])
    assert (hops.name, distance.name) == ("moves_hops", "moves_distance")


def test_a_move_is_nearer_by_what_it_shortens_to_the_preferred_node(
    trace: Trace, three_nodes: Topology
) -> None:
    samples = pl.DataFrame(
        # task 1 prefers node 2 at first and node 1 from 150 on; task 2 has only an early sample
        {"time_ns": [90, 120, 250, 60], "pid": [1, 1, 1, 2], "node": [0, 2, 1, 0]},
        schema={"time_ns": pl.Int64, "pid": pl.Int32, "node": pl.Int32},
    )
    moved = nearer(done_moves(some(trace)), samples, RecordedMachine.of(three_nodes).distance)
    assert moved.select("time_ns", "pid", "nearer").rows() == [
        (100, 1, 30 - 10),  # node 0 to 2, preferred 2 by the sample after
        (200, 1, 20 - 10),  # node 2 to 1, preferred 1
        (200, 2, 20 - 30),  # node 1 to 2, preferred 0 by the sample before
    ]
    none = nearer(
        done_moves(some(trace)), samples.clear(), RecordedMachine.of(three_nodes).distance
    )
    assert none["nearer"].null_count() == len(none) == 3


@pytest.mark.parametrize(
    ("src", "dst", "failed"),
    [(0, 2, (True, True)), (0, 1, (False, True)), (1, 0, (False, False)), (0, -1, (False, False))],
)
def test_kernels_before_5_7_name_one_task_in_a_stick(
    trace: Trace, src: int, dst: int, failed: tuple[bool, bool]
) -> None:
    """That of a swap may have another CPU: the other task's, which has moved."""
    old = {**trace.numa_move(200, "a:1", src, dst), "event": "sched_stick_numa"}
    announced = trace.numa_move(100, "a:1", 0, 2), trace.numa_pair(100, "swap", "a:1", 0, 2, 3)
    for event, fails in zip(announced, failed, strict=True):
        rows = with_outcomes(numa_decisions(trace.table(event, old), WINDOW, NODE_OF))
        reason = "no destination" if dst < 0 else "failed" if fails else "not allowed there"
        assert rows.select("pid", "failed", "reason").rows() == [(1, fails, ""), (1, False, reason)]
    new = trace.numa_pair(200, "stick", "a:1", 0, 1, 0)  # of another attempt
    rows = with_outcomes(numa_decisions(trace.table(announced[1], new), WINDOW, NODE_OF))
    assert rows["failed"].to_list() == [False, False]
