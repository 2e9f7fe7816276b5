"""The report on a terminal: unfinished runs, a table of measures, verdicts and claims."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from numalab.reach.text import reach_lines
from numalab.report import formatting
from numalab.report.cell_tables import listed_comparisons, nothing_shown, sections
from numalab.report.claim_outcome import ClaimOutcome, Standing
from numalab.report.comparisons import MeasureComparison
from numalab.report.differences import OUTCOMES, MeasureDifference
from numalab.report.document import CellReport, StudyResults
from numalab.report.formats.format import register_format
from numalab.report.formatting import MOST_CELLS, MOST_DIFFERENCES, printable, shortened_name
from numalab.report.named_rows import LONGEST_GROUP, Column, NamedRow, NamedRows
from numalab.report.run_notes import run_notes
from numalab.report.unfinished import MOST_CAUSES, finished_of_cell, unfinished_lines
from numalab.results.layout import Results
from numalab.statistics.comparison import Outcome

MOST_BROKEN, FEWER_CAUSES = 5, 3  # in a summary that a screen of 25 lines holds
MOST_ROWS = 10  # that differ, of one of several cells
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
@dataclass(frozen=True)
class TableFormat:
    """Failures and differences first, then a table for each cell, and the path of the page."""

    why_mode: bool = True
    published: bool = True

    def write(self, study: StudyResults, results: Results) -> Group:
        """Return the summary and the tables; the last table has the notes."""
        page = [Text(f"page: {results.html.absolute()}")] if self.published else []
        several = study.cells > 1
        tables = (
            render_cell(report, several=several, compared=() if place else study.reports)
            for place, report in enumerate(study.reports)
        )
        notes = _notes(study.reports, why_mode=self.why_mode)
        reach = [Text(line) for line in reach_lines(study.reach)] if study.reach else []
        return Group(*render_first(study), *tables, *reach, *notes, *page)


def render_first(study: StudyResults) -> list[RenderableType]:
    """Render runs without a result, claims that do not hold, and the cells that differ."""
    broken = [
        f"  {report.cell}: {claim.text}: "
        + (claim.verdict_text if claim.unjudged else f"measured {claim.measured}")
        for report in study.reports
        for claim in report.claims
        if not claim.holds
    ]
    first, *causes = unfinished_lines(study, FEWER_CAUSES if broken else MOST_CAUSES) or [""]
    parts: list[RenderableType] = [Text(f"{study.verdict}\n")] if study.verdict else []
    if first:
        parts += [_line(study.study, first, "bold dark_orange"), *render_lines(causes)]
    if study.cells > 1 and (lossy := [cell for cell in study if formatting.lost_line(cell)]):
        text = f"trace events were lost in {len(lossy)} of {study.cells} cells: see `lost` there"
        parts.append(Text(text, "bold dark_orange"))
    if broken and study.cells > 1:
        title = f"{len(broken)} claims do not hold" if len(broken) > 1 else "1 claim does not hold"
        if any(claim.unjudged for report in study.reports for claim in report.claims):
            title = title.replace(" hold", " hold, or cannot be judged")
        parts += [Text(title, "bold dark_orange")]
        parts += [_cut_line(line) for line in broken[:MOST_BROKEN]]
        if len(broken) > MOST_BROKEN:
            parts.append(Text(f"  and {len(broken) - MOST_BROKEN} more"))
    if study.cells > 1:
        parts += [*([Text()] if parts else []), *_differences(study)]
    return [*parts, Text()] if parts else []


def _differences(study: StudyResults) -> list[RenderableType]:
    """Render the first differences of the first cells, each below the name of its cell."""
    question = _line(study.study, study.question)
    title = formatting.differences_title(study)
    differing = [cell for cell in study.differences if cell.shown]
    rows: list[NamedRow] = []
    for cell in differing[:MOST_CELLS]:
        rows.append(NamedRow(cell.cell))
        rows += [_difference_row(difference) for difference in cell.shown[:MOST_DIFFERENCES]]
        if more := len(cell.shown) - MOST_DIFFERENCES:
            rows += [NamedRow(f"  and {more} more, in the table of this cell")] * (more > 0)
    if more := len(differing) - MOST_CELLS:
        rows += [NamedRow(f"and {more} more cells that differ, in their tables")] * (more > 0)
    table = NamedRows("Measure", DIFFERENCE_COLUMNS, rows)
    return [question, Text(title, "bold"), *([table] if rows else [])]


DIFFERENCE_COLUMNS = (
    Column("baseline"),
    Column("variant", spare=3, left=True),
    Column("mean"),
    Column("change"),
    Column("95 %", spare=2),
    Column("outcome", spare=1, left=True),
)


def _difference_row(difference: MeasureDifference) -> NamedRow:
    versus, style = difference.comparison, OUTCOME_STYLES[difference.outcome]
    before, after = formatting.means(versus)
    return NamedRow(
        f"  {difference.measure}",
        difference.unit,
        (
            before,
            shortened_name(formatting.printable(difference.variant), LONGEST_GROUP),
            after,
            Text(formatting.change_of(versus), style),
            formatting.interval(versus),
            Text(difference.outcome, style),
        ),
    )


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


def render_terminal(report: CellReport) -> RenderableType:
    """Render a study of one cell for a terminal; it reads the same without colour."""
    return Group(
        render_cell(report, several=False, compared=[report]), *_notes([report], why_mode=True)
    )


def render_cell(
    report: CellReport, *, several: bool, compared: Sequence[CellReport]
) -> RenderableType:
    """Render one cell: its verdict, machine and workload, its table and its claims.

    The key measures come first, then what differs, then the metrics of the workload; all other
    measures are counted. One of several cells has its name instead of the question, and at most
    `MOST_ROWS` rows that differ. The variants are those of the cells `compared`.
    """
    keys = [row for row in report.comparisons if row.measure in report.key_measures]
    listed = listed_comparisons(report)
    lost = formatting.lost_line(report)
    title = _line("cell", report.cell, "bold") if several else _line(report.study, report.question)
    lines: list[RenderableType] = [
        title,
        *([_line("lost", lost, "bold dark_orange")] if lost else []),
        _line("verdict", report.verdict, "bold"),
        _line("machine", formatting.machine_line(report)),
        _line("workload", report.workload.command),
        *([_line("settings", settings)] if (settings := report.settings.line) else []),
        _line("runs", f"{finished_of_cell(report)}; {formatting.seeds_line(report)}"),
        *_variants(compared),
        Text(),
        *_measures(report, MOST_ROWS if several else len(listed)),
    ]
    if not several:
        lines += [line for comparison in keys for line in _verdicts(comparison)]
    if report.claims:
        lines.extend([Text(), *_claims(report)])
    if any(row not in listed for row in report.comparisons):
        text = nothing_shown(report.comparisons)
        lines.append(Text(f"{text}: see the page or report.json", "dim"))
    return Group(*lines, Text())


def _variants(reports: Iterable[CellReport]) -> list[RenderableType]:
    """Name the kernel, series and differing tunables of each variant; shared series are counted."""
    variants = [variant for report in reports for variant in report.variants]
    every = [set(variant.series) for variant in variants]
    shared = set.intersection(*every) if every else set()
    lines = {}
    for variant in variants:
        own = tuple(name for name in variant.series if name not in shared)
        more = (f"{len(shared)} series of all variants",) if len(variants) > 1 < len(shared) else ()
        build = replace(variant, series=(*more, *own)).build if more else variant.build
        name = shortened_name(variant.name, LONGEST_GROUP)
        lines[name, build] = _line(name, build)
    return list(lines.values())


def _notes(reports: Sequence[CellReport], *, why_mode: bool) -> list[RenderableType]:
    """Render notes on runs, each mode and memory model once, and what the figures are valid for."""
    lines = [_line("" if place else "notes", text) for place, text in enumerate(run_notes(reports))]
    for title, reason in {report.mode.title: report.mode.reason for report in reports}.items():
        lines.append(Text(printable(f"mode {title}{f': {reason}' if reason and why_mode else ''}")))
    models = {report.mode.model: report.topology.name for report in reports if report.mode.model}
    for model, machine in models.items():
        title = f"model of {machine}" if len(models) > 1 else "model"
        lines += [_line("" if place else title, text) for place, text in enumerate(model)]
    for command in dict.fromkeys(report.recreate for report in reports if report.recreate):
        lines.append(_line("compact", f"{formatting.COMPACT_NOTE} {command}"))
    several = len(reports) > 1  # then the first table has intervals
    texts = dict.fromkeys(
        note for report in reports for note in formatting.notes(report, intervals=several)
    )
    return [*lines, *(Text(formatting.printable(note), "dim") for note in texts), Text()]


def _line(name: str, text: str, style: str = "") -> RenderableType:
    """Lay out `name  text` so that a long text wraps below itself, not below the name."""
    return _beside(Text(formatting.printable(name), "bold"), 9, text, style)


def _beside(first: Text, width: int, text: str, style: str = "", *, fold: bool = False) -> Table:
    """Lay out two texts; with `fold`, a first one that is wider wraps within its width."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=not fold, min_width=width, max_width=width if fold else None)
    grid.add_column()
    grid.add_row(first, Text(formatting.printable(text), style))
    return grid


def _measures(report: CellReport, most: int) -> Iterator[RenderableType]:
    """Lay out one table for each variant beside the first, with what differs between the two."""
    patched = range(1, len(report.variants))
    sides: list[tuple[int, ...]] = [(0, index) for index in patched] or [(0,)]
    for side in sides:
        rows: list[NamedRow] = []
        parts = sections(report, report.variants[side[-1]].name)
        for section in parts:
            if len(parts) > 1:
                rows.append(NamedRow(section.heading))
            shown = section.rows[:most]
            rows += [_row(report, comparison, side) for comparison in shown]
            if more := len(section.rows) - len(shown):
                rows.append(NamedRow(f"and {more} more {section.heading}, on the page"))
        if rows:
            yield NamedRows("Measure", _columns(report, side), rows)
            yield Text()


def _columns(report: CellReport, side: Sequence[int]) -> list[Column]:
    columns = []
    for index in side:
        name = report.variants[index].name
        columns += [Column("mean", name), Column("stddev", name, spare=2)]
    changes = [Column("change"), Column("outcome", spare=1, left=True)] if side[1:] else []
    return [*columns, Column("n", spare=3), *changes, Column("kind", spare=4, left=True)]


def _row(report: CellReport, comparison: MeasureComparison, side: Sequence[int]) -> NamedRow:
    info = report.measure(comparison.measure)
    places = formatting.row_decimals(comparison.summaries)
    cells: list[Text | str] = []
    for index in side:
        cells += formatting.mean_and_stddev(comparison.summaries[index], places)
    cells.append(formatting.samples([comparison.summaries[index] for index in side]))
    for index in side[1:]:
        outcome = comparison.outcome_of(index)
        word = outcome if outcome in OUTCOMES[:3] else ""
        texts = (formatting.change(comparison, index), word)
        cells += [Text(text, OUTCOME_STYLES[outcome]) for text in texts]
    cells.append(info.kind)
    return NamedRow(info.name, info.unit, cells)


def _verdicts(comparison: MeasureComparison) -> Iterator[RenderableType]:
    """Write a line with the verdict; of several variants one for each, with its name."""
    sides = list(zip(comparison.names, comparison.versus, strict=False))[1:]
    if len(sides) < 2:
        yield _verdict(comparison.outcome, f"{comparison.measure}: {comparison.verdict}")
        return
    for name, versus in sides:
        if versus is not None:
            yield _verdict(versus.outcome, f"{comparison.measure}, {name}: {versus.verdict}")


def _verdict(outcome: Outcome, text: str) -> RenderableType:
    return _beside(Text(outcome, OUTCOME_STYLES[outcome]), 19, text)


def _claims(report: CellReport) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for claim in report.claims:
        compared = bool(claim.verdict) and not claim.required
        style = "" if compared else "bold blue" if claim.holds else "bold dark_orange"
        published = f" (published: {claim.published})" if claim.published else ""
        text = f"{claim.text}{published}: expected {claim.expected}, measured {claim.measured}"
        # Why something cannot be seen is too long for the first column.
        first = formatting.verdict_words(claim, _with_detail(claim, claim.verdict))
        words = f"{text}; {claim.reason}" if claim.reason else text
        title = first if claim.verdict else f"claim {first}"
        lines.append(_beside(Text(title, style), 19, words, fold=True))
    return lines


def _with_detail(claim: ClaimOutcome, verdict: str) -> str:
    return f"{verdict} ({claim.detail})" if claim.detail else verdict


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
    words = formatting.verdict_words(claim, _with_detail(claim, claim.verdict_in_mode))
    if claim.reason:
        words += f" ({reasons.setdefault(formatting.printable(claim.reason), len(reasons) + 1)})"
    return Text(words, _STANDING_STYLES[claim.standing])
