"""`numalab init`: create a lab folder."""

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

    Existing files are never overwritten.
    """
    files = {
        path.relative_to(TEMPLATE): path.read_text(encoding="utf-8")
        for path in sorted(TEMPLATE.rglob("*"))
        if path.is_file()
    }
    existing = [str(name) for name in files if (folder / name).exists()]
    if existing:
        raise UserError(f"already exists: {', '.join(existing)}", file=folder)
    for name, text in files.items():
        write_text(folder / name, text)
        say(f"made {shown(folder / name)}")
    say("put your patches into kernel-configs/series/mine, then: numalab run mine")
