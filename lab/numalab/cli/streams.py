"""Standard input, output and errors, usable even if the caller closed them."""

import os
import sys
from contextlib import suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def open_streams() -> None:
    """Open the standard streams that are closed, and ignore failed writes to stderr.

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
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if isinstance(sys.stdout, TextIOWrapper):  # shows `\u2192` where the encoding lacks it
        sys.stdout.reconfigure(errors="backslashreplace")
    encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
    lenient = BufferedWriter(_Lenient(2, "w", closefd=False))
    sys.stderr = TextIOWrapper(lenient, encoding, "backslashreplace", line_buffering=True)


def drop_output() -> None:
    """Discard unwritten output: Python would write it again on exit, and fail again."""
    with suppress(OSError):
        sys.stdout.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with suppress(OSError):
        sys.stdout.flush()


class _Lenient(FileIO):
    """A file that ignores errors of writes."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return memoryview(data).nbytes
