"""`numalab image`: the root file systems that guests boot from."""

from typing import Annotated

import typer
from rich.table import Table

from lab.cli.output import emit, progress_lines
from lab.image.build import BuiltImage, built_image, ensure_image
from lab.image.recipe import Recipe, list_recipes, load_recipe
from lab.units import format_size

app = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A recipe in images/, without .toml.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command("list")
def list_images(as_json: AsJson = False) -> None:
    """List the recipes, and what is built of them."""
    recipes = [load_recipe(name) for name in list_recipes()]
    rows = [(recipe, built_image(recipe)) for recipe in recipes]
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "suite", "packages", "built", "summary"):
        table.add_column(heading, overflow="fold")
    for recipe, built in rows:
        size = format_size(built.size) if built else "no"
        table.add_row(recipe.name, recipe.suite, str(len(recipe.packages)), size, recipe.summary)
    emit([_facts(recipe, built) for recipe, built in rows], as_json, table)


@app.command("show")
def show(name: Name, as_json: AsJson = False) -> None:
    """Show a recipe, and the packages with their versions once it is built."""
    recipe = load_recipe(name)
    built = built_image(recipe)
    emit(_facts(recipe, built), as_json, _described(recipe, built))


@app.command("build")
def build(name: Name, as_json: AsJson = False) -> None:
    """Build an image, or find it in the cache, and print where it is."""
    recipe = load_recipe(name)
    with progress_lines(f"image {recipe.name}") as progress:
        built = ensure_image(recipe, on_progress=progress)
    emit(_facts(recipe, built), as_json, f"{built.path} ({format_size(built.size)})")


def _facts(recipe: Recipe, built: BuiltImage | None) -> dict[str, object]:
    return {
        "name": recipe.name,
        "summary": recipe.summary,
        "suite": recipe.suite,
        "recipe": recipe.file,
        "packages": recipe.packages,
        "built": built is not None,
        "path": built.path if built else None,
        "digest": built.digest if built else None,
        "size": built.size if built else None,
        "installed": built.packages if built else (),
    }


def _described(recipe: Recipe, built: BuiltImage | None) -> str:
    lines = [
        f"{recipe.name}: {recipe.summary}",
        f"  recipe    {recipe.file}",
        f"  suite     {recipe.suite} ({recipe.variant})",
        f"  packages  {' '.join(recipe.packages)}",
    ]
    if built is None:
        return "\n".join([*lines, f"  not built: numalab image build {recipe.name}"])
    lines += [
        f"  image     {built.path}",
        f"  size      {format_size(built.size)}",
        f"  digest    {built.digest}",
        f"  installed {len(built.packages)} packages:",
    ]
    return "\n".join([*lines, *(f"    {package}" for package in built.packages)])
