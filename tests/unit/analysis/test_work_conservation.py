"""Work conservation, counted by hand."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from numalab.analysis.measures.work_conservation import GROUP
from numalab.capture.samples import parse_samples
from numalab.cpulist import format_cpulist
from numalab.recording.intervals import covered
from numalab.recording.masks import masks_by_time
from numalab.recording.recording import Recording
from numalab.recording.spans import spans
from numalab.recording.stays import queue_lengths, stays
from numalab.recording.window import Window, gaps, offline
from numalab.recording.work_conservation import bound_by_name, joined, longest, violations
from numalab.topology.topology import Topology
from support.small_traces import Trace

WINDOW = Window(0, 100)


def listed(
    events: pl.DataFrame,
    of_pid: dict[int, frozenset[int]] | None = None,
    cpus: tuple[int, ...] = (0, 1),
) -> tuple[list[Any], list[Any]]:
    """Return all violations of a trace, and the longest with the task that waited."""
    sampled = [(0, pid, format_cpulist(mask)) for pid, mask in (of_pid or {}).items()]
    schema = {"time_ns": pl.Int64, "pid": pl.Int32, "cpus": pl.String}
    masks = masks_by_time(
        pl.DataFrame(sampled, schema=schema, orient="row"),
        bound_by_name({0: (0,), 1: (1, 2), 2: ()}),
    )
    stayed = stays(events, WINDOW)
    lengths = queue_lengths(stayed, WINDOW, [*cpus])
    ran = spans(events, WINDOW, cpus)
    idle_times = violations(
        lengths, stayed, ran, gaps(events), masks=masks, offline=offline(events)
    )
    first = longest(idle_times, lengths, stayed, 1, masks=masks, window=Window(-1, 101))
    return idle_times.rows(), first.rows()


def test_a_violation_is_an_idle_cpu_while_another_has_two(trace: Trace) -> None:
    events = trace.table(
        trace.switch(0, 0, "idle", "a:1"),
        trace.wakeup(10, "b:2", 0),  # two on CPU 0, none on CPU 1 until 40
        trace.wakeup(15, "c:3", 0),
        trace.migrate(40, "b:2", 0, 1),
        trace.switch(60, 1, "b:2", "idle", trace.sleeps),  # CPU 1 again, until c leaves CPU 0
        trace.migrate(80, "c:3", 0, 1),
    )
    assert listed(events) == ([(1, 10, 40), (1, 60, 80)], [(1, 10, 40, 0, 2, "b")])


def test_a_task_waits_for_its_own_cpus_only(trace: Trace) -> None:
    events = trace.table(
        trace.switch(0, 0, "idle", "a:1"),
        trace.wakeup(10, "b:2", 0),  # b waits while a runs
        trace.switch(40, 0, "a:1", "b:2", trace.preempted),  # a waits while b runs
        trace.switch(70, 0, "b:2", "a:1", trace.sleeps),
    )
    assert listed(events)[0] == [(1, 10, 70)]
    for_b = {2: frozenset({0})}
    assert listed(events, for_b) == ([(1, 40, 70)], [(1, 40, 70, 0, 1, "a")])
    assert listed(events, {1: frozenset({0})}) == ([(1, 10, 40)], [(1, 10, 40, 0, 2, "b")])
    assert listed(events, {1: frozenset({0}), 2: frozenset({0, 2})}) == ([], [])
    wide = {1: frozenset({0, 2}), 2: frozenset({0, 1, 2})}
    idle_times, first = listed(events, wide, (0, 1, 2))
    assert idle_times == [(1, 10, 40), (2, 10, 70)]
    assert first == [(2, 10, 70, 0, 2, "b")]


def test_a_running_task_does_not_wait_and_of_two_alike_one_does(trace: Trace) -> None:
    events = trace.table(
        trace.switch(0, 0, "idle", "a:1"),
        trace.wakeup(10, "b:2", 0),
        trace.wakeup(20, "c:3", 0),
    )
    masks = {1: frozenset({0, 1}), 2: frozenset({0}), 3: frozenset({0})}
    assert listed(events, masks)[0] == [], "a, which may come, runs"
    assert listed(events, masks | {3: frozenset({0, 1})})[0] == [(1, 20, 100)]
    several = {pid: frozenset({0, 1}) for pid in (1, 2)} | {3: frozenset({0})}
    assert listed(events, several)[0] == [(1, 10, 100)]


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("kworker/0:1", True),
        ("kworker/0:1H", True),
        ("migration/0", True),
        ("ksoftirqd/0", True),
        ("kworker/u4:1", False),
        ("rcuop/0", False),
        ("hog/0", False),
        ("migration", False),
    ],
)
def test_a_thread_of_one_cpu_waits_for_no_other(trace: Trace, name: str, bound: bool) -> None:
    events = trace.table(trace.switch(0, 0, "idle", "a:1"), trace.wakeup(10, f"{name}:2", 0))
    expected = [] if bound else [(1, 10, 100, 0, 2, name)]
    assert listed(events)[1] == expected
    masks = {2: frozenset({0, 1})}
    assert listed(events, masks)[1] == expected, "its name says more than a mask"


@pytest.mark.parametrize(
    ("name", "cpu", "waits_for"),
    [
        ("kcompactd0", 0, []),
        ("kcompactd1", 1, [2]),
        ("kswapd1", 0, [1, 2]),
        ("kswapd2", 0, [1, 2]),  # of a node without a CPU
        ("kcompactd3", 0, [1, 2]),  # of no node
        ("kcompactd", 0, [1, 2]),
        ("numalab-beat", 0, []),
        ("numalab-run", 0, []),
        ("numalab-sample", 0, []),
    ],
)
def test_a_thread_of_a_node_waits_for_its_cpus(
    trace: Trace, name: str, cpu: int, waits_for: list[int]
) -> None:
    """Also the helpers of the guest, which bind themselves to CPU 0."""
    events = trace.table(trace.switch(0, cpu, "idle", "a:1"), trace.wakeup(10, f"{name}:2", cpu))
    idle_times, first = listed(events, {1: frozenset({cpu})}, (0, 1, 2))
    assert idle_times == [(waited, 10, 100) for waited in waits_for]
    assert [row[3:] for row in first] == [(cpu, 2, name)] * bool(waits_for)
    everywhere = listed(events, {pid: frozenset({0, 1, 2}) for pid in (1, 2)}, (0, 1, 2))
    assert len(everywhere[0]) == 2, "a sampled task is no thread of the kernel"


def test_time_in_which_events_were_lost_is_no_violation(trace: Trace) -> None:
    events = trace.table(
        trace.switch(0, 0, "idle", "a:1"),
        trace.wakeup(10, "b:2", 0),
        trace.wakeup(20, "b:2", 0),
        trace.lost(50, 0),
        trace.wakeup(90, "b:2", 0),
    )
    idle_times, _ = listed(events)
    assert idle_times[0] == (1, 10, 20)
    assert all(end <= 20 or start >= 50 for _, start, end in idle_times)


@pytest.mark.parametrize("rows", [2, 100])
def test_a_cpu_that_is_off_line_is_not_idle(trace: Trace, rows: int) -> None:
    """Its stopper moves all away and parks, which no kernel traces; the CPU comes back at 70."""
    stopper = {"cpu": 1, "pid": 9, "comm": "migration/1"}
    events = trace.table(
        trace.mark(0, "numalab: begin"),
        trace.switch(0, 0, "idle", "a:1"),
        trace.wakeup(10, "b:2", 1),
        trace.switch(11, 1, "idle", "b:2"),
        trace.wakeup(19, "migration/1:9", 1),
        trace.switch(20, 1, "b:2", "migration/1:9", trace.preempted),
        trace.migrate(21, "b:2", 1, 0) | stopper,
        trace.switch(40, 0, "a:1", "b:2", trace.preempted),
        trace.switch(60, 0, "b:2", "a:1", trace.preempted),
        trace.wakeup(70, "migration/1:9", 1),
        trace.switch(71, 1, "idle", "migration/1:9"),
        trace.switch(75, 1, "migration/1:9", "idle", trace.sleeps),
        trace.mark(100, "numalab: end"),
    )
    run = Recording(events, allowed_cpus=[0, 1], rows=rows)
    assert run.sums.longest.select("cpu", "start_ns", "end_ns").rows() == [(1, 75, 100)]
    assert run.sums.busy_cpu[1] == (20 - 11) + (21 - 20) + (75 - 71), "it runs nothing from 21 on"
    queued = covered(run.queue.filter((pl.col("cpu") == 1) & (pl.col("runnable") > 0)))
    assert [ends.tolist() for ends in queued] == [[10, 70], [21, 75]]


def test_pieces_of_one_violation_are_joined() -> None:
    schema = ["cpu", "start_ns", "end_ns", "busy_cpu", "pid", "comm"]
    rows = [(1, 0, 10, 0, 7, "a"), (1, 10, 30, 2, 8, "b"), (1, 31, 40, 0, 7, "a"),
            (2, 10, 20, 0, 7, "a")]  # fmt: skip
    result = joined(pl.DataFrame(rows, schema=schema, orient="row"))
    assert result.rows() == [
        (1, 0, 30, 0, 7, "a"),
        (1, 31, 40, 0, 7, "a"),
        (2, 10, 20, 0, 7, "a"),
    ]


def measured(
    trace: Trace,
    topology: Topology | None,
    *more: Any,
    recorded: list[str] | None = None,
    allowed: tuple[int, ...] = (0, 1),
    samples: str | None = None,
) -> dict[str, Any]:
    """Measures of 100 ns: two tasks on CPU 0 from 10 to 40, while CPU 1 is idle."""
    events = trace.table(
        trace.mark(0, "numalab: begin"),
        trace.switch(0, 0, "idle", "a:1"),
        trace.wakeup(10, "b:2", 0),
        trace.migrate(40, "b:2", 0, 1),
        trace.switch(60, 1, "b:2", "idle", trace.sleeps),
        *more,
        trace.mark(100, "numalab: end"),
    )
    run = Recording(
        events, topology, tasks=["a", "b"], allowed_cpus=allowed, recorded=recorded,
        samples=None if samples is None else parse_samples(samples), rows=100,
    )  # fmt: skip
    return {measure.name: measure.value for measure in GROUP.compute(run)}


def test_measures_of_one_violation(trace: Trace, three_nodes: Topology) -> None:
    assert measured(trace, three_nodes) == pytest.approx(
        {
            "idle_while_overloaded": 30.0,
            "longest_idle_while_overloaded": 30 / 1e6,
            # Node 0 has one task all the time and a second one for 30 ns, node 1 one for 20 ns.
            "queue_imbalance": 1.3 - 0.2,
            "unknown_time": 0.0,
            "tasks_final_node0": 1,
            "tasks_final_node1": 1,
            "tasks_final_node2": 0,
        }
    )


@pytest.mark.parametrize(("tasks", "count"), [(["hog"], 3), (["sh"], 0), (["x"], 1), ([], 3)])
def test_a_task_counts_at_the_end_by_the_name_with_which_it_ran(
    trace: Trace, three_nodes: Topology, tasks: list[str], count: int
) -> None:
    events = trace.table(
        trace.mark(0, "numalab: begin"),
        trace.wakeup(1, "sh:1", 0, new=True),
        trace.switch(2, 0, "idle", "sh:1"),
        trace.switch(30, 0, "hog:1", "hog:2", 0x20),  # 1 executed hog, and ended
        trace.switch(40, 0, "hog:2", "idle", trace.sleeps),
        trace.switch(50, 0, "idle", "hog:2"),
        trace.switch(60, 0, "x:2", "idle", trace.sleeps),
        trace.wakeup(70, "hog:3", 0),
        trace.mark(100, "numalab: end"),
    )
    run = Recording(events, three_nodes, tasks=tasks)
    by_name = {measure.name: measure.value for measure in GROUP.compute(run)}
    assert by_name["tasks_final_node0"] == count
    assert len(run.residents["task"]) == min(count, 2), "those of them that ran"


def test_sampled_masks_say_who_may_come(trace: Trace, three_nodes: Topology) -> None:
    def idle(samples: str) -> Any:
        return measured(trace, three_nodes, samples=samples)["idle_while_overloaded"]

    bound = "@ 20\ntask 1 2 0 0 62 cpus=0\n"
    assert idle("@ 20\ntask 1 2 0 0 62 cpus=0-1\n") == pytest.approx(30)
    assert idle(bound) == 0
    assert idle(bound + "@ 30\ntask 1 2 0 0 62 cpus=1\n") == pytest.approx(10), "bound anew"
    both = "@ 20\ntask 1 2 0 0 62 cpus=0-1\n@ 30\ntask 1 2 0 0 62 cpus=0\n"
    assert idle(both) == pytest.approx(10), "until the first sample, what it shows"
    assert idle("@ 200\ntask 1 2 0 0 62 cpus=0\n") == pytest.approx(30), "after the window"
    assert idle("@ 20\ntask 1 2 0 0 62 cpus=9-1\n") == pytest.approx(30), "no list"


@pytest.mark.parametrize(("name", "idle_ns"), [("kcompactd0", 0), ("kcompactd", 90)])
@pytest.mark.parametrize("rows", [2, 100])
def test_a_recording_has_the_cpus_of_its_nodes(
    trace: Trace, three_nodes: Topology, name: str, idle_ns: int, rows: int
) -> None:
    events = trace.table(
        trace.mark(0, "numalab: begin"),
        trace.switch(0, 0, "idle", "a:1"),
        trace.wakeup(10, f"{name}:2", 0),
        trace.mark(100, "numalab: end"),
    )
    bound = parse_samples("@ 5\ntask 1 1 0 0 61 cpus=0\n")
    assert Recording(events, three_nodes, samples=bound, rows=rows).sums.idle_ns == idle_ns
    no_nodes = Recording(events, allowed_cpus=(0, 1), samples=bound, rows=rows)
    assert no_nodes.sums.idle_ns == idle_ns


@pytest.mark.parametrize("rows", [3, 100])
def test_a_mask_counts_from_its_first_sample_on(trace: Trace, rows: int) -> None:
    """Two hogs share CPU 0. Until 30 they may not leave it, and until 40 nobody knows."""
    tasks = ["a:1", "b:2"]
    shared = [
        trace.switch(time, 0, tasks[turn % 2], tasks[1 - turn % 2], trace.preempted)
        for turn, time in enumerate(range(5, 100, 7))
    ]
    samples = "".join(
        f"@ {time}\n" + "".join(f"task 1 {pid} 0 0 62 cpus={cpus}\n" for pid in (1, 2))
        for time, cpus in ((10, "0"), (20, "0"), (30, "0"), (40, "0-1"), (80, "0-1"), (90, "0"))
    )
    events = trace.table(trace.mark(0, "numalab: begin"), *shared, trace.mark(100, "numalab: end"))
    run = Recording(events, allowed_cpus=[0, 1], samples=parse_samples(samples), rows=rows)
    assert run.sums.idle_ns == 80 - 40
    assert run.sums.longest.select("cpu", "start_ns", "end_ns").rows() == [(1, 40, 80)]


def test_time_that_was_lost_is_in_no_share(trace: Trace, three_nodes: Topology) -> None:
    by_name = measured(trace, three_nodes, trace.lost(90, 1))
    assert by_name["unknown_time"] == pytest.approx(30), "from its last event at 60 on"
    assert by_name["idle_while_overloaded"] == pytest.approx(100 * 30 / 70)


def test_a_node_without_an_allowed_cpu_has_no_queue(trace: Trace, three_nodes: Topology) -> None:
    alone = measured(trace, three_nodes, allowed=(0,))
    assert (alone["queue_imbalance"], alone["longest_idle_while_overloaded"]) == (None, 0)
    assert measured(trace, three_nodes, allowed=(0, 2))["queue_imbalance"] == pytest.approx(1.3)


def test_a_queue_counts_for_each_cpu_of_its_node(trace: Trace, three_nodes: Topology) -> None:
    nodes = (replace(three_nodes.nodes[0], cpus=(0, 2)), three_nodes.nodes[1])
    machine = replace(three_nodes, nodes=nodes, distances=((10, 20), (20, 10)))
    by_name = measured(trace, machine, allowed=(0, 1, 2))
    assert by_name["queue_imbalance"] == pytest.approx(1.3 / 2 - 0.2)
    assert {family.name for family in GROUP.families if family.needs_nodes} == {
        "queue_imbalance",
        "tasks_final_node{node}",
    }


def test_what_was_not_recorded_or_has_no_node_is_not_known(
    trace: Trace, three_nodes: Topology
) -> None:
    by_name = measured(trace, three_nodes, recorded=["sched:sched_switch"])
    waiting = ("idle_while_overloaded", "longest_idle_while_overloaded", "queue_imbalance")
    assert [by_name[name] for name in waiting] == [None] * 3
    assert (by_name["unknown_time"], by_name["tasks_final_node0"]) == (0.0, 1)
    by_name = measured(trace, three_nodes, recorded=["sched:sched_move_numa"])
    assert (by_name["tasks_final_node0"], by_name["unknown_time"]) == (None, 0.0)
    lost = [trace.other(0, cpu, "x") for cpu in (0, 1)] + [trace.lost(99, cpu) for cpu in (0, 1)]
    events = trace.table(*lost)
    run = Recording(events, three_nodes, tasks=(), allowed_cpus=None, recorded=None, samples=None,
                   rows=100)  # fmt: skip
    by_name = {measure.name: measure.value for measure in GROUP.compute(run)}
    assert by_name["unknown_time"] == 100 and by_name["idle_while_overloaded"] is None
    by_name = measured(trace, None)
    assert by_name["queue_imbalance"] is None and "tasks_final_node0" not in by_name
    assert by_name["idle_while_overloaded"] == pytest.approx(30)
