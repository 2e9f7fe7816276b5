"""Recipes of root file systems: `images/<name>.toml`."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from lab.document import Document, read_document
from lab.errors import UserError
from lab.store import project_dir

_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")  # Debian policy 5.6.1
_PATTERN = re.compile(r"/[A-Za-z0-9_.+*?/-]+")


class RecipeTable(Document):
    """A recipe as it is written in its file."""

    summary: str
    suite: Literal["bookworm", "trixie"]
    variant: Literal["essential", "apt", "minbase"] = "essential"
    packages: tuple[str, ...] = Field(min_length=1)
    exclude: tuple[str, ...] = ()
    limit_mib: int = Field(default=200, ge=16, le=4096)

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


@dataclass(frozen=True)
class Recipe:
    """A root file system to build: Debian suite and variant, packages, paths to leave out.

    `variant` is mmdebstrap's: which packages there are beside the ones that are named.
    `limit_mib` bounds the finished image.
    """

    name: str
    file: Path
    summary: str
    suite: str
    variant: str
    packages: tuple[str, ...]
    exclude: tuple[str, ...]
    limit_mib: int


def images_dir() -> Path:
    """Return the folder of the recipes, the guest's scripts and our own programs."""
    return project_dir() / "images"


def list_recipes() -> tuple[str, ...]:
    """Return the names of the recipes, in order."""
    return tuple(sorted(path.stem for path in images_dir().glob("*.toml")))


def load_recipe(name: str) -> Recipe:
    """Load `images/<name>.toml`.

    Raises UserError for a name that no recipe has (with those there are), and for a file that
    cannot be read, has an unknown key, or a value that cannot be.
    """
    if name not in (names := list_recipes()):
        raise UserError(f"no image {name!r}", file=images_dir(), choices=names)
    file = images_dir() / f"{name}.toml"
    table = read_document(file, RecipeTable)
    return Recipe(
        name=name,
        file=file,
        summary=table.summary,
        suite=table.suite,
        variant=table.variant,
        packages=tuple(sorted(table.packages)),
        exclude=table.exclude,
        limit_mib=table.limit_mib,
    )
