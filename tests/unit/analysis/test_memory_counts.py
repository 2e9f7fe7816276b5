"""What the memory model counted, as measures and findings: worked out by hand."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from numalab.analysis.analyse import Analysis, analyse
from numalab.analysis.findings import MAX_TASKS
from numalab.analysis.measures.memory import (
    GROUP,
    memory_matrix,
    memory_series,
    sum_by_slice,
    sum_within,
    task_memory,
)
from numalab.capture.joined_tables import JoinedTables
from numalab.measure import Direction, Measure, MeasureInfo, MeasureKind, modelled
from numalab.recording.recording import Recording
from numalab.recording.window import Slices
from numalab.topology.topology import Topology
from support.small_traces import Trace

MS = 1_000_000
HOG, OTHER = (7, "hog"), (9, "other")


def row(start_ms: int, cpu: int, task: tuple[int, str], memory: list[int], **more: int) -> Any:
    """A row of three nodes, 10 ms long; its CPU is on the node of its number."""
    lines = {f"memory_{node}": count for node, count in enumerate(memory)}
    caches = {f"{what}_{node}": 0 for what in ("cache", "pages") for node in range(3)}
    counts = {"stalled_ps": 0, "waited_ps": 0, "loads": 0, "far_loads": 0} | more
    times = {"start_ns": start_ms * MS, "end_ns": (start_ms + 10) * MS}
    return (
        {"cpu": cpu, "node": cpu, "pid": task[0], "comm": task[1]} | times | counts | lines | caches
    )


def traffic(start_ms: int, source: int, target: int, lines: int) -> Any:
    times = {"start_ns": start_ms * MS, "end_ns": (start_ms + 10) * MS}
    return times | {"from_node": source, "to_node": target, "lines": lines, "waited_ps": 0}


COUNTS = [
    row(90, 1, HOG, [0, 0, 1000], stalled_ps=10**12),  # before the window
    row(
        100, 1, HOG, [0, 30, 10], stalled_ps=8 * 10**9, waited_ps=2 * 10**9, loads=40, far_loads=10
    ),
    row(110, 1, HOG, [0, 0, 40], stalled_ps=10**10, loads=40, far_loads=40),
    row(115, 1, HOG, [0, 20, 0], loads=20),  # half of it in the window
    row(100, 0, OTHER, [5, 0, 0], stalled_ps=10**9, loads=5),
]
NO_TRAFFIC = pl.DataFrame([traffic(0, 0, 0, 0)]).clear()
TRAFFIC = [traffic(100, 1, 1, 1000), traffic(110, 2, 1, 500), traffic(90, 2, 1, 7)]


def a_run(trace: Trace, topology: Topology | None, memory: JoinedTables | None) -> Analysis:
    """Hog 7 runs on CPU 1 all of the window from 100 to 120 ms, other 9 on CPU 0."""
    events = trace.table(
        trace.switch(100 * MS, 1, "idle", "hog:7"),
        trace.switch(100 * MS, 0, "idle", "other:9"),
        trace.mark(100 * MS, "numalab: begin"),
        trace.mark(120 * MS, "numalab: end"),
    )
    return analyse(Recording(events, topology, tasks=["hog"], memory=memory))


@pytest.fixture
def joined() -> JoinedTables:
    return JoinedTables(pl.DataFrame(COUNTS), pl.DataFrame(TRAFFIC))


def values(run: Analysis) -> dict[str, Any]:
    return {
        measure.name: measure.value
        for measure in run.measures
        if measure.name.startswith(("memory_", "traffic_"))
    }


def test_measures_count_what_lies_in_the_window(
    trace: Trace, three_nodes: Topology, joined: JoinedTables
) -> None:
    run = a_run(trace, three_nodes, joined)
    by_name = values(run)
    # 40 + 40 and half of 20 lines, of them 30 and 10 from the CPU's own node.
    assert by_name["memory_lines"] == 90
    assert by_name["memory_local_share"] == pytest.approx(100 * 40 / 90)
    assert by_name["memory_stall_share"] == pytest.approx(90)  # 18 of 20 ms
    assert by_name["memory_queue_share"] == pytest.approx(100 * 2 / 18)
    assert (by_name["memory_node_loads"], by_name["memory_node_load_misses"]) == (95, 50)
    # 64 bytes a line, in 20 ms.
    assert by_name["traffic_node1"] == pytest.approx(1000 * 64 / 1e6 / 0.02)
    assert by_name["traffic_node0"] == 0
    assert by_name["traffic_link2to1"] == pytest.approx(500 * 64 / 1e6 / 0.02)
    kinds = {
        measure.info.kind
        for measure in run.measures
        if measure.name.startswith(("memory_", "traffic_"))
    }
    assert kinds == {MeasureKind.MODELLED}


def test_findings_say_it_by_node_pair_over_time_and_by_task(
    trace: Trace, three_nodes: Topology, joined: JoinedTables
) -> None:
    findings = a_run(trace, three_nodes, joined).findings
    (matrix,) = (result for result in findings.matrices if result.name == "lines")
    # From a node's memory (row) to a node's CPUs (column).
    assert [list(line) for line in matrix.cells] == [[5, 0, 0], [0, 40, 0], [0, 50, 0]]
    series = {(result.name, result.label): result.values for result in findings.series}
    assert series["memory_local", ""] == pytest.approx((75.0, 100 * 10 / 50))
    assert series["memory_stall", ""] == pytest.approx((80.0, 100.0))
    assert series["memory_node", "node 1"] == pytest.approx((6.4, 0))
    assert series["memory_link", "link 2-1"] == pytest.approx((0, 3.2))
    labels = [
        result.label for result in findings.series if result.name in ("memory_node", "memory_link")
    ]
    assert labels == ["node 1", "link 2-1"], "memories first"
    (task,) = findings.memory
    assert (task.pid, task.name, task.cpu_ms, task.stalled_ms) == (7, "hog", 20, 18)
    assert (task.local, task.lines) == (40, (0, 40, 50))


def test_tasks_that_were_not_recorded_fetched_no_known_number_of_lines(
    trace: Trace, three_nodes: Topology, joined: JoinedTables
) -> None:
    run = Recording(
        trace.table(trace.switch(0, 1, "idle", "other:9"), trace.mark(120 * MS, "x")),
        three_nodes,
        tasks=["hog"],
        memory=replace(joined, counts=pl.DataFrame(COUNTS[-1:])),
    )
    by_name = values(analyse(run))
    assert by_name["memory_lines"] is None and by_name["memory_node_loads"] == 5


@pytest.mark.parametrize("lacks", ["model", "nodes", "times"])
def test_what_is_not_known_is_none_and_not_0(
    trace: Trace, three_nodes: Topology, joined: JoinedTables, lacks: str
) -> None:
    never = [pl.lit(None, pl.Int64).alias(name) for name in ("start_ns", "end_ns")]
    memory = {
        "model": None,
        "nodes": joined,
        "times": JoinedTables(
            joined.counts.with_columns(never), joined.traffic.with_columns(never)
        ),
    }[lacks]
    run = a_run(trace, None if lacks == "nodes" else three_nodes, memory)
    assert set(values(run).values()) <= {None}
    assert bool(values(run)) == (lacks == "times")
    assert run.findings.memory == ()
    assert not [curve for curve in run.findings.series if curve.name.startswith("memory_")]


def recorded(trace: Trace, topology: Topology, *rows: Any, end_ms: int = 120) -> Recording:
    """A window from 100 ms on; what runs in it begins at its begin."""
    events = trace.table(
        *rows,
        trace.mark(100 * MS, "numalab: begin"),
        trace.mark(end_ms * MS, "numalab: end"),
    )
    return Recording(
        events, topology, tasks=["hog"], allowed_cpus=None, recorded=None, samples=None, rows=100
    )


def of_model(run: Recording, memory: JoinedTables) -> dict[str, Any]:
    return {measure.name: measure.value for measure in GROUP.compute(replace(run, memory=memory))}


def test_a_window_without_length_has_no_rates_and_no_counts(
    trace: Trace, three_nodes: Topology, joined: JoinedTables
) -> None:
    run = recorded(trace, three_nodes, end_ms=100)
    by_name = of_model(run, joined)
    assert set(by_name.values()) == {None}
    assert {"memory_lines", "traffic_node0", "traffic_link2to1"} <= by_name.keys()
    assert memory_series(replace(run, memory=joined)) == ()


def test_what_carried_nothing_in_the_window_carried_0(trace: Trace, three_nodes: Topology) -> None:
    counts = pl.DataFrame([row(100, 1, HOG, [0, 0, 0])])
    before = pl.DataFrame([traffic(90, 2, 1, 7), traffic(90, 1, 1, 8)])
    by_name = of_model(recorded(trace, three_nodes), JoinedTables(counts, before))
    of_traffic = {name: value for name, value in by_name.items() if name.startswith("traffic")}
    assert of_traffic == {
        "traffic_node0": 0.0,
        "traffic_node1": 0.0,
        "traffic_node2": 0.0,
        "traffic_link2to1": 0.0,
    }
    assert (by_name["memory_lines"], by_name["memory_stall_share"]) == (0, None), "no CPU time"
    assert (by_name["memory_local_share"], by_name["memory_queue_share"]) == (None, None)


def test_all_of_it_needs_the_nodes() -> None:
    assert all(family.needs_nodes for family in GROUP.families)


def test_a_cache_of_another_group_counts_as_a_memory_of_its_node(
    trace: Trace, three_nodes: Topology
) -> None:
    far = row(100, 1, HOG, [0, 10, 0], stalled_ps=1) | {"cache_0": 6, "cache_1": 4}
    memory = JoinedTables(pl.DataFrame([far]), pl.DataFrame(TRAFFIC))
    run = recorded(trace, three_nodes, trace.switch(100 * MS, 1, "idle", "hog:7"))
    assert of_model(run, memory)["memory_lines"] == 20
    assert of_model(run, memory)["memory_local_share"] == pytest.approx(100 * 14 / 20)
    (matrix,) = memory_matrix(replace(run, memory=memory))
    assert matrix.cells == ((0, 6, 0), (0, 14, 0), (0, 0, 0))


def test_a_share_over_time_is_none_where_there_is_nothing_to_share(
    trace: Trace, three_nodes: Topology
) -> None:
    rows = [
        # A task that ran for 1 ms only, and of which 4 ms of stalls are spread over the slice.
        row(100, 1, HOG, [0, 3, 1], stalled_ps=4 * 10**9),
        row(110, 2, OTHER, [9, 9, 9], stalled_ps=10**9),
        row(120, 1, HOG, [0, 1, 0]),
    ]
    run = recorded(
        trace,
        three_nodes,
        trace.switch(100 * MS, 1, "idle", "hog:7"),
        trace.switch(101 * MS, 1, "hog:7", "idle", trace.sleeps),
        end_ms=130,
    )
    local, stall, *links = memory_series(
        replace(run, memory=JoinedTables(pl.DataFrame(rows), NO_TRAFFIC))
    )
    assert (local.name, local.values) == ("memory_local", (75.0, None, 100.0))
    assert (stall.name, stall.values) == ("memory_stall", (100.0, None, None))
    assert local.at_ms == stall.at_ms == (10.0, 20.0, 30.0)
    assert {local.unit, stall.unit} == {"%"} and not links


def test_where_pages_in_use_lie_is_a_mean_of_the_slices(
    trace: Trace, three_nodes: Topology, joined: JoinedTables
) -> None:
    # The hog's rows: one slice in each 10 ms of the window, and half of one more in the second.
    pages = {"pages_0": [0, 0, 0, 0, 9], "pages_1": [512] * 5, "pages_2": [0, 0, 256, 512, 0]}
    counts = joined.counts.with_columns(pl.Series(name, curve) for name, curve in pages.items())
    findings = a_run(trace, three_nodes, JoinedTables(counts, joined.traffic)).findings
    series = {curve.label: curve.values for curve in findings.series if curve.name == "memory_home"}
    assert series == {"node 0": (0, 0), "node 1": (2, 3), "node 2": (0, 2)}


def test_tasks_are_listed_by_how_long_they_stood_still(trace: Trace, three_nodes: Topology) -> None:
    pids = range(10, 10 + MAX_TASKS + 2)
    rows = [
        row(100, 1, (pid, "hog"), [0, 1, 2], stalled_ps=(pid // 2) * 10**9, waited_ps=pid * 10**8)
        for pid in (*pids, 999)
    ]
    switches = [trace.switch((100 + n) * MS, 1, "idle", f"hog:{pid}")
                for n, pid in enumerate(pids)]  # fmt: skip
    run = recorded(trace, three_nodes, *switches, end_ms=300)
    result = task_memory(
        replace(run, memory=JoinedTables(pl.DataFrame(rows), pl.DataFrame(TRAFFIC)))
    )
    assert len(result) == MAX_TASKS
    assert all(item.pid != 999 for item in result), "it never ran"
    order = sorted(pids, key=lambda pid: (-(pid // 2), pid))[:MAX_TASKS]
    assert [item.pid for item in result] == order
    first = result[0]
    assert first.stalled_ms == first.pid // 2
    assert first.queued_ms == pytest.approx(first.pid / 10)
    assert (first.local, first.lines) == (1, (0, 1, 2))


def test_a_slice_is_spread_evenly_over_the_slices_of_the_window() -> None:
    table = pl.DataFrame({"start_ns": [0, 7, 18], "end_ns": [10, 17, 28], "lines": [10, 20, 30]})
    result = sum_by_slice(table, Slices(5, 25, 10, 2), (), ("lines",))
    assert dict(result.iter_rows()) == pytest.approx({0: 5 + 16, 1: 4 + 21})
    assert sum_within(table, 5, 25, (), ("lines",)).item() == pytest.approx(5 + 20 + 21)


def test_a_slice_across_several_slices_of_the_window_has_a_part_in_each() -> None:
    """On the trace's clock 10 ms of the model may be longer than those of the window."""
    table = pl.DataFrame({"start_ns": [9, -30, 60], "end_ns": [21, -20, 75], "lines": [120, 7, 7]})
    result = sum_by_slice(table, Slices(0, 50, 10, 5), (), ("lines",))
    assert dict(result.iter_rows()) == pytest.approx({0: 10, 1: 100, 2: 10})


def test_what_a_clock_said_in_mode_timed_is_modelled() -> None:
    info = MeasureInfo("t", "s", Direction.LOWER, MeasureKind.TIMING, "", ())
    assert modelled(Measure(info, 1.5)).info.kind is MeasureKind.MODELLED
    assert modelled(Measure(info, 1.5)).value == 1.5
    moves = MeasureInfo("m", "", Direction.LOWER, MeasureKind.PLACEMENT, "", ())
    assert modelled(Measure(moves, 2)).info is moves
