"""Where the input folders, the results and the cache are."""

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from numalab.errors import HostError, UserError, shown
from numalab.files import make_dir
from numalab.ownership import require_own

# What a lab folder may hold; `images` has a meaning of its own (numalab.image.recipe).
KINDS = ("topologies", "kernel-configs", "workloads", "studies", "images")
PLUGINS, HUNTS, EMULATORS = "plugins", "hunts", "emulator-configs"
# The folders whose content numalab runs or builds. Nothing from a guest or an archive may have
# one of these names.
BELIEVED = frozenset({*KINDS, PLUGINS, HUNTS, EMULATORS})
_OTHER_CACHE = "set NUMALAB_CACHE to a folder of your own"
_RESULTS = "plan.json"  # the file that every folder of results has


def shipped_dir() -> Path:
    """Return what came with numalab: the checkout it runs from, or what its wheel brought."""
    checkout = Path(__file__).parents[2]
    return checkout if _is_lab(checkout) else Path(__file__).parent / "share"


def lab_folders() -> tuple[Path, ...]:
    """Return the folders in which inputs are looked for; an earlier one takes precedence.

    `$NUMALAB_HOME` alone where it is set; else those of `$NUMALAB_PATH` (separated by colons), the
    current folder unless it is of results, and what came with numalab. Raises UserError if a
    variable names a folder of results: these may be a stranger's, and are never a lab folder.
    """
    if home := os.environ.get("NUMALAB_HOME"):
        return (_no_results(Path(home), "NUMALAB_HOME"),)
    variable = "NUMALAB_PATH"
    named = [
        _no_results(Path(part), variable)
        for part in os.environ.get(variable, "").split(":")
        if part
    ]
    here = [Path.cwd()] if not _is_of_results(Path.cwd()) else []
    return tuple(dict.fromkeys([*named, *here, shipped_dir()]))


def project_dir() -> Path:
    """Return the folder below whose `reports/` results go, and where relative paths begin.

    `$NUMALAB_HOME` if set, else the current folder if it is a lab folder, else the checkout that
    numalab runs from, else the current folder.
    """
    if home := os.environ.get("NUMALAB_HOME"):
        return Path(home)
    here, shipped = Path.cwd(), shipped_dir()
    ours = _is_lab(here) and not _is_of_results(here)
    return here if ours or shipped.name == "share" else shipped


def find_inputs(kind: str, name: str) -> Iterator[Path]:
    """Give each `<lab folder>/<kind>/<name>` that exists, in the order of the lab folders.

    Raises UserError for one that another user can change.
    """
    for folder in lab_folders():
        path = folder / kind / name
        if os.path.exists(path):  # noqa: PTH110 - a name may be too long for Path.exists()
            yield _own(path, folder)


def find_input(kind: str, name: str) -> Path | None:
    """Return the first `<lab folder>/<kind>/<name>` that exists, as `find_inputs` gives them."""
    return next(find_inputs(kind, name), None)


def list_inputs(kind: str, pattern: str) -> dict[str, Path]:
    """Return what matches a pattern below `<lab folder>/<kind>`, by its path there, in order.

    Raises UserError for a match that another user can change.
    """
    matches: dict[str, Path] = {}
    for folder in reversed(lab_folders()):
        base = folder / kind
        matches |= {str(path.relative_to(base)): _own(path, folder) for path in base.glob(pattern)}
    return dict(sorted(matches.items()))


def _own(path: Path, folder: Path) -> Path:
    """Check who can change an input; who can change what came with numalab can change its code."""
    if folder != shipped_dir() or path.parent.name == PLUGINS:
        require_own(path, folder)
    return path


def _no_results(path: Path, variable: str) -> Path:
    if _is_of_results(path.absolute()):
        raise UserError(f"{variable} names a folder of results, not a lab folder", file=path)
    return path


def cache_dir(*parts: str) -> Path:
    """Return a folder below `$NUMALAB_CACHE` or ~/.cache/numalab, created for this user only.

    Raises HostError for a cache that somebody else may write to: programs in it are run.
    """
    base = _cache()
    make_dir(base)
    try:
        status = base.stat()
    except OSError as error:
        raise HostError(f"cannot use {shown(base)}: {error.strerror}", hint=_OTHER_CACHE) from None
    if status.st_uid not in (os.geteuid(), 0):
        raise HostError(f"the cache {shown(base)} belongs to another user", hint=_OTHER_CACHE)
    if status.st_mode & stat.S_IWOTH:
        hint = f"chmod o-w {shlex.quote(str(base))}, and remove what others may have put there"
        raise HostError(f"every user may write to the cache {shown(base)}", hint=hint)
    path = base.joinpath(*parts)
    make_dir(path)
    return path


def _cache() -> Path:
    if base := os.environ.get("NUMALAB_CACHE"):
        return Path(base)
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if caches.is_absolute():  # any other is to be ignored (XDG Base Directory Specification)
        return caches / "numalab"
    try:
        return Path.home() / ".cache" / "numalab"
    except RuntimeError:
        reason = f"HOME is not set, and user {os.getuid()} has no home folder"
        raise HostError(reason, hint=_OTHER_CACHE) from None


def _is_lab(path: Path) -> bool:
    return any((path / kind).is_dir() for kind in KINDS)


def _is_of_results(path: Path) -> bool:
    return any(os.path.lexists(folder / _RESULTS) for folder in (path, *path.parents))
