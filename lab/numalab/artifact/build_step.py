"""A folder in which something is built for minutes, and which a later build goes on with."""

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from numalab.errors import BuildError, HostError
from numalab.process import CommandFailed, run_logged

# What a compiler may miss -> Debian package; libelf and OpenSSL are looked for by their headers.
HEADERS = {"gelf.h": "libelf-dev", "libelf.h": "libelf-dev", "openssl/": "libssl-dev"}


@contextmanager
def under_way(out: Path) -> Iterator[None]:
    """Mark `out` while a build works in it; start afresh where the mark of a killed build is left.

    An interrupted make or ninja removes its half-written files. One that was killed cannot, and
    would take them for finished ones the next time.
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


def build_step(
    name: str,
    argv: Sequence[str | Path],
    log: Path,
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    on_line: Callable[[str], None] = lambda _line: None,
) -> None:
    """Run a program that builds a part of `name`; the log and `on_line` get what it prints.

    Raises HostError for a full disk or a header that is missing, else BuildError with the first
    lines that speak of errors and the last lines.
    """
    errors: list[str] = []

    def look(line: str) -> None:
        if re.search(r"\berror\b|ERROR:|undefined reference|\*\*\* ", line) and len(errors) < 8:
            errors.append(line)
        on_line(line)

    try:
        # nice: a build takes minutes, and somebody works on this host.
        run_logged(["nice", "-n", "10", *argv], log, cwd=cwd, env=env, on_line=look)
    except CommandFailed as failed:
        raise build_failed(name, errors, failed.completed.stdout, log) from None


def build_failed(name: str, errors: list[str], tail: str, log: Path) -> HostError | BuildError:
    """Say why a build failed, from its first error lines and its last lines."""
    text = "\n".join([*errors, tail])
    if "No space left on device" in text:
        return HostError(
            f"no space left on the disk while {name} was built\n  log: {log}",
            hint="free 2 GB there, or set NUMALAB_CACHE to another disk",
        )
    for header, package in HEADERS.items():
        if re.search(rf"{re.escape(header)}\S*: No such file", text):
            return HostError(
                f"{name} cannot be built without {header.rstrip('/')}\n  log: {log}",
                hint=f"apt-get install {package}",
            )
    last = [line for line in tail.splitlines()[-10:] if line not in errors]
    return BuildError(f"{name} does not build", log=log, tail="\n".join([*errors, *last]))
