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
    archive: Annotated[Path, typer.Argument(help="Archive of `numalab export`.")],
    output: Annotated[
        Path | None, typer.Option(help="Folder to create (default: reports/imported/NAME).")
    ] = None,
) -> None:
    """Unpack an archive of results, and print their folder.

    Archives are not trusted: names, sizes and numbers of files are checked, and a bad archive
    leaves no file. HTML pages are not unpacked; `numalab report` makes them from the runs.
    """
    name = archive.name.removesuffix(".zst").removesuffix(".tar") or "results"
    target = output or project_dir() / "reports" / "imported" / name
    with progress_lines("import") as tell:
        import_results(archive, target, lambda name: tell(name, None))
    pass_on(os.fsencode(target) + b"\n", sys.stdout)
