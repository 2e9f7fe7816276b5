"""Who ran where, and the policy for what a recording leaves open."""

import polars as pl
import pytest

from numalab.recording.spans import spans
from numalab.recording.window import Window, find_window, gaps, marks, offline
from support.small_traces import Trace

Span = tuple[int, int, int, int | None, str | None]


def rows(result: pl.DataFrame) -> list[Span]:
    return result.select("cpu", "start_ns", "end_ns", "pid", "comm").rows()


def test_a_cpu_runs_a_task_from_one_switch_to_the_next(trace: Trace) -> None:
    events = trace.table(
        trace.mark(0, "x"),
        trace.switch(10, 0, "a:1", "b:2"),
        trace.switch(25, 0, "b:2", "idle", trace.sleeps),
        trace.switch(40, 0, "idle", "a:1"),
        trace.mark(50, "x"),
    )
    assert rows(spans(events, Window(0, 50))) == [
        (0, 0, 10, 1, "a"),
        (0, 10, 25, 2, "b"),
        (0, 25, 40, 0, "swapper"),
        (0, 40, 50, 1, "a"),
    ]


def test_spans_are_cut_to_the_window(trace: Trace) -> None:
    events = trace.table(
        trace.switch(0, 0, "a:1", "b:2"),
        trace.switch(100, 0, "b:2", "a:1"),
        trace.switch(200, 0, "a:1", "b:2"),
    )
    assert rows(spans(events, Window(50, 150))) == [(0, 50, 100, 2, "b"), (0, 100, 150, 1, "a")]


def test_a_task_has_the_name_with_which_it_leaves(trace: Trace) -> None:
    events = trace.table(
        trace.switch(0, 0, "idle", "sh:5"),
        trace.switch(10, 0, "hog:5", "idle", trace.sleeps),
        trace.switch(20, 0, "idle", "hog:5"),
    )
    assert [span[4] for span in rows(spans(events, Window(0, 30)))] == ["hog", "swapper", "hog"]


def test_a_cpu_without_a_switch_runs_what_its_events_name(trace: Trace) -> None:
    events = trace.table(
        trace.switch(0, 0, "a:1", "b:2"), trace.mark(5, "from cpu 1", cpu=1), trace.mark(9, "x")
    )
    result = spans(events, Window(0, 10)).filter(pl.col("cpu") == 1)
    assert rows(result) == [(1, 0, 10, 99, "marker")]
    assert result["known"].to_list() == [False]


def test_a_cpu_without_a_switch_has_pid_and_name_of_one_task(trace: Trace) -> None:
    named, unnamed = (trace.other(at, 1, "x", pid) for at, pid in ((5, 7), (8, 6)))
    events = trace.table(trace.switch(0, 0, "a:1", "b:2"), named, unnamed | {"comm": None})
    (last,) = rows(spans(events, Window(0, 10)).filter(pl.col("cpu") == 1))
    assert last == (1, 0, 10, 6, None)


@pytest.mark.parametrize(
    ("event", "pid", "away"),
    [
        ("sched_switch", 0, True),  # the idle task that the CPU comes back with
        ("sched_wakeup", 0, True),
        ("sched_wakeup", 9, False),  # of the stopper itself
        ("lost_events", None, False),
        (None, None, True),
    ],
)
def test_a_cpu_is_off_line_from_its_stopper_to_another_task(
    trace: Trace, event: str | None, pid: int | None, away: bool
) -> None:
    switched = event == "sched_switch"
    row = trace.switch(50, 1, "idle", "migration/1:9") if switched else trace.wakeup(50, "a:1", 0)
    leaves = trace.switch(60, 1, "migration/1:9", "a:1", trace.sleeps)
    events = trace.table(
        trace.switch(0, 1, "a:1", "migration/1:9"),
        trace.switch(10, 1, "migration/1:9", "a:1", trace.sleeps),
        trace.switch(20, 1, "a:1", "migration/1:9"),
        trace.other(30, 1, "sched_wakeup", 9),
        *([{**row, "event": event, "pid": pid, "cpu": 1}] if event else []),
        *([leaves] if switched or pid == 9 else []),
        trace.mark(70, "x"),
    )
    ends = offline(events).select("cpu", "start_ns", "end_ns").rows()
    assert ends == ([(1, 30, 50 if event else (1 << 63) - 1)] if away else [])


def test_a_table_may_come_in_pieces_without_a_stopper(trace: Trace) -> None:
    first = [trace.switch(n, 0, "a:1", "b:2") for n in range(700)]
    second = [trace.switch(700 + n, 0, "b:2", "migration/0:3") for n in range(300)]
    pieces = pl.concat([trace.table(*first), trace.table(*second)], rechunk=False)
    assert offline(pieces).height == len(second), "no switch leaves the stopper"


def test_a_cpu_without_any_event_was_idle(trace: Trace) -> None:
    result = spans(trace.table(trace.switch(5, 0, "a:1", "b:2")), Window(5, 10), cpus=[0, 3])
    assert rows(result) == [(0, 5, 10, 2, "b"), (3, 5, 10, 0, "<idle>")]
    assert result["known"].to_list() == [True, False]


def test_who_ran_where_events_were_lost_is_unknown(trace: Trace) -> None:
    events = trace.table(
        trace.switch(10, 0, "a:1", "b:2"),
        trace.other(20, 0, "sched_stick_numa"),
        trace.lost(50, 0, 9),
        trace.switch(60, 0, "c:3", "d:4"),
        trace.mark(90, "x"),
    )
    assert rows(spans(events, Window(10, 90))) == [
        (0, 10, 20, 2, "b"),
        (0, 20, 50, None, None),
        (0, 50, 60, 3, "c"),
        (0, 60, 90, 4, "d"),
    ]
    assert gaps(events).rows() == [(0, 20, 50)]


def test_before_an_overwritten_part_nothing_is_known(trace: Trace) -> None:
    events = trace.table(
        trace.switch(0, 1, "a:1", "b:2"),
        trace.lost(30, 0),
        trace.switch(40, 0, "c:3", "d:4"),
    )
    assert rows(spans(events, Window(0, 40)))[:2] == [(0, 0, 30, None, None), (0, 30, 40, 3, "c")]


def test_the_window_is_between_the_markers(trace: Trace) -> None:
    events = trace.table(
        trace.switch(0, 0, "a:1", "b:2"),
        trace.mark(5, "numalab: end"),
        trace.mark(10, "numalab: begin"),
        trace.mark(15, "numalab: half"),
        trace.mark(20, "numalab: begin"),
        trace.mark(30, "numalab: end"),
        trace.mark(40, "numalab: end"),
    )
    assert find_window(events) == Window(10, 30)
    assert marks(events)["text"].to_list()[2] == "numalab: half"


def test_a_missing_marker_is_said(trace: Trace) -> None:
    events = trace.table(trace.switch(3, 0, "a:1", "b:2"), trace.switch(9, 0, "b:2", "a:1"))
    assert find_window(events) == Window(3, 9, begun=False, ended=False)
    lost_end = trace.table(trace.mark(4, "numalab: begin"), trace.switch(9, 0, "b:2", "a:1"))
    assert find_window(lost_end) == Window(4, 9, begun=True, ended=False)


def test_no_event_at_all_is_an_empty_window_without_spans(trace: Trace) -> None:
    events = trace.table()
    assert find_window(events).length_ns == 0
    assert spans(events, find_window(events), [0]).is_empty()
