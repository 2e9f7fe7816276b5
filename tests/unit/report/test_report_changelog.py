import re
from collections.abc import Callable
from dataclasses import replace
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_sample import hostile_report, sample_report

from lab.analysis.statistics import Summary
from lab.report.changelog import (
    WIDTH,
    relative_error,
    render_changelog,
    table_of_counts,
    table_of_means,
    table_of_sums,
)
from lab.report.model import Comparison

# "SPECjbb2005 results on an 8 NUMA nodes machine with mesh topology", from the mail "[RFC 2/3]
# sched/topology: fix sched groups on NUMA machines with mesh topology" of 13 April 2017.
THREADS = """\
Threads before after %
mean stddev mean stddev
1 22801 1950 27059 1367 +19%
8 146008 50782 209193 826 +43%
32 351030 105111 522445 9051 +49%
48 365835 116571 594905 3314 +63%
"""

# numa01.sh of "[PATCH 00/19] Fixes for sched/numa_balancing", 4 June 2018: means and errors.
COUNTS = (
    """\
v4.17-rc5 v4.17-rc5+patches
cs 196,530 ( +- 13.22% ) 117,524 ( +- 7.46% )
cache-misses 32,841,908,826 ( +- 5.33% ) 27,059,597,808 ( +- 2.17% )
""",
    """\
v4.17-rc5 v4.17-rc5+patches
sched:sched_move_numa 555 ( +- 25.92% ) 8 ( +- 38.45% )
migrate:mm_numa_migrate_ratelimit 439 ( +-100.00% ) 138 ( +-100.00% )
sched:sched_stick_numa 0 0
""",
)
SUMS = """\
v4.17-rc5 v4.17-rc5+patches
numa_foreign 0 0
numa_hint_faults 7283263 5389142
numa_pages_migrated 693724 608024
"""


def collapsed(lines: list[str]) -> str:
    return "".join(f"{' '.join(line.split())}\n" for line in lines)


def summary(mean: float, stddev: float | None, n: int = 5) -> Summary:
    return Summary(n=n, mean=mean, minimum=mean, maximum=mean, stddev=stddev)


def test_the_table_of_means_prints_the_figures_of_the_2017_mail() -> None:
    rows = []
    for line in THREADS.splitlines()[2:]:
        threads, *figures = line.removesuffix("%").split()
        before, before_sd, after, after_sd, _ = map(float, figures)
        pair = (summary(before, before_sd), summary(after, after_sd))
        change = 100 * (after / before - 1)
        rows.append((threads, Comparison("t", pair, (None, change), "better", "")))
    assert collapsed(table_of_means(("Threads", "before", "after"), rows)) == THREADS


def test_the_counts_print_as_in_the_2018_mail() -> None:
    for block in COUNTS:
        rows = []
        for line in block.splitlines()[1:]:
            name, *figures = re.sub(r"[()%]|\+-", " ", line.replace(",", "")).split()
            pairs = [(float(figure), 0.0) for figure in figures]
            if len(figures) == 4:
                pairs = [(float(figures[i]), float(figures[i + 1])) for i in (0, 2)]
            sides = [summary(mean, mean * error / 100 * sqrt(5)) for mean, error in pairs]
            rows.append((name, sides[0], sides[1]))
        lines = table_of_counts(("v4.17-rc5", "v4.17-rc5+patches"), rows)
        assert collapsed(lines) == block


def test_the_counters_print_as_sums_as_in_the_2018_mail() -> None:
    rows = []
    for line in SUMS.splitlines()[1:]:
        name, before, after = line.split()
        rows.append((name, summary(int(before) / 5, None), summary(int(after) / 5, None)))
    assert collapsed(table_of_sums(("v4.17-rc5", "v4.17-rc5+patches"), rows)) == SUMS


def test_relative_error_is_that_of_the_mean() -> None:
    error = relative_error(summary(100, 10, n=4))
    assert error == pytest.approx(5)
    assert relative_error(summary(100, None, n=1)) is None
    assert relative_error(summary(0, 0)) is None


def test_the_sample_study(golden: Callable[[str, str], None]) -> None:
    golden("report/changelog.txt", render_changelog(sample_report()))


def test_a_study_of_three_variants_has_a_table_for_each_against_the_first() -> None:
    report = sample_report()
    third = replace(report.variants[1], name="other")
    comparisons = tuple(
        replace(c, summaries=(*c.summaries, None), changes=(*c.changes, None))
        for c in report.comparisons
    )
    text = render_changelog(
        replace(report, variants=(*report.variants, third), comparisons=comparisons)
    )
    assert text.count("mean  stddev") == 4
    assert re.search(r"before +other +%", text)


def test_lost_events_and_failed_runs_are_said() -> None:
    report = sample_report()
    first = replace(
        report.runs[0],
        status="guest panicked",
        provenance=replace(report.runs[0].provenance, lost_events=17),
    )
    text = render_changelog(replace(report, runs=(first, *report.runs[1:])))
    assert "17 trace events were lost" in text
    assert "1 of 6 runs failed" in text


def test_hostile_texts_stay_short_plain_lines() -> None:
    text = render_changelog(hostile_report())
    assert all(len(line) <= WIDTH for line in text.splitlines())
    assert text.isascii()
    assert not re.search(r"[^\n -~]", text)


figure = st.floats(0, 1e9, allow_nan=False)
side = st.none() | st.builds(summary, figure, st.none() | figure)


@given(st.lists(st.tuples(st.text(), side, side, st.none() | st.floats(-100, 1e6)), min_size=1))
def test_columns_of_means_line_up(
    rows: list[tuple[str, Summary | None, Summary | None, float | None]],
) -> None:
    comparisons = [
        (label, Comparison("m", (before, after), (None, change), "different", ""))
        for label, before, after, change in rows
    ]
    lines = table_of_means(("Measure", "before", "after"), comparisons)
    assert all(len(line) <= WIDTH and line.isascii() for line in lines)
    ends = lines[0].index("%") + 1
    full = [line for line in lines[2:] if re.search(r"(%|from 0|n/s)$", line)]
    assert len(full) >= len(rows)
    assert {len(line) for line in full} == {ends}
    assert lines[0].index("before") + len("before") == lines[1].index("stddev") + len("stddev")


@given(st.lists(st.tuples(st.text(min_size=1), side, side), min_size=1))
def test_columns_of_counts_fit_a_mail(
    rows: list[tuple[str, Summary | None, Summary | None]],
) -> None:
    for lines in (
        table_of_counts(("before", "after"), rows),
        table_of_sums(("before", "after"), rows),
    ):
        assert len(lines) >= len(rows) + 1
        assert all(len(line) <= WIDTH and line.isascii() for line in lines)
