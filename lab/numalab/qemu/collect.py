"""Copies results from a job disk, whose content is untrusted: the guest wrote it.

Names are checked, files are read by inode number, and sizes, counts and depth are bounded.
"""

import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from numalab.errors import HostError
from numalab.ext4.layout import ROOT_INODE, S_IFDIR, S_IFREG, DamagedDisk, Inode, Name
from numalab.ext4.volume import Volume
from numalab.files import make_dir
from numalab.places import BELIEVED
from numalab.run_dir import RunDir, is_returned_name

_MIB = 1 << 20
_KINDS = {0o120000: "symbolic link", 0o020000: "device", 0o060000: "device", 0o010000: "fifo"}
_NAME = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
_RETURNED = RunDir(Path()).returned.name  # below it, the command chooses the names
_LARGEST_FOLDER = 4 * _MIB  # 4096 names take one at most


@dataclass(frozen=True)
class Bounds:
    """Limits on results: total bytes, bytes of one file, entries, depth of folders."""

    total: int = 512 * _MIB
    largest: int = 256 * _MIB
    entries: int = 4096
    depth: int = 12  # a copy of /sys/devices/system/cpu has nine


@dataclass(frozen=True)
class Collected:
    """Sizes of the copied files by path below /job/out, and refused files with the reason."""

    files: dict[str, int]
    left_out: tuple[str, ...]


@dataclass
class _Survey:
    """Files to copy by path, their folders, and refused files with the reason."""

    folders: list[PurePosixPath] = field(default_factory=list)
    chosen: dict[str, Inode] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    total: int = 0
    count: int = 0


class _EnoughError(Exception):
    """The disk has more entries than the bounds allow."""


def read_job_disk(
    path: Path, into: Path, folder: str = "/out", bounds: Bounds = Bounds()
) -> Collected:
    """Copy the regular files below `folder` of a job disk to the folder `into`.

    The disk may be in any state. Unsafe names, links, devices, files beyond the bounds and damaged
    files are refused and listed; on a damaged file system that is everything. Raises HostError
    when this host cannot read the disk, or write its files.
    """
    make_dir(into)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}") from None
    try:
        return _read(descriptor, into, PurePosixPath(folder), bounds)
    except DamagedDisk as damage:
        return Collected({}, (f"everything: {damage}",))
    except OSError as error:
        raise HostError(
            f"cannot write {into}: {error.strerror}", hint="free some space there"
        ) from None
    finally:
        os.close(descriptor)


def _read(descriptor: int, into: Path, folder: PurePosixPath, bounds: Bounds) -> Collected:
    volume = Volume(descriptor)
    top = volume.inode(ROOT_INODE)
    for part in folder.parts[1:]:
        top = volume.find(top, part.encode())
    survey = _survey(volume, top, bounds)
    for below in survey.folders:  # each after the one it is in
        (into / below).mkdir(mode=0o700, exist_ok=True)
    files: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix=".out.", dir=into.parent) as scratch:
        taken = Path(scratch) / "file"
        for name, inode in sorted(survey.chosen.items()):
            try:
                _copy(volume, inode, taken)
            except DamagedDisk as damage:
                survey.left_out.append(f"{name}: {damage}")
                continue
            taken.rename(into / name)
            files[name] = inode.size
    return Collected(files, tuple(survey.left_out))


def _copy(volume: Volume, inode: Inode, target: Path) -> None:
    """Copy a file to a new file that only this user can access."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(target, flags, 0o600)
    try:
        volume.copy(inode, descriptor)
    finally:
        os.close(descriptor)


def _survey(volume: Volume, top: Inode, bounds: Bounds) -> _Survey:
    """Select the files to copy, level by level."""
    survey = _Survey()
    level = [(PurePosixPath(), top)]
    visited = {top.number}
    try:
        for _ in range(bounds.depth):
            below = [entry for place in level for entry in _look(volume, *place, survey, bounds)]
            level = []
            for name, folder in below:
                if folder.number not in visited:
                    visited.add(folder.number)
                    survey.folders.append(name)
                    level.append((name, folder))
    except _EnoughError:
        return survey
    survey.left_out += [f"{name}: more than {bounds.depth} folders deep" for name, _ in level]
    return survey


def _look(
    volume: Volume, parent: PurePosixPath, folder: Inode, survey: _Survey, bounds: Bounds
) -> Iterator[tuple[PurePosixPath, Inode]]:
    """Select files of one folder, and yield its subfolders."""
    names: set[bytes] = set()
    for entry in _entries(volume, parent, folder, survey):
        survey.count += 1
        if survey.count > bounds.entries:
            survey.left_out.append(f"{parent}: more than {bounds.entries} files")
            raise _EnoughError
        name = parent / _shown(entry.name, parent)
        try:
            inode = volume.inode(entry.inode)
        except DamagedDisk as damage:
            survey.left_out.append(f"{name}: {damage}")
            continue
        why = "a second one of this name" if entry.name in names else ""
        names.add(entry.name)
        why = why or _refuse(entry, parent, inode, bounds, survey.total)
        if why:
            survey.left_out.append(f"{name}: {why}")
        elif inode.kind == S_IFDIR:
            yield name, inode
        else:
            survey.total += inode.size
            survey.chosen[str(name)] = inode


def _entries(
    volume: Volume, parent: PurePosixPath, folder: Inode, survey: _Survey
) -> Iterator[Name]:
    if folder.size > _LARGEST_FOLDER:
        survey.left_out.append(f"{parent}: too many names")
        return
    try:
        yield from volume.names(folder)
    except DamagedDisk as damage:
        survey.left_out.append(f"{parent}: {damage}")


def _refuse(entry: Name, parent: PurePosixPath, inode: Inode, bounds: Bounds, total: int) -> str:
    """Return why an entry is refused; empty if it is not."""
    if not _is_plain(entry.name, parent):
        return "not a plain name"
    if inode.kind == S_IFDIR:
        return "what it holds would be believed" if _shown(entry.name, parent) in BELIEVED else ""
    if inode.kind != S_IFREG:
        return f"a {_KINDS.get(inode.kind, 'special file')}"
    if inode.size > bounds.largest:
        return f"{inode.size} bytes is too large"
    if total + inode.size > bounds.total:
        return "too much in all"
    return ""


def _is_plain(name: bytes, parent: PurePosixPath) -> bool:
    """Whether a name can be that of a file of this host."""
    if _NAME.fullmatch(name):
        return True
    if parent.parts[:1] != (_RETURNED,):
        return False
    try:
        return is_returned_name(name.decode())
    except UnicodeError:
        return False


def _shown(name: bytes, parent: PurePosixPath) -> str:
    if _is_plain(name, parent):
        return name.decode()
    return ascii(name.decode("utf-8", "replace"))[1:-1][:60].replace("/", "?")
