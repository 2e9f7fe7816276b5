"""`numalab init`: a lab folder of one's own."""

from pathlib import Path
from typing import Annotated

import typer

from numalab.cli.output import say
from numalab.errors import UserError, shown
from numalab.files import write_text

TEMPLATE = Path(__file__).parent / "lab_folder"


def command(
    folder: Annotated[Path, typer.Argument(help="The folder; made if it is not there.")] = Path(),
) -> None:
    """Make a lab folder: Makefile, study, kernel with a patch series, CI job, plug-in.

    Nothing that is there is written over.
    """
    files = {
        path.relative_to(TEMPLATE): path.read_text(encoding="utf-8")
        for path in sorted(TEMPLATE.rglob("*"))
        if path.is_file()
    }
    there = [str(name) for name in files if (folder / name).exists()]
    if there:
        raise UserError(f"there is already {', '.join(there)}", file=folder)
    for name, text in files.items():
        write_text(folder / name, text)
        say(f"made {shown(folder / name)}")
    say("put your patches into kernel-configs/series/mine, then: numalab run mine")
