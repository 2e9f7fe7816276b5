"""`numalab export`."""

from pathlib import Path
from typing import Annotated

import typer

from numalab.cli import options
from numalab.cli.output import progress_lines, say
from numalab.errors import shown
from numalab.files import write_text
from numalab.report.build.study import gather
from numalab.report.formats.changelog import render_changelog
from numalab.results.archive import export_compact, export_results
from numalab.results.layout import Results
from numalab.units import format_size, runs_of

MOST_LEFT_OUT = 10  # names that are printed


def command(
    results: options.Results,
    target: Annotated[
        Path,
        typer.Argument(help="Archive to write, such as out.tar.zst; with --compact, a folder."),
    ],
    compact: Annotated[
        bool,
        typer.Option(
            "--compact", help="Write a folder with a table of measures and the changelog."
        ),
    ] = False,
) -> None:
    """Pack results into one file; of failed runs, only the manifest and counts of
    changed lines.

    With `--compact`, the target is a folder with compact.parquet (all measures and manifests) and
    changelog.txt. `report`, `compare`, `query` and `verify` read it like whole results. It has no
    events, timelines and logs; `numalab verify --output` recreates them.
    """
    if compact:
        written = Results(target)
        runs = export_compact(Results(results), written, _write_changelog)
        size = format_size(written.compact.stat().st_size)
        say(f"{shown(written.compact)}: {runs_of(runs)}, {size}")
        return
    left_out: list[str] = []
    with progress_lines("export") as on_file:
        count = export_results(
            Results(results), target, lambda name: on_file(name, None), left_out.append
        )
    for name in left_out[:MOST_LEFT_OUT]:
        say(f"left out: {shown(name)}: a link, or a path that no archive may hold")
    if (more := len(left_out) - MOST_LEFT_OUT) > 0:
        say(f"left out: {more} more files")
    say(f"{shown(target)}: {count} files, {format_size(target.stat().st_size)}")


def _write_changelog(results: Results) -> None:
    write_text(results.changelog, render_changelog(gather(results)))
