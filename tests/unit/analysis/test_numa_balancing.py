"""Measures of what NUMA balancing decided: counted by hand, and None where nobody could know."""

from typing import Any

import polars as pl
import pytest

from numalab.analysis.measures.numa_balancing import GROUP
from numalab.capture.samples import Samples, parse_samples
from numalab.recording.recording import Recording
from numalab.topology.topology import Topology
from support.small_traces import Trace

ALL = ["sched:sched_move_numa", "sched:sched_swap_numa", "sched:sched_stick_numa"]


def decisions(trace: Trace) -> pl.DataFrame:
    """Two moves (0 to 1, and 0 to 2, two hops), one that fails, a swap, two sticks of their own."""
    table: pl.DataFrame = trace.table(
        trace.mark(0, "numalab: begin"),
        trace.numa_move(10, "a:1", 0, 1),
        trace.numa_move(20, "b:2", 0, 2),
        trace.numa_move(30, "c:3", 1, 2),
        trace.numa_pair(31, "stick", "c:3", 1, 2, 0),
        trace.numa_pair(40, "swap", "d:4", 1, 2, 5),
        trace.numa_pair(50, "stick", "e:6", 0, -1, 0),
        trace.numa_pair(60, "stick", "f:7", 0, 2, 0),
        trace.mark(100, "numalab: end"),
        trace.numa_move(110, "a:1", 1, 0),
    )
    return table


def values(
    events: pl.DataFrame,
    topology: Topology | None,
    recorded: list[str] | None = None,
    samples: Samples | None = None,
) -> dict[str, Any]:
    run = Recording(
        events, topology, tasks=(), allowed_cpus=None, recorded=recorded or ALL, samples=samples,
        rows=100,
    )  # fmt: skip
    return {measure.name: measure.value for measure in GROUP.compute(run)}


def test_every_decision_of_the_window_counts_once(trace: Trace, three_nodes: Topology) -> None:
    by_name = values(decisions(trace), three_nodes)
    counts = [by_name[f"sched_{kind}_numa"] for kind in ("move", "swap", "stick")]
    assert counts == [3, 1, 3]
    assert by_name["numa_sticks_no_destination"] == 1
    assert by_name["numa_sticks_failed"] == 2, "one answers a move, one was not allowed there"
    # Attempts: three moves, a swap, and the two sticks that answer none of them.
    assert by_name["numa_move_success"] == pytest.approx(100 * 3 / 6)
    # 0 to 1 is one hop, 0 to 2 two; both tasks of the swap go one.
    assert by_name["numa_moves_hops"] == pytest.approx((1 + 2 + 1 + 1) / 4)


def test_what_was_not_recorded_is_none(trace: Trace, three_nodes: Topology) -> None:
    by_name = values(decisions(trace), three_nodes, ["sched:sched_move_numa"])
    assert by_name.pop("sched_move_numa") == 3
    assert set(by_name.values()) == {None}


def test_without_an_attempt_there_is_no_share(trace: Trace, three_nodes: Topology) -> None:
    by_name = values(trace.table(trace.mark(0, "numalab: begin"), trace.mark(9, "x")), three_nodes)
    assert (by_name["sched_move_numa"], by_name["numa_move_success"]) == (0, None)
    assert by_name["numa_moves_hops"] is None


def test_hops_need_the_nodes(trace: Trace) -> None:
    assert values(decisions(trace), None)["numa_moves_hops"] is None


def test_preferred_nodes_are_known_where_tasks_were_sampled(
    trace: Trace, three_nodes: Topology
) -> None:
    assert "numa_moves_nearer" not in values(decisions(trace), three_nodes)
    no_tasks = parse_samples("@ 15\nvmstat numa_hit 7\n")
    assert "numa_moves_nearer" not in values(decisions(trace), three_nodes, samples=no_tasks)
    # Process, task, preferred node, group, name (`a` in hexadecimal), faults.
    text = "@ 15\ntask 1 1 1 0 61 0:1:0:0:0\n@ 25\ntask 2 2 1 0 61 0:1:0:0:0\n"
    text += "@ 45\ntask 4 4 1 0 61 0:1:0:0:0\n"
    samples = parse_samples(text)
    by_name = values(decisions(trace), three_nodes, samples=samples)
    # All prefer node 1: task 1 went there, task 2 from 0 to 2, which are as near, task 4 left it.
    kinds = ("nearer", "as_near", "farther")
    assert [by_name[f"numa_moves_{kind}"] for kind in kinds] == [1, 1, 1]
