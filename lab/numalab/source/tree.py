"""One source tree that becomes any variant: only files whose text differs are written.

`make` rebuilds what is newer than its objects. So a switch from one series to another touches the
files in which the two differ and no others, and a variant costs seconds.

The first time a file is changed its original is kept in `originals/` beside the tree; the names of
files that series add are kept in `added.json`. Together they say what may differ from the source,
whatever happened in between.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from numalab.document import read_record
from numalab.errors import HostError
from numalab.files import write_json
from numalab.source.series import Series, apply_series


@dataclass(frozen=True)
class _Originals:
    """The source as it was unpacked, whatever the tree holds now."""

    tree: Path
    kept: Path
    added: frozenset[str]

    def read(self, name: str) -> str | None:
        if name in self.added:
            return None
        kept = _read(self.kept / name)
        return _read(self.tree / name) if kept is None else kept

    def names(self) -> set[str]:
        files = (path for path in self.kept.rglob("*") if path.is_file())
        return {str(path.relative_to(self.kept)) for path in files}

    def keep(self, name: str) -> None:
        if (self.kept / name).exists():
            return
        temporary = self.kept.with_name(".keeping")
        (self.kept / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self.tree / name, temporary)
        temporary.replace(self.kept / name)


def original_reader(tree: Path) -> Callable[[str], str | None]:
    """Return a function that gives the text of a file as the source has it, None for no file."""
    return _originals(tree).read


def _originals(tree: Path) -> _Originals:
    memory = tree.parent / "added.json"
    added = read_record(memory, frozenset[str])
    if added is None and memory.exists():
        raise HostError(
            f"{memory} is damaged: which files of the tree are the source's is not known",
            hint=f"rm -r {tree.parent}",
        )
    return _Originals(tree, tree.parent / "originals", added or frozenset())


def switch_tree(tree: Path, series: Iterable[Series]) -> tuple[str, ...]:
    """Make `tree` the source plus `series`; return the names of the files that were written.

    Raises UserError for a series that does not apply (nothing is changed then), HostError when
    the tree cannot be written.
    """
    originals, memory = _originals(tree), tree.parent / "added.json"
    added = originals.added
    wanted = apply_series(series, originals.read)
    try:
        new = {name for name in wanted if originals.read(name) is None}
        if not new <= added:
            write_json(memory, sorted(added | new))
        for name in wanted.keys() - new:
            originals.keep(name)
        return _write(originals, dict.fromkeys(added | new) | dict(wanted))
    except OSError as error:
        raise HostError(
            f"cannot write {tree}: {error.strerror}",
            hint="free disk space, or set NUMALAB_CACHE to another disk",
        ) from None


def forget_series(tree: Path) -> None:
    """Put every file back as the source has it, and forget what was changed.

    For a tree that is about to become another source.
    """
    switch_tree(tree, ())
    shutil.rmtree(tree.parent / "originals", ignore_errors=True)
    (tree.parent / "added.json").unlink(missing_ok=True)


def _write(originals: _Originals, wanted: Mapping[str, str | None]) -> tuple[str, ...]:
    """Write what differs: `wanted` has the new texts, None for no such file."""
    written = []
    for name in sorted(originals.names() | wanted.keys()):
        text = wanted[name] if name in wanted else originals.read(name)
        if _read(originals.tree / name) == text:
            continue
        if text is None:
            (originals.tree / name).unlink()
        else:
            _put(originals, name, text)
        written.append(name)
    return tuple(written)


def _put(originals: _Originals, name: str, text: str) -> None:
    """Write a file whole or not at all, with its original's mode."""
    path, kept = originals.tree / name, originals.kept / name
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = originals.kept.with_name(".writing")
    temporary.write_bytes(text.encode("utf-8", "surrogateescape"))
    if kept.exists():
        shutil.copymode(kept, temporary)
    temporary.replace(path)


def _read(path: Path) -> str | None:
    if not path.is_file():
        return None
    return path.read_bytes().decode("utf-8", "surrogateescape")
