"""A folder of files that goes on top of a tree of Debian packages."""

import shutil
import stat
from pathlib import Path

from numalab.artifact.digest import hash_file
from numalab.errors import UserError

MAX_LINKS = 40  # as many as Linux follows (fs/namei.c, MAXSYMLINKS)


def describe_tree(folder: Path) -> list[str]:
    """Say in words all that a folder holds: names, modes, contents, where links point.

    Raises UserError for what is neither a file, a folder nor a link.
    """
    parts = []
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        parts += [str(path.relative_to(folder)), oct(mode)]
        if stat.S_ISLNK(mode):
            parts.append(str(path.readlink()))
        elif stat.S_ISREG(mode):
            parts.append(hash_file(path))
        elif not stat.S_ISDIR(mode):
            raise UserError("neither a file, a folder nor a link", file=path)
    return parts


def copy_onto(folder: Path, tree: Path) -> None:
    """Put what a folder holds on top of a tree, keeping modes; what is there is replaced.

    A folder that is a link in the tree (`/bin`, `/var/run`) is followed inside the tree, never out
    of it. Raises UserError for a file where the tree has a folder, or the other way round.
    """
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        parent = _inside(tree, relative.parent)
        target = parent / relative.name
        is_folder = path.is_dir() and not path.is_symlink()
        if is_folder:
            target = _inside(tree, relative)
        if target.exists() and target.is_dir() != is_folder and not target.is_symlink():
            kind = "a folder" if target.is_dir() else "a file"
            raise UserError(f"the image has {kind} of this name", file=path)
        if is_folder:
            target.mkdir(parents=True, exist_ok=True)  # what a link names need not be there
            target.chmod(stat.S_IMODE(path.stat().st_mode))
        else:
            target.unlink(missing_ok=True)
            shutil.copy2(path, target, follow_symlinks=False)


def _inside(tree: Path, relative: Path) -> Path:
    """Return the place of a path below `tree`, as a process that has it as its root sees it."""
    here, waiting, links = tree, list(relative.parts), 0
    while waiting:
        part = waiting.pop(0)
        if part in ("..", "/"):
            here = tree if part == "/" or here == tree else here.parent
            continue
        if (here / part).is_symlink():
            links += 1
            if links > MAX_LINKS:
                raise UserError("too many links in the image", file=str(relative))
            waiting = [*(here / part).readlink().parts, *waiting]
            continue
        here = here / part
    return here
