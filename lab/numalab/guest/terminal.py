"""Joins a guest's console to the terminal of the person who started it."""

import errno
import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from numalab.errors import HostError
from numalab.qemu.guest import Guest

LEAVE = b"\x1d"  # Ctrl-], as in telnet and virsh
# The shell prints this before its first prompt; what the console had before is in console.log.
READY = b"\x05\x06"
_END_OF_FILE = b"\x04"  # Ctrl-D
_AGAIN = 0.3  # seconds
_CHUNK = 4096


@dataclass
class Terminal:
    """A keyboard and a screen, as descriptors. `left`: the person left before the guest ended."""

    keyboard: int
    screen: int
    left: bool = False

    def __post_init__(self) -> None:
        """Note what the keyboard is while it is there: one that has hung up is no terminal."""
        self._is_terminal = os.isatty(self.keyboard)

    @contextmanager
    def joined(self, guest: Guest) -> Iterator[None]:
        """Pass everything on in both directions; LEAVE, or a hang-up, ends the guest.

        At the end of the input, where that is no terminal, the guest's shell gets Ctrl-D, again and
        again: it forgets one that comes while it sets up its own terminal. Raises
        HostError where the guest's console cannot be opened.
        """
        path = guest.console()
        try:
            console = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise HostError(f"cannot open the guest's console {path}: {error.strerror}") from None
        stopped, stop = os.pipe()
        thread = threading.Thread(target=self._pass_on, args=(console, stopped, guest))
        thread.start()
        try:
            yield
        finally:
            os.close(stop)
            thread.join()
            os.close(stopped)
            os.close(console)

    def _pass_on(self, console: int, stopped: int, guest: Guest) -> None:
        shown, early = False, b""
        readers = [console, stopped]  # and the keyboard, once there is a shell
        pause: float | None = None
        while True:
            ready, _, _ = select.select(readers, [], [], pause)
            if not ready:
                _write(console, _END_OF_FILE, stopped)
            elif console in ready:
                data = _read(console)
                if not data:
                    return  # QEMU has ended
                if not shown:
                    early += data
                    _, marker, data = early.partition(READY)
                    shown, early = bool(marker), early[-len(READY) :]
                    readers += [self.keyboard] if shown else []
                _write(self.screen, data, stopped)
            elif stopped in ready:
                return
            elif self.keyboard in ready and not self._typed(console, stopped):
                readers.remove(self.keyboard)
                pause = _AGAIN
                if self.left:
                    guest.end()
                    return

    def _typed(self, console: int, stopped: int) -> bool:
        """Pass on what was typed; False when nothing more will come."""
        data = _read(self.keyboard)
        before, leave, _ = data.partition(LEAVE)
        if leave or (not data and self._is_terminal):
            self.left = True
            return False
        _write(console, before, stopped)
        return bool(before)


def _read(descriptor: int) -> bytes:
    """Read what there is; nothing at the end, also where the other side of a terminal is gone."""
    try:
        return os.read(descriptor, _CHUNK)
    except OSError as error:
        if error.errno == errno.EIO:
            return b""
        raise


def _write(descriptor: int, data: bytes, stopped: int) -> None:
    """Write all of it, unless nobody reads any more, or it is to stop."""
    while data:
        ready, writable, _ = select.select([stopped], [descriptor], [])
        if ready:
            return
        try:
            data = data[os.write(descriptor, data) :] if writable else data
        except BlockingIOError:
            continue
        except OSError:
            return
