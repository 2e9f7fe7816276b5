"""One page over many cells or results: questions, claims and figures, and where to look deeper."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from numalab.report import figures
from numalab.report.cells import alike, headlines
from numalab.report.formats.changelog import render_changelog
from numalab.report.model import MeasureComparison, StudyReport, VariantInfo
from numalab.report.page.measured import measure_row
from numalab.report.page.page import data_uri, own, render_template

Json = dict[str, Any]


@dataclass(frozen=True)
class OverviewEntry:
    """The report of a cell, and the address of its page as seen from the overview.

    `result` tells apart several results, also those of one study.
    """

    report: StudyReport
    link: str
    result: str = ""


def render_overview(entries: Sequence[OverviewEntry]) -> str:
    """Render one self-contained page over the cells of one or more studies.

    It holds each study's question and claims, each cell's verdict and key measures, and links to
    the cells' own pages.
    """
    studies: dict[tuple[str, str], list[OverviewEntry]] = {}
    for entry in entries:
        studies.setdefault((entry.report.study, entry.result), []).append(entry)
    claims = [claim for entry in entries for claim in entry.report.claims]
    verdicts = [figures.verdict_and_reason(claim)[0] for claim in claims]
    values = {
        "title": entries[0].report.study if len(studies) == 1 else f"{len(studies)} studies",
        "studies": [_study(place, found) for place, found in enumerate(studies.values())],
        "cell_count": len(entries),
        "run_count": sum(len(entry.report.runs) for entry in entries),
        "verdicts": [(words, verdicts.count(words)) for words in dict.fromkeys(verdicts)],
    }
    return render_template("overview.html", (own("table.js"),), values)


def _told(report: StudyReport) -> list[MeasureComparison]:
    """Return the comparisons that the overview shows of a cell: its key measures, or headlines."""
    keys = [each for each in report.comparisons if each.measure in report.key_measures]
    return keys or headlines(report)


def _table(reports: Sequence[StudyReport]) -> Json:
    """Return one table of measures, of cells that compare the same variants."""
    rows = [
        (report.cell, measure_row(report, each)) for report in reports for each in _told(report)
    ]
    return {
        "variants": reports[0].variants,
        "last": len(reports[0].variants) - 1,
        "rows": [row for _, row in rows],
        "cells": [cell for cell, _ in rows],
    }


def _variants(reports: Sequence[StudyReport]) -> list[tuple[int, VariantInfo]]:
    """Return the variants of all cells, each with its number where it is first compared."""
    found: dict[str, tuple[int, VariantInfo]] = {}
    for report in reports:
        for number, variant in enumerate(report.variants):
            found.setdefault(variant.name, (number, variant))
    return list(found.values())


def _study(place: int, entries: Sequence[OverviewEntry]) -> Json:
    reports = [entry.report for entry in entries]
    first = reports[0]
    drawings = {report.topology.name: report for report in reports}
    return {
        "place": place,
        "first": first,
        "entries": entries,
        "claims": [(report.cell, claim) for report in reports for claim in report.claims],
        "variants": _variants(reports),
        "tables": [_table(group) for group in alike(reports)],
        "drawings": [
            (data_uri(report.topology_svg), figures.machine_line(report))
            for report in drawings.values()
        ],
        "commands": dict.fromkeys(line for report in reports for line in report.commands),
        "changelog": Markup.escape(render_changelog(reports)),
        "failed": sum(figures.runs_that_failed(report) for report in reports),
    }
