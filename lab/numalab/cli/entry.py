"""Where the command `numalab` begins: it handles Ctrl-C and SIGTERM before it imports anything."""

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
        # Libraries make errors of their own of what interrupts them, as pydantic's schemas do.
        if _Received.number:
            sys.exit(128 + _Received.number)
        if isinstance(end, KeyboardInterrupt):
            sys.exit(130)
        raise


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    """Say at once that the signal came: ending the guest and keeping its files takes a moment.

    Another signal must not disturb that. Its handler does nothing: where both came at once,
    Python would print a traceback for one that is suddenly ignored (_PyErr_CheckSignalsTstate()).
    """
    for signal_number in SIGNALS:
        signal.signal(signal_number, _leave_alone)
    _Received.number = number
    with suppress(OSError):  # not sys.stderr: this may have come in the middle of a write to it
        os.write(2, b"numalab: interrupted\n")
    raise KeyboardInterrupt


def _leave_alone(_number: int, _frame: FrameType | None) -> None:
    """Do nothing about a signal."""
