"""Runs `numalab` in a child process with limits, in a folder full of traps, and judges the end.

A `Box` has a working folder, a cache, a home, temporary files, and beside them `outside`: files
with a secret, which hostile input points at, and where hostile code would leave a mark.
"""

import hashlib
import json
import os
import pty
import re
import resource
import select
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import IO, Any

import numalab
from fuzz.runner import MOST_SECONDS
from numalab.image.image_artifact import built_image
from numalab.image.recipe import load_recipe
from numalab.places import BELIEVED, shipped_dir

MOST_MEMORY = 2 << 30
ASLEEP = 30.0  # seconds without any CPU time, all processes sleeping: the command hangs
MOST_LINES, MOST_TEXT = 100, 64 << 10  # of what a command prints on stderr
SECRET = "canary-" + "e9b1c4"  # in parts: this file holds no secret
PROGRAM = ("-P", "-c", "from numalab.cli.entry import main; main()")
_PACKAGE = Path(numalab.__file__).parent
_TRACES = re.compile(
    rb"Traceback \(most recent|panicked at|Exception ignored|Fatal Python|internal error|"
    rb"[a-z]Warning: |core dumped"
)
_CONTROLS = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
_PIPE_CLOSED = 141

Word = str | bytes | Path


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code (128 + signal), outputs, CPU seconds, peak memory in bytes.

    `stopped` is why it had to be killed, empty for a command that ended by itself.
    """

    words: tuple[Word, ...]
    code: int
    out: bytes
    err: bytes
    cpu: float
    peak: int
    stopped: str = ""
    terminal: bool = False

    def __str__(self) -> str:
        line = " ".join(shlex.quote(os.fsdecode(word)) for word in self.words)
        tail = self.err[-1500:].decode("utf-8", "backslashreplace")
        figures = f"exit code {self.code}, {self.cpu:.1f} s CPU, {self.peak >> 20} MiB"
        return f"numalab {line}\n{figures}\n{tail}"


@cache
def documented_codes() -> frozenset[int]:
    """Return the exit codes of the list in docs/reference/exit-codes.md, 0 among them."""
    text = (shipped_dir() / "docs/reference/exit-codes.md").read_text(encoding="utf-8")
    cells = re.findall(r"^- ([0-9, ]+)[: ]", text, re.MULTILINE)
    codes = frozenset(int(code) for cell in cells for code in cell.split(","))
    assert {0, 2, 9, 130} <= codes, "the list of docs/reference/exit-codes.md was not read"
    return codes


@cache
def _checkout() -> Path:
    """Make a checkout whose inputs are copies, so that no case can write into the real one."""
    path = Path(tempfile.mkdtemp(prefix="fuzz-checkout-"))
    # Not atexit: processes of multiprocessing do not run its functions.
    Finalize(None, shutil.rmtree, (path, True), exitpriority=1)
    path.chmod(0o755)
    for name in BELIEVED:
        if (shipped_dir() / name).is_dir():
            shutil.copytree(shipped_dir() / name, path / name)
    (path / "lab").symlink_to(_PACKAGE.parent)
    return path


class Box:
    """The folders of one case, and the commands that run in them."""

    def __init__(self, scratch: Path) -> None:
        self.scratch, self.outside = scratch, scratch / "outside"
        self.checkout = _checkout()
        for name in ("work", "home", "cache", "tmp"):
            (scratch / name).mkdir()
        self.work, self.cache, self.tmp = scratch / "work", scratch / "cache", scratch / "tmp"
        self._traps()
        self._before = self._canary()

    @property
    def mark(self) -> Path:
        """The file that hostile code would make."""
        return self.outside / "ran"

    def with_image(self) -> None:
        """Put the image that this host has built into the cache, so that none is built."""
        image = built_image(load_recipe("base"))
        assert image is not None, "no image is built; see missing_image()"
        images = image.path.parents[1]
        for name in (image.path.parent.name, "packages"):
            shutil.copytree(
                images / name, self.cache / "images" / name, copy_function=_link, symlinks=True
            )
        for folder in (self.cache / "images", *(self.cache / "images").iterdir()):
            folder.chmod(0o700)

    def _traps(self) -> None:
        for name in ("secret.txt", "index.html", "mine.running/out.txt", "plan.json", "f.c"):
            path = self.outside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("public\n" if name == "f.c" else f"{SECRET}\n")

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables of a command: nothing of this process but the path."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.scratch / "home"),
            "TMPDIR": str(self.tmp),
            "NUMALAB_CACHE": str(self.cache),
            "PYTHONPATH": os.pathsep.join([str(self.checkout / "lab"), *_TESTS]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LC_ALL": "C.UTF-8",
            "TERM": "dumb",
            **(more or {}),
        }

    def run(
        self,
        *words: Word,
        program: Sequence[str] = PROGRAM,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | IO[Any] = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        closed: Iterable[int] = (),
        terminal: bool = False,
        user: int | None = None,
        wrap: Sequence[str] = (),
        memory: int = MOST_MEMORY,
    ) -> Ended:
        """Run a command to its end, or until a limit stops it, and leave no process of it.

        Outputs that are not given are collected; `terminal` has both go to a terminal. `wrap` is a
        command that starts the one after it.
        """
        limits = f'ulimit -t {int(MOST_SECONDS)}; ulimit -c 0; exec "$@"'
        limits += "".join(f" {number}>&-" for number in closed)
        master, slave = pty.openpty() if terminal else (-1, -1)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            streams = (slave, slave) if terminal else (stdout or out, stderr or err)
            child = subprocess.Popen(
                [
                    "/bin/sh",
                    "-c",
                    limits,
                    "sh",
                    *wrap,
                    sys.executable,
                    *program,
                    *map(os.fsencode, words),
                ],
                cwd=cwd or self.work,
                env=self.environment(env),
                stdin=stdin,
                stdout=streams[0],
                stderr=streams[1],
                user=user,
                group=user,
                extra_groups=None if user is None else [],
                start_new_session=True,
            )
            if terminal:
                os.close(slave)
            try:
                ended, shown = _watch(child, self.scratch, memory, master)
                if left := end_processes(self.scratch):
                    reason = ended.stopped or f"{len(left)} processes are left"
                    ended = replace(ended, stopped=reason)
            finally:
                end_processes(self.scratch, 0.0)
                if terminal:
                    os.close(master)
            texts = (shown, b"") if terminal else (_read(out), _read(err))
        return replace(ended, words=words, out=texts[0], err=texts[1], terminal=terminal)

    def check(
        self, ended: Ended, *, codes: Iterable[int] = (), own: bool = False, mute: bool = False
    ) -> int:
        """Judge a command, and what it left in the box; return its exit code.

        `codes` are the only ones it may end with, instead of those documented; `own` is for a
        command that passes on another command's output and code, `mute` for one whose stderr is
        not collected.
        """
        self._judge_end(ended, frozenset(codes), own=own, mute=mute)
        assert not self.mark.exists(), f"hostile code ran\n{ended}"
        assert self._canary() == self._before, f"something outside has changed\n{ended}"
        assert SECRET.encode() not in ended.out + ended.err, f"a secret was printed\n{ended}"
        for path in self.copies():
            raise AssertionError(f"a secret was copied to {path}\n{ended}")
        left = [path.name for path in self.tmp.iterdir()]
        assert not left, f"temporary files are left: {left}\n{ended}"
        shutil.rmtree(self.checkout / "reports", ignore_errors=True)
        return ended.code

    def _judge_end(self, ended: Ended, codes: frozenset[int], *, own: bool, mute: bool) -> None:
        assert not ended.stopped, f"{ended.stopped}\n{ended}"
        assert not _TRACES.search(ended.out + ended.err), f"not one message\n{ended}"
        assert ended.cpu < MOST_SECONDS and ended.peak <= MOST_MEMORY, f"beyond bounds\n{ended}"
        if own:
            return
        assert ended.code in (codes or documented_codes()), f"exit code {ended.code}\n{ended}"
        if ended.code not in (0, 1, _PIPE_CLOSED) and not ended.terminal and not mute:
            assert (ended.err + ended.out).strip(), f"no message\n{ended}"
        assert len(ended.err) <= MOST_TEXT, f"{len(ended.err)} bytes on stderr\n{ended}"
        assert ended.err.count(b"\n") <= MOST_LINES, f"too many lines on stderr\n{ended}"
        raw = not ended.terminal and {"--json", "--csv", "--format"} & {*ended.words}
        shown = (ended.err + (b"" if raw else ended.out)).replace(b"\r\n", b"\n")
        assert not _CONTROLS.search(shown), f"control characters: {_around(shown)}\n{ended}"
        if ended.code == 0 and "--json" in ended.words and not ended.terminal:
            assert _is_json(ended.out) or b"Usage:" in ended.out, f"not JSON\n{ended}"

    def copies(self) -> list[Path]:
        """Return the files, other than the traps, that hold the secret."""
        return [
            path
            for name in ("work", "home", "cache", "tmp")
            for path in _regular(self.scratch / name)
            if SECRET.encode() in _text(path)
        ]

    def _canary(self) -> dict[str, tuple[object, ...]]:
        folders = [self.outside, *(self.checkout / name for name in BELIEVED)]
        states = {str(path): _state(path) for folder in folders for path in folder.rglob("*")}
        return states | {str(path): () for path in self.scratch.iterdir()}


def missing_image() -> str:
    """Return what there is to do before `Box.with_image`; empty for nothing."""
    built = built_image(load_recipe("base"))
    return "" if built else "no image is built; run: numalab image build base"


def _link(source: str, target: str) -> None:
    """Link a file instead of copying it, where both are on one disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


_TESTS = [str(Path(__file__).parents[1])]


def _state(path: Path) -> tuple[object, ...]:
    """Return what must not change of a file."""
    status = path.lstat()
    facts = (status.st_mode, status.st_size, status.st_nlink, status.st_uid)
    if stat.S_ISREG(status.st_mode) and "outside" in path.parts:
        return (*facts, hashlib.sha256(path.read_bytes()).hexdigest())
    return (*facts, 0 if stat.S_ISDIR(status.st_mode) else status.st_mtime_ns)


def _regular(folder: Path) -> list[Path]:
    """Return the regular files of a folder; links are not followed, large files left out."""
    files = []
    for base, _, names in os.walk(folder):
        for name in names:
            path = Path(base) / name
            with suppress(OSError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode) and status.st_size <= 32 << 20:
                    files.append(path)
    return files


def _text(path: Path) -> bytes:
    """Return the bytes of a file; those of an archive as they were packed."""
    import zstandard  # noqa: PLC0415 - few cases write an archive

    data = path.read_bytes()
    if data[:4] == b"\x28\xb5\x2f\xfd" and path.name.endswith(".zst"):
        with (
            suppress(zstandard.ZstdError),
            zstandard.ZstdDecompressor().stream_reader(data) as file,
        ):
            return file.read(64 << 20)
    return data


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return not text  # it went elsewhere
    return True


def _around(text: bytes) -> str:
    match = _CONTROLS.search(text)
    assert match is not None
    return repr(text[max(0, match.start() - 60) : match.end() + 60])


def _watch(
    child: "subprocess.Popen[bytes]", scratch: Path, memory: int, master: int
) -> tuple[Ended, bytes]:
    """Wait for the end; kill a command that takes too much memory or sleeps for ever.

    Returns with it the output on a terminal.
    """
    stopped, shown, tick, peak = "", bytearray(), 0, 0
    awake, used = time.monotonic(), -1.0
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if master >= 0:
            _drain(master, shown)
        if pid:
            break
        time.sleep(0.02)
        tick += 1
        members = processes_of(scratch) if tick % 50 == 0 else [child.pid]
        if tick % 50 == 0:
            states, seconds = _activity(members)
            if seconds != used or states != {"S"}:
                awake, used = time.monotonic(), seconds
        peak = max([peak, *map(_resident, members)])
        if not stopped and peak > memory:
            stopped = f"more than {memory >> 20} MiB"
        if not stopped and time.monotonic() - awake > ASLEEP:
            stopped = f"asleep for {ASLEEP:.0f} s"
        if stopped:
            _kill([child.pid, *processes_of(scratch)])
    child.returncode = code = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    # The child of a large process has the same peak: it is one program until its execve(2).
    if usage.ru_maxrss > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
        peak = max(peak, usage.ru_maxrss << 10)
    return Ended((), 128 - code if code < 0 else code, b"", b"", cpu, peak, stopped), bytes(shown)


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(64 << 20)


def _drain(master: int, shown: bytearray) -> None:
    """Read what a terminal shows; its other end may be closed (EIO)."""
    with suppress(OSError):
        while select.select([master], [], [], 0)[0]:
            data = os.read(master, 1 << 16)
            if not data:
                return
            shown += data


def processes_of(scratch: Path) -> list[int]:
    """Return the processes that have a path below `scratch` in environment or command line.

    Neither sessions nor parents will do: builds have sessions of their own, and orphans no parent.
    """
    mark, own = os.fsencode(scratch) + b"/", os.getpid()
    return [
        pid for pid, fields in _stats() if pid != own and fields[0] != "Z" and _names(pid, mark)
    ]


def _names(pid: int, mark: bytes) -> bool:
    with suppress(OSError):
        folder = Path(f"/proc/{pid}")
        return any(mark in (folder / name).read_bytes() for name in ("environ", "cmdline"))
    return False


def _stats() -> Iterator[tuple[int, list[str]]]:
    """Return of each process its id and the fields of its stat from the state on."""
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - processes may end
        with suppress(OSError, ValueError):
            yield int(name), Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()


def _activity(pids: Iterable[int]) -> tuple[set[str], float]:
    """Return the states of processes and the CPU time that they have used, in ticks."""
    fields = [fields for pid, fields in _stats() if pid in pids]
    return {row[0] for row in fields}, sum(float(row[11]) + float(row[12]) for row in fields)


def _resident(pid: int) -> int:
    with suppress(OSError, ValueError):
        text = Path(f"/proc/{pid}/status").read_text()
        return int(text.partition("VmHWM:")[2].split()[0]) << 10 if "VmHWM:" in text else 0
    return 0


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def end_processes(scratch: Path, patience: float = 10.0) -> list[int]:
    """Wait for the processes of a box to end, kill those that do not, and return them."""
    deadline = time.monotonic() + patience
    while (left := processes_of(scratch)) and time.monotonic() < deadline:
        time.sleep(0.05)
    _kill(left)
    return left
