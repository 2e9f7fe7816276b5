"""Ctrl-C, SIGTERM and a closed terminal: reported at once, and remembered."""

import os
import signal
from contextlib import suppress
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Received:
    """The signal that ended this command, if one did."""

    number: int = 0


def handle_signals() -> None:
    """Let these signals raise KeyboardInterrupt, but SIGHUP where nohup(1) ignores it."""
    for number in SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def interrupt_calls() -> None:
    """Let Ctrl-C end a system call that waits for a lock, a pipe or a process.

    To be called after imports: polars puts a handler of its own before ours, with SA_RESTART
    (sigaction(2)), after which such a call goes on.
    """
    signal.siginterrupt(signal.SIGINT, True)


def received_signal() -> int:
    """Return the number of the signal that ended the command; 0 if none did."""
    return _Received.number


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
