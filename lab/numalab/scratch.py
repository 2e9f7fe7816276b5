"""Folders for files that are not finished: locked by their process, removed when it is gone.

The kernel releases a lock (flock(2)) also after SIGKILL. The next process that makes such a folder
beside one without a lock removes it.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Give a new folder, for this user only, that is removed when the block ends.

    Folders of the same prefix whose processes are gone are removed first. A block that renames its
    folder keeps it. Raises OSError.
    """
    remove_abandoned(parent, prefix)
    path, descriptor = _locked_folder(parent, prefix)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove this user's folders of a prefix that no process has locked."""
    with suppress(OSError), os.scandir(parent) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(prefix)]
        for name in names:
            _remove_abandoned(parent / name)


def _remove_abandoned(path: Path) -> None:
    with suppress(OSError):
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return
        descriptor = os.open(path, _FLAGS)
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(descriptor)


def _locked_folder(parent: Path, prefix: str) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with suppress(FileNotFoundError):
            descriptor = os.open(path, _FLAGS)
            with suppress(OSError):  # a file system without locks
                flock(descriptor, LOCK_EX)
            # Another process may have removed it before it was locked.
            with suppress(FileNotFoundError):
                if os.path.samestat(path.lstat(), os.fstat(descriptor)):
                    return path, descriptor
            os.close(descriptor)
