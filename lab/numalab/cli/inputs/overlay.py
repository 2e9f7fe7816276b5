"""The options of the commands that boot or build an image: what is added to it."""

from pathlib import Path
from typing import Annotated

import typer

from numalab.errors import UserError
from numalab.image.recipe import Recipe, chosen_recipe

OverlayOption = Annotated[
    Path | None,
    typer.Option("--overlay", help="Copy the files of this folder over the image."),
]
PackageOption = Annotated[
    list[str] | None,
    typer.Option("--package", help="Add a Debian package to the image; repeatable."),
]


def overlaid(name: str, overlay: Path | None, packages: list[str] | None = None) -> Recipe:
    """Load a recipe, with further packages, and the files of `overlay` on top. Raises UserError."""
    if overlay is not None and not overlay.is_dir():
        raise UserError("no such folder", file=overlay, key="--overlay")
    return chosen_recipe(name, packages or (), overlay)
