"""A kernel that was built, and its entry in the cache."""

import dataclasses
import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import UserError
from lab.kernel.series import SeriesInfo
from lab.store import cache_dir, read_json, replacing, write_json

_RECORD = "kernel.json"
_BZIMAGE = "bzImage"
_CONFIG = "config"


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel in the cache, and everything that went into it."""

    spec_name: str
    bzimage: Path
    release: str  # what `uname -r` says
    config: Path
    config_hash: str  # SHA-256 of the resulting .config
    digest: str  # of all inputs; names the cache entry
    series: tuple[SeriesInfo, ...]
    source_version: str
    seconds: float  # how long the build took
    compiler: str
    bzimage_sha256: str


def entry_dir(digest: str) -> Path:
    """Return where the cache entry of the inputs `digest` lies, or will."""
    return cache_dir("kernels") / digest


def load_built(spec_name: str, digest: str) -> BuiltKernel | None:
    """Read a cache entry; None when there is none or its bzImage is not what was built."""
    entry = entry_dir(digest)
    try:
        record = read_json(entry / _RECORD)
        bzimage = (entry / _BZIMAGE).read_bytes()
        built = _from_record(record, spec_name, entry)
    except (UserError, OSError, KeyError, TypeError, ValueError):
        return None
    if built.digest != digest or hashlib.sha256(bzimage).hexdigest() != built.bzimage_sha256:
        return None
    return built if built.config.is_file() else None


def store_built(
    *,
    spec_name: str,
    digest: str,
    bzimage: Path,
    config: Path,
    release: str,
    series: tuple[SeriesInfo, ...],
    source_version: str,
    seconds: float,
    compiler: str,
) -> BuiltKernel:
    """Copy a finished build into the cache, whole or not at all; HostError on a full disk."""
    entry = entry_dir(digest)
    built = BuiltKernel(
        spec_name=spec_name,
        bzimage=entry / _BZIMAGE,
        release=release,
        config=entry / _CONFIG,
        config_hash=hashlib.sha256(config.read_bytes()).hexdigest(),
        digest=digest,
        series=series,
        source_version=source_version,
        seconds=seconds,
        compiler=compiler,
        bzimage_sha256=hashlib.sha256(bzimage.read_bytes()).hexdigest(),
    )
    with replacing(entry) as new:
        new.mkdir()
        shutil.copyfile(bzimage, new / _BZIMAGE)
        shutil.copyfile(config, new / _CONFIG)
        record = dataclasses.asdict(built)
        del record["bzimage"], record["config"]  # they are beside the record
        write_json(new / _RECORD, record)
    return built


def _from_record(record: dict[str, Any], spec_name: str, entry: Path) -> BuiltKernel:
    series = tuple(
        SeriesInfo(one["name"], one["digest"], tuple(one["patches"])) for one in record["series"]
    )
    # Two names may have the same inputs; the entry then answers to both.
    own = {"spec_name": spec_name, "series": series}
    return BuiltKernel(**{**record, **own}, bzimage=entry / _BZIMAGE, config=entry / _CONFIG)
