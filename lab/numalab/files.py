"""Files that are written whole or not at all, and read with one clear message."""

import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from numalab.errors import HostError, UserError, WorkloadFailed

# All that polars tells of an error of the operating system's is Rust's text of it
# (std::io::Error): "No space left on device (os error 28)".
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_FULL_IN_RUST = re.compile(rf"\(os error ({'|'.join(map(str, _FULL))})\)")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name in the same folder, and rename it to `path` when the block succeeds.

    The temporary name may be made a file, which then only this user can read, or a folder; on any
    failure it is removed. A full disk is a HostError that names the path.
    """
    make_dir(path.parent)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as scratch:
            temporary = Path(scratch) / path.name
            yield temporary
            if temporary.is_file() and not temporary.stat().st_mode & 0o100:
                temporary.chmod(0o600)
            if temporary.is_dir() and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            temporary.replace(path)
    except OSError as error:
        raise HostError(f"cannot write {path}: {error.strerror or error}") from error
    except Exception as error:
        if full := _FULL_IN_RUST.search(str(error)):
            raise HostError(f"cannot write {path}: {os.strerror(int(full[1]))}") from error
        raise


def make_dir(path: Path) -> None:
    """Create a folder, for this user only, with those above it; HostError when that fails."""
    try:
        for missing in reversed([each for each in (path, *path.parents) if not each.is_dir()]):
            missing.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise HostError(f"cannot create {path}: {error.strerror}") from None


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Read a file that a person named: UserError where it cannot be read."""
    try:
        yield
    except (OSError, ValueError) as error:  # a name may hold a NUL
        raise UserError(f"cannot read: {getattr(error, 'strerror', error)}", file=path) from None


def read_bounded(path: Path, most: int) -> bytes:
    """Read a file that a person named; UserError also where it has more than `most` bytes."""
    with reading(path), path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise UserError(f"larger than {most} bytes", file=path)
    return data


def left_by_guest(path: Path) -> bytes:
    """Read what the guest was to leave; WorkloadFailed when it is not there, or is no file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise WorkloadFailed(
            f"the guest left no {path.name} ({error.strerror}); its job disk may be full"
        ) from None


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
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except FileNotFoundError:
        raise UserError("no such file", file=path) from None
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", file=path) from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"not JSON: {error}", file=path) from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")
