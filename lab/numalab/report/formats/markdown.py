"""The report as Markdown, for an issue or a merge request: verdict, claims, every comparison."""

import re
from collections.abc import Iterable, Sequence

from numalab.report import formatting
from numalab.report.cell_tables import is_vm_counter
from numalab.report.comparisons import MeasureComparison
from numalab.report.document import CellReport, StudyResults
from numalab.report.formats.format import register_format
from numalab.report.unfinished import MOST_CAUSES, causes_of, finished_of_cell, finished_text

_MARKUP = re.compile(r"([\\`*_\[\]<>|&~#!$@])")


@register_format("markdown")
def render_markdown(study: StudyResults) -> str:
    """Render a study as Markdown (CommonMark with tables). Every text is escaped, whoever wrote it.

    Runs without a result come first. Of several cells, each has a section. The counters of
    /proc/vmstat fold away below the rest.
    """
    reports = study.reports
    blocks = [[f"# {escaped(study.study)}: {escaped(study.question)}"], *_unfinished(study)]
    if len(reports) > 1:
        blocks.append(
            [f"- {escaped(report.cell)}: **{escaped(report.verdict)}**" for report in reports]
        )
    for report in reports:
        if len(reports) > 1:
            blocks.append([f"## {escaped(report.cell)}"])
        blocks += _cell(report)
    notes = dict.fromkeys(note for report in reports for note in formatting.notes(report))
    blocks.append([f"- {escaped(note)}" for note in notes])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


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


def _cell(report: CellReport) -> list[list[str]]:
    counters = [c for c in report.comparisons if is_vm_counter(report.measure(c.measure))]
    kept = [row for row in report.comparisons if row not in counters]
    return [
        [f"**{escaped(report.verdict)}**"],
        _facts(report),
        _claims(report),
        _table(_heads(report), [_cells(report, row) for row in kept]),
        _folded(report, counters),
    ]


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
        kernel = " + ".join([variant.release, *variant.series])
        rows.append((variant.name, kernel))
    rows += [("workload", report.workload.command), ("runs", runs)]
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
    return _table(("claim", "published", "expected", "measured", "verdict"), rows) if rows else []


def _heads(report: CellReport) -> list[str]:
    means = [f"{escaped(variant.name)} (mean ± stddev):" for variant in report.variants]
    several = len(report.variants) > 2
    changes = [
        f"{escaped(variant.name)} {what}:" if several else f"{what}:"
        for variant in report.variants[1:]
        for what in ("change", "95 %")
    ]
    return ["measure", *means, *changes, "n:", "outcome", "kind"]


def _cells(report: CellReport, row: MeasureComparison) -> list[str]:
    info = report.measure(row.measure)
    places = formatting.row_decimals(row.summaries)
    cells = [escaped(formatting.label(info))]
    for summary in row.summaries:
        cells.append(" ± ".join(filter(None, formatting.mean_and_stddev(summary, places))))
    for index in range(1, len(report.variants)):
        versus = row.versus[index] if row.versus else None
        cells += [formatting.change(row, index), formatting.interval(versus)]
    return [*cells, formatting.samples(row), row.outcome, info.kind]


def _folded(report: CellReport, counters: Sequence[MeasureComparison]) -> list[str]:
    if not counters:
        return []
    table = _table(_heads(report), [_cells(report, row) for row in counters])
    title = f"<summary>{len(counters)} counters of /proc/vmstat</summary>"
    return ["<details>", title, "", *table, "", "</details>"]
