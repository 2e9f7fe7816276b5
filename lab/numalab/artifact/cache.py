"""What the cache holds, how large it is, when it was last used, and how to make it smaller.

Everything in it but saved patches can be made again. An entry is in use while a process has a file
of it open, mapped or on its command line (a guest its kernel, a build its tree), while its lock is
held, and for an hour after its last use: a study has then read its path but not yet booted it.
"""

import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from numalab.artifact.kinds import TREE, Kind, all_kinds, inner_lock
from numalab.errors import HostError, UserError
from numalab.locks import is_locked, locked
from numalab.places import cache_dir

HOUR = 3600.0
_PRUNED = ".pruned"
_REMAINS = Kind(name="remains", folder="")  # of an interrupted prune


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
    open_paths = _open_paths(base)
    entries = []
    for kind, path in _entries(base):
        size, last = _measure(path)
        if not size:
            continue
        # A time further in the future is that of a wrong clock, and tells nothing.
        reason = "used just now" if abs(now - last) < HOUR else ""
        if _is_in_use(kind, path, open_paths):
            reason = "in use"
        if kind.only_copy:
            reason = "only copy"
        title = path.name
        with suppress(UserError, KeyError, TypeError, OSError, ValueError):
            title = kind.title(path)
        entries.append(Entry(kind.name, title, path, size, last, reason))
    return tuple(sorted(entries, key=lambda entry: -entry.last_use))


def keep_newest(
    kind: Kind, most: int, title: str | None = None, *, unused_for: float = 0.0
) -> None:
    """Remove all but the `most` entries of a kind, or those with a title, that were used last.

    Entries that cannot be read, that are in use or were used within `unused_for` seconds are left.
    """
    base, used = cache_dir(), []
    latest = time.time_ns() - int(unused_for * 1e9)
    for path in cache_dir(*kind.folder.split("/")).glob("[!.]*"):
        with suppress(UserError, KeyError, TypeError, OSError, ValueError):
            if title is None or kind.title(path) == title:
                used.append((path.stat().st_mtime_ns, path))
    old = [path for last, path in sorted(used, reverse=True)[most:] if last <= latest]
    open_paths = _open_paths(base) if old else frozenset()
    for path in old:
        if not _is_in_use(kind, path, open_paths):
            shutil.rmtree(path, ignore_errors=True)


def _is_in_use(kind: Kind, path: Path, open_paths: frozenset[Path]) -> bool:
    is_open = any(path == used or path in used.parents for used in open_paths)
    return is_open or is_locked(kind.lock(path))


def choose_to_prune(
    entries: Sequence[Entry], *, keep: int | None, unused_for: float | None, now: float
) -> tuple[Entry, ...]:
    """Choose the entries to remove, the longest unused first: pure.

    `keep` bytes may stay in all; `unused_for` seconds is how long an entry may lie unused. An entry
    in use stays, even if that exceeds `keep`. A time in the future, that of a wrong clock, counts
    as one that is as long ago.
    """

    def unused(entry: Entry) -> float:
        return abs(now - entry.last_use)

    left = sum(entry.size for entry in entries)
    chosen = []
    for entry in sorted(entries, key=unused, reverse=True):
        too_old = unused_for is not None and unused(entry) > unused_for
        too_much = keep is not None and left > keep
        if not entry.in_use and (too_old or too_much):
            chosen.append(entry)
            left -= entry.size
    return tuple(chosen)


def remove_entry(entry: Entry) -> bool:
    """Remove an entry; False where another process began to use it in the meantime.

    The entry is renamed first, so that an interruption leaves no entry that looks whole.
    """
    try:
        if entry.kind != TREE:
            _discard(entry.path)
            return True
        # The lock stays where it is, for processes that wait for it.
        lock = inner_lock(entry.path)
        if is_locked(lock):
            return False
        with locked(lock, wait=False):
            paths = [path for path in entry.path.iterdir() if path != lock]
            # The sources last: the other files record what was changed in them.
            for path in sorted(paths, key=lambda path: path.name != "source"):
                _discard(path)
    except FileNotFoundError:
        pass  # another process has removed it
    except OSError as error:
        raise HostError(f"cannot remove {entry.path}: {error.strerror}") from None
    return True


def _discard(path: Path) -> None:
    renamed = path.with_name(f"{_PRUNED}-{os.getpid()}-{path.name}")
    path.rename(renamed)
    if renamed.is_dir():
        shutil.rmtree(renamed)
    else:
        renamed.unlink()


def _entries(base: Path) -> Iterator[tuple[Kind, Path]]:
    kinds = all_kinds()
    folders = {base / kind.folder for kind in kinds}
    for kind in kinds:
        for path in sorted((base / kind.folder).glob(kind.files or "*")):
            is_entry = path.is_file() if kind.files else path.is_dir() and path not in folders
            if is_entry and not path.name.startswith("."):
                yield kind, path
    for folder in sorted(folders):
        for path in sorted(folder.glob(f"{_PRUNED}*")):
            yield _REMAINS, path


def _measure(path: Path) -> tuple[int, float]:
    """Return the bytes that an entry takes on disk and when one of its own files was last used."""
    stat = path.lstat()
    if not path.is_dir():
        return stat.st_blocks * 512, max(stat.st_mtime, stat.st_atime)
    size, last = 0, stat.st_mtime
    for folder, _, files in os.walk(path):
        for name in files:
            file = Path(folder) / name
            with suppress(OSError):
                stat = file.lstat()
                size += stat.st_blocks * 512
                if folder == str(path):
                    # A listing of the cache reads the records.
                    read = 0.0 if file.suffix == ".json" else stat.st_atime
                    last = max(last, stat.st_mtime, read)
    return size, last


def _open_paths(base: Path) -> frozenset[Path]:
    """Return the paths below `base` that this user's processes have open, mapped or as arguments.

    From /proc/PID/fd, maps, cwd and cmdline: proc(5). All but the last have no links in them.
    """
    roots = {str(base.absolute()), str(base.resolve())}
    pattern = re.compile(f"(?:{'|'.join(map(re.escape, roots))})" r"/[^\s,;=\0]+")
    paths: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("maps", "cmdline"):
            with suppress(OSError):
                text = (process / name).read_bytes().decode("utf-8", "replace")
                paths.update(pattern.findall(text))
        with suppress(OSError):
            for link in (process / "cwd", *(process / "fd").iterdir()):
                with suppress(OSError):
                    paths.add(str(link.readlink()))
    below = ((path, root) for path in paths for root in roots if path.startswith(f"{root}/"))
    return frozenset(base / Path(path).relative_to(root) for path, root in below)
