"""A folder of files that goes on top of a tree of Debian packages."""

import shutil
import stat
from pathlib import Path

from numalab.artifact.digest import hash_file
from numalab.errors import UserError

MAX_LINKS = 40  # as many as Linux follows (fs/namei.c, MAXSYMLINKS)


def describe_tree(folder: Path) -> list[str]:
    """Return names, modes, content hashes and link targets of all files below a folder.

    Raises UserError for a device, a pipe or a socket.
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
    """Copy a folder's files over a tree, with their modes; existing files are replaced.

    A folder that is a link in the tree (`/bin`, `/var/run`) is followed inside the tree, never out
    of it. Raises UserError for a file where the tree has a folder, and for the reverse.
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
            target.mkdir(parents=True, exist_ok=True)  # the target of a link may be missing
            target.chmod(stat.S_IMODE(path.stat().st_mode))
        else:
            target.unlink(missing_ok=True)
            shutil.copy2(path, target, follow_symlinks=False)


def _inside(tree: Path, relative: Path) -> Path:
    """Return the target of a path below `tree` for a process that has `tree` as its root."""
    folder, rest, links = tree, list(relative.parts), 0
    while rest:
        part = rest.pop(0)
        if part in ("..", "/"):
            folder = tree if part == "/" or folder == tree else folder.parent
            continue
        if (folder / part).is_symlink():
            links += 1
            if links > MAX_LINKS:
                raise UserError("too many links in the image", file=str(relative))
            rest = [*(folder / part).readlink().parts, *rest]
            continue
        folder = folder / part
    return folder
