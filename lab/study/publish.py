"""Writes a report's files beside the runs that it is of."""

from collections.abc import Sequence

from lab.report.changelog import render_changelog
from lab.report.document import render_document
from lab.report.html import render_html
from lab.report.model import StudyReport
from lab.report.picture import render_picture_png
from lab.store import Results, replacing, write_text


def publish(reports: Sequence[StudyReport], results: Results) -> None:
    """Write index.html, changelog.txt, report.json and picture.png, each whole or not at all.

    A study with several cells has a page and a picture for each of them below `cells/`.
    """
    write_text(results.changelog, render_changelog(reports))
    write_text(results.document, render_document(reports))
    if len(reports) == 1:
        _publish(reports[0], results)
        return
    for report in reports:
        _publish(report, results.cell(report.cell_name))


def _publish(report: StudyReport, results: Results) -> None:
    write_text(results.html, render_html(report))
    with replacing(results.picture) as temporary:
        temporary.write_bytes(render_picture_png(report))
