"""Who ran where in a window, in times since its begin."""

from typing import Any

import polars as pl

from numalab.analysis.analyse import analyse
from numalab.recording.marks import MOST_MARKS, Mark, timeline_marks
from numalab.recording.recording import Recording
from numalab.recording.spans import RunTimeline, timeline_of
from numalab.recording.window import Window
from support.small_traces import Trace


def recording(trace: Trace) -> pl.DataFrame:
    table: pl.DataFrame = trace.table(
        trace.switch(1_000_000, 0, "idle", "a:1"),
        trace.mark(2_000_000, "numalab: begin"),
        trace.switch(3_000_000, 0, "a:1", "b:2"),
        trace.mark(4_500_000, "numalab: half"),
        trace.switch(5_000_000, 0, "b:2", "idle", trace.sleeps),
        trace.mark(8_000_000, "numalab: end"),
        trace.mark(9_000_000, "too late"),
    )
    return table


def rows(result: RunTimeline | None) -> list[tuple[Any, ...]]:
    assert result is not None
    return result.spans.select("cpu", "start_ns", "end_ns", "pid", "comm", "of_interest").rows()


def test_times_are_since_the_window_began_and_idle_time_is_left_out(trace: Trace) -> None:
    timeline = timeline_of(recording(trace), ["b"])
    assert rows(timeline) == [
        (0, 0, 1_000_000, 1, "a", False),
        (0, 1_000_000, 3_000_000, 2, "b", True),
    ]
    assert timeline is not None
    assert timeline.length_ns == 6_000_000
    assert timeline.marks == (Mark(0.0, "begin"), Mark(2.5, "half"), Mark(6.0, "end"))


def test_the_analysis_has_the_same_of_one_chunk_and_none_of_several(trace: Trace) -> None:
    events = recording(trace)
    whole = analyse(Recording(events, None, tasks=["b"])).timeline
    assert rows(whole) == rows(timeline_of(events, ["b"]))
    assert analyse(Recording(events, None, tasks=["b"], rows=3)).timeline is None


def test_without_sched_switch_nobody_knows(trace: Trace) -> None:
    assert timeline_of(trace.table(trace.mark(1, "x"), trace.mark(9, "y")), []) is None


def test_a_flood_of_marks_is_cut(trace: Trace) -> None:
    flood = [trace.mark(10 + number, f"m{number}") for number in range(2 * MOST_MARKS)]
    timeline = timeline_of(trace.table(trace.switch(5, 0, "idle", "a:1"), *flood), [])
    assert timeline is not None
    assert [mark.text for mark in timeline.marks] == [f"m{number}" for number in range(MOST_MARKS)]


def test_a_task_without_a_name_is_of_no_interest(trace: Trace) -> None:
    nobody = pl.lit(None, pl.String)
    events = recording(trace).with_columns(comm=nobody, next_comm=nobody, prev_comm=nobody)
    timeline = timeline_of(events, ["b"])
    assert timeline is not None
    assert timeline.spans["of_interest"].to_list() == [False, False]


def of_sched_ext(*rows: tuple[int, str, str | None, str | None, int | None]) -> pl.DataFrame:
    """A table of events of sched_ext: time, event, line, name, delta."""
    columns = {"time_ns": pl.Int64, "event": pl.String, "line": pl.String, "name": pl.String}
    return pl.DataFrame(list(rows), schema={**columns, "delta": pl.Int64}, orient="row")


def test_a_dump_of_sched_ext_is_one_mark_with_its_first_lines() -> None:
    dump = "sched_ext_dump"
    events = of_sched_ext(
        (1_000_000, dump, "", None, None),
        (1_000_001, dump, "kworker[8] triggered exit kind 1026:", None, None),
        (1_000_002, dump, "  runnable task stall (hog[9] failed to run)", None, None),
        (1_000_003, dump, "CPU states", None, None),
        (5_000_000_000, dump, "again " + "x" * 900, None, None),
    )
    first, second = timeline_marks(events, Window(0, 9_000_000_000))
    stall = "kworker[8] triggered exit kind 1026: runnable task stall (hog[9] failed to run)"
    assert first == Mark(1.0, f"sched_ext dump: {stall}")
    assert (second.at_ms, len(second.text)) == (5000.0, 200)


def test_events_of_sched_ext_are_one_mark_for_each_kind() -> None:
    kinds = [(time, "sched_ext_event", None, f"K{time % 2}", 3) for time in range(10, 20)]
    unrelated = [(5, "other", None, "K7", 1), (90, "sched_ext_event", None, "late", 1)]
    texts = [mark.text for mark in timeline_marks(of_sched_ext(*kinds, *unrelated), Window(0, 50))]
    assert texts == [f"sched_ext: K{kind}, the first of 5 (in all 15)" for kind in (0, 1)]
    wider = of_sched_ext(*kinds, *unrelated).cast({"delta": pl.UInt64})
    assert [mark.text for mark in timeline_marks(wider, Window(0, 50))] == texts
    flood = [(n, "sched_ext_event", None, f"K{n}", 1) for n in range(9 * MOST_MARKS)]
    assert len(timeline_marks(of_sched_ext(*flood), Window(0, 9000))) == MOST_MARKS
