"""Who moved a task and who took it back, decided by hand on small traces."""

import polars as pl

from numalab.recording.migrations import (
    RETURN_NS,
    STORM_NS,
    find_storms,
    migrations,
    name_numa_moves,
    who_moved,
    with_returns,
)
from numalab.recording.numa_decisions import done_moves, numa_decisions, with_outcomes
from numalab.recording.stays import births, stays
from numalab.recording.window import Window
from support.small_traces import Trace

NODE_OF = {0: 0, 1: 1, 2: 2}


def moved(events: pl.DataFrame) -> pl.DataFrame:
    window = Window(0, 10 * RETURN_NS)
    decided = with_outcomes(numa_decisions(events, window, NODE_OF))
    result = migrations(events, stays(events, window), NODE_OF)
    return name_numa_moves(result, done_moves(decided))


def test_each_move_has_its_mover(trace: Trace) -> None:
    events = trace.table(
        trace.switch(10, 0, "idle", "a:1"),
        trace.wakeup(20, "b:2", 0),
        # pulled while it waits; then NUMA balancing announces, and the stopper carries out
        trace.migrate(30, "b:2", 0, 1),
        trace.switch(40, 1, "idle", "b:2"),
        trace.numa_move(50, "b:2", 1, 2),
        trace.migrated_by(60, "migration/1:21", "b:2", 1, 2),
        # the same destination again, but nobody announced it: active balance
        trace.migrate(70, "b:2", 2, 1),
        trace.migrated_by(80, "migration/1:21", "b:2", 1, 2),
        # asleep, so its wake-up places it
        trace.switch(90, 0, "a:1", "idle", trace.sleeps),
        trace.migrate(95, "a:1", 0, 1),
        trace.wakeup(96, "a:1", 1),
        trace.migrate(97, "a:1", 1, 1),
    )
    assert moved(events).select("time_ns", "pid", "mover").rows() == [
        (30, 2, "load balancer"),
        (60, 2, "numa"),
        (70, 2, "load balancer"),
        (80, 2, "stopper"),
        (95, 1, "wake-up"),
    ]


def test_a_stopper_without_a_name_has_that_of_its_switch(trace: Trace) -> None:
    nameless = {"comm": None}
    rows = (
        trace.wakeup(5, "b:2", 0),
        trace.switch(10, 0, "a:1", "migration/0:21", trace.preempted),
        trace.migrated_by(20, "migration/0:21", "b:2", 0, 1) | nameless,
        trace.switch(30, 0, "migration/0:21", "a:1", trace.sleeps),
        trace.migrated_by(40, "a:1", "b:2", 1, 0) | nameless,
        trace.migrated_by(50, "c:3", "b:2", 0, 1) | nameless,  # nothing names it
    )
    movers = moved(trace.table(*rows))["mover"].to_list()
    assert movers == ["stopper", "load balancer", "load balancer"], "a switch names each stopper"
    movers = moved(trace.table(trace.lost(1, 0), *rows))["mover"].to_list()
    assert movers == ["stopper", "load balancer", "not known"]


def test_a_swap_moves_both_tasks(trace: Trace) -> None:
    events = trace.table(
        trace.switch(10, 0, "idle", "a:1"),
        trace.switch(10, 2, "idle", "b:2"),
        trace.numa_pair(20, "swap", "a:1", 0, 2, 2),
        trace.migrated_by(30, "migration/0:20", "a:1", 0, 2),
        trace.migrated_by(31, "migration/0:20", "b:2", 2, 0),
    )
    assert moved(events)["mover"].to_list() == ["numa", "numa"]


def test_who_took_whose_move_back(trace: Trace) -> None:
    second = RETURN_NS
    events = trace.table(
        trace.switch(10, 0, "idle", "a:1"),
        trace.switch(10, 1, "idle", "b:2"),
        trace.numa_move(50, "a:1", 0, 2),
        trace.migrated_by(60, "migration/0:20", "a:1", 0, 2),
        trace.migrate(100, "a:1", 2, 0),  # the load balancer takes it back at once
        trace.migrate(200, "b:2", 1, 2),
        trace.migrate(201 + second, "b:2", 2, 1),  # too late to count
    )
    result = moved(events)
    back = with_returns(result, births(events))
    assert back.select("time_ns", "back_ns", "back_by").rows() == [
        (60, 100, "load balancer"),
        (100, None, None),
        (200, None, None),
        (201 + second, None, None),
    ]
    by = {counts.mover: counts for counts in who_moved(result, back)}
    assert by["numa"].taken_back_by == {"load balancer": 1}
    assert (by["load balancer"].moves, by["load balancer"].between_nodes) == (3, 3)
    assert by["load balancer"].taken_back_by == {}


def test_going_on_to_a_third_node_is_no_return(trace: Trace) -> None:
    events = trace.table(
        trace.switch(10, 0, "idle", "a:1"),
        trace.migrate(20, "a:1", 0, 1),
        trace.migrate(30, "a:1", 1, 2),
        trace.migrate(40, "a:1", 2, 0),
    )
    assert with_returns(moved(events), births(events))["back_ns"].to_list() == [None, None, None]


def test_a_storm_is_eight_tasks_to_one_cpu_within_10_ms(trace: Trace) -> None:
    def pulled(pids: list[int], apart: int) -> pl.DataFrame:
        rows = [trace.wakeup(1, f"t:{pid}", 0) for pid in set(pids)]
        rows += [trace.migrate(10 + i * apart, f"t:{p}", 0, 1) for i, p in enumerate(pids)]
        return moved(trace.table(*rows))

    cpus = {0: 1, 1: 1, 2: 1}
    storms = find_storms(pulled([*range(1, 10)], STORM_NS // 7), cpus, 0)
    assert {(storm.to, storm.id, storm.moves, storm.tasks) for storm in storms} == {
        ("cpu", 1, 9, 9),
        ("node", 1, 9, 9),
    }
    assert storms[0].at_ms == 10 / 1e6
    assert not find_storms(pulled([*range(1, 9)], STORM_NS // 6), cpus, 0)  # never eight in 10 ms
    assert not find_storms(pulled([1, 2, 3, 4, 5] * 3, 10), cpus, 0)  # five tasks
    # a node of three CPUs may take nine at once
    assert {storm.to for storm in find_storms(pulled([*range(1, 10)], 10), {1: 3}, 0)} == {"cpu"}


def test_where_wake_ups_place_tasks_is_no_storm(trace: Trace) -> None:
    rows = [trace.switch(pid, 0, f"t:{pid}", "idle", trace.sleeps) for pid in range(1, 11)]
    for pid in range(1, 11):
        rows += [trace.migrate(10 + pid, f"t:{pid}", 0, 1), trace.wakeup(11 + pid, f"t:{pid}", 1)]
    result = moved(trace.table(*rows))
    assert result["mover"].to_list() == ["wake-up"] * 10
    assert not find_storms(result, {0: 1, 1: 1, 2: 1}, 0)


def test_a_new_task_takes_no_move_of_an_older_one_with_its_number_back(trace: Trace) -> None:
    events = trace.table(
        trace.switch(10, 0, "idle", "a:1"),
        trace.migrate(20, "a:1", 0, 1),
        trace.switch(30, 1, "a:1", "idle", 0x10),
        trace.wakeup(40, "b:1", 1, new=True),
        trace.migrate(50, "b:1", 1, 0),
        trace.migrate(60, "b:1", 0, 1),
    )
    assert with_returns(moved(events), births(events))["back_ns"].to_list() == [None, 60, None]
