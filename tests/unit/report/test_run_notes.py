"""What runs lack, in a few lines: the reason of an `n/s` is where the report is read."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import unescape

import pytest
from rich.console import Console

from numalab.report.document import CellReport, StudyResults
from numalab.report.formats.changelog import render_changelog
from numalab.report.formats.json import render_document
from numalab.report.formats.markdown import render_markdown
from numalab.report.formats.terminal import render_terminal
from numalab.report.page.cell_page import render_html
from numalab.report.run_notes import MOST_LINES, run_notes
from support.report_sample import sample_report

ABSENT = "no task is called qhog"


def noted(*notes: Sequence[str]) -> CellReport:
    """The sample, whose runs of `before` come first; the first runs have these notes."""
    report = sample_report()
    runs = sorted(report.runs, key=lambda run: run.variant == "after")
    every = [*notes, *[()] * (len(runs) - len(notes))]
    whole = [replace(run, notes=tuple(own)) for run, own in zip(runs, every, strict=True)]
    return replace(report, runs=tuple(whole))


def test_each_note_is_there_once_with_its_runs() -> None:
    report = noted([ABSENT], [ABSENT], ["x", ABSENT], ["x"])
    assert run_notes([report]) == [f"3 of 6 runs (before): {ABSENT}", "2 of 6 runs: x"]
    assert run_notes([report, report])[1] == "4 of 12 runs: x"
    assert run_notes([sample_report()]) == []


def test_notes_that_differ_in_numbers_share_a_line() -> None:
    report = noted(["CPU 1: 9 events", "CPU 2: 9 events"], ["CPU 1: 7.5 events"])
    text = "CPU 1: 9 events (others with other numbers)"
    assert run_notes([report]) == [f"2 of 6 runs (before): {text}"]
    every = [["no task hog1 ran", "no task hog2 ran"]] * 6
    text = "no task hog1 ran (others with other numbers)"
    assert run_notes([noted(*every)]) == [f"6 of 6 runs: {text}"]


@pytest.mark.parametrize(("more", "text"), [(1, "1 more note"), (2, "2 more notes")])
def test_the_rest_is_counted(more: int, text: str) -> None:
    notes = ["x" * length for length in range(1, MOST_LINES + 1 + more)]
    *lines, last = run_notes([noted(notes)])
    assert len(lines) == MOST_LINES
    assert last == f"and {text} on runs: see report.json"


def terminal(study: StudyResults) -> str:
    console = Console(width=400)
    with console.capture() as captured:
        console.print(render_terminal(study.reports[0]))
    return captured.get()


def page(study: StudyResults) -> str:
    return unescape(render_html(study.reports[0]))


@pytest.mark.parametrize("render", [terminal, page, render_markdown, render_changelog])
def test_every_report_for_people_has_them(render: Callable[[StudyResults], str]) -> None:
    study = StudyResults.of(noted([ABSENT]))
    line = f"1 of 6 runs (before): {ABSENT}"
    text = " ".join(render(study).replace("\\", "").split())
    assert line in text
    assert line not in " ".join(render(StudyResults.of(sample_report())).split())


def test_the_document_has_those_of_each_run() -> None:
    runs = json.loads(render_document(StudyResults.of(noted([ABSENT]))))["cells"][0]["runs"]
    assert [run["notes"] for run in runs] == [[ABSENT], *[[]] * 5]
