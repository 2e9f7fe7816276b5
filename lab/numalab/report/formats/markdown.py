"""The report as Markdown, for an issue or a merge request: differences, claims, comparisons."""

import re
from collections.abc import Iterable, Iterator, Sequence

from numalab.report import formatting
from numalab.report.cell_tables import is_vm_counter, listed_comparisons
from numalab.report.comparisons import MeasureComparison
from numalab.report.differences import CellDifferences
from numalab.report.document import CellReport, StudyResults
from numalab.report.fitting import KEPT, ReportPart, characters, fit
from numalab.report.formats.format import register_format
from numalab.report.run_notes import run_notes
from numalab.report.unfinished import MOST_CAUSES, causes_of, finished_of_cell, finished_text

_MARKUP = re.compile(r"([\\`*_\[\]<>|&~#!$@])")
MOST_CHARACTERS = 60_000  # a comment on GitHub has at most 65,536
LONGEST_QUESTION = 300
# What goes first where the text is too long: the highest.
_BROKEN, _DIFFERENCE, _VERDICT, _CLAIM, _FACTS, _NOTES = 5, 10, 30, 40, 50, 55
_LISTED, _OTHER, _COUNTERS = 60, 80, 90
_LEAST_DIFFERENCE = 19  # ranks of differences in a cell


@register_format("markdown")
def render_markdown(study: StudyResults) -> str:
    """Render a study as Markdown (CommonMark with tables). Every text is escaped, whoever wrote it.

    Runs without a result come first, then what differs. Of several cells, each has a section. The
    measures without a difference fold away. The text has at most 60,000 characters: the least
    important parts are left out, and named at the end.
    """
    return markdown(study, MOST_CHARACTERS)


def markdown(study: StudyResults, most: int) -> str:
    """Render a study as Markdown of at most `most` characters."""
    lines = fit(list(_parts(study)), most, _left_out, characters)
    return "".join(f"{line}\n" for line in lines)


def _left_out(text: str) -> list[str]:
    return ["", f"Left out here, see index.html or report.json: {text}."]


def _parts(study: StudyResults) -> Iterator[ReportPart]:
    question = formatting.shortened_name(study.question, LONGEST_QUESTION)
    yield ReportPart((f"# {escaped(study.study)}: {escaped(question)}",))
    for block in _unfinished(study):
        yield _block(block)
    several = len(study.reports) > 1
    if title := formatting.differences_title(study):
        yield _block([f"**{escaped(title)}**"])
    if several:
        yield from _differences(study.differences)
        yield _block([], _VERDICT)
        for report in study.reports:
            line = f"- {escaped(report.cell)}: {escaped(report.verdict)}"
            yield ReportPart((line,), _VERDICT, "verdict")
    for report in study.reports:
        yield from _cell(report, several=several)
    notes = dict.fromkeys(note for report in study.reports for note in formatting.notes(report))
    every = [*run_notes(study.reports), *notes]
    yield _block([f"- {escaped(note)}" for note in every], _NOTES, "note")


def _block(lines: Iterable[str], spare: int = KEPT, what: str = "") -> ReportPart:
    return ReportPart(("", *lines), spare, what)


def _rows(table: Sequence[str], spares: Sequence[int], what: str) -> Iterator[ReportPart]:
    """Make a part of each row of a table; its two lines of titles stay as long as a row does."""
    if spares:
        yield _block(table[:2], min(spares))
    for line, spare in zip(table[2:], spares, strict=True):
        yield ReportPart((line,), spare, what)


def _differences(cells: Sequence[CellDifferences]) -> Iterator[ReportPart]:
    """Write one table of what differs, cell by cell."""
    rows, spares = [], []
    for cell in cells:
        for place, item in enumerate(cell.shown):
            before, after = formatting.means(item.comparison)
            measure = f"{item.measure} [{item.unit}]" if item.unit else item.measure
            texts = (
                cell.cell,
                measure,
                before,
                item.variant,
                after,
                formatting.change_of(item.comparison),
                formatting.interval(item.comparison),
                item.outcome,
            )
            rows.append([escaped(text) for text in texts])
            spares.append(_DIFFERENCE + min(place, _LEAST_DIFFERENCE))
    heads = ("cell", "measure", "baseline:", "variant", "mean:", "change:", "95 %:", "outcome")
    table = _table(heads, rows)
    yield from _rows(table, spares, "difference")


def _unfinished(study: StudyResults) -> list[list[str]]:
    """Write how many runs finished, and a table of the causes of the rest."""
    groups = causes_of(study)
    if not groups:
        return []
    shown, rest = groups[:MOST_CAUSES], groups[MOST_CAUSES:]
    rows = [(escaped(cause.title), escaped(cause.text), escaped(cause.places)) for cause in shown]
    if rest:
        more = sum(len(cause.runs) for cause in rest)
        rows.append((f"{more} more runs", f"{len(rest)} other reasons", ""))
    return [[f"**{escaped(finished_text(study))}**"], _table(("runs", "reason", "where"), rows)]


def _cell(report: CellReport, *, several: bool) -> Iterator[ReportPart]:
    listed = listed_comparisons(report)
    counters = [row for row in report.comparisons if row not in listed and _is_counter(report, row)]
    rest = [row for row in report.comparisons if row not in listed and row not in counters]
    claims = [_CLAIM if claim.holds else _BROKEN for claim in report.claims]
    if several:
        yield _block([f"## {escaped(report.cell)}"], min([_FACTS, *claims]))
    yield _block([f"**{escaped(report.verdict)}**"], _FACTS)
    table = _table(_heads(report), [_cells(report, row) for row in listed])
    spares = [
        _LISTED if several else _DIFFERENCE + min(n, _LEAST_DIFFERENCE) for n in range(len(listed))
    ]
    yield from _rows(table, spares, "row of measures")
    yield from _rows(_claims(report), claims, "claim")
    yield _block(_facts(report), _FACTS, "description of a cell")
    for rows, spare, noun in (
        (rest, _OTHER, "more measure"),
        (counters, _COUNTERS, "vmstat counter"),
    ):
        if rows:
            yield _block(_folded(report, rows, noun), spare, f"table of {noun}s")


def _is_counter(report: CellReport, row: MeasureComparison) -> bool:
    return is_vm_counter(report.measure(row.measure))


def escaped(text: str) -> str:
    """Write any text on one line so that no Markdown or HTML in it takes effect."""
    return _MARKUP.sub(r"\\\1", formatting.printable(" ".join(text.split())))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lay out a table; a head that ends with `:` is of figures, aligned right."""
    rules = ["---:" if head.endswith(":") else "---" for head in heads]
    titles = [head.removesuffix(":") for head in heads]
    return [f"| {' | '.join(row)} |" for row in (titles, rules, *rows)]


def _facts(report: CellReport) -> list[str]:
    runs = f"{finished_of_cell(report)}; {formatting.seeds_line(report)}"
    rows = [("machine", formatting.machine_line(report)), ("mode", report.mode.title)]
    for variant in report.variants:
        kernel = variant.build
        rows.append((variant.name, kernel))
    rows.append(("workload", report.workload.command))
    if settings := report.settings.line:
        rows.append(("settings", settings))
    rows.append(("runs", runs))
    if lost := formatting.lost_line(report):
        rows.append(("lost", lost))
    return _table(("", ""), [(escaped(name), escaped(text)) for name, text in rows])


def _claims(report: CellReport) -> list[str]:
    rows = [
        (
            escaped(claim.text),
            escaped(claim.published),
            escaped(claim.expected),
            escaped(claim.measured),
            escaped(words) if claim.holds else f"**{escaped(words)}**",
        )
        for claim in report.claims
        for words in [formatting.verdict_words(claim)]
    ]
    return _table(("claim", "published", "expected", "measured", "verdict"), rows)


def _heads(report: CellReport) -> list[str]:
    means = [f"{escaped(variant.name)} (mean ± stddev):" for variant in report.variants]
    several = len(report.variants) > 2
    changes = [
        f"{escaped(variant.name)} {what}:" if several else f"{what}:"
        for variant in report.variants[1:]
        for what in ("change", "95 %")
    ]
    outcomes = [f"{escaped(v.name)} outcome" if several else "outcome" for v in report.variants[1:]]
    return ["measure", *means, *changes, "n:", *(outcomes or ["outcome"]), "kind"]


def _cells(report: CellReport, row: MeasureComparison) -> list[str]:
    info = report.measure(row.measure)
    places = formatting.row_decimals(row.summaries)
    cells = [escaped(formatting.label(info))]
    for summary in row.summaries:
        cells.append(" ± ".join(filter(None, formatting.mean_and_stddev(summary, places))))
    for index in range(1, len(report.variants)):
        cells += [formatting.change(row, index), formatting.interval(row.versus_of(index))]
    outcomes = [row.outcome_of(index) for index in range(1, len(report.variants))]
    return [*cells, formatting.samples(row.summaries), *(outcomes or [row.outcome]), info.kind]


def _folded(report: CellReport, rows: Sequence[MeasureComparison], noun: str) -> list[str]:
    table = _table(_heads(report), [_cells(report, row) for row in rows])
    summary = f"<summary>{noun.capitalize()}s</summary>"
    return ["<details>", summary, "", *table, "", "</details>"]
