"""`numalab init`: create a lab folder."""

import os
from pathlib import Path
from typing import Annotated

import typer

from numalab.cli.output import say
from numalab.errors import UserError, shown
from numalab.files import write_text

TEMPLATE = Path(__file__).parent / "lab_folder"


def command(
    folder: Annotated[Path, typer.Argument(help="Folder to create.")] = Path(),
) -> None:
    """Create a lab folder: Makefile, study, kernel, patch series, CI job, plug-in.

    Refuses a folder that has one of these files.
    """
    files = {
        path.relative_to(TEMPLATE): path.read_text(encoding="utf-8")
        for path in sorted(TEMPLATE.rglob("*"))
        if path.is_file()
    }
    parents = {parent for name in files for parent in name.parents}
    existing = [str(name) for name in files if os.path.lexists(folder / name)]
    existing += [
        str(name)
        for name in sorted(parents)
        if os.path.lexists(folder / name) and not (folder / name).is_dir()
    ]
    if existing:
        raise UserError(f"already exists: {', '.join(existing)}; name a new folder", file=folder)
    made: list[Path] = []
    try:
        for name, text in files.items():
            made.append(folder / name)
            write_text(folder / name, text)
    except BaseException:  # the disk is full, or Ctrl-C
        for path in made:
            path.unlink(missing_ok=True)
        raise
    for path in made:
        say(f"made {shown(path)}")
    say("put your patches into kernel-configs/series/mine, then: numalab run mine")
