"""Locks between processes: flock(2) on a file or a folder."""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from numalab.errors import HostError, shown
from numalab.files import make_dir


def _lock(descriptor: int, path: Path, flags: int = LOCK_NB) -> bool:
    """Lock an open file; False where another process has it. Raises HostError."""
    try:
        flock(descriptor, LOCK_EX | flags)
    except BlockingIOError:
        return False
    except OSError as error:
        raise _refused(path, error) from None
    return True


def _refused(path: Path, error: OSError) -> HostError:
    return HostError(f"cannot lock {shown(path)}: {error.strerror}")


def is_locked(path: Path) -> bool:
    """Tell whether some process holds the lock on an existing folder or file.

    Raises HostError where the file system has no locks.
    """
    try:
        descriptor = _opened(path, 0)
    except OSError:
        return False
    try:
        return not _lock(descriptor, path)
    finally:
        os.close(descriptor)


def _opened(path: Path, flags: int) -> int:
    """Open a folder or a file to lock it. Raises OSError, also for a pipe, a device or a link."""
    # A pipe without a writer would block, and a device may do anything when it is opened.
    if not path.is_dir():
        flags |= os.O_NOFOLLOW
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(path.lstat().st_mode):
                raise OSError(errno.EINVAL, "not a file or a folder", str(path))
    flags |= os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(OSError):  # NFS wants a file that is open for writing: flock(2)
        return os.open(path, os.O_RDWR | flags, 0o600)
    return os.open(path, os.O_RDONLY | flags, 0o600)


@contextmanager
def locked(
    path: Path,
    on_wait: Callable[[], None] | None = None,
    *,
    wait: bool = True,
    patience: float = 0.0,
) -> Iterator[int]:
    """Hold an exclusive lock on `path` against other processes: a folder, or a file made for it.

    Gives the descriptor that holds it; a process that is handed it holds the lock as well.
    `on_wait` is called once if another process has the lock. Without `wait`, it is a HostError
    that it still has it after `patience` seconds, and that the path cannot be locked.
    """
    make_dir(path.parent)
    try:
        descriptor = _opened(path, 0 if path.is_dir() else os.O_CREAT)
    except OSError as error:
        raise _refused(path, error) from None
    try:
        if not _lock(descriptor, path):
            if on_wait is not None:
                on_wait()
            deadline = time.monotonic() + patience
            while not wait and not _lock(descriptor, path):
                if time.monotonic() >= deadline:
                    raise HostError(f"another numalab is using {shown(path)}")
                time.sleep(0.1)
            _lock(descriptor, path, 0)
        yield descriptor
    finally:
        os.close(descriptor)
