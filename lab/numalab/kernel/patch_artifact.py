"""Patches that were used as kernels, kept in the cache by the digest of their content.

A kernel is built from the copy: a later change of the user's file does not reach it. The record
holds the name, so that the kernel can be used again without the file.
"""

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from numalab.artifact.digest import digest_of
from numalab.artifact.kinds import Kind, record_title, register_kind
from numalab.document import read_record
from numalab.errors import UserError
from numalab.files import replacing, write_json, write_text
from numalab.places import cache_dir
from numalab.source.git import PREFIX, split_git
from numalab.source.kernel_source import is_package
from numalab.source.series import Series

_RECORD = "patch.json"
_LONGEST = 40  # characters of a series in a kernel's name
_SUFFIX = 8  # digits of the digest in a kernel's name
PATCHES = register_kind(
    Kind(
        name="patch",
        folder="patches",
        title=record_title(_RECORD, "kernel"),
        only_copy=True,
    )
)


@dataclass(frozen=True)
class SavedPatch:
    """A patch that was used as a kernel.

    `kernel` is the kernel's name, `short` the name of the patch in it. `base` is a kernel, as
    `find_kernel` takes it, and `series` the series on it: folders of this entry, or names of
    series in the lab. `used` is the Unix time of its last use by its file, in s. `commit` is git's
    id of a base that is a revision other than a tag, "" for another base.
    """

    kernel: str
    short: str
    base: str
    series: str
    used: float
    commit: str = ""

    @property
    def plain(self) -> str:
        """The kernel's name without the digest."""
        has_digest = not self.kernel.endswith(f"+{self.short}")
        return self.kernel.rpartition("-")[0] if has_digest else self.kernel

    @property
    def is_copy(self) -> bool:
        """Tell whether the entry holds the patches; else they are a series of the lab."""
        return "/" in self.series


def short_name(text: str) -> str:
    """Return a name of letters, digits, '.', '_' and '-' for a series, a path or a range."""
    name = re.sub(r"\.{2,}|[^A-Za-z0-9._-]+", "-", text).strip("-._")
    return name[:_LONGEST].strip("-._") or "patch"


def save_patch(
    series: Series, base: str, label: str, *, named: bool, commit: str = ""
) -> SavedPatch:
    """Copy a series to the cache unless it is there, and record its use; return the record.

    `base` is an argument of `find_kernel`, `commit` git's id of it where it is a revision
    other than a tag, and `label` its part of the kernel's name. `named` is for a series of the
    lab: only its name is recorded. Raises HostError.
    """
    short = short_name(series.name)
    content = series.name if named else series.info.digest
    name = f"{label}+{short}"
    alone = digest_of([base, short, content, commit])
    own, entry = PATCHES.entry(alone), PATCHES.entry(digest_of([base, short, content]))
    saved = _records()
    if named:  # the plain name is that of the last revision, except where it was given before
        was_given = entry in saved and saved[entry].kernel == name
        kernel = first = f"{name}-{alone[:_SUFFIX]}" if commit and not was_given else name
    else:
        kernel = first = f"{name}-{series.info.digest[:_SUFFIX]}"
    is_other = commit and entry in saved and saved[entry].commit not in ("", commit)
    taken = any(record.kernel == first for path, record in saved.items() if path != entry)
    if own in saved or is_other or taken:
        entry, kernel = own, f"{name}-{alone[:_SUFFIX]}"
    place = series.name if named else str(entry / short)
    record = SavedPatch(kernel, short, base, place, time.time(), commit)
    if entry not in saved:
        with replacing(entry) as new:
            new.mkdir()
            if not named:
                _copy(series, new / short)
            write_json(new / _RECORD, asdict(record))
    else:
        write_json(entry / _RECORD, asdict(record))
        with suppress(OSError):
            os.utime(entry)  # the time of last use, for `numalab cache list`
    return record


def _copy(series: Series, folder: Path) -> None:
    folder.mkdir()
    names = [f"{number:04}.patch" for number in range(1, len(series.patches) + 1)]
    for name, patch in zip(names, series.patches, strict=True):
        (folder / name).write_bytes(patch.text.encode("utf-8", "surrogateescape"))
    write_text(folder / "series", "".join(f"{name}\n" for name in names))


def saved_patches() -> tuple[SavedPatch, ...]:
    """Return all saved patches, the one used last first; damaged entries are left out."""
    return tuple(sorted(_records().values(), key=lambda patch: (-patch.used, patch.kernel)))


def _records() -> dict[Path, SavedPatch]:
    """Return the saved patches by their entries."""
    entries = cache_dir(PATCHES.folder).glob("[0-9a-f]*")
    return {entry: patch for entry in entries if (patch := _read(entry)) is not None}


def _read(entry: Path) -> SavedPatch | None:
    patch = read_record(entry / _RECORD, SavedPatch)
    if patch is None:
        return None
    if not patch.is_copy:
        return patch
    folder = entry / patch.short  # a cache may be moved
    whole = short_name(patch.short) == patch.short and (folder / "series").is_file()
    return replace(patch, series=str(folder)) if whole else None


def is_gone(base: str) -> bool:
    """Tell whether the base of a patch is a tree that its user removed."""
    if not base.startswith(PREFIX):
        return "/" in base and not is_package(base) and not Path(base).exists()
    try:
        split_git(base)
    except UserError:
        return True
    return False


def find_saved(name: str, patches: Sequence[SavedPatch]) -> SavedPatch | None:
    """Return the patch of a kernel's name, with or without digest or base; the last used of them.

    Names with a digest come first. Raises UserError for one that stands for two kernels whose bases
    exist, as an earlier numalab gave it.
    """
    same = [patch for patch in patches if patch.kernel == name]
    if len({patch.base for patch in same}) > 1:
        same = [patch for patch in same if not is_gone(patch.base)] or same[:1]
    if len(bases := {patch.base for patch in same}) > 1:
        reason = f"{name!r} is the name of kernels on {' and '.join(sorted(bases))}"
        raise UserError(f"{reason}; name the patch and the base again, for a new name")
    if same:
        return same[0]
    for field in ("plain", "short"):
        for patch in patches:
            if getattr(patch, field) == name:
                return patch
    return None
