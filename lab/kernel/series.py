"""Patch series in quilt layout: a folder with a file `series` and the patches it lists."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lab.errors import UserError
from lab.kernel.patch import FilePatch, HunkFailed, PatchError, apply_patch, parse_patch

MAX_PATCH_BYTES = 16 << 20


@dataclass(frozen=True)
class SeriesInfo:
    """What a result says about a series: its name, a digest of the patches, their subjects."""

    name: str
    digest: str
    patches: tuple[str, ...]


@dataclass(frozen=True)
class Patch:
    """One patch of a series."""

    path: Path
    subject: str
    digest: str
    files: tuple[FilePatch, ...]


@dataclass(frozen=True)
class Series:
    """A series that was read and parsed."""

    name: str
    patches: tuple[Patch, ...]

    @property
    def info(self) -> SeriesInfo:
        """Return the short form that results keep."""
        digest = hashlib.sha256("".join(patch.digest for patch in self.patches).encode())
        return SeriesInfo(
            self.name, digest.hexdigest(), tuple(patch.subject for patch in self.patches)
        )


def parse_series(text: str, file: Path | None = None) -> tuple[str, ...]:
    """Return the patch names of a quilt `series` file, in order.

    Comments begin with "#". Raises UserError for a name that leads elsewhere, for one given twice
    and for a strip level other than -p1.
    """
    names: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = re.sub(r"(^|\s)#.*", "", line).split()
        if not words:
            continue
        at = f"{file or 'series'}:{number}"
        name, *options = words
        if options not in ([], ["-p1"]):
            raise UserError(f"cannot apply with {' '.join(options)}", file=at, choices=["-p1"])
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise UserError(f"{name!r} leads out of the series", file=at)
        if name in names:
            raise UserError(f"{name!r} is listed twice", file=at)
        names.append(name)
    return tuple(names)


def load_series(path: Path) -> Series:
    """Read the series in the folder `path`; UserError for a patch that is missing or unreadable."""
    file = path / "series"
    names = parse_series(_read(file), file)
    if not names:
        raise UserError("lists no patch", file=file)
    return Series(path.name, tuple(_load_patch(path / name, file) for name in names))


def apply_series(
    series: Iterable[Series], read: Callable[[str], str | None]
) -> Mapping[str, str | None]:
    """Apply series one after the other to files that `read` gives (None: no such file).

    Returns the text of every touched file, None for a deleted one. Raises UserError that names the
    patch and shows the file's own lines where a hunk does not fit.
    """
    touched: dict[str, str | None] = {}

    def now(name: str) -> str | None:
        return touched[name] if name in touched else read(name)

    for patch in (patch for one in series for patch in one.patches):
        try:
            touched.update(apply_patch(patch.files, now))
        except HunkFailed as error:
            raise UserError(f"does not apply: {error}", file=patch.path) from None
    return touched


def parse_subject(text: str) -> str:
    """Return a patch's subject without "[PATCH 1/3]"; "" where it has none."""
    head = re.split(r"^(?:---|diff --git |Index: )", text, maxsplit=1, flags=re.MULTILINE)[0]
    found = re.search(r"^Subject:[ \t]*(.*(?:\n[ \t]+.*)*)", head, re.MULTILINE)
    if found is None:
        return ""
    return re.sub(r"^(\[[^]]*\]\s*)+", "", " ".join(found[1].split()))


def _load_patch(path: Path, listed_in: Path) -> Patch:
    if not path.is_file():
        raise UserError(f"{path.name} is listed but not there", file=listed_in)
    text = _read(path)
    try:
        files = parse_patch(text)
    except PatchError as error:
        raise UserError(str(error), file=path) from None
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    return Patch(path, parse_subject(text) or path.stem, digest, files)


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", file=path) from None
    if len(data) > MAX_PATCH_BYTES:
        raise UserError(f"larger than {MAX_PATCH_BYTES >> 20} MiB", file=path)
    # Kernel sources are UTF-8 with a few exceptions, which must come through unchanged.
    return data.decode("utf-8", "surrogateescape")
