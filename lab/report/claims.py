"""The table that ends a run: each claim, what was published, what was measured, the verdict."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from lab.report import figures
from lab.report.model import StudyReport

_STYLES = {"reproduced": "bold blue", "holds": "bold blue", "opposite": "bold dark_orange"}


def render_claim_table(reports: Sequence[StudyReport]) -> Table | None:
    """Render the claims of all cells for a terminal; None when there are none."""
    rows = [(report, claim) for report in reports for claim in report.claims]
    if not rows:
        return None
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), show_edge=False, pad_edge=False)
    several = len({(report.study, report.cell) for report in reports}) > 1
    titles = ("claim", "published", "measured here", "kind", "verdict")
    for title in ("study", "cell", *titles) if several else titles:
        table.add_column(title, overflow="fold")
    for report, claim in rows:
        words = figures.verdict_words(claim)
        style = _STYLES.get(words, "bold dark_orange" if not claim.holds else "")
        place = (report.study, report.cell) if several else ()
        texts = (*place, claim.text, claim.published, claim.measured, claim.kind)
        table.add_row(*(Text(figures.printable(text)) for text in texts), Text(words, style))
    return table
