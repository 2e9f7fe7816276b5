"""Standard input, output and errors, usable even if the caller closed them."""

import os
import select
import sys
from contextlib import suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def open_streams() -> None:
    """Open the standard streams that are closed; write all bytes; ignore failed writes to stderr.

    A file must never get the descriptor 1 or 2: messages would go into it. A write to a closed
    stdout still fails, as to a full one: /dev/null is opened for reading (gnulib's stdopen()).
    Messages are not the result, so a command goes on without stderr.
    """
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # gets the lowest free number, which is this one
            os.set_inheritable(descriptor, True)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = _text(_Whole(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Lenient(2, "w", closefd=False), sys.stderr, line_buffering=True)


def _text(file: FileIO, before: TextIO | None, *, line_buffering: bool = False) -> TextIOWrapper:
    """Return a text stream in place of Python's, which PYTHONUNBUFFERED leaves without a buffer.

    Shows `\\u2192` where the encoding lacks it.
    """
    encoding = "utf-8" if before is None else before.encoding
    lines = line_buffering or file.isatty()
    return TextIOWrapper(BufferedWriter(file), encoding, "backslashreplace", line_buffering=lines)


def drop_output() -> None:
    """Discard unwritten output: Python would write it again on exit, and fail again."""
    with suppress(OSError):
        sys.stdout.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with suppress(OSError):
        sys.stdout.flush()


class _Whole(FileIO):
    """A file that takes all bytes of a write: it waits where a pipe is full (O_NONBLOCK)."""

    def write(self, data: "ReadableBuffer", /) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            if (written := super().write(left)) is None:
                select.select([], [self], [])
            else:
                left = left[written:]
        return size


class _Lenient(_Whole):
    """A file that ignores errors of writes."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes
