"""`numalab export`."""

from pathlib import Path
from typing import Annotated

import typer

from numalab.cli import options
from numalab.cli.output import progress_lines, say
from numalab.errors import shown
from numalab.results.archive import export_results
from numalab.results.layout import Results
from numalab.units import format_size


def command(
    results: options.Results,
    target: Annotated[Path, typer.Argument(help="The archive to write, such as out.tar.zst.")],
) -> None:
    """Pack results into one file for somebody else; runs that are no result are left out."""
    with progress_lines("export") as tell:
        count = export_results(Results(results), target, lambda name: tell(name, None))
    say(f"{shown(target)}: {count} files, {format_size(target.stat().st_size)}")
