"""Patch series: in quilt layout, a folder of patches, a mailbox, or one patch."""

import gzip
import hashlib
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from numalab.errors import UserError
from numalab.files import reading
from numalab.process import CommandFailed, find_program, run
from numalab.source.mail import is_mailbox, split_mailbox
from numalab.source.patch import FilePatch, HunkFailed, PatchError, apply_patch, parse_patch

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
    text: str
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
    """Read a series from a folder or a file.

    A folder has a file `series` (quilt) or holds patches that are applied in the order of their
    names; a file is a mailbox or one patch. UserError for what is missing or unreadable.
    """
    if not path.is_dir():
        return _load_file(path)
    file = path / "series"
    if not file.is_file():
        return _load_folder(path)
    names = parse_series(read_patch(file), file)
    if not names:
        raise UserError("lists no patch", file=file)
    return Series(path.name, tuple(_load_patch(path / name, file) for name in names))


def _load_folder(path: Path) -> Series:
    """Read a folder without a file `series`, such as `git format-patch` leaves behind."""
    names = sorted({*path.glob("*.patch"), *path.glob("*.diff")})
    # A cover letter holds no diff, which nothing but its name says before it is read.
    patches = [_load_patch(one, path) for one in names if "cover-letter" not in one.name]
    if not patches:
        raise UserError("holds no file called series, *.patch or *.diff", file=path)
    return Series(path.resolve().name, tuple(patches))


def _load_file(path: Path) -> Series:
    data = read_patch(path).encode("utf-8", "surrogateescape")
    if data[:2] == b"\x1f\x8b":
        data = _unzipped(path)
    if is_mailbox(data):
        return load_mailbox(data, path)
    return Series(path.stem, (_parse_patch(data.decode("utf-8", "surrogateescape"), path),))


def load_mailbox(data: bytes, path: Path) -> Series:
    """Read the patches of a mailbox; `path` is named in errors. Raises UserError."""
    texts = split_mailbox(data)
    if not texts:
        raise UserError("is a mailbox without a patch", file=path)
    # A message has no file of its own; errors say which one it is.
    names = [path.with_name(f"{path.name}, patch {number}") for number in range(1, len(texts) + 1)]
    named = zip(texts, [path] if len(texts) == 1 else names, strict=True)
    return Series(path.stem, tuple(_parse_patch(text, name) for text, name in named))


def _unzipped(path: Path) -> bytes:
    """Unpack a mailbox as lists archive them (t.mbox.gz), no further than a patch may be large."""
    try:
        with gzip.open(path) as file:
            return _limited(file.read(MAX_PATCH_BYTES + 1), path)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot be unpacked: {error}", file=path) from None


def apply_series(
    series: Iterable[Series], read: Callable[[str], str | None]
) -> Mapping[str, str | None]:
    """Apply series one after the other, with git-apply(1), to files that `read` gives.

    `read` returns a file's text, None where there is no such file. Returns the text of every
    touched file, None for a deleted one. Raises UserError that names the patch and shows the
    file's own lines where a hunk does not fit, HostError without git.
    """
    touched: dict[str, str | None] = {}
    with tempfile.TemporaryDirectory(prefix="numalab-series.") as scratch:
        tree = Path(scratch) / "tree"
        tree.mkdir()
        for patch in (patch for one in series for patch in one.patches):
            names = {name for file in patch.files for name in (file.old, file.new) if name}
            for name in names - touched.keys():
                _put(tree / name, read(name))
            before = {name: _text(tree / name) for name in names}
            _git_apply(tree, patch, before)
            touched |= {name: _text(tree / name) for name in names}
    return touched


def _git_apply(tree: Path, patch: Patch, before: Mapping[str, str | None]) -> None:
    text = tree.with_name("patch")
    _put(text, patch.text)
    # Not in a repository that happens to be above, and by nobody's settings.
    env = {
        "GIT_CEILING_DIRECTORIES": str(tree.parent),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C",
    }
    git = find_program("git", "git")
    try:
        run([git, "apply", "--whitespace=nowarn", text], cwd=tree, env=env)
    except CommandFailed as failed:
        try:
            apply_patch(patch.files, before.get)
        except HunkFailed as error:
            raise UserError(f"does not apply: {error}", file=patch.path) from None
        reason = failed.completed.stderr.strip()
        raise UserError(f"does not apply: {reason}", file=patch.path) from None


def _put(path: Path, text: str | None) -> None:
    if text is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))


def _text(path: Path) -> str | None:
    return path.read_bytes().decode("utf-8", "surrogateescape") if path.is_file() else None


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
    return _parse_patch(read_patch(path), path)


def _parse_patch(text: str, path: Path) -> Patch:
    try:
        files = parse_patch(text)
    except PatchError as error:
        raise UserError(str(error), file=path) from None
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    return Patch(path, parse_subject(text) or path.stem, digest, text, files)


def read_patch(path: Path) -> str:
    """Return a patch's text, bytes that are not UTF-8 as surrogates. Raises UserError."""
    with reading(path):
        data = path.read_bytes()
    # Kernel sources are UTF-8 with a few exceptions, which must come through unchanged.
    return _limited(data, path).decode("utf-8", "surrogateescape")


def _limited(data: bytes, path: Path) -> bytes:
    if len(data) > MAX_PATCH_BYTES:
        raise UserError(f"larger than {MAX_PATCH_BYTES >> 20} MiB", file=path)
    return data
