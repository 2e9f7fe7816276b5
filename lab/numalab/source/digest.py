"""Digests of values and of files, remembered for as long as a file stays as it is."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from numalab.files import read_json, write_json
from numalab.places import cache_dir


def digest_of(value: object) -> str:
    """Return a digest of a value made of lists, dicts, texts and numbers: 32 hexadecimal digits."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes; raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remembered(path: Path, facts: Callable[[Path], Mapping[str, str]]) -> Mapping[str, str]:
    """Return the SHA-256 of a large file and what `facts` finds out about it.

    Both are remembered while size, inode and times stay the same.
    """
    stat = path.stat()
    now = [stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns]
    memory = cache_dir("files") / f"{path.name}.{digest_of(str(path.absolute()))[:8]}.json"
    if memory.is_file():
        known = read_json(memory)
        if isinstance(known, dict) and known.get("stat") == now:
            return dict(known["facts"])
    found = {"sha256": hash_file(path), **facts(path)}
    write_json(memory, {"file": str(path), "stat": now, "facts": found})
    return found
