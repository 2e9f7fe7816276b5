"""Where the input folders, the results and the cache are."""

import os
from pathlib import Path

from numalab.files import make_dir

# What a lab folder may hold; `images` has a meaning of its own (numalab.image.recipe).
KINDS = ("topologies", "kernel-configs", "workloads", "studies", "images")
PLUGINS, HUNTS = "plugins", "hunts"
# What is believed, built and run where the current folder has it. Nothing that a guest or an
# archive brings may be called so.
BELIEVED = frozenset({*KINDS, PLUGINS, HUNTS})
_RESULTS = "plan.json"  # the file that every folder of results has


def shipped_dir() -> Path:
    """Return what came with numalab: the checkout it runs from, or what its wheel brought."""
    checkout = Path(__file__).parents[2]
    return checkout if _is_lab(checkout) else Path(__file__).parent / "share"


def lab_folders() -> tuple[Path, ...]:
    """Return the folders in which inputs are looked for; what an earlier one has comes first.

    `$NUMALAB_HOME` alone where it is set; else those of `$NUMALAB_PATH` (separated by colons), the
    current folder unless it is of results, and what came with numalab.
    """
    if home := os.environ.get("NUMALAB_HOME"):
        return (Path(home),)
    named = [Path(part) for part in os.environ.get("NUMALAB_PATH", "").split(":") if part]
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


def find_input(kind: str, name: str) -> Path | None:
    """Return the first `<lab folder>/<kind>/<name>` that exists."""
    return next((p for p in (f / kind / name for f in lab_folders()) if p.exists()), None)


def list_inputs(kind: str, pattern: str) -> dict[str, Path]:
    """Return what matches a pattern below `<lab folder>/<kind>`, by its path there, in order."""
    found: dict[str, Path] = {}
    for folder in reversed(lab_folders()):
        base = folder / kind
        found |= {str(path.relative_to(base)): path for path in base.glob(pattern)}
    return dict(sorted(found.items()))


def cache_dir(*parts: str) -> Path:
    """Return a folder below `$NUMALAB_CACHE` or ~/.cache/numalab, created for this user only."""
    base = os.environ.get("NUMALAB_CACHE")
    if not base:
        base = str(Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "numalab")
    path = Path(base).joinpath(*parts)
    make_dir(path)
    return path


def _is_lab(path: Path) -> bool:
    return any((path / kind).is_dir() for kind in KINDS)


def _is_of_results(path: Path) -> bool:
    return any((folder / _RESULTS).exists() for folder in (path, *path.parents))
