"""What the cache holds, how large it is, when it was last used, and how it is made smaller.

Everything in it can be made again. An entry is in use while a process has a file of it open, mapped
or on its command line (a guest its kernel, a build its tree), while its lock is held, and for an
hour after its last use: a study has then read its path but not yet booted it.
"""

import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from numalab.errors import HostError, UserError
from numalab.files import read_json
from numalab.locks import is_locked, locked
from numalab.places import cache_dir

HOUR = 3600.0
_LOCK = "lock"
_GONE = ".pruned"


@dataclass(frozen=True)
class Entry:
    """One thing in the cache: bytes on disk, and when it was last used (Unix time, s)."""

    kind: str
    name: str
    path: Path
    size: int
    last_use: float
    in_use: str  # why it stays, "" for an entry that may go


def list_cache() -> tuple[Entry, ...]:
    """List the entries of the cache, the ones used last first."""
    now = time.time()
    base = cache_dir()
    busy = _open_paths(base)
    entries = []
    for kind, path in _entries(base):
        size, last = _measure(path)
        if not size:
            continue
        held = any(path == each or path in each.parents for each in busy) or _locked(kind, path)
        why = "in use" if held else "used just now" if now - last < HOUR else ""
        entries.append(Entry(kind, _name(kind, path), path, size, last, why))
    return tuple(sorted(entries, key=lambda entry: -entry.last_use))


def choose_to_prune(
    entries: Sequence[Entry], *, keep: int | None, unused_for: float | None, now: float
) -> tuple[Entry, ...]:
    """Choose what goes, the longest unused first: pure.

    `keep` bytes may stay in all; `unused_for` seconds is how long an entry may lie unused. What is
    in use stays, whatever that makes of `keep`.
    """
    left = sum(entry.size for entry in entries)
    chosen = []
    for entry in sorted(entries, key=lambda one: one.last_use):
        too_old = unused_for is not None and now - entry.last_use > unused_for
        too_much = keep is not None and left > keep
        if not entry.in_use and (too_old or too_much):
            chosen.append(entry)
            left -= entry.size
    return tuple(chosen)


def remove_entry(entry: Entry) -> bool:
    """Remove an entry; False where another process began to use it in the meantime.

    It loses its name first, so that what is left of it after an interruption never looks whole.
    """
    try:
        if entry.kind != "tree":
            _discard(entry.path)
            return True
        # Its lock stays where it is, for whoever waits for it.
        lock = entry.path / _LOCK
        if is_locked(lock):
            return False
        with locked(lock, wait=False):
            inner = [path for path in entry.path.iterdir() if path.name != _LOCK]
            # The sources last: without the rest, which says what was changed in them, they would
            # be taken for the originals.
            for path in sorted(inner, key=lambda one: one.name != "source"):
                _discard(path)
    except FileNotFoundError:
        pass  # somebody else has removed it
    except OSError as error:
        raise HostError(f"cannot remove {entry.path}: {error.strerror}") from None
    return True


def _discard(path: Path) -> None:
    gone = path.with_name(f"{_GONE}-{os.getpid()}-{path.name}")
    path.rename(gone)
    if gone.is_dir():
        shutil.rmtree(gone)
    else:
        gone.unlink()


def _entries(base: Path) -> Iterator[tuple[str, Path]]:
    folders = {"kernels": "kernel", "kernel-trees": "tree", "packages": "package",
               "emulators": "emulator", "emulator-trees": "tree",
               "images": "image", "boots": "boot", "apt": "list"}  # fmt: skip
    for folder, kind in folders.items():
        for path in sorted((base / folder).glob("*")):
            if path.name.startswith(_GONE):
                yield "remains", path
            elif path.is_dir() and not path.name.startswith(".") and path.name != "packages":
                yield kind, path
    for path in sorted((base / "images" / "packages").glob("*.tar")):
        yield "packages", path


def _measure(path: Path) -> tuple[int, float]:
    """Return the bytes that an entry takes on disk and when one of its own files was last used."""
    stat = path.lstat()
    size, last = 0 if path.is_dir() else stat.st_blocks * 512, max(stat.st_mtime, 0.0)
    for folder, _, files in os.walk(path):
        for name in files:
            file = Path(folder) / name
            with suppress(OSError):
                stat = file.lstat()
                size += stat.st_blocks * 512
                if folder == str(path):
                    # What says about an entry what it is, is read when the cache is listed.
                    read = 0.0 if file.suffix == ".json" else stat.st_atime
                    last = max(last, stat.st_mtime, read)
    return size, last


def _name(kind: str, path: Path) -> str:
    """Say in words what an entry is, as far as it says so itself."""
    with suppress(UserError, KeyError, TypeError, OSError):
        if kind == "kernel":
            return str(read_json(path / "kernel.json")["spec_name"])
        if kind == "emulator":
            return str(read_json(path / "emulator.json")["name"])
        if kind == "tree" and (path / "source" / "VERSION").is_file():
            return "QEMU " + (path / "source" / "VERSION").read_text(encoding="utf-8").strip()
        if kind == "image":
            return str(read_json(path / "image.json")["recipe"])
        if kind == "tree":
            text = (path / "source" / "Makefile").read_text(encoding="utf-8", errors="replace")
            found = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) *= *(\S+)", text[:4096], re.M))
            return "Linux " + ".".join(found[key] for key in ("VERSION", "PATCHLEVEL", "SUBLEVEL"))
    return path.name


def _locked(kind: str, path: Path) -> bool:
    """Tell whether another process holds the lock of an entry, or of all images."""
    locks = {"tree": [path / _LOCK], "package": [path.with_name(f"{path.name}.lock")],
             "image": list(path.parent.glob("*.lock")),
             "packages": list(path.parent.parent.glob("*.lock"))}  # fmt: skip
    return any(map(is_locked, locks.get(kind, ())))


def _open_paths(base: Path) -> frozenset[Path]:
    """Return the paths below `base` that this user's processes have open, mapped or as arguments.

    From /proc/PID/fd, maps, cwd and cmdline: proc(5).
    """
    root = str(base.resolve())
    pattern = re.compile(re.escape(root) + r"/[^\s,;=\0]+")
    found: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("maps", "cmdline"):
            with suppress(OSError):
                text = (process / name).read_bytes().decode("utf-8", "replace")
                found.update(pattern.findall(text))
        with suppress(OSError):
            links = [process / "cwd", *(process / "fd").iterdir()]
            found.update(target for link in links if (target := _target(link)).startswith(root))
    return frozenset(base / Path(each).relative_to(root) for each in found if each != root)


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""
