import polars as pl
import pytest
from report_sample import sample_report

from lab.analysis.measure import measure
from lab.analysis.occupancy import SCHEMA
from lab.analysis.window import Window
from lab.report import assemble
from lab.report.model import Mark, Reading, Span

MS = 1_000_000


def test_measures_are_told_once_and_read_for_each_run() -> None:
    first = (measure("sched_move_numa", 3), measure("task_busy_share_min", 99.5))
    second = (measure("sched_move_numa", None), measure("tasks_final_node{node}", 4, node=3))
    infos = assemble.measure_infos([first, second])
    assert [info.name for info in infos] == [
        "sched_move_numa",
        "task_busy_share_min",
        "tasks_final_node3",
    ]
    assert infos[0].source == "trace: sched_move_numa"
    assert assemble.readings(second) == (
        Reading("sched_move_numa", None),
        Reading("tasks_final_node3", 4),
    )


def test_variants_are_compared_with_the_first() -> None:
    report = sample_report()
    found = assemble.comparisons(("before", "after"), report.measures, report.runs)
    by_name = {each.measure: each for each in found}
    stick = by_name["sched_stick_numa"]
    assert [summary.n for summary in stick.summaries if summary] == [3, 3]
    assert stick.changes[0] is None
    assert stick.changes[1] == pytest.approx(100 * (37 / 4575 - 1))
    assert stick.outcome == "better"
    assert by_name["cpu_share_node_3"].changes == (None, None)
    assert by_name["cache_misses"].summaries == (None, None)
    assert by_name["cache_misses"].outcome == "not comparable"


def test_runs_that_failed_are_in_no_figure() -> None:
    report = sample_report()
    broken = [run for run in report.runs if run.id == "before-s1"]
    runs = tuple(
        type(run)(**{**vars(run), "status": "guest hung"}) if run in broken else run
        for run in report.runs
    )
    found = assemble.comparisons(("before", "after"), report.measures, runs)
    assert found[0].summaries[0] is not None
    assert found[0].summaries[0].n == 2


def test_several_variants_are_told_apart_in_the_verdict() -> None:
    report = sample_report()
    found = assemble.comparisons(("before", "after", "none"), report.measures, report.runs)
    assert found[0].verdict.startswith("after: ")
    assert "; none: " in found[0].verdict
    assert len(found[0].summaries) == len(found[0].changes) == 3


def test_a_single_variant_is_not_compared() -> None:
    report = sample_report()
    found = assemble.comparisons(("before",), report.measures, report.runs)
    assert {each.outcome for each in found} == {"not comparable"}
    assert found[0].changes == (None,)


def test_a_timeline_holds_who_ran_and_not_who_was_idle() -> None:
    rows = [
        (2, 1, 10 * MS, 12 * MS, 71, "hog", True),
        (2, 1, 12 * MS, 13 * MS, 0, "swapper/2", True),
        (3, 1, 10 * MS, 11 * MS, None, None, False),
        (3, 1, 11 * MS, 15 * MS, 20, "kworker/3:1", True),
    ]
    spans = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    marks = pl.DataFrame(
        {
            "time_ns": [10 * MS, 11 * MS, 12 * MS, 99 * MS],
            "text": ["numalab: begin", "numalab: half way", "something else", "numalab: late"],
        }
    )
    window = Window(10 * MS, 20 * MS)
    line = assemble.timeline_of("before", "r1", spans, window, tasks=["hog"], marks=marks)
    assert line.length_ms == 10
    assert line.spans == (
        Span(2, 1, 0.0, 2.0, "hog-71", of_interest=True),
        Span(3, 1, 1.0, 5.0, "kworker/3:1-20", of_interest=False),
    )
    assert line.marks == (Mark(1.0, "half way"),)


def test_without_named_tasks_every_task_is_of_interest() -> None:
    spans = pl.DataFrame([(0, None, 0, MS, 9, "x", True)], schema=SCHEMA, orient="row")
    line = assemble.timeline_of("a", "r", spans, Window(0, MS), tasks=())
    assert line.spans == (Span(0, -1, 0.0, 1.0, "x-9", of_interest=True),)
