"""A virtual NUMA host with a working KVM: QEMU's TCG emulates AMD's SVM.

The host is a topology file like any other. One boot serves many tests; they send commands to the
runner in it (runner.py) over a serial line.
"""

import itertools
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

from numalab.topology.topology import Topology
from testbed.kernel import HostKernel
from testbed.runner import LINE

# Emulated time follows this host's clock, so what is slow here is late in there. Limits are
# therefore CPU seconds of QEMU, and many more seconds of wall time for a host that is busy or a
# guest that waits for nothing.
_BOOT_CPU_SECONDS = 300.0
_WALL_PER_CPU_SECOND = 8.0
_TICKS = os.sysconf("SC_CLK_TCK")
_ENV = {
    "NUMALAB_HOME": "/disk/project",
    "PYTHONPATH": "/disk/python:/disk/project:/disk/project/lab",
    "PATH": "/disk/project/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}


class BedFailed(Exception):
    """The bed's own machinery failed: what was to be tested is not to blame."""


@dataclass(frozen=True)
class Parts:
    """What a host is made of: who emulates it, its kernel, its root, and its other disks."""

    emulator: Path
    kernel: HostKernel
    root: Path
    disks: tuple[Path, ...]


@dataclass(frozen=True)
class Completed:
    """A command that has ended in the bed; `status` is minus the signal that ended it."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    cut: bool

    def json(self) -> Any:
        """Return its output as JSON; what it said otherwise fails the test."""
        assert self.status == 0, self.output()
        return json.loads(self.stdout)

    def output(self) -> str:
        """Return what it said, for a message."""
        return f"{' '.join(self.argv)} -> {self.status}\n{self.stdout}\n{self.stderr}"


@dataclass
class Pending:
    """A command that was begun in the bed."""

    bed: "Bed"
    argv: tuple[str, ...]
    limit: float
    _answers: Queue[Completed | None] = field(default_factory=lambda: Queue(1))

    def result(self) -> Completed:
        """Wait until it has ended. Raises BedFailed where the bed has, or its time is over."""
        return self.bed.wait(self)


class Bed:
    """A host that is up."""

    def __init__(
        self, process: subprocess.Popen[bytes], line: socket.socket, console: Path
    ) -> None:
        self._process = process
        self._line = line
        self._console = console
        self._numbers = itertools.count(1)
        self._pending: dict[int, Pending] = {}
        self._ready = threading.Event()
        self._broken = ""  # what came over the line and was no answer
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def begin(
        self,
        *argv: str,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
        user: str = "",
        seconds: float = 400.0,
    ) -> Pending:
        """Start a command; `seconds` is QEMU's CPU time from now on, after which the bed fails."""
        number = next(self._numbers)
        pending = self._pending[number] = Pending(self, argv, self.cpu_seconds() + seconds)
        request = {
            "id": number,
            "argv": argv,
            "stdin": stdin,
            "env": {**_ENV, **(env or {})},
            "user": user,
            "seconds": seconds * _WALL_PER_CPU_SECOND,
        }
        data = json.dumps(request).encode("ascii") + b"\n"
        assert len(data) < LINE
        self._line.sendall(data)
        return pending

    def run(self, *argv: str, **options: Any) -> Completed:
        """Run a command to its end, whatever that is."""
        return self.begin(*argv, **options).result()

    def wait(self, pending: Pending) -> Completed:
        """Wait for a command."""
        wall = time.monotonic() + _WALL_PER_CPU_SECOND * (pending.limit - self.cpu_seconds())
        while pending._answers.empty():
            self._check(f"{' '.join(pending.argv)[:200]}", pending.limit, wall)
            time.sleep(0.05)
        answer = pending._answers.get()
        if answer is None:
            raise BedFailed(f"the bed's host is gone {self._broken}\n{self.console()}")
        return answer

    def await_ready(self) -> None:
        """Wait until the runner answers. Raises BedFailed with the host's console."""
        wall = time.monotonic() + _WALL_PER_CPU_SECOND * _BOOT_CPU_SECONDS
        while not self._ready.is_set():
            self._check("the boot", _BOOT_CPU_SECONDS, wall)
            time.sleep(0.05)

    def cpu_seconds(self) -> float:
        """Return the CPU time that QEMU has taken so far."""
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        except OSError:
            raise BedFailed(f"QEMU is gone\n{self.console()}") from None
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / _TICKS

    def console(self) -> str:
        """Return the end of the host's kernel log."""
        data = self._console.read_bytes() if self._console.exists() else b""
        return data[-4000:].decode("utf-8", "replace")

    def _check(self, what: str, limit: float, wall: float) -> None:
        if self._broken:
            raise BedFailed(f"the runner sent no answer: {self._broken}")
        if self._process.poll() is not None:
            raise BedFailed(f"QEMU ended during {what}\n{self.console()}")
        if self.cpu_seconds() > limit or time.monotonic() > wall:
            # What is asked of it from now on fails at once, instead of being waited for as long.
            self._process.kill()
            raise BedFailed(f"{what} took too long\n{self.console()}")

    def _read(self) -> None:
        rest = b""
        while data := self._received():
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > 4 * LINE:
                break
            try:
                for line in lines:
                    self._answered(line)
            except (ValueError, KeyError, TypeError) as error:
                self._broken = f"{error!r} in {lines!r}"[:1000]
                break
        for pending in self._pending.values():
            pending._answers.put(None)

    def _received(self) -> bytes:
        """Return what came next; nothing when the line is closed, at either end."""
        try:
            return self._line.recv(1 << 16)
        except OSError:
            return b""

    def _answered(self, line: bytes) -> None:
        """Take an answer. Raises ValueError, KeyError or TypeError for what is none."""
        value = json.loads(line)
        if "ready" in value:
            self._ready.set()
            return
        stdout, stderr = str(value["stdout"]), str(value["stderr"])
        status, cut = int(value["status"]), bool(value["cut"])
        pending = self._pending.pop(value["id"])
        pending._answers.put(Completed(pending.argv, status, stdout, stderr, cut))


def render_argv(
    topology: Topology,
    parts: Parts,
    folder: Path,
    words: Sequence[str] = (),
) -> tuple[str, ...]:
    """Render QEMU's command line for a host of this shape; `words` are its kernel's."""
    shape = topology.packaging
    packages = f"sockets={shape.sockets},dies={shape.dies},cores={shape.cores}"
    memory = topology.memory_mib
    cmdline = (
        "console=ttyS0 oops=panic panic=-1 nokaslr mitigations=off"
        # All CPUs read one clock. Without it the kernel may distrust it, and KVM then as well.
        " tsc=reliable no_timer_check"
    )
    argv = [
        *(str(parts.emulator), "-nodefaults", "-no-user-config", "-display", "none"),
        *("-no-reboot", "-machine", "q35,nvdimm=on"),
        # A thread for each CPU: with one for all, QEMU 7.2 gave guests of this host interrupts
        # while they had them disabled, and their CPUs soon waited for each other's locks for ever.
        # A `rep movsb` is a byte at a time in emulation.
        *("-accel", "tcg,thread=multi", "-cpu", "max,erms=off,fsrm=off"),
        *("-smp", f"{topology.cpu_count},{packages},threads={shape.threads}"),
        *("-m", f"{memory}M,slots=8,maxmem={memory + 8192}M"),
        *("-kernel", str(parts.kernel.image), "-initrd", str(parts.kernel.initrd)),
        *("-append", " ".join([cmdline, *words])),
        *("-serial", f"file:{folder / 'console.log'}"),
        *("-chardev", f"socket,id=runner,path={folder / 'runner'},server=on,wait=on"),
        *("-serial", "chardev:runner"),
        *("-monitor", f"unix:{folder / 'monitor'},server=on,wait=off"),
    ]
    for node in topology.nodes:
        backing = ""
        if node.memory_mib:
            size = f"size={node.memory_mib}M"
            argv += ["-object", f"memory-backend-memfd,id=node{node.id},{size},share=on"]
            backing = f",memdev=node{node.id}"
        listed = "".join(f",cpus={cpu}" for cpu in node.cpus)
        argv += ["-numa", f"node,nodeid={node.id}{listed}{backing}"]
    for source, row in enumerate(topology.distances):
        for target, distance in enumerate(row):
            argv += ["-numa", f"dist,src={source},dst={target},val={distance}"]
    for number, disk in enumerate((parts.root, *parts.disks)):
        back = f"memory-backend-file,id=disk{number},mem-path={disk},share=on,readonly=on"
        argv += ["-object", f"{back},size={disk.stat().st_size}"]
        argv += ["-device", f"nvdimm,id=nvdimm{number},memdev=disk{number},unarmed=on"]
    return tuple(argv)


@contextmanager
def running(argv: Sequence[str], folder: Path) -> Iterator[Bed]:
    """Boot a host and give it when its runner answers; at the end it is killed. Raises BedFailed.

    It is booted once only: a host that oopses is a defect to be looked at.
    """
    with (folder / "qemu.log").open("wb") as log:
        # Tests that are killed take their host along.
        mortal = ("setpriv", "--pdeathsig", "KILL", *argv)
        process = subprocess.Popen(mortal, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        line = _connect(folder / "runner", process, folder / "qemu.log")
        with line:
            bed = Bed(process, line, folder / "console.log")
            bed.await_ready()
            yield bed
    finally:
        process.kill()
        process.wait()


def _connect(path: Path, process: subprocess.Popen[bytes], log: Path) -> socket.socket:
    line = socket.socket(socket.AF_UNIX)
    deadline = time.monotonic() + 60
    while line.connect_ex(str(path)) != 0:
        if process.poll() is not None or time.monotonic() > deadline:
            raise BedFailed(f"QEMU does not start\n{log.read_text()}")
        time.sleep(0.05)
    return line
