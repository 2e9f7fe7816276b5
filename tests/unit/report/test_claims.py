"""The table of claims that ends a run."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO

from rich.console import Console

from numalab.report.claim_outcome import ClaimOutcome
from numalab.report.document import CellReport
from numalab.report.formats.terminal import render_claim_table
from support.report_sample import hostile_report, sample_report, thread_cells


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
    open_claim = ClaimOutcome(
        "less time", "lower", "3 to 2", True, verdict="inconclusive",
        detail="53 seeds would decide", required=False,
    )  # fmt: skip
    smaller = replace(open_claim, verdict="direction only", detail="smaller")
    report = replace(sample_report(), claims=(open_claim, smaller))
    text = shown([report])
    assert all(len(line) <= 100 for line in text.splitlines())
    words = [word for line in text.splitlines() for word in line.split()]
    assert re.search(r"inconclusive\b.*\(53 .*seeds .*would .*decide\)", " ".join(words))
    assert "direction only" in text and "(smaller)" in text
