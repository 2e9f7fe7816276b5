"""What a reader can look deeper into, put together from a small trace by hand."""

from dataclasses import replace
from typing import Any

import pytest

from numalab.analysis import analyse as module
from numalab.analysis.analyse import collect_findings
from numalab.analysis.findings import Findings
from numalab.recording.recording import Recording
from numalab.topology.topology import Node, Topology
from support.small_traces import Trace

MS = 1_000_000


def a_run(trace: Trace) -> Any:
    """Hogs 1 and 2 take turns on CPU 0 of three; hog 2 moves to CPU 2 at 60 ms of 100 and back.

    Allowed are CPUs 0 and 2, so that CPU 2 is idle for 60 ms while CPU 0 has two tasks. At 80 ms
    NUMA balancing announces a move of hog 1 that fails.
    """
    return trace.table(
        trace.switch(0, 0, "idle", "hog:1"),
        trace.wakeup(0, "hog:2", 0),
        trace.switch(0, 2, "other:9", "idle", trace.sleeps),
        trace.mark(0, "numalab: begin"),
        trace.numa_move(59 * MS, "hog:2", 0, 2, tgid=7),
        trace.migrated_by(60 * MS, "migration/0:20", "hog:2", 0, 2),
        trace.switch(60 * MS, 2, "idle", "hog:2"),
        trace.numa_move(80 * MS, "hog:1", 0, 1, tgid=7),
        trace.numa_pair(81 * MS, "stick", "hog:1", 0, 1, 0),
        trace.switch(90 * MS, 2, "hog:2", "idle", trace.preempted),
        trace.migrate(90 * MS, "hog:2", 2, 0),
        trace.mark(100 * MS, "numalab: end"),
    )


def findings_of(
    trace: Trace, topology: Topology | None, recorded: list[str] | None = None
) -> Findings:
    return collect_findings(
        Recording(
            a_run(trace), topology, tasks=["hog"], allowed_cpus=[0, 2], recorded=recorded,
            samples=None, rows=100,
        )
    )  # fmt: skip


def test_decisions_say_what_became_of_them(trace: Trace, three_nodes: Topology) -> None:
    findings = findings_of(trace, three_nodes)
    listed = [(decision.at_ms, decision.kind, decision.task, decision.to_cpu, decision.undone)
            for decision in findings.decisions]  # fmt: skip
    assert listed == [
        (59, "move", "hog", 2, "moved back"),
        (80, "move", "hog", 1, "failed"),
        (81, "stick", "hog", 1, ""),
    ]
    assert findings.decisions_in_all == 3


@pytest.mark.parametrize("back", ["hog:1", "other:9"])
def test_a_swap_is_undone_by_a_move_back_of_either_task(
    trace: Trace, three_nodes: Topology, back: str
) -> None:
    places = {"hog:1": (0, 2), "other:9": (2, 0)}
    events = trace.table(
        trace.switch(0, 0, "idle", "hog:1"),
        trace.switch(0, 2, "idle", "other:9"),
        trace.mark(0, "numalab: begin"),
        trace.numa_pair(10 * MS, "swap", "hog:1", 0, 2, 9),
        *(trace.migrated_by(11 * MS, "migration/0:20", task, *cpus)
          for task, cpus in places.items()),
        trace.switch(12 * MS, 0, "hog:1", "other:9", trace.preempted),
        trace.switch(12 * MS, 2, "other:9", "hog:1", trace.preempted),
        trace.migrate(20 * MS, back, *reversed(places[back])),
        trace.mark(100 * MS, "numalab: end"),
    )  # fmt: skip
    decisions = collect_findings(Recording(events, three_nodes)).decisions
    assert [decision.undone for decision in decisions] == ["moved back"]


def test_only_the_first_decisions_are_listed(
    trace: Trace, three_nodes: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_DECISIONS", 2)
    findings = findings_of(trace, three_nodes)
    assert (len(findings.decisions), findings.decisions_in_all) == (2, 3)
    assert "the first 2 of 3 decisions are listed" in findings.notes


def test_matrices_are_of_what_took_place(trace: Trace, three_nodes: Topology) -> None:
    cells = {
        item.name: [list(row) for row in item.cells]
        for item in findings_of(trace, three_nodes).matrices
    }
    assert cells["moves"] == [[0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert cells["migrations"] == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


def test_the_longest_idle_times_are_listed(trace: Trace, three_nodes: Topology) -> None:
    first = findings_of(trace, three_nodes).violations[0]
    assert (first.cpu, first.at_ms, first.length_ms) == (2, 0, 60)
    assert first.busy_cpu == 0


def test_series_are_by_node_and_average_to_the_whole(trace: Trace, three_nodes: Topology) -> None:
    findings = findings_of(trace, three_nodes)
    busy = {curve.node: curve.values for curve in findings.series if curve.name == "busy"}
    ends = findings.slice_ends_ms
    lengths = [end - begin for begin, end in zip((0, *ends), ends, strict=False)]
    mean = {
        node: sum((v or 0) * n for v, n in zip(values, lengths, strict=True)) / 100
        for node, values in busy.items()
    }
    assert mean == {0: pytest.approx(100), 1: 0, 2: pytest.approx(30)}
    queued = {curve.node: curve.values for curve in findings.series if curve.name == "runnable"}
    assert (queued[0][0], queued[2][0]) == (2, 0)


def test_a_share_is_of_all_cpus_of_a_node_and_a_queue_is_not(
    trace: Trace, three_nodes: Topology
) -> None:
    nodes = (Node(0, (0, 1), 512), Node(1, (2,), 512))
    two = replace(three_nodes, nodes=nodes, distances=((10, 20), (20, 10)))
    series = {(item.name, item.node): item.values for item in findings_of(trace, two).series}
    assert (series["busy", 0][0], series["runnable", 0][0]) == (50, 2)


def test_without_nodes_nothing_is_by_node(trace: Trace) -> None:
    findings = findings_of(trace, None)
    assert findings.nodes == () and findings.matrices == () and findings.series == ()
    assert findings.storms_in_all is None
    assert "nobody knows which node a CPU is on: nothing here is by node" in findings.notes


def test_what_was_not_recorded_is_not_told(trace: Trace, three_nodes: Topology) -> None:
    findings = findings_of(trace, three_nodes, ["sched:sched_move_numa"])
    assert findings.violations == () and findings.violations_in_all is None
    assert findings.tasks_in_all == 0 and findings.residence == ()
    assert findings.decisions_in_all is None
    assert [matrix.name for matrix in findings.matrices if not matrix.weighted] == ["moves"]
    assert any(note.startswith("sched_switch was not recorded") for note in findings.notes)
