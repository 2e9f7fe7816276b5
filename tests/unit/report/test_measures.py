"""The rows of a page's tables: a strip shows every run of a measure."""

from numalab.report.page.measures import measure_row, render_strip
from support.report_sample import sample_report


def test_a_strip_has_a_dot_for_each_run_and_lists_the_values() -> None:
    report = sample_report()
    row = next(row for row in report.comparisons if row.measure == "sched_move_numa")
    strip = render_strip(report, row)
    assert strip.count("<circle") == len(report.runs)
    assert "<title>before: 0, 0, 0; after: 4, 6, 11 events; from 0 to 11</title>" in strip


def test_a_row_has_the_figures_of_every_variant_and_the_change_from_the_baseline() -> None:
    report = sample_report()
    row = measure_row(report, report.comparisons[0])
    assert [cell["mean"] for cell in row["cells"]] == ["99.83", "0.96"]
    assert [change["outcome"] for change in row["changes"]] == ["better"]
