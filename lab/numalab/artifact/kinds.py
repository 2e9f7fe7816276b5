"""The kinds of things in the cache: the folder of their entries, and how to name one.

A kind of artifact is registered by the module that builds it. `all_kinds` imports every module of
numalab whose name ends in `_artifact`, so that a new kind takes one module.
"""

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

from numalab.artifact.digest import hash_file
from numalab.document import read_record
from numalab.files import read_json, write_json
from numalab.places import cache_dir

T = TypeVar("T")
KindT = TypeVar("KindT", bound="Kind")


def file_name(entry: Path) -> str:
    """Return the name of an entry that has no better title."""
    return entry.name


def entry_lock(entry: Path) -> Path:
    """Return the lock of an entry: a hidden file beside it."""
    return entry.with_name(f".{entry.name}.lock")


def inner_lock(entry: Path) -> Path:
    """Return the lock of an entry in which several builds work: a file in it."""
    return entry / "lock"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind: its name, and its entries in a folder of the cache.

    An entry is a folder, or a file that matches `files`. `title` returns what a person calls the
    entry; it may raise an error for a damaged one. A process that holds `lock` uses the entry.
    `only_copy`: nothing can make an entry again, so none is pruned.
    """

    name: str
    folder: str
    files: str = ""
    title: Callable[[Path], str] = file_name
    lock: Callable[[Path], Path] = entry_lock
    only_copy: bool = False

    def entry(self, name: str) -> Path:
        """Return the path of the entry of a name, which holds the digest of all inputs."""
        return cache_dir(*self.folder.split("/")) / name


@dataclass(frozen=True, kw_only=True)
class RecordKind(Kind, Generic[T]):
    """A kind whose entries are folders of files with a JSON record of a dataclass, `model`.

    `paths` maps its fields that are paths (or None) to the names of the files. `hash_fields` are
    the path of the main file and its SHA-256. The field `digest` is the name of the entry.
    """

    record: str
    model: type[T]
    paths: Mapping[str, str]
    hash_fields: tuple[str, str]

    def write(self, entry: Path, value: T) -> None:
        """Create an entry: copy the files of `value`, and write the record."""
        entry.mkdir(mode=0o755)
        files = {field: getattr(value, field) for field in self.paths}
        for field, path in files.items():
            if path is not None:
                shutil.copy(path, entry / self.paths[field])
        # A cache may be moved, so paths are relative.
        names = {field: path and self.paths[field] for field, path in files.items()}
        record = TypeAdapter(self.model).dump_python(value, mode="json")
        write_json(entry / self.record, record | names)

    def read(self, entry: Path, **names: object) -> T | None:
        """Read an entry; None where there is none, it is not whole, or its main file changed.

        A file without data is what a power cut left. Artifacts with the same inputs share an entry.
        `names` are the fields in which they differ.
        """
        record = read_record(entry / self.record, dict[str, Any])
        if record is None:
            return None
        try:
            paths = {field: entry / record[field] for field in self.paths if record.get(field)}
            fields = {**record, **paths, **names}
            value = TypeAdapter(self.model).validate_python(fields, extra="forbid")
            main, sha256 = (getattr(value, field) for field in self.hash_fields)
            whole = all(path.is_file() and path.stat().st_size for path in paths.values())
            whole = whole and hash_file(main) == sha256
            return value if whole and record["digest"] == entry.name else None
        except (OSError, KeyError, TypeError, ValueError):  # a name may be too long, or no text
            return None


def record_title(record: str, key: str) -> Callable[[Path], str]:
    """Return a function that reads the title of an entry from its JSON record."""
    return lambda entry: str(read_json(entry / record)[key])


def _source_version(tree: Path) -> str:
    """Return the version of a tree of sources: of QEMU's `VERSION`, or Linux' Makefile."""
    source = tree / "source"
    if (source / "VERSION").is_file():
        return "QEMU " + (source / "VERSION").read_text(encoding="utf-8").strip()
    text = (source / "Makefile").read_text(encoding="utf-8", errors="replace")
    numbers = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) *= *(\S+)", text[:4096], re.M))
    return "Linux " + ".".join(numbers[key] for key in ("VERSION", "PATCHLEVEL", "SUBLEVEL"))


TREE = "tree"
_kinds: list[Kind] = [
    Kind(name=TREE, folder="kernel-trees", title=_source_version, lock=inner_lock),
    Kind(name=TREE, folder="emulator-trees", title=_source_version, lock=inner_lock),
    Kind(name="package", folder="packages"),
    Kind(name="list", folder="apt"),
    Kind(name="boot", folder="boots"),
    # The hosts of tests/testbed: kernels, which are folders, and disks.
    Kind(name="test bed", folder="testbed"),
    Kind(name="test bed", folder="testbed", files="*.erofs"),
]


def register_kind(kind: KindT) -> KindT:
    """Register a kind for `numalab cache`, and return it."""
    _kinds.append(kind)
    return kind


def unregister_kind(kind: Kind) -> None:
    """Remove a kind from `numalab cache`; its entries stay."""
    _kinds.remove(kind)


def all_kinds() -> tuple[Kind, ...]:
    """Return all kinds: sources, packages, kept boots, and the artifacts of every room."""
    package = Path(__file__).parents[1]
    for path in sorted(package.rglob("*_artifact.py")):
        parts = path.relative_to(package).with_suffix("").parts
        import_module(".".join(("numalab", *parts)))
    return tuple(_kinds)
