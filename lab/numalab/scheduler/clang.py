"""The compiler of BPF programs, and the packages that builds of schedulers need."""

import os
import re
from pathlib import Path

from numalab.errors import HostError
from numalab.process import find_program, packages_of_missing, run, version_line

PACKAGE = "clang-19"
_OLDEST = 16  # tools/sched_ext/README.md, Linux 6.12
_NAMES = (*(f"clang-{version}" for version in range(22, _OLDEST - 1, -1)), "clang")

# Program or header -> Debian package.
PROGRAMS = {"make": "make", "gcc": "gcc", "pahole": "dwarves"}
HEADERS = {Path("/usr/include/libelf.h"): "libelf-dev", Path("/usr/include/zlib.h"): "zlib1g-dev"}

OLDEST_RUST = (1, 91)  # rust-version of the crates, version 1.1.4
_RUST_VERSION = re.compile(r"rustc (\d+)\.(\d+)")


def find_clang() -> Path:
    """Return the newest clang of this host. Raises HostError without one that is new enough."""
    for name in _NAMES:
        try:
            path = find_program(name, PACKAGE)
        except HostError:
            continue
        version = re.search(r"version (\d+)", version_line(str(path), PACKAGE))
        if version and int(version[1]) >= _OLDEST:
            return path
    reason = f"clang {_OLDEST} or later is not installed, which compiles BPF programs"
    raise HostError(reason, hint=f"apt-get install {PACKAGE}")


def find_cargo() -> tuple[Path, str]:
    """Return cargo, and the version line of rustc. Raises HostError without a recent Rust."""
    needed = ".".join(map(str, OLDEST_RUST))
    hint = f"install Rust {needed} or later, or name a program that was built elsewhere"
    try:
        cargo = find_program("cargo", "cargo")
    except HostError:
        cargo = Path(os.environ.get("HOME", "/")) / ".cargo/bin/cargo"  # where rustup puts it
    rustc = cargo.with_name("rustc")
    if not cargo.is_file() or not rustc.is_file():
        raise HostError("cargo and rustc are not installed, which build crates", hint=hint)
    line = run([rustc, "--version"], timeout=30).stdout.partition("\n")[0]
    version = _RUST_VERSION.match(line)
    if version is None or (int(version[1]), int(version[2])) < OLDEST_RUST:
        raise HostError(f"{line or rustc} is older than Rust {needed}", hint=hint)
    return cargo, line


def lacking_packages() -> tuple[str, ...]:
    """Return the Debian packages that schedulers and their kernels need and this host lacks."""
    lacking = packages_of_missing(PROGRAMS)
    try:
        find_clang()
    except HostError:
        lacking.append(PACKAGE)
    return (*lacking, *(package for header, package in HEADERS.items() if not header.is_file()))
