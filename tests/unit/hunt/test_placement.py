"""Shares by weight and wake-ups on cores, on recordings made up row by row."""

from dataclasses import replace

import polars as pl
import pytest

from numalab.hunt.properties.placement import on_parents_node, wait_of_children
from numalab.hunt.property import judge_load
from numalab.hunt.recording import MS, LoadRecording
from unit.hunt.recordings import Row, recording


def value(run: LoadRecording, name: str) -> float | None:
    ((finding,), failures) = judge_load(run, {name})
    assert not failures
    return float(finding.text.split()[1])


def test_a_hog_gets_what_is_due_to_its_weight_and_at_most_a_cpu() -> None:
    load = "time ms=1000;hog n=2 cpus=0-1;hog n=1 cpus=0-1 nice=10"
    rows: list[Row] = [
        (1, "hog0.0", 0, 0, 1000),
        (2, "hog0.1", 1, 0, 900),
        (3, "hog1.0", 1, 900, 1000),
        (3, "-hog1.0", 1, 0, 900),
        (2, "-hog0.1", 1, 900, 1000),
    ]
    # 0.949 CPUs are due to each of the first two, of which one got 0.8.
    assert value(recording(load, rows), "less-least-share-by-weight") == pytest.approx(843, abs=1)


def test_no_more_than_a_cpu_is_due_to_a_hog() -> None:
    load = "time ms=1000;hog n=1 cpus=0-1 nice=-10;hog n=2 cpus=0-1"
    rows: list[Row] = [
        (1, "hog0.0", 0, 0, 1000),
        (2, "hog1.0", 1, 0, 750),
        (3, "hog1.1", 1, 750, 1000),
        (3, "-hog1.1", 1, 0, 750),
        (2, "-hog1.0", 1, 750, 1000),
    ]
    assert value(recording(load, rows), "less-least-share-by-weight") == 1000


def test_shares_are_due_to_hogs_of_one_mask_only() -> None:
    rows: list[Row] = [(1, "hog0.0", 0, 0, 1000), (2, "hog1.0", 1, 0, 1000)]
    apart = recording("time ms=1000;hog n=1 cpus=0;hog n=1 cpus=1", rows)
    assert judge_load(apart, {"less-least-share-by-weight"}) == ((), {})


def woken(cpu: int, *, busy: int) -> LoadRecording:
    rows: list[Row] = [(1, "sleeper0.0", cpu, 0, 1000), (2, "hog1.0", busy, 0, 1000)]
    run = recording(
        "time ms=1000;sleeper n=1 cpus=0-3;hog n=1 cpus=0-3", rows, cpus=(4, 4), threads=2
    )
    events = pl.DataFrame(
        {
            "event": ["sched_wakeup"] * 30,
            "time_ns": [n * 10 * MS + 5 for n in range(30)],
            "event_pid": [1] * 30,
            "target_cpu": [cpu] * 30,
        },
        schema_overrides={"event_pid": pl.Int32, "target_cpu": pl.Int32},
    )
    return replace(run, table=events)


def test_a_wake_up_beside_a_busy_sibling_is_on_no_idle_core() -> None:
    assert value(woken(1, busy=0), "more-wake-ups-on-idle-cores") == 0
    assert value(woken(2, busy=0), "more-wake-ups-on-idle-cores") == pytest.approx(100, abs=5)
    assert value(woken(2, busy=0), "less-wake-ups-on-idle-cores") == pytest.approx(100, abs=5)
    # Both cores are busy: there was no choice.
    hogs: list[Row] = [(2, "hog1.0", 0, 0, 1000), (3, "hog1.1", 2, 0, 1000)]
    load = "time ms=1000;sleeper n=1 cpus=0-3;hog n=2 cpus=0-3"
    full = recording(load, [(1, "sleeper0.0", 1, 0, 1000), *hogs], cpus=(4, 4), threads=2)
    full = replace(full, table=woken(1, busy=0).table)
    assert judge_load(full, {"more-wake-ups-on-idle-cores"}) == ((), {})
    plain = recording("time ms=1000;hog n=1 cpus=0", [(1, "hog0.0", 0, 0, 1000)])
    assert judge_load(plain, {"more-wake-ups-on-idle-cores"}) == ((), {})


def test_moves_and_swaps_by_numa_balancing_are_counted_for_each_memory_user() -> None:
    rows: list[Row] = [(1, "memory0.0", 0, 0, 1000), (2, "memory0.1", 1, 0, 1000)]
    run = recording("time ms=1000;memory n=2 cpus=0-3", rows)
    events = {"event": ["sched_move_numa"] * 2 + ["sched_swap_numa", "sched_stick_numa"]}
    run = replace(run, table=pl.DataFrame({**events, "time_ns": [MS, 2 * MS, 3 * MS, 4 * MS]}))
    assert value(run, "more-numa-task-moves") == value(run, "less-numa-task-moves") == 1.5
    hogs = recording("time ms=1000;hog n=1 cpus=0", [(1, "hog0.0", 0, 0, 1000)])
    assert judge_load(hogs, {"more-numa-task-moves"}) == ((), {})


FORKS = "time ms=1000;forker n=1 cpus=0-3 burst=2"


def test_children_that_begin_beside_their_parent_are_a_share() -> None:
    rows: list[Row] = [(1, "forker0.0", 0, 0, 1000)]
    for number in range(24):
        at = 40 * number
        cpu = 1 if number < 6 else 2  # of node 0, of node 1
        rows += [
            (10 + number, "-child0.0", cpu, at, at + 3),
            (10 + number, "child0.0", cpu, at + 3, at + 9),
        ]
    run = recording(FORKS, rows)
    assert value(run, "less-children-on-their-parents-node") == 25.0
    assert value(run, "more-wait-of-children") == 3.0


def test_a_few_children_have_no_share_and_two_parents_are_not_told_apart() -> None:
    rows: list[Row] = [(1, "forker0.0", 0, 0, 1000), (2, "child0.0", 1, 10, 20)]
    assert on_parents_node(recording(FORKS, rows)) is None
    assert wait_of_children(recording(FORKS, rows)) is None
    rows += [(10 + number, "child0.0", 1, 40 * number, 40 * number + 9) for number in range(24)]
    assert on_parents_node(recording(FORKS, rows)) == 100.0
    assert on_parents_node(recording(FORKS.replace("n=1", "n=2"), rows)) is None
