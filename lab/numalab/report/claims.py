"""The table that ends a run: each claim, what was published, what was measured, the verdict."""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from numalab.report import figures
from numalab.report.document import CellReport, ClaimOutcome, Standing

_STYLES: Mapping[Standing, str] = {"for": "bold blue", "against": "bold dark_orange", "neither": ""}


def render_claim_table(reports: Sequence[CellReport]) -> RenderableType | None:
    """Render the claims of all cells for a terminal; None when there are none.

    Below a line with the study and the cell are the claims about it. Why something cannot be seen
    is said once, below the table.
    """
    claimed = [report for report in reports if report.claims]
    if not claimed:
        return None
    reasons: dict[str, int] = {}
    parts: list[RenderableType] = [_columns(headed=True)]
    for number, report in enumerate(claimed):
        if len(reports) > 1:
            place = f"{report.study}, {report.cell}" if report.cell else report.study
            parts += [Text()] * (number > 0) + [Text(figures.printable(place), "bold")]
        parts.append(_rows(report, reasons))
    notes = [Text(f"({number}) {reason}", "dim") for reason, number in reasons.items()]
    return Group(*parts, Text(), *notes) if notes else Group(*parts)


def _rows(report: CellReport, reasons: dict[str, int]) -> Table:
    table = _columns(headed=False)
    for claim in report.claims:
        texts = (claim.text, claim.published, claim.measured, claim.kind)
        table.add_row(*(Text(figures.printable(t)) for t in texts), _verdict(claim, reasons))
    return table


def _columns(*, headed: bool) -> Table:
    """Lay out columns that are as wide in every part, whatever is in it."""
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        show_edge=False,
        pad_edge=False,
        show_header=headed,
        expand=True,
    )
    for title, ratio in (("claim", 5), ("published", 4), ("measured here", 5)):
        table.add_column(title, overflow="fold", ratio=ratio)
    table.add_column("kind", no_wrap=True, width=9)
    table.add_column("verdict", width=19)
    return table


def _verdict(claim: ClaimOutcome, reasons: dict[str, int]) -> Text:
    words, reason = figures.verdict_and_reason(claim)
    if reason:
        words += f" ({reasons.setdefault(figures.printable(reason), len(reasons) + 1)})"
    return Text(words, _STYLES[claim.standing])
