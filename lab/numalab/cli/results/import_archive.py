"""`numalab import`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from numalab.cli.output import pass_on, progress_lines
from numalab.places import project_dir
from numalab.results.archive import import_results


def command(
    archive: Annotated[Path, typer.Argument(help="An archive that `export` wrote.")],
    output: Annotated[
        Path | None, typer.Option(help="The folder to make, instead of reports/imported/<name>.")
    ] = None,
) -> None:
    """Unpack results that somebody else packed, and print their folder.

    An archive is not trusted: names, sizes and numbers of files are checked, and nothing is left
    of one that is refused. Pages in it are left out; `numalab report` makes them from the runs.
    """
    name = archive.name.removesuffix(".zst").removesuffix(".tar") or "results"
    target = output or project_dir() / "reports" / "imported" / name
    with progress_lines("import") as tell:
        import_results(archive, target, lambda name: tell(name, None))
    pass_on(os.fsencode(target) + b"\n", sys.stdout)
