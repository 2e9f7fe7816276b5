"""What chunks add up to is what one chunk of everything gives."""

from typing import Any

import polars as pl
import pytest

from numalab.recording.chunks import event_chunks
from numalab.recording.sums import RunSums, Scope, add_up
from numalab.recording.window import Window, cut
from support.small_traces import Trace

MS = 1_000_000
WINDOW = Window(0, 40 * MS)
SCOPE = Scope(("a", "b"), (0, 1), {0: 0, 1: 1}, cut(WINDOW))


def events(trace: Trace) -> pl.DataFrame:
    """Task a runs on CPU 0 and then on CPU 1; b waits on CPU 0 meanwhile."""
    table: pl.DataFrame = trace.table(
        trace.switch(0, 0, "idle", "a:1"),
        trace.switch(0, 1, "other:9", "idle", trace.sleeps),
        trace.wakeup(5 * MS, "b:2", 0),
        trace.switch(20 * MS, 0, "a:1", "b:2"),
        trace.migrate(20 * MS, "a:1", 0, 1),
        trace.switch(21 * MS, 1, "idle", "a:1"),
        trace.switch(39 * MS, 0, "b:2", "idle", trace.sleeps),
        trace.mark(40 * MS, "x"),
    )
    return table


def added(trace: Trace, rows: int) -> RunSums:
    return add_up(event_chunks(events(trace), WINDOW, [0, 1], rows), SCOPE)


def by(table: pl.DataFrame, *keys: str) -> dict[Any, int]:
    summed = table.group_by(keys).agg(pl.col("ns").sum())
    return {row[:-1]: row[-1] // MS for row in summed.iter_rows()}


@pytest.mark.parametrize("rows", [100, 3, 2])
def test_time_of_tasks_and_cpus(trace: Trace, rows: int) -> None:
    sums = added(trace, rows)
    assert by(sums.time, "pid", "node") == {(1, 0): 20, (1, 1): 19, (2, 0): 19}
    assert by(sums.busy, "node") == {(0,): 39, (1,): 19}
    assert by(sums.time, "slice") == {(0,): 10, (1,): 10, (2,): 19, (3,): 19}
    assert {cpu: ns // MS for cpu, ns in sums.busy_cpu.items()} == {0: 39, 1: 19}
    assert (sums.changes, sums.names) == (1, {1: "a", 2: "b"})


@pytest.mark.parametrize("rows", [100, 2])
def test_the_name_of_a_task_is_its_last_one(trace: Trace, rows: int) -> None:
    """It was called b on CPU 1, and is called a on CPU 0 since then."""
    table = trace.table(
        trace.switch(0, 0, "idle", "idle"),
        trace.switch(0, 1, "idle", "b:1"),
        trace.switch(20 * MS, 1, "b:1", "idle"),
        trace.switch(21 * MS, 0, "idle", "a:1"),
        trace.switch(39 * MS, 0, "a:1", "idle", trace.sleeps),
        trace.mark(40 * MS, "x"),
    )
    assert add_up(event_chunks(table, WINDOW, [0, 1], rows), SCOPE).names == {1: "a"}


@pytest.mark.parametrize("rows", [100, 3, 2])
def test_a_cpu_was_idle_while_another_had_two(trace: Trace, rows: int) -> None:
    """From b's wake-up at 5 ms to a's move at 20 ms: one violation, however it is cut."""
    sums = added(trace, rows)
    assert (sums.idle_ns // MS, sums.violations) == (15, 1)
    assert sums.longest.select("cpu", "start_ns", "end_ns").rows() == [(1, 5 * MS, 20 * MS)]
    assert sums.lost_ns == 0


@pytest.mark.parametrize("rows", [100, 3])
def test_where_tasks_were_last(trace: Trace, rows: int) -> None:
    final = dict(added(trace, rows).final.select("pid", "cpu").iter_rows())
    assert (final[1], final[2]) == (1, 0)


@pytest.mark.parametrize("rows", [100, 3, 2, 1])
def test_tasks_of_another_time_were_last_nowhere(trace: Trace, rows: int) -> None:
    """A task that ended in the window counts where it did, one that ended before it does not."""
    table = trace.table(
        trace.wakeup(0, "lives:9", 1),
        trace.switch(1 * MS, 0, "early:3", "b:2", 0x10),
        trace.switch(6 * MS, 0, "b:2", "idle", trace.sleeps),
        trace.switch(7 * MS, 1, "idle", "a:1"),
        trace.switch(8 * MS, 1, "a:1", "idle", 0x20),
        trace.wakeup(35 * MS, "b:2", 0),
        trace.mark(40 * MS, "x"),
        trace.wakeup(41 * MS, "late:4", 0, new=True),
        trace.switch(42 * MS, 0, "idle", "late:4"),
        # kernels of `numalab trace` that trace the migration of a fork
        trace.migrate(43 * MS, "forked:5", 0, 1),
        trace.wakeup(44 * MS, "forked:5", 1, new=True),
        trace.migrate(45 * MS, "moved:6", 0, 1),
    )
    window = Window(5 * MS, 40 * MS)
    scope = Scope((), (0, 1), {0: 0, 1: 1}, cut(window))
    sums = add_up(event_chunks(table, window, [0, 1], rows), scope)
    assert sorted(sums.final.rows()) == [
        (1, "a", 1),
        (2, "b", 0),
        (6, "moved", 0),
        (9, "lives", 1),
    ]


def test_a_move_after_the_window_counts_in_no_chunk(trace: Trace) -> None:
    window = Window(0, 10 * MS)
    for rows in (100, 1):
        sums = add_up(event_chunks(events(trace), window, [0, 1], rows), SCOPE)
        assert pl.concat(sums.moved).is_empty()


@pytest.mark.parametrize("rows", [100, 3, 2, 1])
def test_a_new_task_with_a_used_number_did_not_change_its_node(trace: Trace, rows: int) -> None:
    table = trace.table(
        trace.switch(0, 0, "idle", "a:1"),
        trace.switch(5 * MS, 0, "a:1", "idle", 0x10),
        trace.wakeup(10 * MS, "a:1", 1, new=True),
        trace.switch(11 * MS, 1, "idle", "a:1"),
        trace.switch(15 * MS, 1, "a:1", "idle", trace.sleeps),
        trace.switch(20 * MS, 0, "idle", "a:1"),
        trace.wakeup(21 * MS, "b:2", 1, new=True),
        trace.switch(22 * MS, 1, "idle", "b:2"),
        trace.mark(40 * MS, "x"),
        trace.wakeup(41 * MS, "b:2", 0, new=True),
    )
    sums = add_up(event_chunks(table, WINDOW, [0, 1], rows), SCOPE)
    assert (sums.changes, sums.reused) == (1, {1})


def test_who_ran_where_is_kept_of_one_chunk_only(trace: Trace) -> None:
    whole = added(trace, 100).timeline
    assert whole is not None
    assert whole.spans.filter(pl.col("of_interest")).height == 3
    assert added(trace, 3).timeline is None
