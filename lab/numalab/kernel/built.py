"""A kernel that was built, and its entry in the cache."""

import dataclasses
import hashlib
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numalab.errors import UserError
from numalab.files import read_json, replacing, write_json
from numalab.places import cache_dir
from numalab.source.digest import hash_file
from numalab.source.series import SeriesInfo

_RECORD = "kernel.json"
_FILES = {"bzimage": "bzImage", "config": "config", "initrd": "initrd", "symbols": "vmlinux"}
# Since 6.12 a trace instance can lie in reserved memory (kernel/trace/ring_buffer.c, rb_meta_*).
_KEEPS_TRACE = (6, 12)
# Before 6.5 an x86 machine's CPUs come up one by one, and the one that waits for them never pauses.
# In QEMU 7.2's icount mode the others then get no time, unless this series is applied.
_RUNS_IN_ICOUNT = (6, 5)
_PAUSES = "relax-at-bring-up"


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel in the cache, and everything that went into it."""

    spec_name: str
    bzimage: Path
    release: str  # what `uname -r` says
    config: Path | None  # None where a prebuilt kernel came without
    config_hash: str  # SHA-256 of the resulting .config, "" for none
    digest: str  # of all inputs; names the cache entry
    series: tuple[SeriesInfo, ...]
    source_version: str
    seconds: float  # how long the build took
    compiler: str
    bzimage_sha256: str
    initrd: Path | None = None  # loads the drivers of a prebuilt kernel
    symbols: Path | None = None  # a vmlinux that is nothing but symbols, for a debugger
    first_name: str = ""  # the kernel that was built first in the same build folder
    first_seconds: float = 0.0

    @property
    def keeps_trace(self) -> bool:
        """Tell whether a trace can lie in reserved memory, where it outlives the guest's kernel."""
        return self._is_since(_KEEPS_TRACE)

    @property
    def runs_in_icount(self) -> bool:
        """Tell whether the kernel brings up its CPUs in icount mode."""
        patched = any(series.name == _PAUSES for series in self.series)
        return patched or self._is_since(_RUNS_IN_ICOUNT)

    def _is_since(self, version: tuple[int, int]) -> bool:
        numbers = re.match(r"(\d+)\.(\d+)", self.release)
        return numbers is None or (int(numbers[1]), int(numbers[2])) >= version


def entry_dir(digest: str) -> Path:
    """Return where the cache entry of the inputs `digest` lies, or will."""
    return cache_dir("kernels") / digest


def load_built(spec_name: str, digest: str) -> BuiltKernel | None:
    """Read a cache entry; None when there is none or its bzImage is not what was built."""
    entry = entry_dir(digest)
    try:
        record = read_json(entry / _RECORD)
        bzimage = (entry / _FILES["bzimage"]).read_bytes()
        built = _from_record(record, spec_name, entry)
    except (UserError, OSError, KeyError, TypeError, ValueError):
        return None
    if built.digest != digest or hashlib.sha256(bzimage).hexdigest() != built.bzimage_sha256:
        return None
    parts = (built.config, built.initrd, built.symbols)
    if not all(part is None or part.is_file() for part in parts):
        return None
    with suppress(OSError):
        os.utime(entry)  # when it was last used, for `numalab cache prune`
    return built


def store_built(
    *,
    spec_name: str,
    digest: str,
    bzimage: Path,
    config: Path | None,
    release: str,
    series: tuple[SeriesInfo, ...],
    source_version: str,
    seconds: float,
    compiler: str,
    initrd: Path | None = None,
    symbols: Path | None = None,
    first: tuple[str, float] = ("", 0.0),
) -> BuiltKernel:
    """Copy a finished build into the cache, whole or not at all; HostError on a full disk."""
    entry = entry_dir(digest)
    files = {"bzimage": bzimage, "config": config, "initrd": initrd, "symbols": symbols}
    built = BuiltKernel(
        spec_name=spec_name,
        bzimage=entry / _FILES["bzimage"],
        release=release,
        config=entry / _FILES["config"] if config else None,
        config_hash=hash_file(config) if config else "",
        digest=digest,
        series=series,
        source_version=source_version,
        seconds=seconds,
        compiler=compiler,
        bzimage_sha256=hash_file(bzimage),
        initrd=entry / _FILES["initrd"] if initrd else None,
        symbols=entry / _FILES["symbols"] if symbols else None,
        first_name=first[0],
        first_seconds=first[1],
    )
    with replacing(entry) as new:
        new.mkdir()
        record = dataclasses.asdict(built)
        for key, file in files.items():
            record[key] = file and _FILES[key]  # relative, because a cache may be moved
            if file is not None:
                shutil.copyfile(file, new / _FILES[key])
        write_json(new / _RECORD, record)
    return built


def _from_record(record: dict[str, Any], spec_name: str, entry: Path) -> BuiltKernel:
    series = tuple(
        SeriesInfo(one["name"], one["digest"], tuple(one["patches"])) for one in record["series"]
    )
    # Two names may have the same inputs; the entry then answers to both.
    own = {"spec_name": spec_name, "series": series}
    # An entry of an earlier numalab may not name all of them.
    names: dict[str, Any] = _FILES | {"initrd": None, "symbols": None} | record
    files = {key: names[key] and entry / names[key] for key in _FILES}
    return BuiltKernel(**{**record, **own, **files})
