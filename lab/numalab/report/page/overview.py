"""One page over many cells or results: questions, claims, figures, and links to the cells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from numalab.report import formatting
from numalab.report.cell_tables import alike, headlines
from numalab.report.document import CellReport, StudyResults, VariantInfo
from numalab.report.formats.changelog import render_changelog
from numalab.report.page.measures import measure_row
from numalab.report.page.page import data_uri, own, render_template, unfinished_facts
from numalab.report.page.reach import annotated_values
from numalab.report.unfinished import finished_of_cell
from numalab.topology.view.drawing import render_svg
from numalab.units import runs_of

Json = dict[str, Any]
MOST_ROWS = 6  # differences of a cell


@dataclass(frozen=True)
class OverviewStudy:
    """A study, and the address of each report's page as seen from the overview; "" for none."""

    results: StudyResults
    links: tuple[str, ...]


def render_overview(studies: Sequence[OverviewStudy]) -> str:
    """Render one self-contained page over the cells of one or more studies.

    It holds each study's question and claims, the runs without a result, each cell's verdict and
    key measures, and links to the cells' own pages.
    """
    every = [study.results for study in studies]
    claims = [claim for study in every for report in study.reports for claim in report.claims]
    verdicts = [formatting.verdict_words(claim, claim.verdict_in_mode) for claim in claims]
    modes = [report.mode for study in every for report in study.reports]
    values = {
        "title": every[0].study if len(every) == 1 else f"{len(every)} studies",
        "studies": [_study(place, study) for place, study in enumerate(studies)],
        "counts": _counts([study for study in every if not study.verdict]),
        "verdicts": [(words, verdicts.count(words)) for words in dict.fromkeys(verdicts)],
        "mode": next(iter(modes), None),
    }
    return render_template("overview.html", (own("table.js"),), values)


def _counts(studies: Sequence[StudyResults]) -> list[str]:
    """Return how many cells and runs finished; the verdict on a patch says its own."""
    if not studies:
        return []
    cells, planned = sum(study.cells for study in studies), sum(study.planned for study in studies)
    finished = planned - sum(len(study.unfinished) for study in studies)
    return [
        f"{sum(len(study.reports) for study in studies)} of {cells} cells",
        f"{finished} of {runs_of(planned)} finished",
    ]


def _table(reports: Sequence[CellReport], order: Mapping[str, int]) -> Json:
    """Return one table of measures, of cells that compare the same variants, by `order`.

    A cell has the first measures that differ and its other key measures, else the metrics of its
    workload.
    """
    rows, more = [], 0
    for report in sorted(reports, key=lambda report: order[report.cell]):
        by_measure = {row.measure: row for row in report.comparisons}
        shown = tuple(dict.fromkeys(item.measure for item in report.compared if item.shown))
        names = dict.fromkeys((*shown[:MOST_ROWS], *report.key_measures))
        chosen = [by_measure[name] for name in names if name in by_measure]
        chosen = chosen or headlines(report)[:MOST_ROWS]
        more += len(shown) - sum(name in names for name in shown)
        rows += [(report.cell, measure_row(report, row)) for row in chosen]
    return {
        "variants": reports[0].variants,
        "last": len(reports[0].variants) - 1,
        "rows": [row for _, row in rows],
        "cells": [cell for cell, _ in rows],
        "more": more,
    }


def _variants(reports: Sequence[CellReport]) -> list[tuple[int, VariantInfo]]:
    """Return the variants of all cells, each with its number where it is first compared."""
    variants: dict[str, tuple[int, VariantInfo]] = {}
    for report in reports:
        for number, variant in enumerate(report.variants):
            variants.setdefault(variant.name, (number, variant))
    return list(variants.values())


def _study(place: int, study: OverviewStudy) -> Json:
    results, reports = study.results, study.results.reports
    order = {cell.cell: place for place, cell in enumerate(results.differences)}
    drawings = {report.topology.name: report for report in reports}
    return {
        "place": place,
        "about": results,
        "first": reports[0] if reports else None,
        "entries": sorted(
            zip(reports, map(finished_of_cell, reports), study.links, strict=True),
            key=lambda entry: order[entry[0].cell],
        ),
        "differences": formatting.differences_title(results),
        "differs": any(cell.shown for cell in results.differences),
        "unfinished": unfinished_facts(results),
        "claims": [(report.cell, claim) for report in reports for claim in report.claims],
        "variants": _variants(reports),
        "tables": [_table(group, order) for group in alike(reports)],
        "reach": annotated_values(results.reach) if results.reach is not None else None,
        "drawings": [
            (data_uri(render_svg(report.topology)), formatting.machine_line(report))
            for report in drawings.values()
        ],
        "changelog": Markup.escape(render_changelog(results)),
    }
