"""One source tree for all variants: a switch writes only files whose text differs.

`make` rebuilds objects that are older than their files, so a variant takes seconds. `originals/`
beside the tree keeps the original of every changed file, and `added.json` the names of files that
series add. Together they list all possible differences from the source.
"""

import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from numalab.document import read_record
from numalab.errors import HostError
from numalab.files import write_json
from numalab.source.plain_files import (
    NotPlain,
    SourceFile,
    names_below,
    read_file,
    read_permissions,
    remove_file,
    write_file,
)
from numalab.source.series import Series, patch_files

_BUILD = re.compile(r"build-[0-9a-f]{12}(/|$)")  # builds are kept in the tree


@dataclass(frozen=True)
class _Originals:
    """The source as it was unpacked."""

    tree: Path
    kept: Path
    added: frozenset[str]

    def read(self, name: str) -> SourceFile | None:
        """Return a file of the source, None for no file. Raises NotPlain for a link."""
        if _BUILD.match(name):
            raise NotPlain(name, "in a folder of a build")
        if name in self.added:
            return None
        kept = read_file(self.kept, name)
        if kept is not None:
            return kept
        try:
            return read_file(self.tree, name)
        except NotPlain as error:
            # A series may have made a folder where the source has nothing.
            if error.is_folder and self.added.issuperset(names_below(self.tree, name)):
                return None
            raise

    def has(self, name: str) -> bool:
        return read_file(self.kept, name) is not None

    def names(self) -> set[str]:
        return set(names_below(self.kept)) if self.kept.is_dir() else set()

    def keep(self, name: str) -> None:
        if read_file(self.kept, name) is None and (file := read_file(self.tree, name)) is not None:
            write_file(self.kept, name, file, read_permissions(self.tree, name))


def original_reader(tree: Path) -> Callable[[str], str | None]:
    """Return a function that reads the text of a file in the source, None for no file.

    It raises NotPlain for a name that is a link or leads through a link.
    """
    originals = _originals(tree)

    def read(name: str) -> str | None:
        file = originals.read(name)
        return None if file is None else file.text

    return read


def read_original(tree: Path, name: str) -> SourceFile | None:
    """Return a file of the source, None for no file, while another process may switch the tree.

    Raises NotPlain for a name that is a link or leads through a link.
    """
    now: SourceFile | None = None
    with suppress(NotPlain):
        now = read_file(tree, name)
    # The records are written before the file is: with none by now, the file is the original.
    originals = _originals(tree)
    if name in originals.added or originals.has(name):
        return originals.read(name)
    return now if now is not None else originals.read(name)


def _originals(tree: Path) -> _Originals:
    memory = tree.parent / "added.json"
    added = read_record(memory, frozenset[str])
    if added is None and memory.exists():
        raise HostError(
            f"{memory} is damaged: it lists the files that series added",
            hint=f"rm -r {tree.parent}",
        )
    return _Originals(tree, tree.parent / "originals", added or frozenset())


def switch_tree(tree: Path, series: Iterable[Series]) -> tuple[str, ...]:
    """Change `tree` to the source plus `series`; return the names of the written files.

    Raises UserError for a series that does not apply (nothing is changed then), HostError when the
    tree cannot be written or holds a foreign link.
    """
    originals, memory = _originals(tree), tree.parent / "added.json"
    added = originals.added
    try:
        wanted = patch_files(series, originals.read)
        new = {name for name in wanted if originals.read(name) is None}
        if not new <= added:
            write_json(memory, sorted(added | new))
        for name in wanted.keys() - new:
            originals.keep(name)
        return _write(originals, dict.fromkeys(added | new) | dict(wanted))
    except NotPlain as error:
        raise HostError(
            f"cannot write {tree}: {error}", hint=f"remove {tree.parent}; the next build creates it"
        ) from None
    except OSError as error:
        raise HostError(
            f"cannot write {tree}: {error.strerror}",
            hint="free disk space, or set NUMALAB_CACHE to another disk",
        ) from None


def forget_series(tree: Path) -> None:
    """Restore every file of the source, and delete the records of changes.

    For a tree that becomes another source.
    """
    switch_tree(tree, ())
    shutil.rmtree(tree.parent / "originals", ignore_errors=True)
    (tree.parent / "added.json").unlink(missing_ok=True)


def _write(originals: _Originals, wanted: Mapping[str, SourceFile | None]) -> tuple[str, ...]:
    """Write the files that differ; `wanted` has the new files, None for no file."""
    tree, changes = originals.tree, {}
    for name in originals.names() | wanted.keys():
        file = wanted[name] if name in wanted else originals.read(name)
        if not _holds(tree, name, file):
            changes[name] = file
    # A file can take the place of a folder whose files go.
    for name, file in sorted(changes.items()):
        if file is None:
            remove_file(tree, name)
    for name, file in sorted(changes.items()):
        if file is not None:
            kept = read_file(originals.kept, name)
            same_mode = kept is not None and kept.executable == file.executable
            permissions = read_permissions(originals.kept, name) if same_mode else None
            write_file(tree, name, file, permissions)
    return tuple(sorted(changes))


def _holds(tree: Path, name: str, file: SourceFile | None) -> bool:
    """Tell whether the tree has this file, or no file of this name for None."""
    try:
        return read_file(tree, name) == file
    except NotPlain as error:
        return error.is_folder and file is None
