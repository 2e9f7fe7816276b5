"""`numalab report`."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Group
from rich.text import Text

from lab.cli.output import emit
from lab.report.changelog import render_changelog
from lab.report.document import render_document, report_document
from lab.report.html import render_html
from lab.report.model import StudyReport
from lab.report.terminal import render_terminal
from lab.store import Results
from lab.study.gather import gather
from lab.study.publish import publish

TEXTS = {"changelog": render_changelog, "json": render_document, "html": render_html}


def command(
    results: Annotated[Path, typer.Argument(help="A folder below reports/, as `run` printed it.")],
    form: Annotated[
        Literal["table", "changelog", "json", "html"],
        typer.Option("--format", help="What to print: table, changelog, json or html."),
    ] = "table",
    as_json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
) -> None:
    """Make the report of results that exist anew, and print it.

    index.html, changelog.txt and report.json in the results are written again from the runs'
    measures and events; no guest is started.
    """
    found = Results(results)
    report = gather(found)
    publish(report, found)
    if form == "table" or as_json:
        show(report, found, as_json=as_json)
    else:
        print(TEXTS[form](report), end="")


def show(report: StudyReport, results: Results, *, as_json: bool) -> None:
    """Print a report: its table and the path of its page, or one JSON document."""
    page = Text.assemble("page: ", str(results.html.absolute()))
    emit(report_document(report), as_json, Group(render_terminal(report), page))
