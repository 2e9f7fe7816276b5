"""Writes the files of a report beside its runs."""

import os
from collections.abc import Collection, Sequence
from os.path import relpath
from pathlib import Path
from urllib.parse import quote

from numalab.files import replacing, write_text
from numalab.reach.lcov import render_lcov
from numalab.report.document import CellReport, StudyResults
from numalab.report.formats.changelog import render_changelog
from numalab.report.formats.json import render_document
from numalab.report.page.cell_page import render_html
from numalab.report.page.overview import OverviewStudy, render_overview
from numalab.report.page.picture import render_picture_png
from numalab.report.page.reach import render_reach
from numalab.results.layout import Results, no_link


def publish(study: StudyResults, results: Results) -> None:
    """Write index.html, changelog.txt, report.json and picture.png, each complete or not at all.

    A study with several cells has a page and a picture for each of them below `cells/`, and
    index.html is an overview, which also has the cells without a report. So has the experiment of a
    patch, whose overview begins with the verdict and the annotated patch.
    """
    write_text(results.changelog, render_changelog(study))
    write_text(results.document, render_document(study))
    if study.reach is not None:
        write_text(results.reach_page, render_reach(study.reach))
        write_text(results.reach, study.reach.model_dump_json(indent=1) + "\n")
        write_text(results.reach_lcov, render_lcov(study.reach))
    if _is_one_page(study):
        _publish(study.reports[0], results)
        return
    write_text(results.html, render_overview([OverviewStudy(study, links(study, results))]))
    for report in study.reports:
        no_link(results.cells)
        cell = results.cell(report.cell_name)
        no_link(cell.path)
        _publish(report, cell)


def _is_one_page(study: StudyResults) -> bool:
    return study.cells == len(study.reports) == 1 and not study.verdict


def links(study: StudyResults, results: Results, beside: Path | None = None) -> tuple[str, ...]:
    """Return the addresses of the pages of a study's reports.

    They are relative to the result's folder, or to `beside`, the folder of a page elsewhere.
    """
    pages = [results.html if _is_one_page(study) else results.cell(report.cell_name).html
             for report in study.reports]  # fmt: skip
    start = beside or results.path
    return tuple(quote(os.fsencode(relpath(page.absolute(), start.absolute()))) for page in pages)


def publish_overview(
    studies: Sequence[tuple[StudyResults, Results]],
    path: Path,
    unpublished: Collection[Results] = (),
) -> None:
    """Write one page over several results to `path`; it has no links to those `unpublished`."""
    every = [
        OverviewStudy(
            study,
            ("",) * len(study.reports)
            if results in unpublished
            else links(study, results, path.parent),
        )
        for study, results in studies
    ]
    write_text(path, render_overview(every))


def _publish(report: CellReport, results: Results) -> None:
    write_text(results.html, render_html(report))
    with replacing(results.picture) as temporary:
        temporary.write_bytes(render_picture_png(report))
