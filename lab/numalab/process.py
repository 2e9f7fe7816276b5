"""The only module that starts a process.

Every child is the leader of its own session, so that a timeout or Ctrl-C ends all processes that it
started (`make` starts hundreds).
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from numalab.errors import HostError

TAIL_LINES = 20
# Variables that git, kbuild, make and configure obey: a hook of git sets GIT_DIR, and kbuild writes
# to the file that KCONFIG_CONFIG names. Where compilers find headers and libraries stays.
_SETTING = re.compile(
    r"(GIT|KBUILD|KCONFIG|INSTALL)_\w+|K(C|A|CPP|RUST)FLAGS|(C|CXX|CPP|LD|AS)FLAGS|CONFIG_"
    r"|(GNU)?MAKEFLAGS|MFLAGS|MAKE(LEVEL|FILES|OVERRIDES)|GREP_OPTIONS|SOURCE_DATE_EPOCH"
    r"|DEPENDENCIES_OUTPUT"
)
_UMASK = 0o022  # builds must not depend on the user's umask; they lie in folders of this user only

_running: set[int] = set()


def signal_name(number: int) -> str:
    """Return the name of a signal; most real-time signals have none: `signal 40`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def is_running_child(pid: int) -> bool:
    """Tell whether this module started the process and still has to collect its exit status."""
    return pid in _running


@dataclass(frozen=True)
class Completed:
    """A process that has ended: its arguments, exit status, output and wall time in seconds."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float


class CommandFailed(HostError):
    """A command exited with an error; most callers raise a more precise error from it."""

    def __init__(self, completed: Completed) -> None:
        self.completed = completed
        last = (completed.stderr or completed.stdout).strip().splitlines()[-TAIL_LINES:]
        shown = " ".join(completed.argv)[:300]
        super().__init__(
            "\n  | ".join([f"{shown} exited with status {completed.returncode}", *last])
        )


class CommandTimedOut(HostError):
    """A command exceeded its time and was ended with all processes that it started."""


def find_program(name: str, package: str) -> Path:
    """Find a program on PATH (or in /usr/sbin); HostError names the Debian package that has it."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
    program = shutil.which(name, path=path)
    if program is None:
        raise HostError(f"{name} is not installed", hint=f"apt-get install {package}")
    return Path(program)


def packages_of_missing(programs: Mapping[str, str]) -> list[str]:
    """Return the Debian packages, by program, of the programs that this host lacks."""
    missing = []
    for program, package in programs.items():
        try:
            find_program(program, package)
        except HostError:
            missing.append(package)
    return missing


def version_line(program: str, package: str) -> str:
    """Return the first line that `program --version` prints. Raises HostError."""
    path = find_program(program, package)
    status = path.stat()
    return _version_line(path, (status.st_dev, status.st_ino, status.st_ctime_ns))


@cache
def _version_line(path: Path, file: tuple[int, int, int]) -> str:
    """Return the version of a program, once for each file: device, inode, time of change (ns)."""
    argv: list[str | Path] = [path, "--version"]
    return run(argv, env={"LC_ALL": "C"}, timeout=30).stdout.partition("\n")[0]


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout: float | None = None,
    check: bool = True,
    errors: str = "replace",
) -> Completed:
    """Run a command to its end and return what it printed, decoded as UTF-8.

    `errors` is for bytes of stdout that are not UTF-8, as in `bytes.decode`. `env` is added to this
    process's environment, of which settings of git, make and compilers are left out. Raises
    CommandFailed when `check` and the status is not 0,
    CommandTimedOut after `timeout` seconds, HostError if the program does not exist.
    """
    process = _start(argv, cwd=cwd, env=env, stdin=stdin is not None, stderr=subprocess.PIPE)
    began = time.monotonic()
    data = stdin.encode(errors="surrogateescape") if stdin is not None else None
    try:
        out, err = process.communicate(data, timeout)
    except subprocess.TimeoutExpired:
        raise CommandTimedOut(f"{argv[0]} did not end within {timeout:.0f} s") from None
    finally:
        _end_tree(process)
    texts = out.decode("utf-8", errors), _text(err)
    return _completed(argv, process.returncode, *texts, began, check=check)


def run_logged(
    argv: Sequence[str | Path],
    log: Path,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None],
) -> None:
    """Run a command whose output, errors included, is appended to `log` line by line as it comes.

    `on_line` sees each line as well, for progress. Raises CommandFailed with the last lines.
    """
    process = _start(argv, cwd=cwd, env=env, stdin=False, stderr=subprocess.STDOUT)
    began = time.monotonic()
    tail: list[str] = []
    try:
        assert process.stdout is not None
        with log.open("ab") as file:
            for raw in process.stdout:
                file.write(raw)
                line = _text(raw).rstrip("\n")
                tail = [*tail[1 - TAIL_LINES :], line]
                on_line(line)
        process.wait()
    finally:
        _end_tree(process)
    _completed(argv, process.returncode, "\n".join(tail), "", began, check=True)


def _environment() -> dict[str, str]:
    """Return the environment without what would change the results of git, make and compilers."""
    return {name: value for name, value in os.environ.items() if not _SETTING.fullmatch(name)}


def _start(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    stdin: bool,
    stderr: int,
) -> "subprocess.Popen[bytes]":
    try:
        process = subprocess.Popen(
            [str(word) for word in argv],
            cwd=cwd,
            env={**_environment(), **(env or {})},
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            umask=_UMASK,
        )
    except FileNotFoundError as error:
        raise HostError(f"cannot start {argv[0]}: {error.strerror}: {error.filename}") from None
    _running.add(process.pid)
    return process


def _end_tree(process: "subprocess.Popen[bytes]") -> None:
    """End the child's whole session if the child is still there, and collect it."""
    if process.poll() is None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
                process.wait(5)
                break
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
    _running.discard(process.pid)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _completed(
    argv: Sequence[str | Path], status: int, out: str, err: str, began: float, *, check: bool
) -> Completed:
    words = tuple(str(word) for word in argv)
    completed = Completed(words, status, out, err, time.monotonic() - began)
    if check and status != 0:
        raise CommandFailed(completed)
    return completed


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
