"""A terminal joined to a guest's console: what is passed on, and how one leaves."""

import os
import select
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from numalab.errors import HostError
from numalab.guest.terminal import LEAVE, READY, Terminal
from numalab.qemu.guest import Guest
from support.console_socket import ConsoleSocket

SECONDS = 60  # to give up after; nothing waits this long when it works


@dataclass
class FakeGuest:
    """A guest whose console is a socket, as QEMU makes one."""

    socket: ConsoleSocket
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def console(self) -> Path:
        return self.socket.path

    @property
    def master(self) -> int:
        return self.socket.descriptor

    def end(self) -> None:
        self.ended.set()

    def reads(self, wanted: bytes) -> None:
        output = b""
        while wanted not in output:
            output += os.read(self.master, 100)
        assert output.strip(wanted) == b""


@contextmanager
def guest() -> Iterator[FakeGuest]:
    with (
        tempfile.TemporaryDirectory(prefix="numalab-") as folder,
        closing(ConsoleSocket(Path(folder) / "socket")) as socket,
    ):
        yield FakeGuest(socket)


@contextmanager
def joined(fake: FakeGuest, keyboard: int, screen: int) -> Iterator[Terminal]:
    terminal = Terminal(keyboard, screen)
    with terminal.joined(cast(Guest, fake)):
        yield terminal


def screen_until(screen: int, wanted: bytes) -> bytes:
    output = b""
    while wanted not in output:
        output += os.read(screen, 100)
    return output


def test_what_the_shell_says_is_shown_and_what_is_typed_reaches_it() -> None:
    (keys, keyboard), (show, screen) = os.pipe(), os.pipe()
    with guest() as fake, joined(fake, keys, screen) as terminal:
        os.write(keyboard, b"early\n")  # waits for the shell
        os.write(fake.master, b"booting ...\x05 half")
        os.write(fake.master, READY[:1])
        os.write(fake.master, READY[1:] + b"# ")
        assert screen_until(show, b"# ") == b"# "
        fake.reads(b"early\n")
        os.write(keyboard, b"\x03")
        fake.reads(b"\x03")  # Ctrl-C is the guest's
        os.close(keyboard)
        fake.reads(b"\x04")  # the end of the input is an end of file for the shell
        os.write(fake.master, b"bye")
        assert screen_until(show, b"bye") == b"bye"
    assert not terminal.left and not fake.ended.is_set()


def test_one_key_ends_the_guest() -> None:
    (keys, keyboard), (_, screen) = os.pipe(), os.pipe()
    with guest() as fake, joined(fake, keys, screen) as terminal:
        os.write(fake.master, READY)
        os.write(keyboard, b"ls" + LEAVE + b"rm")
        assert fake.ended.wait(SECONDS)
    assert terminal.left


def test_a_terminal_that_hangs_up_ends_the_guest() -> None:
    (near, far), (_, screen) = os.openpty(), os.pipe()
    with guest() as fake, joined(fake, far, screen) as terminal:
        os.write(fake.master, READY)
        os.close(near)
        assert fake.ended.wait(SECONDS)
    assert terminal.left


def test_a_guest_that_reads_nothing_can_be_left() -> None:
    (keys, keyboard), (_, screen) = os.pipe(), os.pipe()
    with guest() as fake, joined(fake, keys, screen):
        os.write(fake.master, READY)
        os.set_blocking(keyboard, False)
        with pytest.raises(BlockingIOError):  # as soon as everything between is full
            while True:
                os.write(keyboard, bytes(60_000).replace(b"\0", b"x"))


def test_a_guest_that_ends_before_it_reads_what_was_typed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)  # in place of pytest's
    (keys, keyboard), (_, screen) = os.pipe(), os.pipe()
    with guest() as fake, joined(fake, keys, screen) as terminal:
        os.write(fake.master, READY)
        os.write(keyboard, b"typed ahead\n")
        select.select([fake.master], [], [], SECONDS)
        fake.socket.close()  # the console is reset
    assert not terminal.left
    assert capfd.readouterr().err == ""


def test_a_console_that_cannot_be_opened() -> None:
    with guest() as fake:
        fake.console.unlink()
        expected = pytest.raises(HostError, match="cannot connect to the guest's console")
        with expected, joined(fake, 0, 1):
            pass
