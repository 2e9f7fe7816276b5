"""Recipes of root file systems: `images/<name>.toml`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from numalab.document import Document, check_document, read_document
from numalab.errors import UserError
from numalab.files import read_json
from numalab.places import find_input, list_inputs, own_input, shipped_dir

DEFAULT_LIMIT_MIB = 200
_LIMIT_WITH_PACKAGES_MIB = 1024
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")  # Debian policy 5.6.1
_PATTERN = re.compile(r"/[A-Za-z0-9_.+*?/-]+")


class RecipeTable(Document):
    """A recipe of a root file system."""

    summary: str
    """One line for lists."""
    extends: str | None = None
    """The recipe that this one adds to; every key but `summary` is inherited."""
    suite: Literal["bookworm", "trixie"] | None = None
    """The Debian release."""
    variant: Literal["essential", "apt", "minbase"] | None = None
    """The base set of packages, as mmdebstrap names it; by default `essential`."""
    packages: tuple[str, ...] = Field(min_length=1)
    """Debian packages; recommended packages are not installed."""
    exclude: tuple[str, ...] = ()
    """Paths to leave out, with `*` and `?`."""
    post: tuple[str, ...] = ()
    """Shell commands that run as root in the tree after all packages are installed."""
    files: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9._/-]*$")
    """A folder beside the recipe that is copied over the tree."""
    limit_mib: int | None = Field(default=None, ge=16, le=4096)
    """Largest image in MiB; by default 200."""

    @field_validator("packages")
    @classmethod
    def _package_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _PACKAGE.fullmatch(name):
                raise ValueError(f"{name!r} is not a Debian package name")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{twice[0]!r} is named twice")
        return names

    @field_validator("exclude")
    @classmethod
    def _path_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if not _PATTERN.fullmatch(pattern):
                raise ValueError(f"{pattern!r} is not an absolute path or a pattern of one")
        return patterns


class PackedImage(Document):
    """The record of a built image: its recipe's name, and the packages as `name=version`.

    `digest` is that of all inputs; images of an older numalab have none.
    """

    recipe: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)
    packages: tuple[str, ...]
    digest: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")


@dataclass(frozen=True)
class Recipe:
    """A root file system to build: Debian suite and variant, packages, paths to leave out.

    `variant` is mmdebstrap's set of base packages. `post` are shell commands that run in the tree
    after all packages are installed. `files` are folders that are copied over the tree, in order.
    `limit_mib` bounds the finished image. `extends` is the name of the recipe that this one
    extends, or empty. `built` is the folder of an image that was built on another host; `packages`
    are then all its packages. `added` are those that no recipe names.
    """

    name: str
    file: Path
    summary: str = ""
    suite: str = ""
    variant: str = "essential"
    packages: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    limit_mib: int = DEFAULT_LIMIT_MIB
    extends: str = ""
    post: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    built: Path | None = None
    added: tuple[str, ...] = ()


def images_dir() -> Path:
    """Return the folder of the guest's scripts and programs in every image."""
    guest = find_input("images", "guest")
    return guest.parent if guest else shipped_dir() / "images"


def list_recipes() -> tuple[str, ...]:
    """Return the names of the recipes, in order."""
    return tuple(path.stem for path in list_inputs("images", "*.toml").values())


def load_recipe(name: str) -> Recipe:
    """Load `images/<name>.toml`, with the recipe that it extends.

    A name with a slash is the folder of a built image, of this or another host (`numalab image
    show` prints it). Raises UserError for an unknown name, key or value.
    """
    if "/" in name:
        return _built_image(Path(name))
    if name not in (names := list_recipes()):
        find_input("images", f"{name}.toml")  # raises UserError for a file that is not used
        raise UserError(f"no image {name!r}", choices=names)
    return _load(name, ())


def _built_image(folder: Path) -> Recipe:
    file = folder / "image.json"
    if not file.is_file():
        raise UserError("no image in this folder: it has no image.json", file=folder)
    record = check_document(read_json(file), PackedImage, file)
    names = tuple(package.partition("=")[0] for package in record.packages)
    return Recipe(
        name=record.recipe,
        file=folder,
        summary="an image that was built elsewhere",
        packages=names,
        built=folder.absolute(),
    )


def declared_in(recipe: Recipe, package: str) -> Path | None:
    """Return the file that names a package: the recipe's or that of a recipe it extends.

    None for one that was added to the recipe (`with_packages`).
    """
    if recipe.extends:
        base = load_recipe(recipe.extends)
        if package in base.packages:
            return declared_in(base, package)
    return None if package in recipe.added else recipe.file


def with_overlay(recipe: Recipe, folder: Path) -> Recipe:
    """Return the recipe with one more folder on top. Raises UserError for an empty folder."""
    return replace(recipe, files=(*recipe.files, _folder(folder, folder, None)))


def with_packages(recipe: Recipe, names: Sequence[str]) -> Recipe:
    """Return the recipe with further Debian packages. Raises UserError for an invalid name."""
    if recipe.built is not None and names:
        raise UserError("was built elsewhere, and gets no packages", file=recipe.file)
    for name in names:
        if not _PACKAGE.fullmatch(name):
            raise UserError(f"{name!r} is not a Debian package name", key="--package")
    if not names:
        return recipe
    packages = tuple(sorted({*recipe.packages, *names}))
    added = tuple(sorted({*names} - {*recipe.packages}))
    limit = max(recipe.limit_mib, _LIMIT_WITH_PACKAGES_MIB)
    return replace(recipe, packages=packages, added=added, limit_mib=limit)


def chosen_recipe(name: str, packages: Sequence[str] = (), overlay: Path | None = None) -> Recipe:
    """Load a recipe, with further packages, and the files of `overlay` on top. Raises UserError."""
    recipe = with_packages(load_recipe(name), packages)
    return with_overlay(recipe, overlay) if overlay else recipe


def _load(name: str, extending: tuple[str, ...]) -> Recipe:
    file = list_inputs("images", "*.toml")[f"{name}.toml"]
    table = read_document(file, RecipeTable)
    base = _extended(table, file, (*extending, name))
    if base is None:
        if table.suite is None:
            raise UserError("this key is missing", file=file, key="suite")
        base = Recipe(name, file, suite=table.suite)
    elif twice := sorted({*base.packages} & {*table.packages}):
        reason = f"{base.name}, which this extends, has {twice[0]} already"
        raise UserError(reason, file=file, key="packages")
    own: tuple[Path, ...] = ()
    if table.files is not None:
        own = (own_input(_folder(file.parent / table.files, file, "files")),)
    return Recipe(
        name=name,
        file=file,
        summary=table.summary,
        suite=base.suite,
        variant=table.variant or base.variant,
        packages=tuple(sorted((*base.packages, *table.packages))),
        exclude=(*base.exclude, *table.exclude),
        limit_mib=table.limit_mib or base.limit_mib,
        extends=table.extends or "",
        post=(*base.post, *table.post),
        files=(*base.files, *own),
    )


def _extended(table: RecipeTable, file: Path, chain: tuple[str, ...]) -> Recipe | None:
    """Return the recipe that this one extends; UserError for an unknown name, or a circle."""
    if table.extends is None:
        return None
    if table.extends in chain:
        circle = " -> ".join((*chain, table.extends))
        raise UserError(f"extends itself: {circle}", file=file, key="extends")
    if table.extends not in (names := list_recipes()):
        raise UserError(f"no image {table.extends!r}", file=file, key="extends", choices=names)
    base = _load(table.extends, chain)
    if table.suite is not None and table.suite != base.suite:
        reason = f"{base.name}, which this extends, is made from {base.suite}"
        raise UserError(reason, file=file, key="suite")
    return base


def _folder(folder: Path, file: Path, key: str | None) -> Path:
    if not folder.is_dir():
        raise UserError(f"no such folder: {folder}", file=file if key else None, key=key)
    if not any(folder.iterdir()):
        raise UserError(f"an empty folder: {folder}", file=file if key else None, key=key)
    return folder.resolve()
