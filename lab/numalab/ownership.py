"""Checks that nobody else can change a file whose content numalab runs or builds."""

import os
import pwd
import stat
from collections.abc import Iterator
from grp import getgrgid
from pathlib import Path

from numalab.errors import UserError

_MOST_LINKS = 40  # of a path: MAXSYMLINKS in Linux' include/linux/namei.h
_ACL = "system.posix_acl_access"


def require_own(path: Path, folder: Path) -> None:
    """Raise UserError if another user can change `path` or what it names.

    `path` is a file or folder in `folder`. From `folder` on, every part of the path must belong to
    the user or to root, and nobody else may write to it. Above, a sticky folder such as /tmp may be
    writable. Symbolic links are followed; their targets must pass the same check. The rules are
    those of git's `safe.directory` (git-config(1)) and of `safe_path()` in OpenSSH's misc.c.
    """
    bases = {folder.absolute(), folder.resolve()}
    for part, status in _parts(path.absolute()):
        inside = not bases.isdisjoint((part, *part.parents))
        if reason := _unsafe(part, status, may_be_sticky=not inside):
            raise UserError(
                f"is not used: {reason}. numalab runs or builds what is in it. "
                f"If you trust it, copy it to a folder of your own",
                file=path,
            )


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
        return f"{path} belongs to user {_user_name(status.st_uid)}"
    mode = status.st_mode
    if stat.S_ISLNK(mode) or (may_be_sticky and stat.S_ISDIR(mode) and mode & stat.S_ISVTX):
        return ""
    if mode & stat.S_IWOTH:
        return f"every user may write to {path} (fix: chmod o-w)"
    if mode & stat.S_IWGRP and not (_is_private_group(status) and not _has_acl(path)):
        return f"other users may write to {path} (fix: chmod g-w)"
    return ""


def _trusted() -> frozenset[int]:
    """Return the users whose files may be used: this one, root, and who called sudo(8)."""
    own = os.geteuid()
    caller = os.environ.get("SUDO_UID", "") if own == 0 else ""
    return frozenset({own, 0, *([int(caller)] if caller.isascii() and caller.isdigit() else [])})


def _is_private_group(status: os.stat_result) -> bool:
    """Tell whether a file's group is its owner's alone, as useradd(8) makes one for each user."""
    try:
        group, owner = getgrgid(status.st_gid), pwd.getpwuid(status.st_uid)
    except KeyError:
        return False
    return group.gr_name == owner.pw_name and set(group.gr_mem) <= {owner.pw_name}


def _has_acl(path: Path) -> bool:
    try:
        return _ACL in os.listxattr(path)
    except OSError:
        return True


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
