"""An emulator that was built, and its entry in the cache."""

import dataclasses
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from numalab.errors import UserError
from numalab.files import read_json, replacing, write_json
from numalab.places import cache_dir
from numalab.source.digest import hash_file
from numalab.source.series import SeriesInfo

BINARY = "qemu-system-x86_64"
HEADER = "qemu-plugin.h"
_RECORD = "emulator.json"


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
    entry = cache_dir("emulators") / digest
    try:
        record = read_json(entry / _RECORD)
        series = SeriesInfo(
            record["series"]["name"],
            record["series"]["digest"],
            tuple(record["series"]["patches"]),
        )
        files = {"program": entry / BINARY, "header": entry / HEADER}
        built = BuiltEmulator(**{**record, **files, "name": name, "series": series})
        if built.digest != digest or hash_file(built.program) != built.sha256:
            return None
    except (UserError, OSError, KeyError, TypeError, ValueError):
        return None
    with suppress(OSError):
        os.utime(entry)  # when it was last used, for `numalab cache prune`
    return built


def store_built(built: BuiltEmulator) -> BuiltEmulator:
    """Copy a finished build into the cache, whole or not at all; HostError on a full disk."""
    entry = cache_dir("emulators") / built.digest
    with replacing(entry) as new:
        new.mkdir(mode=0o755)
        shutil.copy(built.program, new / BINARY)
        shutil.copy(built.header, new / HEADER)
        # A cache may be moved, so paths are relative.
        record = dataclasses.asdict(built) | {"program": BINARY, "header": HEADER}
        write_json(new / _RECORD, record)
    return dataclasses.replace(built, program=entry / BINARY, header=entry / HEADER)
