"""The report on a terminal: unfinished runs, a table of measures, verdicts and claims."""

from collections.abc import Iterable, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from numalab.report import formatting
from numalab.report.cell_tables import SHOWN, listed_comparisons
from numalab.report.claim_outcome import ClaimOutcome, Standing
from numalab.report.comparisons import MeasureComparison
from numalab.report.document import CellReport, StudyResults
from numalab.report.formats.format import register_format
from numalab.report.unfinished import MOST_CAUSES, finished_of_cell, unfinished_lines
from numalab.results.layout import Results
from numalab.statistics.comparison import Outcome

MOST_BROKEN, FEWER_CAUSES, MOST_CELLS = 5, 3, 8  # in a summary that a screen of 25 lines holds
# Blue and orange stay apart for every kind of colour vision; the word carries the meaning.
OUTCOME_STYLES: dict[Outcome, str] = {
    "better": "bold blue",
    "worse": "bold dark_orange",
    "different": "bold",
    "no difference shown": "dim",
    "not comparable": "dim",
}


_STANDING_STYLES: Mapping[Standing, str] = {
    "for": "bold blue",
    "against": "bold dark_orange",
    "neither": "",
}


@register_format("table")
class TableFormat:
    """Failures and differences first, then a table for each cell, and the path of the page."""

    def write(self, study: StudyResults, results: Results) -> Group:
        """Return the summary and the tables; the last table has the notes."""
        page = Text.assemble("page: ", str(results.html.absolute()))
        last = study.reports[-1] if study.reports else None
        tables = (render_terminal(report, notes=report is last) for report in study.reports)
        return Group(*render_first(study), *tables, page)


def render_first(study: StudyResults) -> list[RenderableType]:
    """Render runs without a result, claims that do not hold, and the cells that differ."""
    broken = [
        f"  {report.cell}: {claim.text}: measured {claim.measured}"
        for report in study.reports
        for claim in report.claims
        if not claim.holds
    ]
    first, *causes = unfinished_lines(study, FEWER_CAUSES if broken else MOST_CAUSES) or [""]
    parts: list[RenderableType] = []
    if first:
        parts = [_line(study.study, first, "bold dark_orange"), *render_lines(causes)]
    if broken and study.cells > 1:
        title = f"{len(broken)} claims do not hold" if len(broken) > 1 else "1 claim does not hold"
        parts += [Text(title, "bold dark_orange")]
        parts += [_cut_line(line) for line in broken[:MOST_BROKEN]]
        if len(broken) > MOST_BROKEN:
            parts.append(Text(f"  and {len(broken) - MOST_BROKEN} more"))
    parts += [_cut_line(line) for line in _differences(study)]
    return [*parts, Text()] if parts else []


def _differences(study: StudyResults) -> list[str]:
    """Return a line for each of the first cells with a measure that differs; nothing for a study
    of one cell."""
    if study.cells < 2:
        return []
    lines = []
    for report in study.reports:
        changes = [
            f"{row.measure} {formatting.change(row, index)} {row.outcome_of(index)}"
            + (f" in {variant.name}" if len(report.variants) > 2 else "")
            for row in _listed(report)
            for index, variant in enumerate(report.variants)
            if index and row.outcome_of(index) in SHOWN
        ]
        if changes:
            lines.append(f"  {report.cell}: {'; '.join(changes)}")
    more = [f"  and {len(lines) - MOST_CELLS} more cells"] if len(lines) > MOST_CELLS else []
    title = f"measures differ in {len(lines)} of {study.cells} cells"
    return [title, *lines[:MOST_CELLS], *more]


def _listed(report: CellReport) -> list[MeasureComparison]:
    """Return the comparisons to list, the key measures first."""
    rows = listed_comparisons(report)
    return sorted(rows, key=lambda row: row.measure not in report.key_measures)


def _cut_line(line: str) -> Text:
    return Text(formatting.printable(line), no_wrap=True, overflow="ellipsis")


def render_lines(lines: Iterable[str]) -> list[RenderableType]:
    """Render lines so that each wraps below its own indentation."""
    return [
        Padding(
            Text(formatting.printable(line.lstrip())), (0, 0, 0, len(line) - len(line.lstrip()))
        )
        for line in lines
    ]


def render_terminal(report: CellReport, *, notes: bool = True) -> RenderableType:
    """Render a study for a terminal of 100 columns or more; it reads the same without colour.

    The key measures come first, then the metrics of the workload and every measure that differs;
    all other measures are counted. The machine, the mode and its notes are at the end.
    """
    listed = _listed(report)
    keys = [row for row in listed if row.measure in report.key_measures]
    hidden = len(report.comparisons) - len(listed)
    parts: list[RenderableType] = [
        _line(report.study, report.question),
        _line("verdict", report.verdict, "bold"),
        _line("runs", f"{finished_of_cell(report)}; {formatting.seeds_line(report)}"),
        *_measures(report, listed),
        *[_verdict(comparison) for comparison in keys],
    ]
    if report.claims:
        parts.extend([Text(), *_claims(report)])
    parts += [Text(), _line("machine", formatting.machine_line(report))]
    if report.recreate:
        parts.append(_line("compact", f"{formatting.COMPACT_NOTE} {report.recreate}"))
    reason = f" ({report.mode.reason})" if report.mode.reason else ""
    parts.append(_line("mode", f"{report.mode.title}{reason}"))
    parts += [_line("" if place else "model", text) for place, text in enumerate(report.mode.model)]
    if notes:
        parts += [Text(note, "dim") for note in formatting.notes(report)]
    if hidden:
        text = f"{hidden} more measures, no difference shown: see the page or report.json"
        parts.append(Text(text, "dim"))
    return Group(*parts, Text())


def _line(name: str, text: str, style: str = "") -> RenderableType:
    """Lay out `name  text` so that a long text wraps below itself, not below the name."""
    return _beside(Text(formatting.printable(name), "bold"), 9, text, style)


def _beside(first: Text, width: int, text: str, style: str = "") -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, min_width=width)
    grid.add_column()
    grid.add_row(first, Text(formatting.printable(text), style))
    return grid


def _measures(report: CellReport, comparisons: Sequence[MeasureComparison]) -> list[RenderableType]:
    """Lay out one table for each variant beside the first, so that three or more have room."""
    patched = range(1, len(report.variants))
    sides: list[tuple[int, ...]] = [(0, index) for index in patched] or [(0,)]
    return [part for side in sides for part in (_table(report, comparisons, side), Text())]


def _table(
    report: CellReport, comparisons: Sequence[MeasureComparison], side: tuple[int, ...]
) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1), show_edge=False, pad_edge=False)
    table.add_column("\nMeasure", overflow="fold")
    table.add_column("\nunit", overflow="fold", max_width=14)
    for index in side:
        name = formatting.printable(report.variants[index].name)
        table.add_column(f"{name}\nmean", justify="right", no_wrap=True)
        table.add_column("\nstddev", justify="right", no_wrap=True)
    table.add_column("\nn", justify="right", no_wrap=True)
    for _ in side[1:]:
        table.add_column("\nchange", justify="right", no_wrap=True)
    table.add_column("\nkind", no_wrap=True)
    for comparison in comparisons:
        table.add_row(*_cells(report, comparison, side))
    return table


def _cells(
    report: CellReport, comparison: MeasureComparison, side: tuple[int, ...]
) -> list[RenderableType]:
    info = report.measure(comparison.measure)
    places = formatting.row_decimals(comparison.summaries)
    cells: list[RenderableType] = [
        Text(formatting.printable(info.name)),
        Text(formatting.printable(info.unit)),
    ]
    for index in side:
        cells += formatting.mean_and_stddev(comparison.summaries[index], places)
    cells.append(formatting.samples(comparison))
    for index in side[1:]:
        style = OUTCOME_STYLES[comparison.outcome_of(index)]
        cells.append(Text(formatting.change(comparison, index), style))
    cells.append(info.kind)
    return cells


def _verdict(comparison: MeasureComparison) -> RenderableType:
    outcome = Text(comparison.outcome, OUTCOME_STYLES[comparison.outcome])
    return _beside(outcome, 19, f"{comparison.measure}: {comparison.verdict}")


def _claims(report: CellReport) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for claim in report.claims:
        compared = bool(claim.verdict) and not claim.required
        style = "" if compared else "bold blue" if claim.holds else "bold dark_orange"
        published = f" (published: {claim.published})" if claim.published else ""
        text = f"{claim.text}{published}: expected {claim.expected}, measured {claim.measured}"
        # Why something cannot be seen is too long for the first column.
        first = formatting.verdict_words(claim, claim.verdict)
        words = f"{text}; {claim.reason}" if claim.reason else text
        title = first if claim.verdict else f"claim {first}"
        lines.append(_beside(Text(title, style), 19, words))
    return lines


def render_claim_table(reports: Sequence[CellReport]) -> RenderableType | None:
    """Render the claims of all cells for a terminal; None when there are none.

    Below a line with the study and the cell are the claims about it. Why something cannot be seen
    is said once, below the table.
    """
    claimed = [report for report in reports if report.claims]
    if not claimed:
        return None
    reasons: dict[str, int] = {}
    parts: list[RenderableType] = [_claim_columns(headed=True)]
    for number, report in enumerate(claimed):
        if len(reports) > 1:
            place = f"{report.study}, {report.cell}" if report.cell else report.study
            parts += [Text()] * (number > 0) + [Text(formatting.printable(place), "bold")]
        parts.append(_claim_rows(report, reasons))
    notes = [Text(f"({number}) {reason}", "dim") for reason, number in reasons.items()]
    return Group(*parts, Text(), *notes) if notes else Group(*parts)


def _claim_rows(report: CellReport, reasons: dict[str, int]) -> Table:
    table = _claim_columns(headed=False)
    for claim in report.claims:
        texts = (claim.text, claim.published, claim.measured, claim.kind)
        table.add_row(
            *(Text(formatting.printable(t)) for t in texts), _claim_verdict(claim, reasons)
        )
    return table


def _claim_columns(*, headed: bool) -> Table:
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


def _claim_verdict(claim: ClaimOutcome, reasons: dict[str, int]) -> Text:
    words = formatting.verdict_words(claim, claim.verdict_in_mode)
    if claim.reason:
        words += f" ({reasons.setdefault(formatting.printable(claim.reason), len(reasons) + 1)})"
    return Text(words, _STANDING_STYLES[claim.standing])
