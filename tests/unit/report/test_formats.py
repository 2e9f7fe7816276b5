"""The smaller forms of a report: threads, Markdown, JUnit, CSV."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from html import unescape

import pytest
from rich.console import Console

from numalab.measure import Direction, MeasureInfo, MeasureKind, MeasureSource, SourceKind
from numalab.report.comparisons import MeasureComparison, compare_variants
from numalab.report.document import StudyResults
from numalab.report.formats.changelog import render_changelog
from numalab.report.formats.csv_rows import render_csv
from numalab.report.formats.json import render_document
from numalab.report.formats.junit import render_junit
from numalab.report.formats.markdown import escaped, render_markdown
from numalab.report.formats.mmtests import render_mmtests
from numalab.report.formats.terminal import render_terminal
from numalab.report.formats.threads import render_threads
from numalab.report.page.cell_page import render_html
from numalab.results.manifest import RunStatus
from numalab.statistics.summary import Summary
from support.report_sample import HOSTILE, hostile_report, sample_report, thread_cells

# From "[RFC 2/3] sched/topology: fix sched groups on NUMA machines with mesh topology", 2017.
SPECJBB = """\
1 22801 1950 27059 1367 +19%
8 146008 50782 209193 826 +43%
32 351030 105111 522445 9051 +49%
48 365835 116571 594905 3314 +63%
"""


@pytest.mark.parametrize(
    ("name", "render"),
    [
        ("threads.txt", render_threads),
        ("report.md", render_markdown),
        ("junit.xml", render_junit),
        ("report.csv", render_csv),
    ],
)
def test_the_sample_study(
    name: str, render: Callable[[StudyResults], str], golden: Callable[[str, str], None]
) -> None:
    golden(f"report/{name}", render(StudyResults.of(sample_report())))


@pytest.mark.parametrize(
    ("name", "render"),
    [
        ("threads.txt", render_threads),
        ("report.md", render_markdown),
        ("junit.xml", render_junit),
        ("report.csv", render_csv),
    ],
)
def test_a_study_of_several_cells(
    name: str, render: Callable[[StudyResults], str], golden: Callable[[str, str], None]
) -> None:
    golden(f"report/cells-{name}", render(StudyResults.of(*thread_cells())))


def test_how_the_runs_were_chosen_is_in_every_form() -> None:
    remark = "repetitions were added <until> it showed"
    report = replace(sample_report(), remarks=(remark,))
    page = render_html(report)
    assert "repetitions were added &lt;until&gt; it showed" in page
    assert remark not in page
    assert f"R{remark[1:]}." in render_changelog(StudyResults.of(report))
    assert json.loads(render_document(StudyResults.of(report)))["cells"][0]["remarks"] == [remark]
    assert "repetitions were added" in render_markdown(StudyResults.of(report))


def test_threads_prints_the_figures_of_the_2017_mail() -> None:
    comparisons, measures = [], []
    for line in SPECJBB.splitlines():
        threads, *numbers = line.removesuffix("%").split()
        before, before_sd, after, after_sd, _ = map(float, numbers)
        pair = (
            Summary(5, before, before, before, before_sd),
            Summary(5, after, after, after, after_sd),
        )
        change = 100 * (after / before - 1)
        comparisons.append(MeasureComparison(threads, pair, (None, change), "better", ""))
        measures.append(
            MeasureInfo(
                threads,
                "",
                Direction.HIGHER,
                MeasureKind.TIMING,
                "",
                (MeasureSource(SourceKind.WORKLOAD),),
            )
        )
    report = replace(
        sample_report(), comparisons=tuple(comparisons), measures=tuple(measures), runs=()
    )
    lines = [
        " ".join(line.split()) for line in render_threads(StudyResults.of(report)).splitlines()
    ]
    lines = lines[lines.index("") + 1 :]  # without the differences
    assert lines[:2] == ["Measure before after %", "mean stddev mean stddev"]
    assert "".join(f"{line}\n" for line in lines[2:]) == SPECJBB


def test_threads_of_three_variants_has_a_table_for_each_against_the_first() -> None:
    report = sample_report()
    third = replace(report.variants[1], name="other")
    comparisons = tuple(
        replace(c, summaries=(*c.summaries, None), changes=(*c.changes, None))
        for c in report.comparisons
    )
    report = replace(report, variants=(*report.variants, third), comparisons=comparisons)
    assert re.findall(
        r"^Measure +before +(\w+)", render_threads(StudyResults.of(report)), re.M
    ) == [
        "after",
        "other",
    ]


def test_threads_of_a_single_variant_says_that_there_is_nothing_to_compare() -> None:
    report = sample_report()
    rows = (replace(row, summaries=row.summaries[:1]) for row in report.comparisons)
    alone = replace(report, variants=report.variants[:1], comparisons=tuple(rows))
    text = render_threads(StudyResults.of(alone))
    assert text.endswith("before is the only variant: this form compares variants\n")


def test_names_of_variants_are_told_apart_in_every_table() -> None:
    report = sample_report()
    names = [f"sched-numa-busy-nodes-v{number}" for number in (1, 2)]
    named = zip(report.variants, names, strict=True)
    study = StudyResults.of(
        replace(report, variants=tuple(replace(variant, name=name) for variant, name in named))
    )
    for render in (render_threads, render_changelog):
        assert re.search(r" sched-n~odes-v1 +sched-n~odes-v2 +%?$", render(study), re.M)
    assert re.search(r" sched-numa~-nodes-v1 +sched-numa~-nodes-v2$", render_mmtests(study), re.M)


def test_each_of_three_variants_has_its_own_outcome_and_verdict() -> None:
    report = sample_report()
    third = replace(report.variants[1], name="third")
    values = {
        name: {measure: report.values(side, measure) for measure in report.key_measures}
        for name, side in (("before", "before"), ("after", "after"), ("third", "before"))
    }
    infos = [report.measure(name) for name in report.key_measures]
    comparisons = compare_variants(infos, report.key_measures, values)
    report = replace(report, variants=(*report.variants, third), comparisons=comparisons)
    out = io.StringIO()
    Console(file=out, width=300).print(render_terminal(report))
    terminal = out.getvalue()
    markdown, page = render_markdown(StudyResults.of(report)), unescape(render_html(report))
    assert "| n | after outcome | third outcome | kind |" in markdown
    for row in comparisons:
        after, same = row.versus[1:]
        assert after and same
        assert f"| {after.outcome} | {same.outcome} | " in markdown
        for name, versus in (("after", after), ("third", same)):
            words = re.escape(f"{row.measure}, {name}: {versus.verdict}")
            assert re.search(rf"^{versus.outcome} +{words} *$", terminal, re.M)
            assert f'class="num" title="{versus.verdict}"' in page
    assert len({versus.outcome for row in comparisons for versus in row.versus[1:] if versus}) > 1


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_have_no_effect_in_markdown(text: str) -> None:
    shown = escaped(text)
    assert "\n" not in shown
    assert all(char.isprintable() for char in shown)
    assert not re.search(r"(?<!\\)[<>|`*\[\]&]", shown)


def test_a_hostile_report_keeps_the_shape_of_its_markdown_tables() -> None:
    rows = re.findall(r"^\| .*$", render_markdown(StudyResults.of(hostile_report())), re.M)
    cells = [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
    assert set(cells) == {3, 4, 6, 9}


def test_a_claim_that_does_not_hold_is_a_failure() -> None:
    report = sample_report()
    claims = (replace(report.claims[0], holds=False), report.claims[1])
    root = ET.fromstring(render_junit(StudyResults.of(replace(report, claims=claims))))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("8", "1", "0")
    cases = root.findall("testsuite/testcase")
    assert [case.find("failure") is not None for case in cases] == [False] * 6 + [True, False]
    failure = cases[6].find("failure")
    assert failure is not None
    assert failure.get("message") == "expected 0 % in all seeds, measured 0 % in 3 of 3"


def test_a_run_that_failed_is_an_error() -> None:
    report = sample_report()
    runs = (replace(report.runs[0], status=RunStatus.LOST), *report.runs[1:])
    root = ET.fromstring(render_junit(StudyResults.of(replace(report, runs=runs))))
    assert (root.get("tests"), root.get("errors")) == ("8", "1")
    error = root.find("testsuite/testcase/error")
    assert error is not None
    assert error.get("message") == "lost"


def test_junit_has_a_case_for_each_run_also_without_claims() -> None:
    report = replace(sample_report(), claims=())
    root = ET.fromstring(render_junit(StudyResults.of(report)))
    cases = root.findall("testsuite/testcase")
    assert root.get("tests") == str(len(report.runs))
    assert [case.get("name") for case in cases] == [f"run {run.id}" for run in report.runs]
    assert [case.get("time") for case in cases] == [f"{run.seconds:.3f}" for run in report.runs]


# What junit-10.xsd of Jenkins' xunit plug-in allows: attributes (the required ones with `!`),
# and children. https://github.com/jenkinsci/xunit-plugin
JUNIT = {
    "testsuites": ("name time tests failures errors", "testsuite"),
    "testsuite": (
        "name! tests! failures! errors! group time skipped timestamp hostname id package file log",
        "testsuite properties testcase system-out system-err",
    ),
    "properties": ("", "property"),
    "property": ("name! value!", ""),
    "testcase": ("name! time classname group", "skipped error failure system-out system-err"),
    "skipped": ("type message", ""),
    "error": ("type message", ""),
    "failure": ("type message", ""),
    "system-out": ("", ""),
}


def assert_valid_junit(element: ET.Element) -> None:
    attributes, children = (words.split() for words in JUNIT[element.tag])
    assert set(element.keys()) <= {name.rstrip("!") for name in attributes}, element.tag
    assert {name.rstrip("!") for name in attributes if name.endswith("!")} <= set(element.keys())
    assert {child.tag for child in element} <= set(children), element.tag
    assert re.fullmatch(r"\d+\.\d*", element.get("time", "0.0"))
    for child in element:
        assert_valid_junit(child)


@pytest.mark.parametrize("ending", list(RunStatus))
def test_junit_is_valid_for_each_way_in_which_a_run_ends(ending: RunStatus) -> None:
    report = sample_report()
    runs = (
        replace(report.runs[0], status=ending, reason="line\nline"),
        replace(report.runs[1], status=None),
        *report.runs[2:],
    )
    study = StudyResults.of(
        replace(report, runs=runs), replace(hostile_report(), cell="ring-4, other"), *thread_cells()
    )
    assert_valid_junit(ET.fromstring(render_junit(study)))


@pytest.mark.parametrize("text", [*HOSTILE, "\ufffe\uffff"])
def test_hostile_texts_are_well_formed_xml(text: str) -> None:
    report = sample_report()
    claims = (replace(report.claims[0], text=text, measured=text, holds=False),)
    root = ET.fromstring(
        render_junit(StudyResults.of(replace(report, study=text, verdict=text, claims=claims)))
    )
    assert len(root.findall("testsuite/testcase/failure")) == 1


def test_csv_has_a_row_for_each_run_and_measure_and_no_0_for_what_is_missing() -> None:
    report = sample_report()
    rows = list(csv.DictReader(io.StringIO(render_csv(StudyResults.of(report)))))
    assert len(rows) == len(report.runs) * len(report.measures)
    values = {(row["variant"], row["seed"], row["measure"]): row["value"] for row in rows}
    assert values["after", "3", "idle_while_overloaded"] == "1.21"
    assert values["before", "1", "sched_swap_numa"] == "0"
    assert values["before", "1", "cache_misses"] == ""


def test_csv_of_a_hostile_report_can_be_read_back() -> None:
    report = hostile_report()
    rows = list(csv.reader(io.StringIO(render_csv(StudyResults.of(report)))))
    assert {len(row) for row in rows} == {14}
    assert all(cell.isprintable() for row in rows for cell in row)


def test_no_text_of_csv_is_a_formula() -> None:
    report = sample_report()
    infos = [replace(info, unit="=HYPERLINK(A1)") for info in report.measures]
    low = replace(report.runs[0], measures={infos[0].name: -1.5, infos[1].name: -1e-30})
    odd = replace(report, study="@x", measures=tuple(infos), runs=(low,))
    rows = list(csv.DictReader(io.StringIO(render_csv(StudyResults.of(odd)))))
    assert [(row["value"], row["unit"], row["study"]) for row in rows] == [
        ("-1.5", "'=HYPERLINK(A1)", "'@x"),
        ("-1e-30", "'=HYPERLINK(A1)", "'@x"),
    ]


def test_a_variant_of_which_every_run_failed_breaks_no_form() -> None:
    """Nothing is known of it but that its runs failed; every form says so or leaves it out."""
    whole = sample_report()
    failed = tuple(
        replace(run, status=RunStatus.LOST, measures={}) if run.variant == "after" else run
        for run in whole.runs
    )
    report = replace(
        whole,
        variants=whole.variants[:1],
        runs=failed,
        comparisons=tuple(
            replace(
                row,
                summaries=row.summaries[:1],
                changes=row.changes[:1],
                versus=row.versus[:1],
                names=("before",),
            )
            for row in whole.comparisons
        ),
        sched_domains=whole.sched_domains[:1],
        timelines=whole.timelines[:1],
    )
    for render in (render_changelog, render_markdown, render_junit, render_csv, render_document):
        assert render(StudyResults.of(report))
    assert "lost" in render_html(report)
