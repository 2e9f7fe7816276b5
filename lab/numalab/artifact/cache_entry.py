"""What was built, as an entry of the cache: its files, and a record of all that went into them."""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from numalab.document import read_record
from numalab.files import replacing, write_json

T = TypeVar("T")  # a dataclass


def store_entry(record: Path, built: T, files: Mapping[str, str]) -> T:
    """Copy what was built into the folder of `record`, whole or not at all, and return it there.

    `files` are those fields that are paths, or None, and the names that their files get. Raises
    HostError on a full disk.
    """
    paths = {field: getattr(built, field) for field in files}
    # A cache may be moved, so paths are relative.
    names = {field: path and files[field] for field, path in paths.items()}
    value = TypeAdapter(type(built)).dump_python(built, mode="json") | names
    with replacing(record.parent) as new:
        new.mkdir(mode=0o755)
        for field, path in paths.items():
            if path is not None:
                shutil.copy(path, new / files[field])
        write_json(new / record.name, value)
    return _from_record(record, type(built), value, files)


def load_entry(record: Path, kind: type[T], files: Mapping[str, str], **own: str) -> T | None:
    """Read what `store_entry` wrote; None where there is none, or it is not whole.

    A field of `own` is not taken from the record.
    """
    value = read_record(record, dict[str, Any])
    if value is None:
        return None
    try:
        found = _from_record(record, kind, {**value, **own}, files)
        paths = [getattr(found, field) for field in files]
        if not all(path is None or path.is_file() for path in paths):
            return None
    except (OSError, TypeError, ValueError):  # a name may be too long, or no text
        return None
    with suppress(OSError):
        os.utime(record.parent)  # when it was last used, for `numalab cache prune`
    return found


def _from_record(record: Path, kind: type[T], value: dict[str, Any], files: Mapping[str, str]) -> T:
    there = {field: record.parent / value[field] for field in files if value.get(field)}
    return TypeAdapter(kind).validate_python({**value, **there}, extra="forbid")
