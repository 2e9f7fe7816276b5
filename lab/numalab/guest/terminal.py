"""Connects a guest's console to the user's terminal."""

import errno
import os
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from numalab.errors import HostError
from numalab.qemu.guest import Guest

LEAVE = b"\x1d"  # Ctrl-], as in telnet and virsh
# The shell prints this before its first prompt. Earlier output is in console.log only.
READY = b"\x05\x06"
_END_OF_FILE = b"\x04"  # Ctrl-D
_AGAIN = 0.3  # seconds
_CHUNK = 4096


@dataclass
class Terminal:
    """A keyboard and a screen, as descriptors. `left`: the user left before the guest ended."""

    keyboard: int
    screen: int
    left: bool = False

    def __post_init__(self) -> None:
        """Call isatty() now: after a hang-up it returns False."""
        self._is_terminal = os.isatty(self.keyboard)

    @contextmanager
    def joined(self, guest: Guest) -> Iterator[None]:
        """Copy input and output in both directions; LEAVE, or a hang-up, ends the guest.

        At the end of input that is no terminal, the guest's shell gets Ctrl-D repeatedly: a shell
        ignores Ctrl-D while it sets up its own terminal. Raises HostError where the guest's
        console cannot be opened.
        """
        console = open_console(guest)
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
        """Copy keyboard input to the console; return False at its end."""
        data = _read(self.keyboard)
        before, leave, _ = data.partition(LEAVE)
        if leave or (not data and self._is_terminal):
            self.left = True
            return False
        _write(console, before, stopped)
        return bool(before)


def open_console(guest: Guest) -> int:
    """Connect to the guest's console; return a descriptor that does not block. Raises HostError."""
    console = socket.socket(socket.AF_UNIX)
    try:
        console.connect(str(guest.console))
    except OSError as error:
        console.close()
        reason = f"cannot connect to the guest's console {guest.console}: {error.strerror}"
        raise HostError(reason) from None
    console.setblocking(False)
    return console.detach()


def _read(descriptor: int) -> bytes:
    """Read available bytes; return none at the end of file, or after a hang-up."""
    try:
        return os.read(descriptor, _CHUNK)
    except ConnectionResetError:  # QEMU has ended before it read what was typed
        return b""
    except OSError as error:
        if error.errno == errno.EIO:
            return b""
        raise


def _write(descriptor: int, data: bytes, stopped: int) -> None:
    """Write `data`, until the reader is gone or `stopped` is closed."""
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
