"""The entry point of `numalab`: it handles Ctrl-C and SIGTERM before any import."""

import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Received:
    """The signal that ended this command, if one did."""

    number: int = 0


def main() -> NoReturn:
    """Run the command line; exit with 128 + the signal's number when one ended it."""
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    os.umask(0o077)  # what numalab writes is for this user only
    try:
        from numalab.cli.streams import open_streams  # noqa: PLC0415 - the handlers come first

        open_streams()
        from numalab.cli.main import main as run  # noqa: PLC0415

        run()
    except BaseException as end:
        # Some libraries, such as pydantic, turn a KeyboardInterrupt into an error of their own.
        if _Received.number:
            sys.exit(128 + _Received.number)
        if isinstance(end, KeyboardInterrupt):
            sys.exit(130)
        raise


def was_interrupted() -> bool:
    """Whether a signal has ended the command."""
    return bool(_Received.number)


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    """Report the signal at once: ending the guest and storing its files takes a moment.

    A second signal must not disturb that. It gets an empty handler, not SIG_IGN: if both arrive
    at once, Python prints a traceback for an ignored one (_PyErr_CheckSignalsTstate()).
    """
    for signal_number in SIGNALS:
        signal.signal(signal_number, _leave_alone)
    _Received.number = number
    with suppress(OSError):  # not sys.stderr: the signal may interrupt a write to it
        os.write(2, b"numalab: interrupted\n")
    raise KeyboardInterrupt


def _leave_alone(_number: int, _frame: FrameType | None) -> None:
    """Ignore a signal."""
