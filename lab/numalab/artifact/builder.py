"""Builds an artifact once: lock, log, progress, and a cache entry that is whole or absent.

A room describes what is special about its artifacts: an `Artifact` with the digest of its inputs
as the name of the entry, and a function that makes the entry. `build` does the rest.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from numalab.artifact.kinds import Kind, entry_lock
from numalab.errors import BuildError, HostError
from numalab.files import replacing, sync
from numalab.locks import locked
from numalab.places import cache_dir
from numalab.process import CommandFailed, find_program, run_logged
from numalab.progress import Progress, no_progress

T = TypeVar("T")

# Headers that a compiler may miss -> Debian package.
_HEADERS = {"gelf.h": "libelf-dev", "libelf.h": "libelf-dev", "openssl/": "libssl-dev"}
_ERROR = re.compile(r"\berror\b|ERROR:|undefined reference|\*\*\* ")
_MOST_ERRORS = 8  # lines that a message quotes


@dataclass(frozen=True)
class Work:
    """What the function that makes an entry gets.

    `entry` is a temporary path: the function creates a file or a folder there. Its parent is a
    folder for scratch files, removed at the end.
    """

    name: str
    entry: Path
    log: Path
    tell: Progress
    begun: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """The time since the build began."""
        return round(time.monotonic() - self.begun, 1)

    def step(
        self,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        on_line: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """Run one program of the build; its output goes to the log, line by line to `on_line`.

        Raises HostError for a full disk or a missing header, else BuildError with the first lines
        that report errors and the last lines.
        """
        errors: list[str] = []

        def inspect(line: str) -> None:
            if len(errors) < _MOST_ERRORS and _ERROR.search(line):
                errors.append(line)
            on_line(line)

        try:
            # nice: a build takes minutes on a host that somebody uses.
            run_logged(["nice", "-n", "10", *argv], self.log, cwd=cwd, env=env, on_line=inspect)
        except CommandFailed as failed:
            tail = failed.completed.stdout
            raise build_failed(self.name, errors, tail, self.log) from None


@dataclass(frozen=True)
class Artifact(Generic[T]):
    """Something to build.

    `entry` is its path in the cache; the name holds the digest of all inputs. `read` returns the
    value of a whole entry, else None. `lock` is for artifacts that share a folder of sources.
    `tools` maps the programs of the build to the Debian packages that have them.
    """

    kind: Kind
    name: str
    entry: Path
    make: Callable[[Work], object]
    read: Callable[[Path], T | None]
    lock: Path | None = None
    tools: Mapping[str, str] = field(default_factory=dict)


def cached(artifact: Artifact[T]) -> T | None:
    """Return an artifact from the cache; None where there is none, or it is not whole."""
    value = artifact.read(artifact.entry)
    if value is not None and artifact.entry.is_dir():
        with suppress(OSError):
            os.utime(artifact.entry)  # the time of last use, for `numalab cache prune`
    return value


def build(artifact: Artifact[T], tell: Progress = no_progress) -> T:
    """Return an artifact, built if the cache does not have it.

    `tell` gets a message and the fraction that is done, None where it is unknown. Raises HostError
    (missing tool, full disk) and what the artifact's `make` raises.
    """
    if (value := cached(artifact)) is not None:
        return value
    for program, package in artifact.tools.items():
        find_program(program, package)
    lock = artifact.lock or entry_lock(artifact.entry)
    with locked(lock, lambda: tell("waiting for another build", None)):
        value = cached(artifact)  # another process may have built it in the meantime
        if value is None:
            log = log_file(artifact.kind, artifact.name)
            log.unlink(missing_ok=True)
            with replacing(artifact.entry) as entry:
                artifact.make(Work(artifact.name, entry, log, tell))
                for path in entry.rglob("*"):  # of a folder; `replacing` does it for a file
                    if path.is_file():
                        sync(path)
            value = cached(artifact)
            assert value is not None, artifact.entry
        return value


def existing_file(path: Path) -> Path | None:
    """Read an entry that is one file. One without data is what a power cut left."""
    return path if path.is_file() and path.stat().st_size else None


def log_file(kind: Kind, name: str) -> Path:
    """Return the path of the log of an artifact's last build."""
    text = re.sub(r"[^A-Za-z0-9.+_-]+", "_", name)
    return cache_dir("logs") / f"{kind.name}-{text[-100:]}.log"


@contextmanager
def resumable_folder(out: Path) -> Iterator[None]:
    """Create the folder in which make or ninja works, or continue in it after an interruption.

    make and ninja remove half-written files when they are interrupted, not when they are killed.
    A mark that a killed build left means that nothing in the folder can be trusted.
    """
    mark = out / "numalab.building"
    if mark.exists():
        shutil.rmtree(out)
    out.mkdir(exist_ok=True)
    mark.touch()
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def build_failed(name: str, errors: list[str], tail: str, log: Path) -> HostError | BuildError:
    """Return the error of a failed build, from its first error lines and its last lines."""
    text = "\n".join([*errors, tail])
    if "No space left on device" in text:
        return HostError(
            f"no space left on the disk while {name} was built\n  log: {log}",
            hint="free 2 GB there, or set NUMALAB_CACHE to another disk",
        )
    for header, package in _HEADERS.items():
        if re.search(rf"{re.escape(header)}\S*: No such file", text):
            return HostError(
                f"{name} cannot be built without {header.rstrip('/')}\n  log: {log}",
                hint=f"apt-get install {package}",
            )
    last = [line for line in tail.splitlines()[-10:] if line not in errors]
    return BuildError(f"{name} does not build", log=log, tail="\n".join([*errors, *last]))
