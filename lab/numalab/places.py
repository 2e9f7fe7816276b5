"""Where the input folders, the results and the cache are, and who may change the inputs."""

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from numalab.errors import HostError, UserError, shown
from numalab.files import make_dir

# What a lab folder may hold; `images` has a meaning of its own (numalab.image.recipe).
KINDS = ("topologies", "kernel-configs", "workloads", "studies", "images")
PLUGINS, HUNTS, EMULATORS = "plugins", "hunts", "emulator-configs"
# The folders whose content numalab runs or builds. Nothing from a guest or an archive may have
# one of these names.
BELIEVED = frozenset({*KINDS, PLUGINS, HUNTS, EMULATORS})
_OTHER_CACHE = "set NUMALAB_CACHE to a folder of your own"
_MOST_LINKS = 40  # of a path: MAXSYMLINKS in Linux' include/linux/namei.h
T = TypeVar("T")
_skipped: dict[str, UserError] = {}  # by message
_RESULTS = ("plan.json", "compact.parquet")  # every folder of results has one of these files


def shipped_dir() -> Path:
    """Return what came with numalab: the checkout it runs from, or what its wheel brought."""
    checkout = Path(__file__).parents[2]
    return checkout if _is_lab(checkout) else Path(__file__).parent / "share"


def lab_folders() -> tuple[Path, ...]:
    """Return the folders in which inputs are looked for; an earlier one takes precedence.

    `$NUMALAB_HOME` alone where it is set; else those of `$NUMALAB_PATH` (separated by colons), the
    current folder unless it is of results, and what came with numalab. Raises UserError if a
    variable names a folder of results: these may be a stranger's, and are never a lab folder.
    """
    if home := os.environ.get("NUMALAB_HOME"):
        return (_no_results(Path(home), "NUMALAB_HOME"),)
    variable = "NUMALAB_PATH"
    named = [
        _no_results(Path(part), variable)
        for part in os.environ.get(variable, "").split(":")
        if part
    ]
    here = [Path.cwd()] if not _is_of_results(Path.cwd()) else []
    return tuple(dict.fromkeys([*named, *here, shipped_dir()]))


def project_dir() -> Path:
    """Return the folder below whose `reports/` results go, and where relative paths begin.

    `$NUMALAB_HOME` if set, else the current folder if it is a lab folder, else the checkout that
    numalab runs from, else the current folder.
    """
    if home := os.environ.get("NUMALAB_HOME"):
        return Path(home)
    here, shipped = Path.cwd(), shipped_dir()
    ours = _is_lab(here) and not _is_of_results(here)
    return here if ours or shipped.name == "share" else shipped


def find_inputs(kind: str, name: str) -> Iterator[Path]:
    """Give each `<lab folder>/<kind>/<name>` that exists, in the order of the lab folders.

    Raises UserError for one that another user can change.
    """
    for folder in lab_folders():
        path = folder / kind / name
        if os.path.exists(path):  # noqa: PTH110 - a name may be too long for Path.exists()
            yield _own(path, folder)


def find_input(kind: str, name: str) -> Path | None:
    """Return the first `<lab folder>/<kind>/<name>` that exists, as `find_inputs` gives them."""
    return next(find_inputs(kind, name), None)


def own_input(path: Path) -> Path:
    """Return a file or folder of inputs by its path. Raises UserError as `find_inputs` does.

    What is in no lab folder is checked as a lab folder would be.
    """
    if not os.path.lexists(path) or _is_shipped(path):
        return path
    whole = _normal(path)
    folders = [_normal(folder) for folder in lab_folders() if folder != shipped_dir()]
    kinds = [folder / kind for folder in folders for kind in BELIEVED]
    return _own(path, next((kind.parent for kind in kinds if whole.is_relative_to(kind)), path))


def require_in_lab(name: str, choices: Collection[str], file: Path, key: str) -> None:
    """Raise UserError unless a name in a file from elsewhere is one of the user's lab.

    Such a file may name anything on this host by a path, which would be built or read.
    """
    if name not in choices:
        reason = f"{name!r} is not in your lab; paths and packages in this file are not used"
        raise UserError(reason, file=file, key=key, choices=choices)


def list_inputs(kind: str, pattern: str, *, strict: bool = False) -> dict[str, Path]:
    """Return what matches a pattern below `<lab folder>/<kind>`, by its path there, in order.

    A match that another user can change is left out (`skip_input`); with `strict`, it raises
    UserError.
    """
    matches: dict[str, Path] = {}
    for folder in reversed(lab_folders()):
        base = folder / kind
        for path in base.glob(pattern):
            name = str(path.relative_to(base))
            try:
                matches[name] = _own(path, folder)
            except UserError as error:
                if strict:
                    raise
                matches.pop(name, None)  # not the file that this one overrides
                skip_input(error)
    return dict(sorted(matches.items()))


def skip_input(error: UserError, subject: str = "") -> None:
    """Leave out an input that cannot be used; the command line warns of it at the end.

    It warns once of a `subject` (default: the text of the error).
    """
    _skipped.setdefault(subject or str(error), error)


def skipped_inputs() -> tuple[UserError, ...]:
    """Return why inputs were left out, in the order in which that was noticed."""
    return tuple(_skipped.values())


def forget_skipped() -> None:
    """Forget which inputs were left out."""
    _skipped.clear()


def load_usable(names: Iterable[str], load: Callable[[str], T]) -> list[T]:
    """Load each entry of a listing; one whose file is not valid is left out (`skip_input`)."""
    loaded = []
    for name in names:
        try:
            loaded.append(load(name))
        except UserError as error:
            skip_input(error)
    return loaded


def _own(path: Path, folder: Path) -> Path:
    """Check who can change an input, with all files of a folder.

    Who can change what came with numalab can change its code.
    """
    shipped = folder == shipped_dir() and _is_shipped(path)
    if not shipped or path.parent.name == PLUGINS:
        require_own(path, folder)
        for below in sorted(path.rglob("*")) if path.is_dir() else ():
            require_own(below, folder)
    return path


def _is_shipped(path: Path) -> bool:
    """Tell whether the way to a path, links and `..` followed, is within what came with numalab."""
    bases = {shipped_dir(), _target(shipped_dir())}
    above = {folder for base in bases for folder in base.parents}
    return all(
        part in above or not bases.isdisjoint((part, *part.parents))
        for part, _ in _parts(path.absolute())
    )


def _no_results(path: Path, variable: str) -> Path:
    if _is_of_results(path.absolute()):
        raise UserError(f"{variable} names a folder of results, not a lab folder", file=path)
    return path


def cache_dir(*parts: str) -> Path:
    """Return a folder below `$NUMALAB_CACHE` or ~/.cache/numalab, created for this user only.

    Raises HostError for a cache that somebody else may write to, and for a folder in it that is
    somebody else's: programs in it are run.
    """
    base = _cache()
    try:
        make_dir(base)
    except HostError as error:
        raise HostError(str(error), hint=_OTHER_CACHE) from None
    try:
        status = base.stat()
    except OSError as error:
        raise HostError(f"cannot use {shown(base)}: {error.strerror}", hint=_OTHER_CACHE) from None
    if status.st_uid not in (os.geteuid(), 0):
        raise HostError(f"the cache {shown(base)} belongs to another user", hint=_OTHER_CACHE)
    of_group = bool(status.st_mode & stat.S_IWGRP) and not _is_private(base, status)
    if status.st_mode & stat.S_IWOTH or of_group:
        hint = f"chmod go-w {shlex.quote(str(base))}, and remove what others may have put there"
        raise HostError(f"other users may write to the cache {shown(base)}", hint=hint)
    path = base
    for part in parts:
        path /= part
        make_dir(path)
        if path.stat().st_uid not in (os.geteuid(), 0):
            raise HostError(f"{shown(path)} belongs to another user", hint=_OTHER_CACHE)
    return path


def _cache() -> Path:
    if base := os.environ.get("NUMALAB_CACHE"):
        return Path(base).absolute()  # libvirt takes no other path
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if caches.is_absolute():  # any other is to be ignored (XDG Base Directory Specification)
        return caches / "numalab"
    try:
        return Path.home() / ".cache" / "numalab"
    except RuntimeError:
        reason = f"HOME is not set, and user {os.getuid()} has no home folder"
        raise HostError(reason, hint=_OTHER_CACHE) from None


def _is_lab(path: Path) -> bool:
    return any((path / kind).is_dir() for kind in KINDS)


def _is_of_results(path: Path) -> bool:
    folders = (path, *path.parents)
    return any(os.path.lexists(folder / name) for folder in folders for name in _RESULTS)


def require_own(path: Path, folder: Path) -> None:
    """Raise UserError if another user can change `path` or what it names.

    `path` is a file or folder in `folder`. From `folder` on, every part of the path must belong to
    the user or to root, and nobody else may write to it. Above, a sticky folder such as /tmp may be
    writable. Symbolic links are followed; their targets must pass the same check. The rules are
    those of git's `safe.directory` (git-config(1)) and of `safe_path()` in OpenSSH's misc.c.
    """
    bases = {folder.absolute(), _target(folder)}
    if path != folder:  # a link may lead elsewhere, where nobody else may add a file either
        bases.add(_target(path).parent)
    for part, status in _parts(path.absolute()):
        inside = not bases.isdisjoint((part, *part.parents))
        if reason := _unsafe(part, status, may_be_sticky=not inside):
            raise UserError(
                f"is not used: {reason}. numalab runs or builds what is in it. "
                f"If you trust it, copy it to a folder of your own",
                file=path,
            )


def _normal(path: Path) -> Path:
    return Path(os.path.normpath(path.absolute()))


def _target(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve() raises RuntimeError for a circle of links


def _parts(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Give every file that the kernel visits when it looks up `path`, with its lstat(2)."""
    links, current, rest = 0, Path("/"), list(reversed(path.parts[1:]))
    yield current, current.lstat()
    while rest:
        name = rest.pop()
        if name == "..":
            current = current.parent
            continue
        current /= name
        try:
            status = current.lstat()
            target = current.readlink() if stat.S_ISLNK(status.st_mode) else None
        except OSError as error:
            raise UserError(f"cannot read: {error.strerror}", file=path) from None
        yield current, status
        if target is not None:
            links += 1
            if links > _MOST_LINKS:
                raise UserError("has too many symbolic links", file=path)
            current = Path("/") if target.is_absolute() else current.parent
            rest += reversed([part for part in target.parts if part != "/"])


def _unsafe(path: Path, status: os.stat_result, *, may_be_sticky: bool) -> str:
    """Return why another user can change a file or folder, or an empty text."""
    if status.st_uid not in _trusted():
        return f"{shown(path)} belongs to user {_user_name(status.st_uid)}"
    mode = status.st_mode
    if stat.S_ISLNK(mode) or (may_be_sticky and stat.S_ISDIR(mode) and mode & stat.S_ISVTX):
        return ""
    if mode & stat.S_IWOTH:
        return f"every user may write to {shown(path)} (fix: chmod o-w)"
    if mode & stat.S_IWGRP and not _is_private(path, status):
        return f"other users may write to {shown(path)} (fix: chmod g-w)"
    return ""


def _is_private(path: Path, status: os.stat_result) -> bool:
    """Whether the group of a file has no member but the file's user (umask 002, pam_umask(8)).

    With an ACL, the mode has its mask instead of what the group may do: acl(5).
    """
    try:
        user, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
        has_acl = "system.posix_acl_access" in os.listxattr(path, follow_symlinks=False)
    except (KeyError, OSError):
        return False
    own = (group.gr_gid, group.gr_name) == (user.pw_gid, user.pw_name)
    return own and not has_acl and {*group.gr_mem} <= {user.pw_name}


def _trusted() -> frozenset[int]:
    """Return the users whose files may be used: this one, root, and who called sudo(8)."""
    own = os.geteuid()
    caller = os.environ.get("SUDO_UID", "") if own == 0 else ""
    return frozenset({own, 0, *([int(caller)] if caller.isascii() and caller.isdigit() else [])})


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
