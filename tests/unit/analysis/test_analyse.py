"""The measures of a run, checked by hand on a small trace."""

from typing import Any

import polars as pl
import pytest

from numalab.analysis.analyse import analyse
from numalab.analysis.measures.family import explain, families
from numalab.analysis.measures.placement import BUSY_SHARE
from numalab.errors import UserError
from numalab.measure import Measure
from numalab.recording.events import COLUMNS
from numalab.recording.recording import CommandData, Recording
from numalab.topology.topology import Topology
from support.small_traces import Trace

# Definitions as runs stored them, of measures whose values have changed since then, or have not.
_CHANGED = {
    "longest_idle_while_overloaded": "The longest time of idle_while_overloaded on one CPU.",
    "tasks_final_node0": "How many tasks of interest were last on node 0 at the end of the window "
    "(from `numalab: begin` to `numalab: end`), ended ones included.",
}
_UNCHANGED = {
    "processes_converged": "Of the processes of tasks of interest whose threads are known, those "
    "that converged: from some moment before the last fifth of the window on, one node always had "
    "at least 80 % of the CPU time that was left.",
    "schedstat_wait_time": "How long tasks waited for a CPU that was busy with others, all tasks "
    "and CPUs together, from before the capture to after the command.",
    "unknown_time": "The share of the window (from `numalab: begin` to `numalab: end`) in which "
    "events of an allowed CPU were lost; shares and queue_imbalance leave it out; above 1 %, "
    "convergence is none.",
    "allocations_local": "Of the pages allocated by anybody, those of the node whose CPU asked for "
    "them.",
    "allocations_astray": "Of the pages allocated by anybody, those that came from another node "
    "than was wanted.",
}


def a_run(trace: Trace) -> Any:
    """Two hogs on CPU 0, allowed on CPUs 0 and 2; one of them is moved to CPU 2 after 60 of 100.

    The window is from 100 to 200. Before 160 the hogs take turns on CPU 0 and CPU 2 is idle; then
    hog 2 runs on CPU 2 from 170 on. A daemon runs on CPU 1 all the time.
    """
    return trace.table(
        trace.switch(50, 1, "idle", "daemon:9"),
        trace.switch(60, 2, "daemon:8", "idle", trace.sleeps),
        trace.wakeup(70, "hog:2", 0),
        trace.switch(80, 0, "idle", "hog:1"),
        trace.mark(100, "numalab: begin"),
        trace.switch(120, 0, "hog:1", "hog:2", trace.preempted),
        trace.numa_pair(130, "stick", "hog:2", 0, -1, 0),
        trace.switch(140, 0, "hog:2", "hog:1", trace.preempted),
        trace.numa_move(155, "hog:2", 0, 2),
        trace.migrate(160, "hog:2", 0, 2),
        trace.switch(170, 2, "idle", "hog:2"),
        trace.mark(200, "numalab: end"),
        trace.numa_move(210, "hog:2", 2, 0),
        trace.migrate(220, "hog:2", 2, 0),
    )


def values(by_name: tuple[Measure, ...]) -> dict[str, float | int | None]:
    return {measure.name: measure.value for measure in by_name}


def test_measures_are_as_counted_by_hand(trace: Trace, three_nodes: Topology) -> None:
    run = analyse(
        Recording(
            a_run(trace),
            three_nodes,
            tasks=["hog"],
            allowed_cpus=[0, 2],
            vmstat={"numa_hit": 7, "nr_free_pages": -5, "pgfault": 3},
        )
    ).measures
    counted = {
        # hogs ran 100 on CPU 0 and 30 on CPU 2
        "task_time_share_node0": pytest.approx(100 * 100 / 130),
        "task_time_share_node1": 0,
        "task_time_share_node2": pytest.approx(100 * 30 / 130),
        "task_busy_share_cpu0": 100,
        "task_busy_share_cpu2": 30,
        "task_busy_share_min": 30,
        "task_node_changes": 1,
        "idle_while_overloaded": 60,  # from 100 to 160; from then on hog 2 counts on CPU 2
        "unknown_time": 0,
        "tasks_final_node0": 1,
        "tasks_final_node1": 0,
        "tasks_final_node2": 1,
        "task_migrations": 1,
        "task_node_migrations": 1,
        "task_migrations_node0_node2": 1,
        "sched_move_numa": 1,
        "sched_swap_numa": 0,
        "sched_stick_numa": 1,
        # of a move and a stick without a destination
        "numa_move_success": 50,
        "numa_sticks_no_destination": 1,
        "numa_sticks_failed": 0,
        "numa_moves_hops": 2,
        "numa_moves_undone": 0,
        "numa_moves_rebalanced": 0,
        "task_ping_pongs": 0,
        "storms": 0,
        "node_moves_numa": 1,
        "node_moves_load_balancer": 0,
        "node_moves_wake_up": 0,
        "node_moves_stopper": 0,
        "tasks_converged": 50,  # hog 1; hog 2 had 20 on node 0 and 30 on node 2
        "task_convergence_time": None,
        "processes_converged": 0,  # the stick names the process of hog 2
        "process_convergence_time": None,
        "even_spread_time": None,
        "longest_idle_while_overloaded": pytest.approx(60e-6),
        "queue_imbalance": pytest.approx(1.6 - 0.4),
        "numa_local_faults": None,
        "autonuma_cost": None,
        "other_minor_faults": None,
        "vmstat_numa_hit": 7,
        "vmstat_pgfault": 3,
    }
    measured = values(run)
    assert {name: measured[name] for name in counted} == counted
    assert "vmstat_nr_free_pages" not in measured


@pytest.mark.parametrize(
    ("missing", "note"),
    [
        (["begin"], "no marker numalab: begin; the recording begins the window"),
        (["end"], "no marker numalab: end; the recording ends the window"),
        (["begin", "end"],
         "no marker numalab: begin nor end; the recording begins and ends the window"),
    ],
)  # fmt: skip
def test_a_missing_marker_is_noted(trace: Trace, missing: list[str], note: str) -> None:
    """A full buffer overwrites its oldest events; measures then cover another window."""
    events = a_run(trace)
    lost = pl.col("buf").str.strip_chars().is_in([f"numalab: {name}" for name in missing])
    assert analyse(Recording(events.filter(~lost.fill_null(value=False)))).notes[0] == note
    assert not any("no marker" in text for text in analyse(Recording(events)).notes)


def test_without_names_every_task_but_the_idle_ones_is_of_interest(
    trace: Trace, three_nodes: Topology
) -> None:
    measures = values(analyse(Recording(a_run(trace), three_nodes, tasks=[])).measures)
    assert measures["task_time_share_node1"] == pytest.approx(100 * 100 / 230)
    assert measures["task_busy_share_cpu1"] == 100
    assert "task_migrations_node1_node2" in measures


def test_names_may_hold_wildcards(trace: Trace, three_nodes: Topology) -> None:
    for pattern in ("h*", "?og", "*og", "hog", "h[o]g*|hog"):
        measures = values(analyse(Recording(a_run(trace), three_nodes, tasks=[pattern])).measures)
        expected = None if "|" in pattern else 100
        assert measures["task_busy_share_cpu0"] == expected, pattern


def test_what_was_not_recorded_is_not_zero(trace: Trace, three_nodes: Topology) -> None:
    by_name = values(
        analyse(
            Recording(a_run(trace), three_nodes, tasks=["hog"], recorded=["sched:sched_move_numa"])
        ).measures
    )
    assert by_name["sched_move_numa"] == 1
    for name in ("sched_swap_numa", "task_busy_share_min", "idle_while_overloaded"):
        assert by_name[name] is None
    assert by_name["task_migrations"] is None
    assert by_name["task_time_share_node0"] is None


@pytest.mark.parametrize("recorded", [["sched:sched_migrate_task"], None])
def test_without_sched_switch_nobody_is_said_to_have_run(
    trace: Trace, three_nodes: Topology, recorded: list[str] | None
) -> None:
    events = a_run(trace)
    if recorded is None:  # a recording of which nobody says what was asked for
        events = events.filter(pl.col("event") != "sched_switch")
    run = analyse(Recording(events, three_nodes, tasks=["hog"], recorded=recorded))
    assert run.findings.residence == ()
    assert run.findings.tasks_in_all == 0
    assert (run.findings.violations, run.findings.violations_in_all) == ((), None)
    assert (run.findings.moves, run.findings.storms_in_all) == ((), None)
    assert run.findings.series == ()
    assert any("sched_switch was not recorded" in note for note in run.findings.notes)
    assert values(run.measures)["task_migrations"] == 1  # the other one is after the end


def test_tasks_that_were_not_recorded_have_no_measure(trace: Trace, three_nodes: Topology) -> None:
    run = analyse(Recording(a_run(trace), three_nodes, tasks=["nobody"], allowed_cpus=[0]))
    by_name = values(run.measures)
    assert by_name["task_time_share_node0"] is None
    assert by_name["task_busy_share_min"] is None
    assert by_name["sched_move_numa"] == 1
    assert run.notes[0].startswith("no task is called nobody (there are: ")
    assert not analyse(Recording(a_run(trace), three_nodes, tasks=["nobody", "hog"])).notes


def test_process_ids_of_several_tasks_are_told(trace: Trace, three_nodes: Topology) -> None:
    events = trace.table(
        trace.switch(10, 0, "idle", "a:1"),
        trace.switch(20, 0, "a:1", "idle", 0x10),
        trace.wakeup(30, "a:1", 2, new=True),
        trace.switch(40, 2, "idle", "a:1"),
        trace.mark(50, "x"),
    )
    run = analyse(Recording(events, three_nodes))
    assert run.notes[1:] == ("process ids used again: 1; tasks with the same one count as one",)
    assert values(run.measures)["task_node_changes"] == 0


def test_time_with_lost_events_is_left_out(trace: Trace, three_nodes: Topology) -> None:
    events = trace.table(
        trace.switch(0, 2, "a:3", "idle", trace.sleeps),
        trace.wakeup(0, "hog:2", 0),
        trace.switch(0, 0, "idle", "hog:1"),
        trace.mark(0, "numalab: begin"),
        trace.switch(20, 0, "hog:1", "hog:2", trace.preempted),
        trace.lost(60, 0, 5),
        trace.switch(70, 0, "hog:1", "hog:2", trace.preempted),
        trace.mark(100, "numalab: end"),
    )
    by_name = values(
        analyse(Recording(events, three_nodes, tasks=["hog"], allowed_cpus=[0, 2])).measures
    )
    assert by_name["unknown_time"] == 40
    assert by_name["idle_while_overloaded"] == 100
    assert by_name["task_busy_share_cpu0"] == 100
    assert by_name["queue_imbalance"] == 2


@pytest.mark.parametrize("lost", [10, 600])
def test_lost_events_change_no_share(trace: Trace, three_nodes: Topology, lost: int) -> None:
    """A hog runs on each of two CPUs all the time; the events of CPU 0 are lost from 200 on."""
    events = trace.table(
        trace.switch(0, 2, "idle", "hog:2"),
        trace.switch(0, 0, "idle", "hog:1"),
        trace.mark(0, "numalab: begin"),
        trace.other(200, 0, "x"),
        trace.lost(200 + lost, 0),
        trace.mark(1000, "numalab: end"),
        trace.switch(1001, 0, "hog:1", "idle", trace.sleeps),
    )
    run = analyse(Recording(events, three_nodes, tasks=["hog"], allowed_cpus=[0, 2]))
    by_name = values(run.measures)
    assert by_name["unknown_time"] == lost / 10
    assert (by_name["task_time_share_node0"], by_name["task_time_share_node2"]) == (50, 50)
    assert (by_name["task_busy_share_min"], by_name["queue_imbalance"]) == (100, 0)
    few = lost == 10
    spread = by_name["even_spread_time"], by_name["task_convergence_time"]
    assert spread == ((0, 0) if few else (None, None))
    assert by_name["tasks_converged"] == (100 if few else None)
    curves = {series.values for series in run.findings.series if series.node != 1}
    assert curves == {(1.0,), (100.0,)}
    rest = "events were lost in 60 % of the window: residence lacks this time"
    assert (rest in run.findings.notes) is not few


def test_a_cpu_whose_events_are_all_lost_has_no_busy_share(
    trace: Trace, three_nodes: Topology
) -> None:
    begin, end = trace.mark(0, "numalab: begin"), trace.mark(1000, "numalab: end", 1)
    hogs = [trace.switch(0, 2, "idle", "hog:2"), trace.switch(0, 0, "idle", "hog:1")]
    events = trace.table(*hogs, begin, trace.lost(1000, 0), end)
    run = analyse(Recording(events, three_nodes, tasks=["hog"], allowed_cpus=[0, 2]))
    by_name = values(run.measures)
    assert (by_name["task_busy_share_cpu0"], by_name["task_busy_share_cpu2"]) == (None, 100)
    for name in ("task_busy_share_min", "task_time_share_node2", "queue_imbalance"):
        assert by_name[name] is None
    assert {series.values for series in run.findings.series} == {(None,)}


def test_a_move_to_the_same_cpu_is_none(trace: Trace, three_nodes: Topology) -> None:
    """set_task_cpu() traces before it looks whether the CPU changes at all."""
    moves = [trace.migrate(110, "hog:1", 0, 0), trace.migrate(120, "hog:1", 0, 1)]
    events = trace.table(trace.mark(100, "numalab: begin"), *moves)
    measures = values(analyse(Recording(events, three_nodes, tasks=["hog"])).measures)
    assert (measures["task_migrations"], measures["task_node_migrations"]) == (1, 1)


def test_an_empty_trace_measures_nothing(trace: Trace, three_nodes: Topology) -> None:
    measures = values(analyse(Recording(trace.table(), three_nodes, tasks=["hog"])).measures)
    assert measures["task_busy_share_min"] is None
    assert measures["idle_while_overloaded"] is None
    assert measures["sched_move_numa"] == 0


def test_a_table_without_the_optional_columns_will_do(trace: Trace, three_nodes: Topology) -> None:
    events = a_run(trace).select("time_ns", "cpu", "node", "event", "pid", "comm")
    assert (
        values(analyse(Recording(events, three_nodes, tasks=["hog"])).measures)["task_migrations"]
        is None
    )
    assert set(events.columns) < set(COLUMNS)


def test_every_measure_can_be_explained(trace: Trace, three_nodes: Topology) -> None:
    for made in analyse(
        Recording(a_run(trace), three_nodes, tasks=["hog"], vmstat={"numa_hit": 1})
    ).measures:
        described = explain(made.name)
        assert described == made.info
        assert "{" not in described.definition


def test_an_unknown_measure_names_those_there_are() -> None:
    with pytest.raises(UserError, match="no measure is called 'speed'") as refused:
        explain("speed")
    assert refused.value.choices == tuple(family.name for family in families())


def test_families_have_different_names_and_all_they_need() -> None:
    names = [family.name for family in families()]
    assert len(set(names)) == len(names)
    for family in families():
        assert family.definition.endswith(".")
        assert family.unit
        assert family.sources
    assert BUSY_SHARE.of(1.5, cpu=3).name == "task_busy_share_cpu3"


@pytest.mark.parametrize(
    ("memory_mib", "counters", "passes"),
    [
        (2.0, {"numa_pte_updates": 1024}, 2),
        (2.0, {"numa_pte_updates": 1024, "numa_huge_pte_updates": 2}, 2),  # 512 each, in the first
        (2.0, {"numa_hint_faults": 1}, None),
        (0.0, {"numa_pte_updates": 1024}, "not there"),
    ],
)
def test_passes_over_the_memory(
    trace: Trace, three_nodes: Topology, memory_mib: float, counters: dict[str, int], passes: Any
) -> None:
    command = CommandData("w", memory_mib=memory_mib)
    every = analyse(
        Recording(a_run(trace), three_nodes, tasks=["hog"], vmstat=counters, command=command)
    ).measures
    assert values(every).get("numa_scan_passes", "not there") == passes


@pytest.mark.parametrize(
    ("counters", "faults"),
    [
        ({"pgfault": 23480, "pgmajfault": 10, "numa_hint_faults": 6235}, 17235),
        ({"pgfault": 23480, "numa_hint_faults": 6235}, None),
        ({}, None),
    ],
)
def test_faults_beside_hinting_faults(
    trace: Trace, three_nodes: Topology, counters: dict[str, int], faults: int | None
) -> None:
    run = analyse(Recording(a_run(trace), three_nodes, tasks=[], vmstat=counters))
    assert values(run.measures)["other_minor_faults"] == faults


@pytest.mark.parametrize("name", [*_CHANGED, *_UNCHANGED])
def test_a_definition_changes_with_the_values_and_only_then(name: str) -> None:
    """Compare takes the text as the version of a measure."""
    described = explain(name)
    assert described is not None
    assert (described.definition == (_CHANGED | _UNCHANGED)[name]) is (name in _UNCHANGED)
