"""The rows of a page's tables: a strip shows every run of a measure."""

from dataclasses import replace

import pytest

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


@pytest.mark.parametrize(
    ("mean", "effect", "text"),
    [(100.0, 99.6, "100%"), (100.0, 99.4, "99%"), (0.0, 999.6, "1,000"), (0.0, 999.4, "999")],
)
def test_the_smallest_effect_has_no_exponent(mean: float, effect: float, text: str) -> None:
    report = sample_report()
    row = report.comparisons[0]
    versus = row.versus[1]
    assert versus and versus.before
    versus = replace(versus, before=replace(versus.before, mean=mean), smallest_effect=effect)
    (change,) = measure_row(report, replace(row, versus=(None, versus)))["changes"]
    assert change["smallest"] == text
