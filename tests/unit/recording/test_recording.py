"""What a recording can tell, by the events that it was made of."""

from collections.abc import Collection
from pathlib import Path

import polars as pl
import pytest

from numalab.analysis.analyse import analyse
from numalab.capture.samples import parse_samples
from numalab.recording.recording import NUMA_EVENTS, Recording
from numalab.run_dir import RunDir
from numalab.topology.topology import Topology
from support.small_traces import Trace

WAKING = ("sched:sched_wakeup", "sched:sched_wakeup_new", "sched:sched_migrate_task")
MOVES = ("sched:sched_move_numa", "sched:sched_swap_numa")


def read(
    events: pl.DataFrame, topology: Topology | None, recorded: Collection[str] | None
) -> Recording:
    return Recording(
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


def test_recorded_events_of_a_recording_of_unknown_origin(
    trace: Trace, three_nodes: Topology
) -> None:
    assert read(small(trace), three_nodes, None).has("sched_anything")
    quiet = trace.table(trace.wakeup(1, "a:1", 0), trace.mark(9, "x"))
    run = read(quiet, three_nodes, None)
    assert run.has(*NUMA_EVENTS, "sched_wakeup")
    assert not run.has("sched_switch")


def test_events_come_with_every_column(trace: Trace, three_nodes: Topology) -> None:
    table = small(trace).with_columns(child_pid=pl.lit(7, pl.UInt16))
    run = read(table, three_nodes, ["sched:sched_switch", "irq"])
    switches = run.events("sched:sched_switch")
    assert switches["time_ns"].to_list() == [1_000, 5_001, 6_000]
    assert switches["child_pid"].to_list() == [7, 7, 7]
    assert switches.schema["target_cpu"] == pl.Int16  # in SCHEMA, and not in the table
    both = run.events("sched_switch", "sched_move_numa")
    assert both["event"].value_counts().sort("event").rows() == [
        ("sched_move_numa", 1),
        ("sched_switch", 3),
    ]
    assert run.events("sched_process_fork").is_empty()
    assert not run.has("sched:sched_process_fork")
    assert run.has("irq:softirq_entry")  # all events of that system were recorded


def test_a_field_keeps_its_type_though_one_of_sched_ext_has_its_name(
    trace: Trace, three_nodes: Topology
) -> None:
    values = {
        "delta": pl.lit(2**64 - 5, pl.UInt64),
        "line": pl.lit(17, pl.UInt32),
        "name": pl.lit(value=True),
        "buf": pl.lit(3, pl.Int8),
    }
    table = small(trace).with_columns(**values)
    events = read(table, three_nodes, None).events("sched_migrate_task").select(*values)
    assert events.rows() == [(2**64 - 5, 17, True, 3)]
    assert list(events.dtypes) == [pl.UInt64, pl.UInt32, pl.Boolean, pl.Int8]


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
    assert (run.has("sched_switch"), run.movers_known) == (ran, movers)


@pytest.mark.parametrize(
    ("event", "fields", "lost"),
    [
        ("sched_migrate_task", ("orig_cpu", "dest_cpu"), "task_node_migrations"),
        ("sched_move_numa", ("src_cpu",), "sched_move_numa"),
        ("sched_switch", ("prev_pid", "prev_state"), "idle_while_overloaded"),
        ("sched_wakeup", ("event_pid",), "idle_while_overloaded"),
    ],
)
def test_an_event_that_lacks_a_field_measures_nothing(
    trace: Trace, three_nodes: Topology, event: str, fields: tuple[str, ...], lost: str
) -> None:
    woken = trace.table(trace.wakeup(5_500, "b:2", 1))
    whole = pl.concat([small(trace), woken]).sort("time_ns", maintain_order=True)
    mine = pl.col("event") == event
    renamed = whole.with_columns(
        pl.when(~mine).then(pl.col(field)).alias(field) for field in fields
    )
    before, after = (analyse(read(table, three_nodes, ["sched"])) for table in (whole, renamed))
    assert before.lacking == {}
    assert after.lacking == {event: fields}
    values = {measure.name: measure.value for measure in after.measures}
    assert {m.name: m.value for m in before.measures}[lost] is not None
    assert values[lost] is None
    names = ", ".join(field.removeprefix("event_") for field in fields)
    assert after.notes == (f"{event} has no field {names}: nothing is measured by it",)
    shown = {matrix.name for matrix in after.findings.matrices}
    assert ("migrations" in shown) == (event != "sched_migrate_task")


def test_an_event_that_did_not_occur_lacks_nothing(trace: Trace, three_nodes: Topology) -> None:
    run = read(small(trace), three_nodes, ["sched"])
    assert run.has("sched_stick_numa", "sched_wakeup") and not run.lacking


def test_nothing_is_told_of_nodes_that_nobody_knows(trace: Trace, three_nodes: Topology) -> None:
    unknown, described = (read(small(trace), item, None) for item in (None, three_nodes))
    assert (unknown.if_nodes(3.0), described.if_nodes(3.0)) == (None, 3.0)
    assert not unknown.movers_known


def test_a_decision_a_migration_and_the_process_of_the_task(
    trace: Trace, three_nodes: Topology
) -> None:
    run = read(small(trace), three_nodes, None)
    assert run.numa_moves.select("kind", "pid", "from_node", "to_node").rows() == [
        ("move", 1, 0, 1)
    ]
    assert run.migrations.height == run.node_migrations.height == 1
    assert run.node_migrations["mover"].to_list() == ["numa"]
    (task,) = run.residents["task"]
    (process,) = run.residents["process"]
    assert (task.id, process.id) == (1, 1)
    assert run.residents["group"] == ()


@pytest.mark.parametrize(("sampled_ns", "group"), [(4_000, 7), (6_000, 3)])
def test_the_last_mention_of_a_group_counts(
    trace: Trace, three_nodes: Topology, sampled_ns: int, group: int
) -> None:
    moved = pl.col("event") == "sched_move_numa"
    events = small(trace).with_columns(ngid=pl.when(moved).then(7).otherwise("ngid"))
    samples = parse_samples(f"@ {sampled_ns}\ntask 1 1 0 3 61\n")
    run = Recording(events, three_nodes, tasks=["a"], samples=samples)
    assert [resident.id for resident in run.residents["group"]] == [group]


@pytest.mark.parametrize(
    ("announced", "earlier", "mover"),
    [
        (9_000_000, (), "numa"),
        (9_000_000, (9_500_000,), "stopper"),  # that was the move that was announced
        (-999_000_000, (), "stopper"),
    ],
)
def test_what_was_announced_within_the_second_before_the_window_is_of_numa_balancing(
    trace: Trace,
    three_nodes: Topology,
    announced: int,
    earlier: tuple[int, ...],
    mover: str,
) -> None:
    events = trace.table(
        trace.numa_move(announced, "a:1", 0, 1),
        *(trace.migrated_by(time, "migration/0:5", "a:1", 0, 1) for time in earlier),
        trace.mark(10_000_000, "numalab: begin"),
        trace.switch(11_000_000, 0, "a:1", "migration/0:5", trace.preempted),
        trace.migrated_by(12_000_000, "migration/0:5", "a:1", 0, 1),
        trace.wakeup(13_000_000, "b:2", 2, new=True),
        trace.mark(20_000_000, "numalab: end"),
    )
    for rows in (2, 100):
        run = Recording(events, three_nodes, rows=rows)
        assert run.migrations.select("time_ns", "mover").rows() == [(12_000_000, mover)]
        assert run.decisions.is_empty() and run.numa_moves.is_empty()
        assert run.node_migrations["mover"].to_list() == [mover]


def test_domains_come_from_the_kernel_log_of_the_run(trace: Trace, tmp_path: Path) -> None:
    run = Recording(small(trace), directory=RunDir(tmp_path))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "dmesg.txt").write_text(
        "CPU0 attaching sched-domain(s):\n domain-0: span=0-1 level=MC\n"
        "  groups: 0:{ span=0 }, 1:{ span=1 }\n"
    )
    ((domain,),) = (cpu.domains for cpu in run.domains)
    assert (domain.name, domain.span, len(domain.groups)) == ("MC", (0, 1), 2)
    assert Recording(small(trace)).domains == ()
