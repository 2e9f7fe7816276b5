"""Releases of Linux that the user has: `mainline:4.12`, found below the paths of $NUMALAB_LINUX."""

import os
import re
from pathlib import Path

from numalab.errors import UserError
from numalab.files import home_expanded
from numalab.source import git
from numalab.source.debian_packages import NotFetched

PREFIX = "mainline:"
VARIABLE = "NUMALAB_LINUX"
_RELEASE = re.compile(r"\d{1,2}\.\d{1,3}(?:\.\d{1,3})?(?:-rc\d{1,2})?")


class NoOwnTree(NotFetched):
    """A release that the user has to provide, and that numalab does not fetch."""


def is_own_tree(text: str) -> bool:
    """Tell whether a source is a release that the user provides."""
    return text.startswith(PREFIX)


def own_release(text: str) -> str:
    """Return the release of `mainline:RELEASE`. Raises UserError for another text."""
    release = text.removeprefix(PREFIX)
    if _RELEASE.fullmatch(release) is None:
        raise UserError(f"{text!r} names no release", choices=["mainline:4.12", "mainline:6.12.1"])
    return release


def find_own_tree(text: str, endings: tuple[str, ...]) -> str:
    """Return the source of `mainline:RELEASE`: a folder, a tarball or a revision.

    Each path of $NUMALAB_LINUX (separated by colons) is a folder with `linux-RELEASE` or
    `linux-RELEASE.tar.xz` (any of `endings`), or a git repository with the tag `vRELEASE`. Raises
    NoOwnTree, which lists them, and UserError for an unknown home folder.
    """
    release = own_release(text)
    paths = [home_expanded(part) for part in os.environ.get(VARIABLE, "").split(":") if part]
    for path in paths:
        for ending in ("", *endings):
            candidate = path / f"linux-{release}{ending}"
            if candidate.exists():
                return str(candidate.absolute())
        if path.is_dir() and _has_tag(path, f"v{release}"):
            return f"{git.PREFIX}{path.absolute()}@v{release}"
    looked = f"; {VARIABLE} is {os.environ[VARIABLE]}" if paths else ""
    raise NoOwnTree(
        f"Linux {release} is not on this host{looked}",
        hint=f"set {VARIABLE} to a git repository with the tag v{release}, or to a folder with"
        f" linux-{release} or linux-{release}.tar.xz",
    )


def check_release(text: str, version: str) -> None:
    """Raise UserError where a source's Makefile has another version than `mainline:RELEASE`."""
    release = own_release(text)
    if version not in (release, f"{release}.0", release.replace("-rc", ".0-rc")):
        raise UserError(f"the tree that {VARIABLE} names is Linux {version}", key=text)


def _has_tag(path: Path, tag: str) -> bool:
    words = ["rev-parse", "--quiet", "--verify", f"refs/tags/{tag}"]
    return git.git(words, cwd=path, check=False).returncode == 0
