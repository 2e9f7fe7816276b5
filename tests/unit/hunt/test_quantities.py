"""Each quantity that is compared with the reference kernel, on a recording made up for it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from numalab.hunt.loads.driver_output import Printed
from numalab.hunt.properties.differences import (
    cpus_used,
    idle_beside_waiting,
    long_wait,
    mean_wait,
    moves_between,
    moves_within,
    on_wakers_cpu,
    on_wakers_node,
    other_tasks,
    ran,
    spread,
    switches,
    wake_ups,
    woken_on_idle,
)
from numalab.hunt.properties.overhead import (
    active,
    affine,
    balancing_higher,
    balancing_lowest,
    calls,
    failed,
    faults,
    local_faults,
    newly_idle,
    pages_moved,
    pulled,
    reschedule,
    scans,
    timers_busy,
    timers_idle,
    work,
)
from numalab.hunt.properties.servers import deadline_runtime, fair_time
from numalab.hunt.recording import MS, LoadRecording
from unit.hunt.recordings import Row, recording

Quantity = Callable[[LoadRecording], float | None]
HOGS: list[Row] = [
    (11, "hog0.0", 0, 0, 1000), (12, "hog0.1", 1, 0, 500), (12, "-hog0.1", 0, 500, 1000)
]  # fmt: skip


def measured(quantity: Any, run: LoadRecording) -> float | None:
    """Return what the function of a property measures, before it is compared."""
    function: Quantity = quantity
    return function(run)


def counted(**counters: int) -> LoadRecording:
    """A load of a second with one memory user, whose counters were 0 at its begin."""
    run = recording("time ms=1000;memory n=1 cpus=0-1;hog n=1 cpus=2", [(3, "hog1.0", 2, 0, 1000)])
    began = dict.fromkeys(counters, 0)
    return replace(run, printed=Printed(counters={"begin": began, "end": counters}))


def with_events(run: LoadRecording, rows: list[tuple[int, str, int, int]]) -> LoadRecording:
    """Add events: time in ms, name, and the pid and CPU that it is about."""
    schema = {
        "time_ns": pl.Int64,
        "event": pl.String,
        "event_pid": pl.Int32,
        "target_cpu": pl.Int32,
    }
    table = pl.DataFrame([(at * MS, *row) for at, *row in rows], schema=schema, orient="row")
    return replace(run, table=table)


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        (ran, 75.0),
        (spread, 33.3333),
        (cpus_used, 2.0),
        (idle_beside_waiting, 50.0),
        (other_tasks, 0.0),
        (moves_within, 0.0),
        (moves_between, 0.0),
    ],
)
def test_hogs_of_which_one_waits_beside_an_idle_cpu(quantity: object, value: float) -> None:
    run = recording("time ms=1000;hog n=2 cpus=0-1", HOGS)
    assert measured(quantity, run) == pytest.approx(value, rel=1e-3)


def test_moves_are_counted_within_and_between_nodes() -> None:
    rows: list[Row] = [(1, "hog0.0", 0, 0, 100), (1, "hog0.0", 1, 100, 200)]
    rows += [(1, "hog0.0", 2, 200, 300), (1, "hog0.0", 0, 300, 1000)]
    run = recording("time ms=1000;hog n=1 cpus=0-3", rows)
    assert (measured(moves_within, run), measured(moves_between, run)) == (1.0, 2.0)


def test_waits_are_averaged_and_the_longest_hundredth_is_found() -> None:
    rows: list[Row] = []
    for turn in range(40):
        rows += [(1, "-sleeper0.0", 0, 20 * turn, 20 * turn + (10 if turn == 7 else 2))]
        rows += [(1, "sleeper0.0", 0, 20 * turn + 10, 20 * turn + 12)]
    run = recording("time ms=1000;sleeper n=1 cpus=0-3", rows)
    assert measured(mean_wait, run) == pytest.approx(2.2)
    assert measured(long_wait, run) == pytest.approx(2.0)
    assert measured(mean_wait, recording("time ms=1000;sleeper n=1 cpus=0", rows[:4])) is None


def test_switches_and_wake_ups_are_counted_a_second() -> None:
    run = recording("time ms=500;sleeper n=1 cpus=0", [(7, "sleeper0.0", 0, 0, 100)])
    rows = [(at, "sched_switch", 7, 0) for at in range(10)]
    rows += [(at, "sched_wakeup", 7, 1) for at in range(20, 45)]
    rows += [(50, "sched_wakeup", 8, 1)]  # of no task of the load
    run = with_events(run, rows)
    assert measured(switches, run) == 10.0
    assert measured(wake_ups, run) == 25.0
    assert measured(woken_on_idle, run) == 100.0


def test_wakees_beside_their_waker_are_counted() -> None:
    load = "time ms=1000;waker n=1 cpus=0-3"
    run = recording(load, [(5, "waker0.0", 0, 0, 1000), (6, "wakee0.0", 1, 0, 10)])
    on = [(at, "sched_wakeup", 6, 0) for at in range(10, 20)]
    near = [(at, "sched_wakeup", 6, 1) for at in range(20, 40)]
    far = [(at, "sched_wakeup", 6, 2) for at in range(40, 50)]
    run = with_events(run, [*on, *near, *far])
    assert measured(on_wakers_cpu, run) == 25.0
    assert measured(on_wakers_node, run) == 75.0


@pytest.mark.parametrize(
    ("quantity", "counters", "value"),
    [
        (balancing_lowest, {"lb_attempts_0": 300}, 300.0),
        (balancing_higher, {"lb_attempts_1": 5, "lb_attempts_2": 6, "lb_attempts_3": 7}, 18.0),
        (newly_idle, {"lb_newidle": 70}, 70.0),
        (failed, {"lb_failed": 9}, 9.0),
        (pulled, {"lb_pulled": 8}, 8.0),
        (active, {"lb_active": 3}, 3.0),
        (affine, {"wake_affine": 4}, 4.0),
        (scans, {"numa_pte_updates": 1000}, 1000.0),
        (faults, {"numa_hint_faults": 500}, 500.0),
        (pages_moved, {"numa_pages_migrated": 20}, 20.0),
        (local_faults, {"numa_hint_faults": 400, "numa_hint_faults_local": 100}, 25.0),
        (work, {"pages_touched": 12345}, 12345.0),
        (reschedule, {"irq_reschedule": 30}, 30.0),
        (calls, {"irq_call": 31}, 31.0),
        (timers_idle, {"irq_timer_0": 10, "irq_timer_1": 20, "irq_timer_3": 0}, 10.0),
        (timers_busy, {"irq_timer_2": 250}, 250.0),
    ],
)
def test_counters_grow_over_the_load(
    quantity: object, counters: dict[str, int], value: float
) -> None:
    assert measured(quantity, counted(**counters)) == pytest.approx(value)


@pytest.mark.parametrize("quantity", [balancing_lowest, scans, reschedule, timers_busy])
def test_a_counter_that_was_not_printed_is_unknown(quantity: object) -> None:
    assert measured(quantity, counted()) is None


DEADLINE = "hog n=1 cpus=0 policy=deadline runtime=2000 period=10000"


@pytest.mark.parametrize(
    ("load", "ran_ms", "percent"),
    [
        (f"time ms=1000;{DEADLINE};hog n=1 cpus=0", 200, 100.0),
        (f"time ms=1000;{DEADLINE} reclaim=1", 700, 350.0),
        (f"time ms=1000;{DEADLINE} yield=1", 50, 25.0),
        (f"time ms=1000;{DEADLINE.replace('hog', 'sleeper')}", 100, None),
    ],
)
def test_deadline_hogs_get_a_part_of_the_runtime_due(
    load: str, ran_ms: int, percent: float | None
) -> None:
    kind = "sleeper" if percent is None else "hog"
    run = recording(load, [(1, f"{kind}0.0", 0, 0, ran_ms)])
    assert measured(deadline_runtime, run) == (percent and pytest.approx(percent))


def test_fair_tasks_bound_beside_real_time_hogs_have_a_server() -> None:
    hogs = "time ms=1000;hog n=2 cpus=1-2 policy=fifo priority=5;"
    rows: list[Row] = [(1, "hog1.0", 1, 900, 1000)]
    run = recording(f"{hogs}hog n=1 cpus=1", rows)
    assert measured(fair_time, run) == pytest.approx(50.0), "of each of two CPUs"
    assert measured(fair_time, recording(f"{hogs}hog n=1 cpus=0-1", rows)) is None
    few = hogs.replace("n=2", "n=1")
    assert measured(fair_time, recording(f"{few}hog n=1 cpus=1", rows)) is None
