"""Memory and its users: what is far at the end, and what still moves, by hand."""

from dataclasses import replace

import polars as pl
import pytest

from numalab.hunt.loads.driver_output import Printed
from numalab.hunt.properties.numa import (
    convergence,
    moves,
    page_moves,
    sticks,
    storms,
    throughput,
)
from numalab.hunt.recording import MS, LoadRecording
from unit.hunt.recordings import Row, recording

LOAD = "time ms=1000;memory n=2 cpus=0-3 mib=4"
# Both run on node 0 at first; in the last quarter user 1 runs on node 1 for a fifth of the time.
ROWS: list[Row] = [
    (1, "memory0.0", 0, 0.0, 1000.0),
    (2, "memory0.1", 1, 0.0, 800.0),
    (2, "memory0.1", 2, 800.0, 1000.0),
]


def with_pages(run: LoadRecording, pages: dict[tuple[int, int], dict[int, int]]) -> LoadRecording:
    return replace(run, printed=Printed(pages=pages))


def test_what_is_far_is_weighed_by_time_and_pages() -> None:
    pages = {(0, 0): {0: 75, 1: 25}, (0, 1): {0: 100}}
    (result,) = convergence(with_pages(recording(LOAD, ROWS), pages))
    # User 0: 250 ms, a quarter is far. User 1: 50 ms on node 0, nothing far; 200 ms on 1, all far.
    assert result.value == pytest.approx((250 * 0.25 + 200) / 500)
    assert result.weak, "the unmodified kernel shows 100 % now and then"


def test_threads_share_the_memory_of_the_first() -> None:
    threads = LOAD + " threads=1"
    rows: list[Row] = [
        (pid, name.replace("memory", "thread"), cpu, low, high)
        for pid, name, cpu, low, high in ROWS
    ]
    run = with_pages(recording(threads, rows), {(0, 0): {1: 10}})
    (result,) = convergence(run)
    assert result.value == pytest.approx((250 + 50) / 500)


def test_users_whose_pages_nobody_counted_say_nothing() -> None:
    assert not list(convergence(recording(LOAD, ROWS)))


def test_rates_are_of_the_later_half_by_second_and_user() -> None:
    counters = {
        "half": {"numa_hint_faults": 1000, "numa_pages_migrated": 70},
        "end": {"numa_hint_faults": 1300, "numa_pages_migrated": 70},
    }
    run = replace(recording(LOAD, ROWS), printed=Printed(counters=counters))
    assert [storm.value for storm in storms(run)] == [300 / 2 / 0.5]
    assert [storm.value for storm in page_moves(run)] == [0.0]
    assert not list(storms(replace(run, printed=Printed(counters={"half": {}}))))


def test_moves_are_those_of_the_settled_time() -> None:
    run = recording(LOAD, ROWS)
    settled = run.settled
    names = ["sched_move_numa", "sched_swap_numa", "sched_move_numa", "sched_switch"]
    times = [settled.start_ns - 1, settled.start_ns + MS, settled.end_ns - 1, settled.end_ns - 1]
    run = replace(run, table=pl.DataFrame({"event": names, "time_ns": times}))
    (result,) = moves(run)
    assert result.value == pytest.approx(2 / 2 / (settled.length_ns / 1e9))
    assert not list(moves(recording("time ms=1000;hog n=1 cpus=0", [])))


def test_sticks_are_those_of_the_settled_time_and_never_count_alone() -> None:
    run = recording(LOAD, ROWS)
    names = ["sched_stick_numa", "sched_stick_numa", "sched_move_numa"]
    times = [run.settled.start_ns - 1, run.settled.start_ns + MS, run.settled.start_ns + MS]
    run = replace(run, table=pl.DataFrame({"event": names, "time_ns": times}))
    (result,) = sticks(run)
    assert result.value == pytest.approx(1 / 2 / (run.settled.length_ns / 1e9))
    assert result.weak
    assert not list(sticks(recording("time ms=1000;hog n=1 cpus=0", [])))


FREED = "time ms=1000;memory n=1 cpus=0 later=0-3;memory n=1 cpus=2 later=0-3"
TOUCHED = {
    "begin": {"pages_touched": 10},
    "half": {"pages_touched": 310},
    "end": {"pages_touched": 460},
}


def test_throughput_is_that_of_tasks_that_may_go_anywhere_beside_bound_ones() -> None:
    run = replace(recording(FREED, ROWS), printed=Printed(counters=TOUCHED), far_costs=True)
    (result,) = throughput(run)
    assert result.value == 2.0, "300 pages bound, 150 free"
    assert result.suspected
    stopped = {**TOUCHED, "end": TOUCHED["half"]}
    (worst,) = throughput(replace(run, printed=Printed(counters=stopped)))
    assert worst.violated


@pytest.mark.parametrize(
    "load",
    [
        LOAD,
        "time ms=1000;memory n=1 cpus=0 later=0-3;memory n=1 cpus=0 later=0-3",
        "time ms=1000;memory n=1 cpus=0",
        "time ms=1000;memory n=2 cpus=0 later=0-3",
        "time ms=1000;hog n=1 cpus=0 later=0-3",
    ],
)
def test_throughput_is_asked_of_memory_users_that_each_had_a_cpu(load: str) -> None:
    run = replace(recording(load, ROWS), printed=Printed(counters=TOUCHED), far_costs=True)
    assert not list(throughput(run))


def test_throughput_says_nothing_where_far_memory_costs_nothing() -> None:
    assert not list(throughput(replace(recording(FREED, ROWS), printed=Printed(counters=TOUCHED))))


def test_throughput_needs_all_three_counts() -> None:
    run = replace(
        recording(FREED, ROWS), printed=Printed(counters={"half": {}, "end": {}}), far_costs=True
    )
    assert not list(throughput(run))
