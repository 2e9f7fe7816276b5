"""The table of claims that ends a run."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO

from rich.console import Console

from numalab.report.document import CellReport
from numalab.report.formats.terminal import render_claim_table
from support.report_sample import (
    assert_details,
    hostile_report,
    report_with_details,
    sample_report,
    thread_cells,
)


def shown(reports: Sequence[CellReport]) -> str:
    console = Console(file=(out := StringIO()), width=100)
    table = render_claim_table(reports)
    assert table is not None
    console.print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def test_cells_have_their_claims_below_them(golden: Callable[[str, str], None]) -> None:
    other = replace(sample_report(), study="other")
    text = shown([*thread_cells(), other])
    assert all(len(line) <= 100 for line in text.splitlines())
    assert text.count("icount counts instructions") == 1  # said once, below
    golden("report/claims.txt", text)


def test_without_claims_there_is_no_table() -> None:
    assert render_claim_table([replace(sample_report(), claims=())]) is None


def test_a_study_of_one_cell_is_not_named_again() -> None:
    assert sample_report().study not in shown([sample_report()])


def test_a_claims_text_cannot_drive_the_terminal() -> None:
    text = shown([hostile_report(), sample_report()])
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_verdict_is_shown_with_its_detail() -> None:
    """As in the changelog."""
    assert_details(shown([report_with_details()]))
