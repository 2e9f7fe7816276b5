"""`numalab image`: list, show, build and enter root file systems."""

from shlex import quote
from typing import Annotated

import typer
from rich.table import Table

from numalab.cli import completion, options
from numalab.cli.inputs.overlay import OverlayOption, overlaid
from numalab.cli.output import emit, picked, progress_lines
from numalab.errors import UserError
from numalab.image.image_artifact import BuiltImage, built_image, ensure_image
from numalab.image.recipe import Recipe, list_recipes, load_recipe
from numalab.places import load_usable
from numalab.units import format_size

app = typer.Typer(no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(help="Name from `numalab image list`.", autocompletion=completion.images)
]


@app.command("list")
def list_images(as_json: options.Json = False) -> None:
    """List image recipes and the sizes of built images."""
    recipes = load_usable(list_recipes(), load_recipe)
    rows = [(recipe, built_image(recipe)) for recipe in recipes]
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "extends", "packages", "built", "summary"):
        table.add_column(heading, overflow="fold")
    for recipe, built in rows:
        size = format_size(built.size) if built else "no"
        packages = str(len(recipe.packages))
        table.add_row(recipe.name, recipe.extends or "-", packages, size, recipe.summary)
    emit([_summary(recipe, built) for recipe, built in rows], as_json, table)


@app.command("show")
def show(name: Name, as_json: options.Json = False) -> None:
    """Show an image recipe and the package versions of its build."""
    recipe = load_recipe(name)
    built = built_image(recipe)
    emit(_summary(recipe, built), as_json, _described(recipe, built))


@app.command("build")
def build(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Names of image recipes.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Build all recipes.")] = False,
    overlay: OverlayOption = None,
    as_json: options.Json = False,
) -> None:
    """Build images unless they are in the cache, and print their paths."""
    if every == bool(names):
        raise UserError("needs either names or --all", key="NAME...", choices=list_recipes())
    recipes = [overlaid(name, overlay) for name in (names or list_recipes())]
    facts, lines = [], []
    for recipe in recipes:
        with progress_lines(f"image {recipe.name}") as progress:
            built = ensure_image(recipe, on_progress=progress)
        facts.append(_summary(recipe, built))
        lines.append(f"{built.path} ({format_size(built.size)})")
    emit(facts[0] if len(facts) == 1 else facts, as_json, "\n".join(lines))


@app.command("shell")
def shell(
    name: Name,
    overlay: OverlayOption = None,
    topology: Annotated[str, typer.Option(help="Topology to boot.")] = "mesh-2",
    kernel: options.Kernel = "debian-6.12",
) -> None:
    """Boot an image on a small topology and open a shell in it."""
    from numalab.cli.guest import shell as guest_shell  # noqa: PLC0415 - libvirt

    guest_shell.command(topology, kernel=kernel, image=name, overlay=overlay)


def _summary(recipe: Recipe, built: BuiltImage | None) -> dict[str, object]:
    return {
        **picked(recipe, "name", "summary", "suite", "extends"),
        "recipe": recipe.file,
        "packages": recipe.packages,
        "built": built is not None,
        **{name: getattr(built, name, None) for name in ("path", "digest", "size")},
        "installed": built.packages if built else (),
    }


def _described(recipe: Recipe, built: BuiltImage | None) -> str:
    lines = [
        f"{recipe.name}: {recipe.summary}",
        f"  recipe    {recipe.file}",
        f"  suite     {recipe.suite} ({recipe.variant})",
        f"  packages  {' '.join(recipe.packages)}",
    ]
    if recipe.extends:
        lines.insert(2, f"  extends   {recipe.extends}")
    lines += [f"  post      {step}" for step in recipe.post]
    lines += [f"  files     {folder}" for folder in recipe.files]
    if built is None:
        return "\n".join([*lines, f"  not built: numalab image build {quote(recipe.name)}"])
    lines += [
        f"  image     {built.path}",
        f"  size      {format_size(built.size)}",
        f"  digest    {built.digest}",
        f"  installed {len(built.packages)} packages:",
    ]
    return "\n".join([*lines, *(f"    {package}" for package in built.packages)])
