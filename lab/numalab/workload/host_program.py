"""Programs of the host in a guest: the files that they need, and the words that start them.

A program that is linked dynamically is started by its own loader (ld.so(8), `--library-path`), with
its own libraries, so that the guest's C library need not fit. Nothing of the program is executed on
the host: `readelf` lists its libraries, and they are searched as ld.so(8) describes.
"""

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from numalab.errors import UserError, shown
from numalab.files import open_regular, reading
from numalab.workload.elf import interpreter, read_header, split_path
from numalab.workload.luggage import (
    FILES,
    LIBRARIES,
    LIBRARY_PATH,
    OF_KERNEL,
    PRELOADED,
    InGuest,
    Luggage,
    add_libraries,
    take_preloaded,
)
from numalab.workload.luggage_folders import FOLDER, folder_script, take_folders, through_links
from numalab.workload.starters import program_place

_STDIN = f"{FILES}/stdin"
_PROGRAM = "host/program"
LOADER = "host/bin"  # below /job/files, the dynamic loader, under the name of the program
OUT = "/job/out/files"  # what lies there comes back
NO_FOLDER = 125  # of the script below

_PYTHON = re.compile(r"python[0-9.]*")
_MAGIC = b"\x7fELF"


@dataclass(frozen=True)
class GuestCommand:
    """A command for a guest: its words, and the files that go below /job/files, by name.

    `program` is the name of the program that it starts. `remarks` are for the user: what is not
    taken along.
    """

    argv: tuple[str, ...]
    program: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Surroundings:
    """What a command finds in the guest, beside the image.

    `add` are files and folders of the host, `FILE` or `FILE:TARGET`; a target is relative to the
    working folder. `env` is added to the command's environment. `folder` is its working folder: a
    path of the guest, or one relative to the copy of the current folder. `stdin` is its input.
    After `timeout` seconds of guest time it is ended. `returns`: files below $OUT come back.
    `host_root`: the guest mounts the root folder of this host, so that nothing is taken along, and
    `folder` is a path of this host.
    """

    add: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    stdin: bytes | None = None
    timeout: float | None = None
    returns: bool = False
    host_root: bool = False


def guest_command(
    words: Sequence[str], in_guest: InGuest, around: Surroundings = Surroundings()
) -> GuestCommand:
    """Return a command for a guest with the host's files that it names.

    The first word is the guest's program where the guest has it, else this host's, and so is a
    relative path with a slash. A starter such as `numactl` may stand before it. Unless a program
    of this host is an absolute path, the current folder goes along, without hidden files and up to
    `MOST_OF_FOLDER` bytes; with a program of the guest, if a word names a file of it.

    Raises UserError for a program that cannot run in a guest (of another processor, of 32 bits,
    without one of its libraries or its interpreter), for a name in LD_PRELOAD that is no library,
    for files that cannot be read and for too many of them; HostError where `readelf` is missing.
    """
    luggage = Luggage(argv=list(words))
    if around.host_root:
        return _in_host_root(luggage, around)
    place = program_place(words, in_guest, lambda word: _can_start(word, in_guest))
    path = _path_on_host(words[place], in_guest)
    here = around.folder is not None and not around.folder.startswith("/")
    here = here or bool(around.add) or (path is not None and not words[place].startswith("/"))
    here = here or (path is None and any(map(_is_file_here, words[1:])))
    if here:
        take_folders(luggage, around.add)
    _check_folder(luggage, around.folder)
    before = (word.partition("=") for word in words[:place] if "=" in word)  # of `env A=B`
    env = {**around.env, **{name: value for name, _, value in before}}
    library_path = ({**os.environ, **env}).get(LIBRARY_PATH, "").replace(";", ":")
    luggage.library_path = split_path(library_path, path or Path())
    take_preloaded(luggage, env.get(PRELOADED, ""), path, around.folder or "", in_guest)
    if path is not None:
        if "/" not in words[place]:
            luggage.remarks.append(f"{shown(words[place])} is this host's: the guest has none")
        luggage.argv[place : place + 1] = _program(luggage, words[place], path, in_guest)
    luggage.env.update(around.env)
    _preload(luggage, words[:place], in_guest)
    _surround(luggage, around, here)
    program = Path(words[place]).name
    return GuestCommand(tuple(luggage.argv), program, luggage.files, tuple(luggage.remarks))


def _in_host_root(luggage: Luggage, around: Surroundings) -> GuestCommand:
    """Return a command whose root is a copy of the host's, in memory above the mounted one."""
    if around.add:
        raise UserError("the guest has all files of this host by --host-root", key="--add")
    program = Path(luggage.argv[0]).name
    luggage.env.update(around.env)
    _surround(luggage, replace(around, folder=None), here=False)
    script = luggage.add_script("host-root.sh")
    folder = os.path.abspath(around.folder or ".")  # noqa: PTH100 - does not follow links
    if not Path(folder).is_dir():
        raise UserError("no such folder", file=folder, key="--cwd")
    argv = ("sh", script, folder, *luggage.argv)
    return GuestCommand(argv, program, luggage.files)


def _can_start(word: str, in_guest: InGuest) -> bool:
    """Whether a word is a program: of the guest, or a file of this host that can be executed."""
    path = _path_on_host(word, in_guest)
    if path is None:
        return in_guest(word)
    return path.is_file() and os.access(path, os.X_OK)


def _path_on_host(word: str, in_guest: InGuest) -> Path | None:
    """Return the program of this host that a word means; None: it is the guest's, or none."""
    if "/" in word and not word.startswith("/"):
        return Path(word)
    if not word or OF_KERNEL.match(word) or in_guest(word):
        return None
    if word.startswith("/"):
        return Path(word) if Path(word).is_file() else None
    path = shutil.which(word)
    return Path(path) if path else None


def _is_file_here(word: str) -> bool:
    """Whether a word is the path of a file below the current folder: `sh run.sh`."""
    path = Path(word)
    try:
        return not path.is_absolute() and ".." not in path.parts and path.is_file()
    except (OSError, ValueError):  # a script is too long for a path, or has a NUL
        return False


def _check_folder(luggage: Luggage, folder: str | None) -> None:
    """Raise UserError unless a relative working folder lies in what is taken along."""
    if folder is None or folder.startswith("/"):
        return
    name = os.path.normpath(folder)
    if name.split("/")[0] == "..":
        raise UserError(f"{folder!r} is not below the current folder", key="--cwd")
    below = f"{through_links(luggage, f'folder/{name}')}/"
    names = (*luggage.files, *(f"{folder}/" for folder in luggage.folders))
    if name != "." and not any(file.startswith(below) for file in names):
        reason = f"no file that goes to the guest lies below {folder!r}"
        raise UserError("; ".join([reason, *luggage.remarks]), key="--cwd")


def _program(luggage: Luggage, word: str, path: Path, in_guest: InGuest) -> list[str]:
    """Take a program along, and return the words that start it in the guest."""
    with reading(path), open_regular(path) as file:
        start = file.read(256)
    if not os.access(path, os.X_OK):
        raise UserError(f"is not executable; chmod +x {shlex.quote(word)}", file=path)
    if _PYTHON.fullmatch(path.name):
        reason = "needs its modules too; use --host-root, or python3 of the guest with --add"
        raise UserError(reason, file=path)
    if not start.startswith((_MAGIC, b"#!")):
        raise UserError("is neither a program nor a script that begins with #!", file=path)
    if start.startswith(b"#!"):
        _check_interpreter(path, start, in_guest)
    header = read_header(path) if start.startswith(_MAGIC) else ""
    name = f"folder/{os.path.normpath(path)}"  # where the copy of the current folder has it
    if through_links(luggage, name) not in luggage.files:
        name = f"{_PROGRAM}/{path.name}"
        luggage.put(name, path)
    inside = f"{FILES}/{name}"
    loader = interpreter(header)
    if loader is None:
        return [inside]
    # The kernel names a task after the file that it executes: the loader gets the program's name.
    luggage.put(f"{LOADER}/{path.name}", loader)
    add_libraries(luggage, path, *luggage.preloaded)
    named = ["--argv0", word] if b"--argv0" in luggage.files[f"{LOADER}/{path.name}"] else []
    setting = list[str]()
    if luggage.preload:  # set here: the guest's programs before this one must not load them
        setting, luggage.preload = ["env", f"{PRELOADED}={luggage.preload}"], ""
    start_words = [f"{FILES}/{LOADER}/{path.name}", "--library-path", f"{FILES}/{LIBRARIES}"]
    return [*setting, *start_words, *named, inside]


def _check_interpreter(script: Path, start: bytes, in_guest: InGuest) -> None:
    """Raise UserError for a script whose interpreter the guest lacks."""
    line = start[2:].partition(b"\n")[0]
    if line.endswith(b"\r"):
        raise UserError("has the line ends of DOS, and its interpreter is not found", file=script)
    words = line.decode("utf-8", "replace").split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    if words and not in_guest(words[0]):
        name = shown(words[0])
        reason = f"needs {name}, which the guest lacks; use --package NAME, or --host-root"
        raise UserError(reason, file=script)


def _preload(luggage: Luggage, starters: Sequence[str], in_guest: InGuest) -> None:
    """Name the preloaded libraries as the guest has them, for its own programs."""
    has_loader = any(name.startswith(f"{LOADER}/") for name in luggage.files)
    if luggage.preloaded and not has_loader:
        add_libraries(luggage, *luggage.preloaded, in_guest=in_guest)
        of_user = filter(None, [luggage.env.get(LIBRARY_PATH)])
        luggage.env[LIBRARY_PATH] = ":".join([f"{FILES}/{LIBRARIES}", *of_user])
    for place, word in enumerate(starters):
        if word.startswith(f"{PRELOADED}="):
            luggage.argv[place] = f"{PRELOADED}={luggage.preload}"
        if luggage.preloaded and not has_loader and word.startswith(f"{LIBRARY_PATH}="):
            of_word = word.partition("=")[2]
            luggage.argv[place] = f"{LIBRARY_PATH}={FILES}/{LIBRARIES}:{of_word}"
    if luggage.env.pop(PRELOADED, "") and luggage.preload:
        luggage.env[PRELOADED] = luggage.preload


def _surround(luggage: Luggage, around: Surroundings, here: bool) -> None:
    """Put what starts the command in its surroundings before its words."""
    words = luggage.argv
    if luggage.env:
        words = ["env", *(f"{name}={value}" for name, value in luggage.env.items()), *words]
    if around.timeout is not None:
        seconds = around.timeout
        script = luggage.add_script("with-timeout.sh")
        words = ["sh", script, f"{seconds * 100:.0f}", f"{seconds:g}", *words]
    steps = []
    if here or around.folder is not None:
        folder = os.path.normpath(Path(FOLDER) / (around.folder or "."))
        make = folder_script(luggage)
        steps.append(f"{make} && cd {shlex.quote(folder)} || exit {NO_FOLDER}")
    if around.returns:
        steps.append(f"mkdir -p {OUT}; OUT={OUT}; export OUT")
    source = ""
    if around.stdin is not None:
        luggage.files["stdin"] = around.stdin
        source = f" <{_STDIN}"
    if steps or source:
        words = ["sh", "-c", "; ".join([*steps, f'exec "$@"{source}']), "sh", *words]
    luggage.argv = words
