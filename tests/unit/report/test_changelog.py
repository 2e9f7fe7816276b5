import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from math import sqrt
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.report.claim_outcome import ClaimOutcome
from numalab.report.comparisons import MeasureComparison
from numalab.report.document import StudyResults
from numalab.report.formats.changelog import render_changelog
from numalab.report.tables import (
    WIDEST,
    WIDTH,
    relative_error,
    table_of_counts,
    table_of_means,
    table_of_sums,
    table_of_times,
)
from numalab.results.manifest import RunStatus
from numalab.statistics.summary import Summary
from support.report_sample import hostile_report, sample_report, thread_cells

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

# All tables of "[PATCH 00/19] Fixes for sched/numa_balancing", 4 June 2018.
POST = (Path(__file__).parents[2] / "data" / "report" / "numa-balancing-2018.txt").read_text(
    "utf-8"
)
BEFORE_TIMES, AFTER_TIMES, *BLOCKS = POST.strip().split("\n\n")


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
        rows.append((threads, MeasureComparison("t", pair, (None, change), "better", "")))
    assert collapsed(table_of_means(("Threads", "before", "after"), rows).lines) == THREADS


def times_of(block: str) -> list[tuple[str, str, Summary]]:
    """Read a table of times; its StdDev divides by n."""
    rows = []
    for line in block.splitlines()[2:]:
        case, which, *printed = line.split()
        least, most, mean, stddev = map(float, printed[:4])
        summary = Summary(5, mean, least, most, stddev * sqrt(5 / 4))
        rows.append((case, which.removesuffix(":"), summary))
    return rows


def test_fields_that_differ_name_their_cells() -> None:
    """Each number of finished runs is that of some cells; what all share has no name."""
    first, second, third = thread_cells()[:3]
    lost = replace(second.runs[0], status=RunStatus.FAILED)
    study = StudyResults.of(first, replace(second, runs=(lost, *second.runs[1:])), third)
    text = " ".join(render_changelog(study).split())
    assert "Runs: ring-4, warehouse-8: 5 of 6 runs finished; " in text
    assert "Runs: ring-4, warehouse-1; ring-4, warehouse-32: 3 of each" in text
    assert "Workload: ring-4, warehouse-1: warehouse threads=1" in text
    assert " Runs: 3 of each" in " ".join(render_changelog(StudyResults.of(first, third)).split())


def test_the_times_print_as_in_the_2018_mail() -> None:
    rows = [(case, which, summary, None) for case, which, summary in times_of(BEFORE_TIMES)]
    assert collapsed(table_of_times("v4.17-rc5", rows)) == f"{BEFORE_TIMES}\n"


def test_the_changes_of_times_are_those_of_the_2018_mail_but_for_its_cutting() -> None:
    """The mail cuts its percentages to five characters; ours are rounded to two decimals.

    So ours differ from it by 0.01 at most, and all else is the same.
    """
    before, after = times_of(BEFORE_TIMES), times_of(AFTER_TIMES)
    rows = [(*new[:2], new[2], old[2]) for old, new in zip(before, after, strict=True)]
    lines = collapsed(table_of_times("v4.17-rc5+patches", rows)).splitlines()
    differences = []
    for ours, theirs in zip(lines, AFTER_TIMES.splitlines(), strict=True):
        if not ours.endswith("%"):
            assert ours == theirs
            continue
        assert ours.rpartition(" ")[0] == theirs.rpartition(" ")[0]
        pair = [Decimal(line.rpartition(" ")[2].removesuffix("%")) for line in (ours, theirs)]
        differences.append(abs(pair[0] - pair[1]))
    assert len(differences) == 15
    assert max(differences) == Decimal("0.01")
    # In full the first is 34.3698: we print 34.37, the mail 34.36.
    assert lines[2].endswith(" 34.37%")


def test_a_time_that_lacks_its_base_takes_no_change_from_the_others() -> None:
    whole, lost = ("numa01", "Real", summary(9, 1)), ("numa02", "Real", summary(8, 1))
    lines = table_of_times("after", [(*whole, summary(10, 1)), (*lost, None)])
    assert lines[1].endswith(" %Change")
    assert [line.split()[-1] for line in lines[2:]] == ["10.00%", "n/s"]
    lines = table_of_times("after", [(*whole, summary(10, 1)), (*lost[:2], None, summary(8, 1))])
    assert [line.split()[2:] for line in lines[3:]] == [["n/s"] * 5]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: " ".join(block.split()[:2]))
def test_the_counts_print_as_in_the_2018_mail(block: str) -> None:
    rows = []
    title, _, *lines = block.splitlines()
    for line in lines:
        name, figures = re.findall(r"^(\D[\w:-]*(?: time elapsed)?) +(.*)$", line)[0]
        values = re.sub(r"[()%]|\+-", " ", figures.replace(",", "")).split()
        if title.startswith("vmstat"):
            sides = [summary(int(value) / 5, None) for value in values]
        else:
            pairs = re.findall(r"([\d,.]+)(?: \( \+- *([\d.]+)% \))?", figures)
            counts = [(float(mean.replace(",", "")), float(error or 0)) for mean, error in pairs]
            sides = [summary(mean, mean * error / 100 * sqrt(5)) for mean, error in counts]
        rows.append((name, sides[0], sides[1]))
    names = ("v4.17-rc5", "v4.17-rc5+patches")
    if title.startswith("vmstat"):
        ours = collapsed(table_of_sums(names, rows))
        assert ours == "\n".join([" ".join(names), *lines]) + "\n"
    else:
        ours = collapsed(table_of_counts(names, rows[:-1]) + table_of_counts(names, rows[-1:])[1:])
        assert ours == "\n".join([" ".join(names), *lines]) + "\n"


def test_relative_error_is_that_of_the_mean() -> None:
    error = relative_error(summary(100, 10, n=4))
    assert error == pytest.approx(5)
    assert relative_error(summary(100, None, n=1)) is None
    assert relative_error(summary(0, 0)) is None


def test_the_sample_study(golden: Callable[[str, str], None]) -> None:
    golden("report/changelog.txt", render_changelog(StudyResults.of(sample_report())))


def test_a_study_of_several_cells(golden: Callable[[str, str], None]) -> None:
    golden("report/cells-changelog.txt", render_changelog(StudyResults.of(*thread_cells())))


def test_a_study_of_three_variants_has_a_table_for_each_against_the_first() -> None:
    report = sample_report()
    third = replace(report.variants[1], name="other")
    comparisons = tuple(
        replace(c, summaries=(*c.summaries, None), changes=(*c.changes, None))
        for c in report.comparisons
    )
    text = render_changelog(
        StudyResults.of(
            replace(report, variants=(*report.variants, third), comparisons=comparisons)
        )
    )
    assert text.count("mean  stddev") == 4
    assert re.search(r"before +other +%", text)


def test_a_single_variant_has_no_notes_on_tables() -> None:
    report = sample_report()
    rows = (replace(row, summaries=row.summaries[:1]) for row in report.comparisons)
    alone = replace(report, variants=report.variants[:1], comparisons=tuple(rows))
    text = render_changelog(StudyResults.of(alone))
    assert "One variant: nothing is compared." in text
    assert "n/s" not in text
    assert "\n* " not in text


def test_lost_events_and_failed_runs_are_said() -> None:
    report = sample_report()
    first = replace(
        report.runs[0],
        status=RunStatus.LOST,
        reason="guest panicked",
        provenance=replace(report.runs[0].provenance, lost_events=17),
    )
    text = render_changelog(StudyResults.of(replace(report, runs=(first, *report.runs[1:]))))
    assert "17 trace events were lost; figures from the trace may be wrong" in " ".join(
        text.split()
    )
    assert "1 of 6 runs gave no result" in text


def test_unequal_numbers_of_runs_have_means_in_the_order_of_the_columns() -> None:
    report = sample_report()
    gone = next(run for run in report.runs if run.variant == report.variants[1].name)
    runs = tuple(run for run in report.runs if run != gone)
    text = render_changelog(StudyResults.of(replace(report, runs=runs)))
    assert "Trace events, mean of 3 and 2 runs" in text
    assert "vmstat, mean of 3 and 2 runs" in text and "sum of" not in text
    short = tuple(
        replace(
            row, summaries=(row.summaries[0], row.summaries[1] and replace(row.summaries[1], n=2))
        )
        for row in report.comparisons
    )
    text = render_changelog(StudyResults.of(replace(report, comparisons=short)))
    assert "vmstat, mean of 3 runs" in text and "sum of" not in text
    assert "vmstat, sum of 3 runs" in render_changelog(StudyResults.of(report))
    rows = [("pgfault", summary(10.25, 1.0, 60), summary(3.0, 1.0, 12))]
    assert table_of_sums(("a", "b"), rows)[-1].split() == ["pgfault", "615", "36"]
    assert table_of_sums(("a", "b"), rows, means=True)[-1].split() == ["pgfault", "10.2", "3.0"]


def test_hostile_texts_stay_short_plain_lines() -> None:
    text = render_changelog(StudyResults.of(hostile_report()))
    assert all(len(line) <= WIDTH for line in text.splitlines())
    assert text.isascii()
    assert not re.search(r"[^\n -~]", text)


figure = st.floats(0, 1e9, allow_nan=False)
side = st.none() | st.builds(summary, figure, st.none() | figure)


# A label that ends as a change does, on a line of its own, would look like a row.
label = st.text(st.characters(exclude_characters="%x×"))


@given(st.lists(st.tuples(label, side, side, st.none() | st.floats(-100, 1e6)), min_size=1))
def test_columns_of_means_line_up(
    rows: list[tuple[str, Summary | None, Summary | None, float | None]],
) -> None:
    comparisons = [
        (label, MeasureComparison("m", (before, after), (None, change), "different", ""))
        for label, before, after, change in rows
    ]
    lines = table_of_means(("Measure", "before", "after"), comparisons).lines
    assert all(len(line) <= WIDTH and line.isascii() for line in lines)
    ends = lines[0].index("%") + 1
    full = [line for line in lines[2:] if re.search(r"(%|x\d+|from 0|n/s)$", line)]
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
        assert all(len(line) <= WIDEST and line.isascii() for line in lines)


def test_a_claim_on_bounds_that_fails_is_named() -> None:
    first, *rest = thread_cells()
    claims = (
        ClaimOutcome("few tasks wait", "< 3", "5 to 6 (3 runs)", False),
        ClaimOutcome("all tasks end", "> 3", "5 to 6 (3 runs)", True),
    )
    text = render_changelog(StudyResults.of(replace(first, claims=claims), *rest))
    (claim,) = re.findall(r"^Claim: (.*?)^$", text, re.S | re.M)
    line = f"{first.cell}: few tasks wait: FAILS; measured 5 to 6 (3 runs)"
    assert " ".join(claim.split()).startswith(line)
    assert "all tasks end" not in text


def test_the_tables_of_a_patch_have_its_verdict() -> None:
    """Their own one is of all runs, also those that chose the measures."""
    text = "verdict    undecided: the time was over; the same command continues\npatch      x"
    for reports in ([sample_report()], thread_cells()):
        study = replace(StudyResults.of(*reports), verdict=text)
        (verdict,) = re.findall(r"^Verdict:(.*?)^$", render_changelog(study), re.S | re.M)
        assert " ".join(verdict.split()).startswith(
            "undecided: the time was over; the same command continues (see verdict.txt)."
            " The tables test each cell alone, with the runs of all seeds."
        )
