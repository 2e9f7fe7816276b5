"""Programs of this host by their ELF headers, and the libraries that ld.so(8) finds for them."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from numalab.errors import HostError, UserError
from numalab.files import open_regular, reading
from numalab.process import CommandFailed, find_program, run

# What `readelf --wide --file-header --program-headers --dynamic` prints (binutils 2.40).
_CLASS, _MACHINE = (re.compile(rf"^\s+{key}:\s+(.+)$", re.M) for key in ("Class", "Machine"))
_INTERPRETER = re.compile(r"\[Requesting program interpreter: (.+)\]")
_NEEDED = re.compile(r"\(NEEDED\)\s+Shared library: \[(.+)\]")
_PATHS = re.compile(r"\((RPATH|RUNPATH)\)\s+Library (?:rpath|runpath): \[(.+)\]")
_OF_CACHE = re.compile(
    r"^\s+(?P<name>\S+) \(libc6,x86-64(?P<about>.*)\) => (?P<path>/.+)$", re.MULTILINE
)
USUAL_FOLDERS = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64")


def is_elf(path: Path) -> bool:
    """Whether a file is a program or a library, and no script. Raises UserError if unreadable."""
    with reading(path), open_regular(path) as file:
        return file.read(4) == b"\x7fELF"


def read_header(path: Path) -> str:
    """Return what readelf tells of a file. Raises UserError for one that no guest can run."""
    words = ["--wide", "--file-header", "--program-headers", "--dynamic"]
    try:
        readelf = find_program("readelf", "binutils")
        text = run([readelf, *words, path.absolute()], env={"LC_ALL": "C"}, timeout=60).stdout
    except CommandFailed:
        raise UserError("is no program: readelf cannot read it", file=path) from None
    bits, machine = _CLASS.search(text), _MACHINE.search(text)
    if machine is None or "X86-64" not in machine[1]:
        of = machine[1] if machine else "an unknown processor"
        if machine and "80386" in machine[1]:
            of = "32 bits, which the guest's kernel does not run"
        raise UserError(f"is a program for {of}; build it for x86-64", file=path)
    if bits is None or bits[1] != "ELF64":
        raise UserError("is a program of the x32 ABI, which no guest runs", file=path)
    return text


def interpreter(header: str) -> Path | None:
    """Return the loader that a program names; None for a static one."""
    match = _INTERPRETER.search(header)
    return Path(match[1]) if match else None


def needed_libraries(header: str) -> list[str]:
    """Return the names of the libraries that a program or library needs."""
    return _NEEDED.findall(header)


def rpath_and_runpath(user: Path, header: str) -> tuple[list[Path], list[Path]]:
    """Return the folders of DT_RPATH and of DT_RUNPATH of one file; the second voids the first."""
    texts = dict(_PATHS.findall(header))
    rpath, runpath = (split_path(texts.get(key, ""), user) for key in ("RPATH", "RUNPATH"))
    return ([] if runpath else rpath), runpath


def split_path(text: str, user: Path) -> list[Path]:
    """Return the folders of a path for libraries; $ORIGIN is its user's, an empty one is `.`."""
    origin = str(user.resolve().parent)
    texts = text.split(":") if text else []
    return [Path(re.sub(r"\$(\{ORIGIN\}|ORIGIN\b)", lambda _: origin, part)) for part in texts]


def find_library(name: str, folders: Iterable[Path]) -> Path | None:
    """Find a library as ld.so(8): in the folders in their order, the cache, the usual folders."""
    if "/" in name:
        return Path(name) if Path(name).is_file() else None
    for folder in folders:
        if _is_taken(folder / name):
            return folder / name
    if name in (cached := _library_cache()):
        return cached[name]
    usual = (Path(folder) / name for folder in USUAL_FOLDERS)
    return next(filter(_is_taken, usual), None)


def _is_taken(path: Path) -> bool:
    """Whether ld.so takes a file: it passes over libraries of 32 bits and of other processors."""
    try:
        with open_regular(path) as file:
            start = file.read(20)
    except OSError:
        return False
    return start[:4] != b"\x7fELF" or (start[4:5], start[18:]) == (b"\x02", b"\x3e\0")


@cache
def _library_cache() -> Mapping[str, Path]:
    """Return the libraries of the host's cache by name: `ldconfig --print-cache`."""
    try:
        text = run([find_program("ldconfig", "libc-bin"), "-p"], timeout=60).stdout
    except HostError:  # a host with musl has none
        return {}
    return cached_libraries(text)


def cached_libraries(text: str) -> Mapping[str, Path]:
    """Return the libraries that `ldconfig --print-cache` lists by name; the first of each counts.

    Variants for some CPUs (`hwcap: "x86-64-v3"`) are left out: the guest may have another CPU.
    """
    lines = (match for match in _OF_CACHE.finditer(text) if "hwcap" not in match["about"])
    pairs = [(match["name"], Path(match["path"])) for match in lines]
    return dict(reversed(pairs))
