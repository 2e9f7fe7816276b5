"""How many tasks were runnable on each CPU, and the policy for the first sight of a task."""

import polars as pl

from numalab.recording.events import with_states
from numalab.recording.stays import queue_lengths, stays
from numalab.recording.window import Window
from support.small_traces import Trace

Lengths = list[tuple[int, int, int]]


def lengths(events: pl.DataFrame, cpu: int, window: Window) -> Lengths:
    """Return (start, end, runnable) of one CPU, neighbours with the same number joined."""
    result = queue_lengths(stays(events, window), window, [0, 1]).filter(pl.col("cpu") == cpu)
    joined: Lengths = []
    for start, end, number in result.select("start_ns", "end_ns", "runnable").rows():
        if joined and joined[-1][2] == number:
            joined[-1] = (joined[-1][0], end, number)
        else:
            joined.append((start, end, number))
    return joined


def test_a_task_counts_from_its_waking_to_its_sleep(trace: Trace) -> None:
    events = trace.table(
        trace.mark(0, "x"),
        trace.wakeup(10, "a:1", 0),
        trace.switch(15, 0, "idle", "a:1"),
        trace.wakeup(20, "b:2", 0, new=True),
        trace.switch(30, 0, "a:1", "b:2", trace.preempted),
        trace.switch(40, 0, "b:2", "a:1", trace.sleeps),
        trace.switch(50, 0, "a:1", "idle", trace.sleeps),
        trace.mark(60, "x"),
    )
    assert lengths(events, 0, Window(0, 60)) == [
        (0, 10, 0),
        (10, 20, 1),
        (20, 40, 2),
        (40, 50, 1),
        (50, 60, 0),
    ]
    assert lengths(events, 1, Window(0, 60)) == [(0, 60, 0)]


def test_where_preempted_and_idle_look_alike_the_next_event_decides(trace: Trace) -> None:
    """As in Linux 4.17, where every idle task shows 1 for a running task."""
    events = trace.table(
        trace.switch(10, 0, "idle", "kworker/0:1", 1),
        trace.switch(20, 0, "kworker/0:1", "a:2", 0x100),
        trace.switch(30, 0, "a:2", "b:3", 0x100),
        trace.switch(40, 0, "b:3", "c:4", 1),
        trace.wakeup(50, "kworker/0:1", 0),
        trace.switch(60, 0, "c:4", "a:2", 0x100),
    )
    window = Window(0, 70)
    table = stays(with_states(events.lazy()).collect(), window)
    left = {row[:2]: row[2] for row in table.select("pid", "start_ns", "runnable").rows()}
    assert (left[1, 20], left[2, 30], left[3, 40], left[4, 60]) == (False, True, True, False)


def test_a_migrating_task_counts_on_its_destination_at_once(trace: Trace) -> None:
    events = trace.table(
        trace.mark(0, "x"),
        trace.switch(10, 0, "a:1", "b:2", trace.preempted),
        trace.migrate(20, "a:1", 0, 1),
        trace.switch(25, 1, "idle", "a:1"),
        trace.mark(40, "x"),
    )
    assert lengths(events, 0, Window(0, 40)) == [(0, 20, 2), (20, 40, 1)]
    assert lengths(events, 1, Window(0, 40)) == [(0, 20, 0), (20, 40, 1)]


def test_a_sleeping_task_that_migrates_is_not_runnable_until_it_wakes(trace: Trace) -> None:
    events = trace.table(
        trace.mark(0, "x"),
        trace.switch(10, 0, "a:1", "idle", trace.sleeps),
        trace.migrate(20, "a:1", 0, 1),
        trace.wakeup(21, "a:1", 1),
        trace.switch(30, 1, "idle", "a:1"),
        trace.mark(40, "x"),
    )
    assert lengths(events, 0, Window(0, 40)) == [(0, 10, 1), (10, 40, 0)]
    assert lengths(events, 1, Window(0, 40)) == [(0, 21, 0), (21, 40, 1)]


def test_a_task_first_seen_coming_on_was_waiting_since_the_start(trace: Trace) -> None:
    events = trace.table(
        trace.mark(0, "x"), trace.switch(30, 0, "a:1", "b:2", trace.sleeps), trace.mark(40, "x")
    )
    assert lengths(events, 0, Window(0, 40)) == [(0, 30, 2), (30, 40, 1)]


def test_a_task_first_seen_waking_itself_was_running(trace: Trace) -> None:
    by_itself = {"pid": 1, "comm": "a"}
    events = trace.table(
        trace.mark(0, "x"),
        trace.wakeup(10, "b:2", 1) | by_itself,
        trace.wakeup(20, "a:1", 0) | by_itself,
        trace.switch(30, 0, "a:1", "idle", trace.sleeps),
        trace.mark(40, "x"),
    )
    assert lengths(events, 0, Window(0, 40)) == [(0, 30, 1), (30, 40, 0)]
    assert lengths(events, 1, Window(0, 40)) == [(0, 10, 0), (10, 40, 1)]


def test_a_task_first_seen_migrating_was_what_the_next_event_proves(trace: Trace) -> None:
    waiting = trace.table(
        trace.mark(0, "x"), trace.migrate(10, "a:1", 0, 1), trace.switch(20, 1, "idle", "a:1")
    )
    asleep = trace.table(
        trace.mark(0, "x"), trace.migrate(10, "a:1", 0, 1), trace.wakeup(20, "a:1", 1)
    )
    window = Window(0, 30)
    assert lengths(waiting, 0, window) == [(0, 10, 1), (10, 30, 0)]
    assert lengths(asleep, 0, window) == [(0, 30, 0)]
    assert lengths(asleep, 1, window) == [(0, 20, 0), (20, 30, 1)]


def test_a_task_that_exits_is_gone(trace: Trace) -> None:
    events = trace.table(
        trace.mark(0, "x"),
        trace.switch(10, 0, "a:1", "idle", 0x10),  # X: dead
        trace.mark(20, "x"),
    )
    assert lengths(events, 0, Window(0, 20)) == [(0, 10, 1), (10, 20, 0)]


def test_a_task_begins_with_its_first_wake_up_and_ends_with_its_death(trace: Trace) -> None:
    events = trace.table(
        trace.mark(0, "x"),
        trace.wakeup(10, "child:1", 1, new=True),
        trace.switch(12, 1, "idle", "child:1"),
        trace.switch(20, 1, "child:1", "idle", 0x20),  # Z: a zombie
        trace.migrate(25, "forked:3", 0, 1),  # before it ever ran, in older kernels
        trace.wakeup(26, "forked:3", 1, new=True),
        trace.wakeup(30, "later:1", 0, new=True),  # of the same number
        trace.wakeup(35, "old:2", 0),
        trace.mark(40, "x"),
    )
    stayed = stays(events, Window(0, 40)).select("pid", "comm", "cpu", "start_ns", "end_ns")
    assert stayed.rows() == [
        (1, "child", 1, 10, 12),
        (1, "child", 1, 12, 20),
        (1, "later", 0, 30, 40),
        (2, "old", 0, 0, 35),
        (2, "old", 0, 35, 40),
        (3, "forked", 1, 25, 26),
        (3, "forked", 1, 26, 40),
    ]


def test_the_idle_task_does_not_wait(trace: Trace) -> None:
    events = trace.table(trace.switch(0, 0, "idle", "a:1"), trace.switch(9, 0, "a:1", "idle", 1))
    assert stays(events, Window(0, 20))["pid"].unique().to_list() == [1]


def test_after_lost_events_a_task_must_be_borne_out(trace: Trace) -> None:
    events = trace.table(
        trace.mark(0, "x"),
        trace.wakeup(5, "gone:1", 0),
        trace.wakeup(6, "stays:2", 0),
        trace.lost(20, 0),
        trace.switch(30, 0, "idle", "stays:2"),
        trace.mark(40, "x"),
    )
    # `gone` is not seen again: from the last event before the loss (6) on it counts no more.
    assert lengths(events, 0, Window(0, 40)) == [(0, 5, 0), (5, 40, 1)]


def test_a_sleeper_whose_cpu_loses_events_sleeps_until_it_wakes(trace: Trace) -> None:
    events = trace.table(
        trace.mark(0, "x"),
        trace.switch(5, 0, "a:1", "b:2", trace.sleeps),
        trace.switch(6, 0, "b:2", "idle", trace.sleeps),
        trace.lost(20, 0),
        trace.wakeup(30, "a:1", 0),
        trace.mark(40, "x"),
    )
    stayed = stays(events, Window(7, 40)).select("pid", "start_ns", "end_ns", "runnable")
    # Nobody knows where b is: no event of it comes after the loss.
    assert stayed.rows() == [(1, 7, 30, False), (1, 30, 40, True)]


def test_a_task_with_a_pending_signal_stays_in_its_queue(trace: Trace) -> None:
    """Linux 6.1 says that it sleeps; no wake-up comes, and yet it runs."""
    before = [trace.wakeup(5, "a:1", 0), trace.switch(6, 0, "idle", "a:1")]
    rest = [
        trace.switch(10, 0, "a:1", "b:2", trace.sleeps),
        trace.migrate(20, "a:1", 0, 1),
        trace.switch(30, 1, "idle", "a:1"),
        trace.mark(40, "x"),
    ]
    whole = trace.table(trace.mark(0, "x"), *before, *rest)
    assert lengths(whole, 0, Window(10, 40)) == [(10, 20, 2), (20, 40, 1)]
    assert lengths(whole, 1, Window(10, 40)) == [(10, 20, 0), (20, 40, 1)]
    lost = trace.table(trace.mark(0, "x"), *before, *rest, trace.lost(25, 1))
    assert lengths(lost, 1, Window(10, 40)) == [(10, 30, 0), (30, 40, 1)], "perhaps the wake-up"
    started = trace.table(trace.mark(0, "x"), *rest)
    assert lengths(started, 0, Window(11, 40)) == [(11, 40, 1)], "nobody recorded its wake-ups"


def test_what_another_cpu_names_within_a_loss_must_be_borne_out(trace: Trace) -> None:
    """CPU 0 loses events from 6 to 20; CPU 1 moves two tasks to it meanwhile."""
    events = trace.table(
        trace.mark(0, "x"),
        trace.wakeup(2, "gone:1", 1),
        trace.wakeup(3, "stays:2", 1),
        trace.mark(6, "x", 0),
        trace.migrated_by(10, "b:3", "gone:1", 1, 0) | {"cpu": 1},
        trace.migrated_by(11, "b:3", "stays:2", 1, 0) | {"cpu": 1},
        trace.lost(20, 0),
        trace.switch(30, 0, "idle", "stays:2"),
        trace.mark(40, "x"),
    )
    assert lengths(events, 0, Window(0, 40)) == [(0, 11, 0), (11, 40, 1)]


def test_no_event_gives_empty_queues(trace: Trace) -> None:
    window = Window(0, 10)
    assert stays(trace.table(), window).is_empty()
    assert lengths(trace.table(), 0, window) == [(0, 10, 0)]
