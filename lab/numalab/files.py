"""Files that are written whole or not at all, and read with one clear message."""

import errno
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from numalab.errors import HostError, UserError, WorkloadFailed, shown
from numalab.scratch import scratch_folder

_UNFINISHED = ".numalab-"  # names of temporary folders begin so

MOST_OF_JSON = 128 << 20  # bytes of a JSON document
MOST_VALUES = 4_000_000  # of a JSON document
MOST_OF_GUEST = 128 << 20  # bytes of a text that a guest leaves

# All that polars tells of an error of the operating system's is Rust's text of it
# (std::io::Error): "No space left on device (os error 28)".
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_FULL_IN_RUST = re.compile(rf"\(os error ({'|'.join(map(str, _FULL))})\)")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder, and rename it to `path` when the block succeeds.

    The block creates a file, which then only this user can read, or a folder. It is removed on any
    failure, after SIGKILL by the next command that writes to the same folder. A file is on the disk
    before it has its name. A full disk is a HostError that names the path.
    """
    make_dir(path.parent)
    _check_replaceable(path)
    try:
        with scratch_folder(path.parent, _UNFINISHED) as scratch:
            # Some programs look at the suffix; libraries in Rust take only UTF-8.
            temporary = scratch / (path.name if _is_utf8(path) else "new")
            yield temporary
            if temporary.is_file():
                if not temporary.stat().st_mode & 0o100:
                    temporary.chmod(0o600)
                sync(temporary)
            if temporary.is_dir() and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            temporary.replace(path)
    except OSError as error:
        raise HostError(f"cannot write {shown(path)}: {error.strerror or error}") from error
    except Exception as error:
        if full := _FULL_IN_RUST.search(str(error)):
            raise HostError(f"cannot write {shown(path)}: {os.strerror(int(full[1]))}") from error
        raise


def sync(path: Path) -> None:
    """Wait until a file is on the disk: its new name may be before its data (a power cut).

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_replaceable(path: Path) -> None:
    """Raise HostError for a device, a pipe or a socket: a file must not take its place."""
    try:
        mode = path.stat().st_mode
    except OSError:  # not there, or a link that leads nowhere
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise HostError(f"cannot write {shown(path)}: it is a device, a pipe or a socket")


def make_dir(path: Path) -> None:
    """Create a folder, for this user only, with those above it; HostError when that fails."""
    try:
        for missing in reversed([part for part in (path, *path.parents) if not part.is_dir()]):
            missing.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise HostError(f"cannot create {shown(path)}: {error.strerror}") from None


def free_space(path: Path) -> float:
    """Return the bytes that this user may still write to the file system of a path. Raises OSError.

    Infinite where the file system has no size: ramfs, tmpfs with size=0, some of FUSE.
    """
    disk = os.statvfs(path)
    if disk.f_blocks == 0:
        return math.inf
    return (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail) * disk.f_frsize


def check_free(path: Path, option: str) -> None:
    """Check that a path is free for a folder of a guest's files, which replace none of the user's.

    Raises UserError unless nothing is there, or an empty folder.
    """
    with reading(path):
        free = not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir()))
    if not free:
        raise UserError("is there, and is not an empty folder", file=path, key=option)


def utf8_path(path: Path) -> Path:
    """Return a path of the same file that is UTF-8, for libraries in Rust: polars takes no other.

    Folders of other names are reached by a descriptor that stays open as long as this process.
    """
    if _is_utf8(path):
        return path
    count = max(n for n, part in enumerate(path.parts) if not _is_utf8(part)) + 1
    folder = Path(*path.parts[:count])
    status = folder.stat()
    opened = _opened_folder(folder, status.st_dev, status.st_ino)
    return Path(f"/proc/self/fd/{opened}", *path.parts[count:])


def _is_utf8(path: Path | str) -> bool:
    return not any("\udc80" <= char <= "\udcff" for char in str(path))  # PEP 383


@cache
def _opened_folder(folder: Path, _device: int, _inode: int) -> int:
    return os.open(folder, os.O_PATH | os.O_CLOEXEC)


def create(path: Path) -> BinaryIO:
    """Create a file for this user only, in place of one that is there. Raises OSError."""
    path.unlink(missing_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o600), "w+b")


def home_expanded(text: str) -> Path:
    """Return the path of a text that may begin with `~`. Raises UserError for an unknown home."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UserError("there is no such home folder", file=text) from None


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Read a file that a person named: UserError where it cannot be read."""
    try:
        yield
    except (OSError, ValueError) as error:  # a name may hold a NUL
        raise UserError(f"cannot read: {getattr(error, 'strerror', error)}", file=path) from None


def open_regular(path: Path, *, follow: bool = True) -> BinaryIO:
    """Open a regular file to read; OSError for a pipe, a device or a folder, without waiting.

    Without `follow` a link is refused as well: no file of a result is one.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "not a file", str(path))
    return open(descriptor, "rb")  # noqa: PTH123


def read_regular(path: Path, most: int, *, follow: bool = True) -> bytes:
    """Read a regular file of at most `most` bytes. Raises OSError, or ValueError for a larger."""
    with open_regular(path, follow=follow) as file:
        size = os.fstat(file.fileno()).st_size
        # A file of /proc has no size; the buffer is as large as what is asked for.
        room = min(most, size or 1 << 20)
        data = b"" if size > most else file.read(room + 1) or b""
    if size > most or len(data) > room:
        raise ValueError(f"larger than {most} bytes")
    return data


def read_bounded(path: Path, most: int) -> bytes:
    """Read a file that a person named; UserError also where it has more than `most` bytes."""
    try:
        return read_regular(path, most)
    except (OSError, ValueError) as error:  # a name may hold a NUL
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"cannot read: {reason or error}", file=path) from None


def left_by_guest(path: Path) -> bytes:
    """Read a file that the guest leaves; WorkloadFailed if it is missing or no file."""
    try:
        return read_regular(path, MOST_OF_GUEST, follow=False)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise WorkloadFailed(
            f"the guest left no {path.name} ({reason}); its job disk may be full"
        ) from None


def bound_json(data: bytes, most: int) -> bytes:
    """Return the text of a JSON document. Raises ValueError for one of more than `most` values.

    A value takes up to 200 bytes of memory when it is parsed, so values are counted before that;
    a comma or bracket within a text counts as one.
    """
    if (count := sum(map(data.count, (b",", b"[", b"{")))) > most:
        raise ValueError(f"{count} values, and at most {most} are read")
    return data


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with replacing(path) as temporary:
        # The name of a file may hold bytes that are no UTF-8, which Python has as surrogates.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: Path, value: object) -> None:
    """Write a JSON document whole or not at all: indented, keys in the order given."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON document that numalab wrote. UserError when it cannot be read or is not JSON."""
    try:
        text = bound_json(read_regular(path, MOST_OF_JSON), MOST_VALUES).decode("utf-8")
        return json.loads(text, parse_constant=_no_number)
    except FileNotFoundError:
        raise UserError("no such file", file=path) from None
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", file=path) from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"not JSON: {error}", file=path) from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")
