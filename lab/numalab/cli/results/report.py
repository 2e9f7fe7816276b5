"""`numalab report`."""

from pathlib import Path
from typing import Annotated

import typer

from numalab.cli.output import emit
from numalab.errors import UserError
from numalab.report.build.publish import publish, publish_overview
from numalab.report.build.study import gather
from numalab.report.document import StudyResults
from numalab.report.formats.format import FORMATS
from numalab.report.formats.json import report_document
from numalab.report.formats.terminal import TableFormat
from numalab.results.layout import Results


def command(
    results: Annotated[
        list[Path], typer.Argument(help="Folders below reports/, as `run` printed them.")
    ],
    form: Annotated[
        str,
        typer.Option(
            "--format", help=f"What to print: {', '.join(FORMATS.built_in())}, or a plug-in's."
        ),
    ] = "table",
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

    Planned runs without a result come first, with the reason. Exits with 1 when no run of some
    results has finished.
    """
    wanted = FORMATS.find("json" if as_json else form)
    if len(results) > 1 and (as_json or form != "table"):
        raise UserError(f"--format {'json' if as_json else form} prints one result")
    every = []
    for path in results:
        stored = Results(path)
        study = gather(stored)
        publish(study, stored)
        every.append((study, stored))
    if overview is not None:
        publish_overview(every, overview)
    for study, stored in every:
        text = wanted.write(study, stored)
        if isinstance(text, str):
            print(text, end="")
        else:
            emit(None, as_json=False, text=text)
    if not all(study.reports for study, _ in every):
        raise typer.Exit(1)


def show(study: StudyResults, results: Results, *, as_json: bool) -> None:
    """Print a study's report: a table for each cell and the path of the page, or one document."""
    emit(report_document(study), as_json, TableFormat().write(study, results))
