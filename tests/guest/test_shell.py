"""`numalab shell` on a real terminal: typing, Ctrl-C inside the guest, leaving, a debugger."""

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from numalab.image.image_artifact import BuiltImage
from numalab.kernel.kernel_build import BuiltKernel
from numalab.places import cache_dir

NUMALAB = str(Path(sys.executable).with_name("numalab"))
SECONDS = 120  # to give up after


class Session:
    """A numalab on a pseudoterminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.execv(NUMALAB, ["numalab", "shell", *arguments])
        self._unread = b""

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read until the pattern has appeared; what came before it is forgotten."""
        deadline = time.monotonic() + SECONDS
        while not (match := re.search(pattern, self._unread.decode("utf-8", "replace"))):
            assert time.monotonic() < deadline, self._unread[-2000:]
            if select.select([self._terminal], [], [], 1.0)[0]:
                self._unread += self._read()
        text = self._unread.decode("utf-8", "replace")
        self._unread = text[match.end() :].encode()
        return match

    def status(self) -> int:
        """Wait for its end and return its exit status."""
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> bytes:
        try:
            return os.read(self._terminal, 4096)
        except OSError:  # nobody has the terminal open any more
            return b""


@contextmanager
def session(*arguments: str) -> Iterator[Session]:
    running = Session(*arguments)
    try:
        yield running
    finally:
        try:
            os.kill(running.pid, signal.SIGTERM)
            running.status()
        except (ProcessLookupError, ChildProcessError):
            pass


@pytest.fixture(autouse=True)
def built(kernel: BuiltKernel, image: BuiltImage) -> None:
    """Nothing is built while a test waits for the prompt."""


@pytest.fixture
def boots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of boots in a cache of this test; other guests of the host use another one.

    Everything else in the cache is a link into the shared one.
    """
    shared = cache_dir("kernels").parent
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    for entry in shared.iterdir():
        if entry.name != "boots":
            (cache / entry.name).symlink_to(entry)
    monkeypatch.setenv("NUMALAB_CACHE", str(cache))
    return cache / "boots"


def test_a_shell_is_typed_at_interrupted_and_left(boots: Path) -> None:
    with session("ring-2", "--mode", "tcg") as shell:
        shell.wait_for(r"Ctrl-\] at any time")
        shell.wait_for(r"ring-2:~# ")
        shell.type("numactl -H\r")
        assert shell.wait_for(r"available: (\d) nodes")[1] == "2"
        shell.wait_for(r"ring-2:~# ")
        # Its answer shows that the program runs: earlier, a shell may keep a Ctrl-C to itself.
        shell.type("cat -n\r")
        shell.type("waiting\r")
        shell.wait_for(r"1\s+waiting")
        shell.type("\x03")  # the program ends, and neither numalab nor the guest does
        shell.wait_for(r"ring-2:~# ")
        shell.type("exit\r")
        assert shell.status() == 0
    assert boots.is_dir()
    assert list(boots.iterdir()) == []


def test_a_debugger_finds_the_kernel_and_one_key_leaves() -> None:
    with session("ring-2", "--mode", "tcg", "--gdb") as shell:
        path = shell.wait_for(r"target remote (\S+)'")[1]
        shell.wait_for(r"ring-2:~# ")
        with socket.socket(socket.AF_UNIX) as stub:
            stub.settimeout(SECONDS)
            stub.connect(path)
            assert remote(stub, "?").startswith("T")  # stopped, with a signal's number
            assert len(remote(stub, "g")) > 16 * 16  # the registers
            assert remote(stub, "D") == "OK"  # detached; the guest goes on
        shell.type("echo still $((40 + 2))\r")
        shell.wait_for(r"[\r\n]still 42")
        shell.type("\x1d")
        assert shell.status() == 0
    assert not Path(path).exists()


def remote(stub: socket.socket, command: str) -> str:
    """Send a packet of gdb's remote protocol and return the answer to it."""
    stub.sendall(f"${command}#{sum(command.encode()) % 256:02x}".encode())
    data = b""
    while not (answer := re.search(rb"\+\$([^#]*)#..", data)):
        data += stub.recv(4096)
    stub.sendall(b"+")
    return answer[1].decode()


def test_lines_of_a_file_print_only_what_they_print(kernel: BuiltKernel, image: BuiltImage) -> None:
    done = subprocess.run(
        [NUMALAB, "shell", "mesh-2"],
        input="nproc\ncd /proc; echo $PWD\nexit 3\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("4\n/proc\n", 3), done.stderr
