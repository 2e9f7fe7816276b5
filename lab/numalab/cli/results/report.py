"""`numalab report`."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from numalab.cli import options
from numalab.cli.output import emit, say
from numalab.errors import HostError, UserError
from numalab.report.build.publish import publish, publish_overview
from numalab.report.build.study import gather
from numalab.report.document import StudyResults
from numalab.report.formats.format import FORMATS
from numalab.report.formats.json import report_document
from numalab.report.formats.terminal import TableFormat
from numalab.results.layout import Results, each_once, require_no_result


def command(
    results: Annotated[
        list[Path], typer.Argument(help="Folders of results, as printed by `numalab run`.")
    ],
    form: Annotated[
        str,
        typer.Option(
            "--format", help=f"Output format: {', '.join(FORMATS.built_in())}, or a plug-in's."
        ),
    ] = "table",
    overview: Annotated[
        Path | None,
        typer.Option(help="Write an HTML overview of all results to this file."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
) -> None:
    """Write and print the report of stored results, without a boot.

    index.html, changelog.txt and report.json are made again from the measures and events of the
    runs. `--format perfetto` writes a trace of one run of each variant, and prints its path.

    Planned runs without a result come first, with the reason. Exits with 1 if a folder has no
    finished run.
    """
    wanted = FORMATS.find("json" if as_json else form)
    results = list(each_once(results))
    if len(results) > 1 and (as_json or form != "table"):
        raise UserError(f"--format {'json' if as_json else form} prints one result")
    options.file_to_write(overview, "--overview")
    if overview is not None:
        require_no_result(overview, "--overview")
    every, unpublished = [], set()
    for path in results:
        stored = Results(path)
        study = gather(stored)
        if not _publish(study, stored, required=form == "html" and not as_json):
            unpublished.add(stored)
        every.append((study, stored))
    if overview is not None:
        publish_overview(every, overview, unpublished)
    for study, stored in every:
        if isinstance(wanted, TableFormat):
            wanted = replace(wanted, published=stored not in unpublished)
        text = wanted.write(study, stored)
        if isinstance(text, str):
            print(text, end="")
        else:
            emit(None, as_json=False, text=text)
    if not all(study.reports for study, _ in every):
        raise typer.Exit(1)


def _publish(study: StudyResults, results: Results, *, required: bool) -> bool:
    """Write the files of a report; return whether they are those of this report.

    Where this user may not write to the results, only say so, unless the files are `required`.
    """
    try:
        publish(study, results)
    except HostError as error:
        if required or os.access(results.path, os.W_OK):
            raise
        say(f"warning: the files of the report are not made again: {error}")
        return False
    return True


def show(study: StudyResults, results: Results, *, as_json: bool) -> None:
    """Print a study's report: a table for each cell and the path of the page, or one document.

    Without the reason of the mode, which `numalab run` printed before the first boot.
    """
    emit(report_document(study), as_json, TableFormat(why_mode=False).write(study, results))
