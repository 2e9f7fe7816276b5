"""Digests of values and of files, remembered for as long as a file stays as it is."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from numalab.document import read_record
from numalab.errors import HostError
from numalab.files import write_json
from numalab.places import cache_dir

_LONGEST_NAME = 200  # bytes


@dataclass(frozen=True)
class _Record:
    file: str
    stat: list[int]
    facts: dict[str, str]


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
    name = path.name if len(os.fsencode(path.name)) <= _LONGEST_NAME else ""
    memory = cache_dir("files") / f"{name}.{digest_of(str(path.absolute()))[:8]}.json"
    record = read_record(memory, _Record)
    if record is not None and record.stat == now:
        return record.facts
    record = _Record(str(path), now, {"sha256": hash_file(path), **facts(path)})
    with suppress(HostError):  # a cache that is read-only or full
        write_json(memory, asdict(record))
    return record.facts
