"""Files below a folder, read and written without following a symbolic link.

Every folder of a name is opened relative to its parent with O_NOFOLLOW (open(2)), so that no link
of a patch or an earlier build redirects a read or a write.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from numalab.errors import HostError

MAX_FILE_BYTES = 64 << 20

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class SourceFile:
    """A file as git stores it; bytes that are not UTF-8 are surrogates."""

    text: str
    executable: bool = False


class NotPlain(Exception):
    """A name of something that is no plain file, or that leads through a link."""

    def __init__(self, name: str, kind: str) -> None:
        self.is_folder = kind == "a folder"
        super().__init__(f"{name} is {kind}")


def read_file(root: Path, name: str) -> SourceFile | None:
    """Return a file below `root`, None for no file. Raises NotPlain, OSError."""
    with _parent(root, name) as (folder, last):
        status = None if folder is None else _status(folder, last)
        if status is None:
            return None
        if not stat.S_ISREG(status.st_mode):
            raise NotPlain(name, _kind(status.st_mode))
        with open(os.open(last, _READ, dir_fd=folder), "rb") as file:  # noqa: PTH123
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MAX_FILE_BYTES + 1) if stat.S_ISREG(mode) else b""
    if len(data) > MAX_FILE_BYTES:
        raise NotPlain(name, f"larger than {MAX_FILE_BYTES >> 20} MiB")
    return SourceFile(data.decode("utf-8", "surrogateescape"), bool(mode & 0o100))


def read_permissions(root: Path, name: str) -> int | None:
    """Return the permissions of a plain file below `root`, None for no file."""
    with _parent(root, name) as (folder, last):
        status = None if folder is None else _status(folder, last)
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    return status.st_mode & 0o777


def write_file(root: Path, name: str, file: SourceFile, permissions: int | None = None) -> None:
    """Write a file below `root` whole or not at all; a link in its place is replaced.

    The umask applies without `permissions`. Raises NotPlain, OSError.
    """
    temporary = root.with_name(f".{root.name}.writing")
    temporary.unlink(missing_ok=True)
    mode = 0o777 if file.executable else 0o666
    with open(os.open(temporary, _WRITE, mode), "wb") as out:  # noqa: PTH123
        out.write(file.text.encode("utf-8", "surrogateescape"))
        if permissions is not None:
            os.fchmod(out.fileno(), permissions)
    with _parent(root, name, make=True) as (folder, last):
        assert folder is not None
        status = _status(folder, last)
        if status is not None and stat.S_ISDIR(status.st_mode):
            _remove_empty(folder, last)
        os.replace(temporary, last, dst_dir_fd=folder)


def remove_file(root: Path, name: str) -> None:
    """Remove a file below `root`, or a link in its place, and folders that become empty."""
    while name:
        with _parent(root, name) as (folder, last):
            if folder is not None and (status := _status(folder, last)) is not None:
                if not stat.S_ISDIR(status.st_mode):
                    os.unlink(last, dir_fd=folder)
                else:
                    try:
                        os.rmdir(last, dir_fd=folder)
                    except OSError:
                        return
        name = name.rpartition("/")[0]


def names_below(root: Path, name: str = "") -> Iterator[str]:
    """Yield the names of all files and links below a folder; no link is followed."""
    top = root / name
    for path, folders, files, opened in os.fwalk(top):
        links = (link for link in folders if stat.S_ISLNK(_mode(opened, link)))
        for last in (*files, *links):
            yield str((Path(path) / last).relative_to(root))


@contextmanager
def _parent(root: Path, name: str, *, make: bool = False) -> Iterator[tuple[int | None, str]]:
    """Open the folder of `name`; None for no folder. `make` creates it.

    Raises HostError where `root` itself is a link.
    """
    *folders, last = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in (*folders, last)):
        raise NotPlain(name, "no name below a folder")
    try:
        opened = _open(None, str(root), str(root), make=make)
    except NotPlain as error:
        raise HostError(str(error), hint="remove it; the next build creates it") from None
    try:
        for depth, part in enumerate(folders, 1):
            if opened is None:
                break
            above, opened = opened, None
            try:
                opened = _open(above, part, "/".join(folders[:depth]), make=make)
            finally:
                os.close(above)
        yield opened, last
    finally:
        if opened is not None:
            os.close(opened)


def _open(above: int | None, part: str, name: str, *, make: bool) -> int | None:
    if make:
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=above)
    try:
        return os.open(part, _FOLDER, dir_fd=above)
    except FileNotFoundError:
        return None
    except OSError:
        mode = _mode(above, part)
        if stat.S_ISDIR(mode):
            raise
        if make or stat.S_ISLNK(mode):
            raise NotPlain(name, _kind(mode)) from None
        return None  # below a file there is none


def _remove_empty(folder: int, last: str) -> None:
    for _, below, _, opened in os.fwalk(last, topdown=False, dir_fd=folder):
        for folder_name in below:
            os.rmdir(folder_name, dir_fd=opened)
    os.rmdir(last, dir_fd=folder)


def _status(folder: int, last: str) -> os.stat_result | None:
    try:
        return os.stat(last, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _mode(folder: int | None, last: str) -> int:
    return os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFREG: "a file",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")
