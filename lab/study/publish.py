"""Writes a report's files beside the runs that it is of."""

from collections.abc import Sequence
from os.path import relpath
from pathlib import Path
from urllib.parse import quote

from lab.errors import UserError
from lab.report.changelog import render_changelog
from lab.report.document import render_document
from lab.report.html import render_html
from lab.report.model import StudyReport
from lab.report.overview import Entry, render_overview
from lab.report.perfetto import render_perfetto
from lab.report.picture import render_picture_png
from lab.store import Results, replacing, write_text


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
        _publish(report, results.cell(report.cell_name))


def entries(
    reports: Sequence[StudyReport], results: Results, beside: Path | None = None
) -> list[Entry]:
    """Return the reports of a result with the addresses of their pages.

    They are relative to the result's folder, or to `beside`, the folder of a page elsewhere.
    """
    pages = [results.html if len(reports) == 1 else results.cell(each.cell_name).html
             for each in reports]  # fmt: skip
    start = beside or results.path
    links = [quote(Path(relpath(page.absolute(), start.absolute())).as_posix()) for page in pages]
    return [
        Entry(report, link, str(results.path)) for report, link in zip(reports, links, strict=True)
    ]


def publish_perfetto(reports: Sequence[StudyReport], results: Results) -> list[Path]:
    """Write the runs that the pages draw, one of each variant, for the Perfetto UI.

    Returns the files, in the order of the cells and variants. Raises UserError where there are
    none, because no recording tells who ran.
    """
    written = []
    for report in reports:
        findings = {run.run: run.findings for run in report.findings}
        for timeline in report.timelines:
            path = results.run(timeline.run).perfetto
            with replacing(path) as temporary, temporary.open("wb") as file:
                parts = render_perfetto(report.topology, timeline, findings.get(timeline.run))
                file.writelines(parts)
            written.append(path)
    if not written:
        reason = "no run tells who ran: it needs sched:sched_switch in the study's [capture]"
        raise UserError(reason, file=results.path)
    return written


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
