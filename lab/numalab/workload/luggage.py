"""The files that go to a guest with a command, and the libraries among them, as in ld.so(8)."""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.resources import files as package_files
from pathlib import Path

from numalab.errors import UserError, WorkloadFailed, shown
from numalab.files import open_regular, reading
from numalab.workload.elf import (
    USUAL_FOLDERS,
    find_library,
    is_elf,
    needed_libraries,
    read_header,
    rpath_and_runpath,
)

MOST_BYTES = 256 << 20  # of all files that a command takes along
FILES = "/job/files"  # where they are in the guest
LIBRARIES = "host/lib"  # below it
PRELOADED, LIBRARY_PATH = "LD_PRELOAD", "LD_LIBRARY_PATH"
OF_KERNEL = re.compile(r"/(dev|job|proc|run|sys)/")  # paths of the guest, whatever its image has

# glibc opens it when a thread is cancelled (pthread_cancel(3)); no program names it.
_OPENED_LATER = "libgcc_s.so.1"
# do_preload() in glibc's elf/rtld.c.
_IGNORED = re.compile(r"^ERROR: ld\.so: object .* cannot be preloaded .*: ignored\.$", re.MULTILINE)


# Tells whether a guest has a program, by its name or its absolute path.
InGuest = Callable[[str], bool]


@dataclass
class Luggage:
    """What goes along: `files` by their name below `FILES`, and the words that use them.

    `folders` are empty ones. `links` are links to folders, with the target of each relative to its
    own folder. `preload` is a value of LD_PRELOAD for the guest, `preloaded` are the files on this
    host.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    argv: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    library_path: list[Path] = field(default_factory=list)
    preload: str = ""
    preloaded: list[Path] = field(default_factory=list)
    size: int = 0

    def put(self, name: str, path: Path) -> None:
        """Take a file along under a name; UserError for too many bytes, or none to read."""
        if name not in self.files:
            self.files[name] = self._read(path)

    def add_script(self, name: str) -> str:
        """Take a script of this room along, and return its path in the guest."""
        self.files[name] = package_files("numalab.workload").joinpath(name).read_bytes()
        return f"{FILES}/{name}"

    def _read(self, path: Path) -> bytes:
        with reading(path), open_regular(path) as file:
            data = file.read(MOST_BYTES - self.size + 1)
        self.size += len(data)
        if self.size > MOST_BYTES:
            reason = f"with it, more than {MOST_BYTES >> 20} MiB would go to the guest"
            raise UserError(reason, file=path)
        return data


def take_preloaded(
    luggage: Luggage, text: str, program: Path | None, folder: str, in_guest: InGuest
) -> None:
    """Take along the libraries that `text`, a value of LD_PRELOAD, names; not what they need.

    A name without a slash is searched for `program` as ld.so(8) does; a relative path begins in
    `folder`. What only the guest has keeps its name. Raises UserError for a name that neither has.
    """
    inside = []
    for name in filter(None, re.split("[ :]", text)):
        if (path := _preloaded_here(luggage, name, program, folder, in_guest)) is not None:
            if any(path.name == p.name and not path.samefile(p) for p in luggage.preloaded):
                raise UserError(f"names two libraries {shown(path.name)}", key=PRELOADED)
            luggage.put(f"{LIBRARIES}/{path.name}", path)
            luggage.preloaded.append(path)
            inside.append(f"{FILES}/{LIBRARIES}/{path.name}")
        elif _guest_has(luggage, name, folder, in_guest):
            inside.append(name)
        else:
            hint = "" if "/" in name else "; give its path"
            reason = f"{shown(name)} is no library of this host, nor of the guest{hint}"
            raise UserError(reason, key=PRELOADED)
    luggage.preload = ":".join(inside)


def _preloaded_here(
    luggage: Luggage, name: str, program: Path | None, folder: str, in_guest: InGuest
) -> Path | None:
    """Return a library of this host; None if the guest's own is meant."""
    if "/" in name:
        path = Path(folder) / name
        return None if OF_KERNEL.match(str(path)) or not path.is_file() else path
    of_host = program is not None and is_elf(program)  # the guest's programs run a script
    if not of_host and _has_library(name, in_guest):
        return None
    folders = luggage.library_path
    if program is not None and of_host:
        rpath, runpath = rpath_and_runpath(program, read_header(program))
        folders = [*rpath, *folders, *runpath]
    return find_library(name, folders)


def _guest_has(luggage: Luggage, name: str, folder: str, in_guest: InGuest) -> bool:
    """Whether a library is in the guest's image, on a file system of its kernel, or an `--add`."""
    if "/" not in name:
        return _has_library(name, in_guest, luggage.library_path)
    path = os.path.normpath(Path(folder) / name)
    return f"folder/{path}" in luggage.files or bool(OF_KERNEL.match(path)) or in_guest(path)


def _has_library(name: str, in_guest: InGuest, more: Iterable[Path] = ()) -> bool:
    """Whether a guest has a library in one of the usual folders, or in one `more`."""
    return any(in_guest(f"{folder}/{name}") for folder in (*USUAL_FOLDERS, *more))


def require_preloaded(what: str, errors: str) -> None:
    """Raise WorkloadFailed, with the lines of a standard error in which ld.so left out a library.

    `what` is the name of the command.
    """
    if ignored := "\n".join(dict.fromkeys(map(shown, _IGNORED.findall(errors)))):
        raise WorkloadFailed(f"{what} ran without a library: {ignored}")


def add_libraries(luggage: Luggage, *users: Path, in_guest: InGuest = lambda _: False) -> None:
    """Take along the libraries of programs or libraries, and theirs, in the order of ld.so(8).

    DT_RPATH counts for the libraries of libraries too, but not in a file with DT_RUNPATH. Those
    that are `in_guest`, by their absolute path there, are left out.
    """
    waiting = [(user, list[Path]()) for user in users]
    for user, inherited in waiting:  # which grows
        header = read_header(user)
        rpath, runpath = rpath_and_runpath(user, header)
        rpaths = [*rpath, *inherited]
        folders = [*([] if runpath else rpaths), *luggage.library_path, *runpath]
        names = needed_libraries(header)
        if "libc.so.6" in names and find_library(_OPENED_LATER, folders):
            names.append(_OPENED_LATER)
        for name in names:
            inside = f"{LIBRARIES}/{Path(name).name}"
            if inside in luggage.files or _has_library(name, in_guest):
                continue
            path = find_library(name, folders)
            if path is None:
                reason = f"needs {shown(name)}, which was not found; set {LIBRARY_PATH}"
                raise UserError(reason, file=user)
            luggage.put(inside, path)
            waiting.append((path, rpaths))
