"""Counters of nodes and CPUs, and samples of tasks, worked out by hand."""

from typing import Any

import pytest

from numalab.analysis.analyse import Analysis, analyse
from numalab.capture.counters import CpuSchedstat
from numalab.capture.samples import parse_samples
from numalab.measure import Measure
from numalab.recording.recording import CommandData, Recording
from numalab.topology.topology import Topology
from support.run_sample import measures_of
from support.small_traces import Trace

HOG, OTHER = "686f67", "6f74686572"  # the names hog and other
# In each sample: what CPUs 0 to 2 waited in all; the tasks with preferred node, group, faults.
SAMPLES = f"""\
@ 50
task 1 7 2 0 {HOG} 0:900:0:0:0
@ 100
schedstat cpu0 0 0 0 0 0 0 5 1000 1
schedstat cpu1 0 0 0 0 0 0 5 0 1
schedstat cpu2 0 0 0 0 0 0 5 70 1
task 1 7 1 0 {HOG} 0:10:0:0:0 1:20:10:0:0
task 1 8 2 0 {HOG} 0:4:0:0:0
task 9 9 0 0 {OTHER} 0:1000:1000:0:0
@ 300
schedstat cpu0 0 0 0 0 0 0 5 1100 1
schedstat cpu1 0 0 0 0 0 0 5 400 1
schedstat cpu2 0 0 0 0 0 0 5 70 1
task 1 7 1 0 {HOG} 0:1:1:0:0 1:8:6:0:0
task 9 9 0 0 {OTHER} 0:1000:1000:0:0
@ 5000
task 1 7 0 0 {HOG} 0:900:0:0:0
"""


def a_run(trace: Trace, topology: Topology | None, samples: str = SAMPLES) -> Analysis:
    """Hog 7 runs on CPU 1 to the end, hog 8 on CPU 0, both in the window from 100 to 400."""
    events = trace.table(
        trace.mark(100, "numalab: begin"),
        trace.switch(110, 1, "idle", "hog:7"),
        trace.switch(120, 0, "idle", "hog:8"),
        trace.switch(390, 2, "idle", "other:9"),
        trace.mark(400, "numalab: end"),
    )
    return analyse(Recording(events, topology, tasks=["hog"], samples=parse_samples(samples)))


def values(run: Analysis) -> dict[str, Any]:
    return {made.name: made.value for made in run.measures}


def test_faults_are_those_of_each_tasks_last_sample_in_the_window(
    trace: Trace, three_nodes: Topology
) -> None:
    by_name = values(a_run(trace, three_nodes))
    # of task 7 at 300: 2 on node 0, 14 on node 1, its own; of task 8 at 100: 4, none on node 2
    assert by_name["task_faults_preferred"] == pytest.approx(100 * 14 / 20)
    assert by_name["task_faults_shared"] == pytest.approx(100 * 7 / 20)
    assert by_name["tasks_on_preferred"] == 50  # 7 is, on node 1; 8 is on 0 and wants 2


def test_a_guest_that_repeats_itself_changes_nothing(trace: Trace, three_nodes: Topology) -> None:
    again = "".join(line * 3 for line in SAMPLES.splitlines(keepends=True))
    assert a_run(trace, three_nodes, again) == a_run(trace, three_nodes)


def test_a_task_without_a_preferred_node_is_on_none(trace: Trace, three_nodes: Topology) -> None:
    by_name = values(a_run(trace, three_nodes, f"@ 100\ntask 1 7 -1 0 {HOG}\n"))
    assert by_name["task_faults_preferred"] is None
    assert by_name["task_faults_shared"] is None
    assert by_name["tasks_on_preferred"] is None
    assert values(a_run(trace, None))["tasks_on_preferred"] is None
    assert "tasks_on_preferred" not in values(a_run(trace, three_nodes, "@ 100\nvmstat a 1\n"))


def test_faults_and_waiting_tasks_are_followed_by_node(trace: Trace, three_nodes: Topology) -> None:
    series = a_run(trace, three_nodes).findings.series
    faults = [curve for curve in series if curve.name == "task_faults"]
    assert [curve.label for curve in faults] == ["node 0", "node 1", "node 2"]
    assert [curve.at_ms for curve in faults] == [(0, 0.0002)] * 3
    assert [curve.values for curve in faults] == [(14, 2), (30, 14), (0, 0)]
    waiting = [curve for curve in series if curve.name == "waiting"]
    assert [curve.at_ms for curve in waiting] == [(0.0002,)] * 3
    # 100 ns of waiting in 200 ns; 400 ns, so that two waited; none
    assert [curve.values for curve in waiting] == [(0.5,), (2,), (0,)]
    assert not any(curve.name == "waiting" for curve in a_run(trace, None).findings.series)


def test_pages_by_node_and_the_shares_that_were_local_and_astray() -> None:
    before = {0: {"numa_hit": 10, "numa_miss": 0, "local_node": 5, "other_node": 5}}
    before[1] = {"numa_hit": 0, "numa_miss": 0, "local_node": 0, "other_node": 0}
    after = {0: {"numa_hit": 40, "numa_miss": 0, "local_node": 35, "other_node": 5}}
    after[1] = {"numa_hit": 50, "numa_miss": 20, "local_node": 15, "other_node": 55}
    after[2] = {"numa_hit": 1000, "numa_miss": 0, "local_node": 1000, "other_node": 0}
    made = measures_of(CommandData("hogs", numastat=(before, after)))
    result = {name: item.value for name, item in made.items()}
    assert result["numastat_numa_hit_node0"] == 30
    assert made["numastat_numa_hit_node0"].info.unit == "allocations", "a huge page counts once"
    assert result["numastat_other_node_node1"] == 55
    assert "numastat_numa_hit_node2" not in result  # nobody knows what it had before
    assert result["allocations_local"] == 45  # 30 + 15 of 100
    assert result["allocations_astray"] == 20  # 20 of 100
    nothing = measures_of(CommandData("hogs", numastat=({}, {})))
    assert nothing["allocations_local"].value is None
    assert nothing["allocations_astray"].value is None


def test_waiting_is_summed_over_cpus_and_shared_by_time_slices() -> None:
    before = [CpuSchedstat(0, 0, 1_000_000_000, 100), CpuSchedstat(1, 0, 0, 0)]
    after = [
        CpuSchedstat(1, 9, 2_000_000_000, 60),
        CpuSchedstat(0, 9, 1_500_000_000, 140),
        CpuSchedstat(2, 9, 7, 7),
    ]
    total, mean = waits(before, after)
    assert (total.name, total.value, total.info.unit) == ("schedstat_wait_time", 2.5, "s")
    assert (mean.value, mean.info.kind) == (25, "timing")  # 2.5 s in 100 slices, in ms
    assert [made.value for made in waits([], after)] == [None, None]
    assert [made.value for made in waits(before, before)] == [0, None]


def waits(before: list[CpuSchedstat], after: list[CpuSchedstat]) -> tuple[Measure, Measure]:
    by_name = measures_of(CommandData("hogs", schedstat=(before, after)))
    return by_name["schedstat_wait_time"], by_name["schedstat_wait_mean"]
