"""An emulator that was built, and its entry in the cache."""

from dataclasses import dataclass
from pathlib import Path

from numalab.places import cache_dir
from numalab.source.built_entry import load_entry, store_entry
from numalab.source.digest import hash_file
from numalab.source.series import SeriesInfo

BINARY = "qemu-system-x86_64"
HEADER = "qemu-plugin.h"
_FILES = {"program": BINARY, "header": HEADER}


@dataclass(frozen=True)
class BuiltEmulator:
    """An emulator in the cache, and everything that went into it.

    `digest` is that of all inputs and names the cache entry; `sha256` that of the program.
    """

    name: str
    program: Path
    header: Path  # what plugins are compiled with
    version: str
    source: str  # package=version
    series: SeriesInfo
    compiler: str
    digest: str
    sha256: str
    seconds: float


def load_built(name: str, digest: str) -> BuiltEmulator | None:
    """Read a cache entry; None when there is none or its program is not what was built."""
    built = load_entry(_record(digest), BuiltEmulator, _FILES, name=name)
    if built is None or built.digest != digest or hash_file(built.program) != built.sha256:
        return None
    return built


def store_built(built: BuiltEmulator) -> BuiltEmulator:
    """Copy a finished build into the cache, whole or not at all; HostError on a full disk."""
    return store_entry(_record(built.digest), built, _FILES)


def _record(digest: str) -> Path:
    return cache_dir("emulators") / digest / "emulator.json"
