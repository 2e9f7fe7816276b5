"""The lines that series change, by their numbers in the source and in the patched files."""

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from numalab.source.patch import FilePatch, parse_patch
from numalab.source.patch_index import PatchIndex
from numalab.source.plain_files import SourceFile
from numalab.source.series import Series, patch_files


@dataclass(frozen=True)
class ChangedLine:
    """A line with its number from 1: an added line in the new file, a removed line in the old."""

    number: int
    text: str


@dataclass(frozen=True)
class Change:
    """Neighbouring changed lines.

    `old_start` and `new_start` are the numbers of the first removed and the first added line, or
    the numbers that they would have.
    """

    old_start: int
    new_start: int
    removed: tuple[ChangedLine, ...]
    added: tuple[ChangedLine, ...]


@dataclass(frozen=True)
class FileChange:
    """The changes of a file: names (None for no file), whole texts, and changed lines in order.

    `changes` is empty for a file that is only renamed or has another mode. Bytes that are not UTF-8
    are surrogates.
    """

    old: str | None
    new: str | None
    before: str
    after: str
    changes: tuple[Change, ...]


def line_changes(
    series: Iterable[Series], read: Callable[[str], SourceFile | None]
) -> tuple[FileChange, ...]:
    """Return the changes of all series together, in the order of the file names.

    They are those of `git diff --unified=0` (git-diff(1)) between the files that `read` returns and
    the patched files: a line that one patch adds and another removes is none. Raises UserError and
    HostError as `patch_files` does.
    """
    after = patch_files(series, read)
    old = {name: file for name in after if (file := read(name)) is not None}
    new = {name: file for name, file in after.items() if file is not None}
    with tempfile.TemporaryDirectory(prefix="numalab-changes.") as scratch:
        diff = PatchIndex(Path(scratch)).diff(old, new)
    return tuple(_file_change(file, old, new) for file in parse_patch(diff)) if diff else ()


def _file_change(
    file: FilePatch, old: dict[str, SourceFile], new: dict[str, SourceFile]
) -> FileChange:
    return FileChange(
        file.old,
        file.new,
        old[file.old].text if file.old is not None else "",
        new[file.new].text if file.new is not None else "",
        tuple(_changes(file)),
    )


def _changes(file: FilePatch) -> Iterable[Change]:
    shift = 0
    for hunk in file.hunks:
        # Without a removed line, diff counts the line before (GNU diffutils, Detailed Unified).
        start = hunk.start if hunk.old else hunk.start + 1
        yield Change(
            start,
            start + shift,
            tuple(ChangedLine(start + at, text) for at, text in enumerate(hunk.old)),
            tuple(ChangedLine(start + shift + at, text) for at, text in enumerate(hunk.new)),
        )
        shift += len(hunk.new) - len(hunk.old)
