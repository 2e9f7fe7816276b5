"""Who ran where in a window, in times since its begin."""

from typing import Any

import polars as pl

from numalab.analysis.analyse import analyse
from numalab.recording.recording import Recording
from numalab.recording.spans import MOST_MARKS, Mark, RunTimeline, timeline_of
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
