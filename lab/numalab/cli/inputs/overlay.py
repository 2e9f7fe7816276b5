"""The option `--overlay` of the commands that boot or build an image."""

from pathlib import Path
from typing import Annotated

import typer

from numalab.image.recipe import Recipe, load_recipe, with_overlay

OverlayOption = Annotated[
    Path | None,
    typer.Option("--overlay", help="Copy the files of this folder over the image."),
]


def overlaid(name: str, overlay: Path | None) -> Recipe:
    """Load a recipe, with the files of `overlay` on top. Raises UserError."""
    recipe = load_recipe(name)
    return with_overlay(recipe, overlay) if overlay else recipe
