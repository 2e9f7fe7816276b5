"""Ctrl-C, SIGTERM and a closed terminal: reported at once, and remembered."""

import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TIME_TO_END = 30.0  # seconds, to end guests and to store their files


class _Received:
    """The signal that ended this command, if one did, and when the last one was obeyed (s).

    While signals are `held`, one that came is `waiting`.
    """

    number: int = 0
    at: float = -math.inf
    held: bool = False
    waiting: bool = False


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


@contextmanager
def hold_signals() -> Iterator[None]:
    """Let a signal end imports after them, as a library in Rust prints a panic if it comes amid.

    The signal is reported at once. A later one ends an import that hangs.
    """
    _Received.held = True
    try:
        yield
    finally:
        _Received.held = False
    if _Received.waiting:
        raise KeyboardInterrupt


def received_signal() -> int:
    """Return the number of the signal that ended the command; 0 if none did."""
    return _Received.number


def _interrupt(number: int, _frame: FrameType | None) -> None:
    """Report the signal at once: ending the guest and storing its files takes a moment.

    Another signal meanwhile must not disturb that. A later one interrupts the command again: it may
    hang, or the exception was raised where Python ignores it (`object.__del__`). No handler becomes
    SIG_IGN: Python prints a traceback for a signal that has arrived (_PyErr_CheckSignalsTstate()).
    """
    now = time.monotonic()
    if now - _Received.at < _TIME_TO_END:
        return
    _Received.number, _Received.at = _Received.number or number, now
    with suppress(OSError):  # not sys.stderr: the signal may interrupt a write to it
        os.write(2, b"numalab: interrupted\n")
    if not _Received.held or _Received.waiting:
        raise KeyboardInterrupt
    _Received.waiting = True
