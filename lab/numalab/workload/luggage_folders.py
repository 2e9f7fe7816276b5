"""Folders of the host that go to a guest: the current folder, and those of `--add`."""

import os
import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from numalab.errors import UserError, shown
from numalab.workload.luggage import FILES, Luggage

MOST_OF_FOLDER = 64 << 20  # of the current folder, which nobody named
MOST_FILES = 4000  # of the current folder, with empty folders and links
MOST_OF_NAMES = 32 << 10  # bytes, of folders and links, in one word (MAX_ARG_STRLEN, execve(2))
_MOST_REMARKS = 5  # on links
_ADVICE = "--add FILE takes along what the program reads"

FOLDER = f"{FILES}/folder"  # the copy of the current folder

# A path below a folder, and where it leads: the path itself, or the target of a link. None: the
# link stays here.
_Entry = tuple[Path, Path | None]


def take_folders(luggage: Luggage, add: Sequence[str]) -> None:
    """Take along what `--add` names, and then the current folder.

    Raises UserError for a name that is no file or folder, and what `Luggage.put` raises.
    """
    left = dict[str, Path]()  # links that stay here, by their name
    added = {_add(luggage, item, left) for item in add}
    _add_current_folder(luggage, left)
    _settle_links(luggage, left, added)
    if len(folder_script(luggage)) > MOST_OF_NAMES:
        counts = {"empty folders": len(luggage.folders), "links to folders": len(luggage.links)}
        texts = (f"{count} {what}" for what, count in counts.items() if count)
        luggage.remarks.append(f"{' and '.join(texts)} stay here")
        luggage.folders.clear()
        luggage.links.clear()


def folder_script(luggage: Luggage) -> str:
    """Return shell commands that make the empty folders and the links to folders."""
    folders = dict.fromkeys([FOLDER, *(f"{FILES}/{name}" for name in luggage.folders)])
    # Commands of a session share the guest: `-f` and `-n` replace the link of an earlier one.
    links = (("ln", "-sfn", to, f"{FILES}/{name}") for name, to in luggage.links.items())
    return " && ".join(map(shlex.join, [("mkdir", "-p", *folders), *links]))


def through_links(luggage: Luggage, name: str) -> str:
    """Return a name with the targets of the links to folders in it."""
    real = ""
    for part in name.split("/"):
        real = os.path.join(real, part)  # noqa: PTH118 - a name below FILES
        if to := luggage.links.get(real):
            real = os.path.normpath(f"{real}/../{to}")
    return real


def _add(luggage: Luggage, item: str, left: dict[str, Path]) -> str:
    """Take along FILE, FOLDER, or either with `:TARGET`; return its name in the guest."""
    text, _, target = item.rpartition(":")
    if not text or Path(item).exists():
        text, target = item, ""
    path = Path(text)
    name = target or (path.name if path.is_absolute() or ".." in path.parts else text)
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        reason = f"{name!r} is not a path below the working folder of the guest"
        raise UserError(reason, key="--add")
    if not path.exists():
        raise UserError("no such file or folder", file=path, key="--add")
    below = "/".join(["folder", *parts])
    if path.is_dir():
        for entry in _walk(path, hidden=True):
            _take(luggage, f"{below}/{entry[0].relative_to(path)}", entry, left)
    else:
        luggage.put(below, path)
    return below


def _add_current_folder(luggage: Luggage, left: dict[str, Path]) -> None:
    size, entries = 0, list[_Entry]()
    for path, target in _walk(Path()):
        if target is not None:
            with suppress(OSError):
                size += target.stat().st_size
        entries.append((path, target))
        if size > MOST_OF_FOLDER or len(entries) > MOST_FILES:
            luggage.remarks.append(
                f"the current folder holds more than {MOST_OF_FOLDER >> 20} MiB or {MOST_FILES}"
                f" files and links, and stays here; {_ADVICE}"
            )
            return
    for path, target in entries:
        if target is not None and not os.access(path, os.R_OK):
            luggage.remarks.append(f"{shown(path)} cannot be read, and stays here")
            continue
        _take(luggage, f"folder/{path}", (path, target), left)


def _take(luggage: Luggage, name: str, entry: _Entry, left: dict[str, Path]) -> None:
    """Take along a file, an empty folder, or a link to a folder."""
    name, (path, target) = os.path.normpath(name), entry
    if target is None:
        left.setdefault(name, path)
    elif not os.path.isdir(target):  # noqa: PTH112 - unlike is_dir, never raises
        luggage.put(name, path)
    elif target == path:
        luggage.folders.append(name)
    else:
        to = os.path.relpath(target, os.path.realpath(path.parent))
        luggage.links.setdefault(name, to)


def _settle_links(luggage: Luggage, left: dict[str, Path], added: Collection[str]) -> None:
    """Remove links that have files of `--add` in their place, and remark on those that stay here.

    `added` are the names of what the options name.
    """
    taken = set[str]()
    for file in (*luggage.files, *luggage.folders):
        name = file
        while name not in taken:
            taken.add(name)
            name = name.rpartition("/")[0]
    for link in sorted(taken.intersection(luggage.links)):
        del luggage.links[link]
        if link not in added:
            name = shown(link.partition("/")[2])
            luggage.remarks.append(f"the link {name} stays here, as --add puts files in its place")
    missing = [link for link in left if link not in taken and link not in luggage.links]
    for link in missing[:_MOST_REMARKS]:
        target = shown(Path(os.path.realpath(left[link])))
        reason = f"the link {shown(left[link])} stays here, as it leads to {target}"
        is_added = any(link.startswith(f"{name}/") for name in added)
        luggage.remarks.append(reason if is_added else f"{reason}; {_ADVICE}")
    if len(missing) > _MOST_REMARKS:
        luggage.remarks.append(f"{len(missing) - _MOST_REMARKS} more links stay here")


def _walk(top: Path, *, hidden: bool = False) -> Iterator[_Entry]:
    """Yield the regular files, the links and the empty folders below a folder.

    A folder is empty, too, if it holds links only: they need it. No linked folder is walked, so
    that the time is linear. Links stay here that lead out of the folder or to nothing, or, unless
    `hidden` files are taken, to one.
    """
    real = Path(os.path.realpath(top))

    def target_of(link: Path) -> Path | None:
        target = Path(os.path.realpath(link))
        if not target.is_relative_to(real) or not os.access(target, os.F_OK):
            return None
        parts = target.relative_to(real).parts
        return target if hidden or not any(part.startswith(".") for part in parts) else None

    waiting = [top]
    while waiting:
        folder = waiting.pop()
        folders, files, links = list[Path](), list[Path](), list[Path]()
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                path = folder / entry.name
                if entry.name.startswith(".") and not hidden:
                    continue
                if entry.is_symlink():
                    links.append(path)
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                elif entry.is_file(follow_symlinks=False):
                    files.append(path)
        yield from ((path, path) for path in files)
        yield from ((path, target_of(path)) for path in links)
        if not files and not folders:
            yield folder, folder
        waiting.extend(reversed(folders))
