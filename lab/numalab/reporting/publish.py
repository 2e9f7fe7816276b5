"""Writes a report's files beside the runs that it is of."""

from collections.abc import Sequence
from os.path import relpath
from pathlib import Path
from urllib.parse import quote

from numalab.files import replacing, write_text
from numalab.report.formats.changelog import render_changelog
from numalab.report.formats.document import render_document
from numalab.report.model import StudyReport
from numalab.report.page.html import render_html
from numalab.report.page.overview import OverviewEntry, render_overview
from numalab.report.page.picture import render_picture_png
from numalab.results.layout import Results, no_link


def publish(reports: Sequence[StudyReport], results: Results) -> None:
    """Write index.html, changelog.txt, report.json and picture.png, each whole or not at all.

    A study with several cells has a page and a picture for each of them below `cells/`, and
    index.html is an overview.
    """
    write_text(results.changelog, render_changelog(reports))
    write_text(results.document, render_document(reports))
    if len(reports) == 1:
        _publish(reports[0], results)
        return
    write_text(results.html, render_overview(entries(reports, results)))
    for report in reports:
        no_link(results.cells)
        cell = results.cell(report.cell_name)
        no_link(cell.path)
        _publish(report, cell)


def entries(
    reports: Sequence[StudyReport], results: Results, beside: Path | None = None
) -> list[OverviewEntry]:
    """Return the reports of a result with the addresses of their pages.

    They are relative to the result's folder, or to `beside`, the folder of a page elsewhere.
    """
    pages = [results.html if len(reports) == 1 else results.cell(each.cell_name).html
             for each in reports]  # fmt: skip
    start = beside or results.path
    links = [quote(Path(relpath(page.absolute(), start.absolute())).as_posix()) for page in pages]
    return [
        OverviewEntry(report, link, str(results.path))
        for report, link in zip(reports, links, strict=True)
    ]


def publish_overview(found: Sequence[tuple[Sequence[StudyReport], Results]], path: Path) -> None:
    """Write one page over several results, which must have been published, to `path`."""
    every = [
        entry for reports, results in found for entry in entries(reports, results, path.parent)
    ]
    write_text(path, render_overview(every))


def _publish(report: StudyReport, results: Results) -> None:
    write_text(results.html, render_html(report))
    with replacing(results.picture) as temporary:
        temporary.write_bytes(render_picture_png(report))
