"""`numalab report`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from lab.cli.output import emit
from lab.errors import UserError
from lab.report.changelog import render_changelog
from lab.report.document import render_document, report_document
from lab.report.junit import render_junit
from lab.report.markdown import render_markdown
from lab.report.mmtests import render_mmtests
from lab.report.model import StudyReport
from lab.report.rows import render_csv
from lab.report.terminal import render_terminal
from lab.report.threads import render_threads
from lab.store import Results
from lab.study.gather import gather
from lab.study.publish import publish, publish_overview, publish_perfetto

TABLE, HTML, PERFETTO = "table", "html", "perfetto"
TEXTS = {
    "changelog": render_changelog,
    "mmtests": render_mmtests,
    "threads": render_threads,
    "markdown": render_markdown,
    "junit": render_junit,
    "csv": render_csv,
    "json": render_document,
}
FORMS = [TABLE, *TEXTS, HTML, PERFETTO]


def command(
    results: Annotated[
        list[Path], typer.Argument(help="Folders below reports/, as `run` printed them.")
    ],
    form: Annotated[
        str,
        typer.Option("--format", help=f"What to print: {', '.join(FORMS)}."),
    ] = TABLE,
    overview: Annotated[
        Path | None,
        typer.Option(help="Write one HTML page over all these results to this file."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
) -> None:
    """Make the report of results that exist anew, and print it.

    index.html, changelog.txt and report.json in the results are written again from the runs'
    measures and events; no guest is started. `--format perfetto` writes a trace of one run of each
    variant beside its measures, and prints where.
    """
    if form not in FORMS:
        raise UserError(f"there is no format {form!r}", choices=FORMS)
    if len(results) > 1 and (as_json or form != TABLE):
        raise UserError(f"--format {'json' if as_json else form} prints one result")
    every = []
    for path in results:
        found = Results(path)
        reports = gather(found)
        publish(reports, found)
        every.append((reports, found))
    if overview is not None:
        publish_overview(every, overview)
    for reports, found in every:
        if form == TABLE or as_json:
            show(reports, found, as_json=as_json)
        elif form == HTML:
            print(found.html.read_text(encoding="utf-8"), end="")
        elif form == PERFETTO:
            for path in publish_perfetto(reports, found):
                print(path)
        else:
            print(TEXTS[form](reports), end="")


def show(reports: Sequence[StudyReport], results: Results, *, as_json: bool) -> None:
    """Print a study's report: a table for each cell and the path of the page, or one document."""
    page = Text.assemble("page: ", str(results.html.absolute()))
    emit(
        report_document(reports),
        as_json,
        Group(*(render_terminal(each, notes=each is reports[-1]) for each in reports), page),
    )
