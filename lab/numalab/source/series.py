"""Patch series: in quilt layout, a folder of patches, a mailbox, or one patch."""

import gzip
import hashlib
import io
import lzma
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from numalab.errors import UserError
from numalab.files import read_bounded, reading
from numalab.source.mail_text import parse_subject
from numalab.source.mailbox import (
    choose_patches,
    is_encoded,
    is_mailbox,
    split_mailbox,
    split_messages,
    versions_among,
    with_line_feeds,
)
from numalab.source.patch import FilePatch, HunkFailed, PatchError, apply_patch, parse_patch
from numalab.source.patch_index import EXECUTABLE, PLAIN, PatchIndex
from numalab.source.plain_files import NotPlain, SourceFile

MAX_PATCH_BYTES = 16 << 20
# Of one series. A patch takes up to 400 bytes of memory for each of its lines.
MAX_PATCHES, MAX_SERIES_BYTES, MAX_LINES = 10_000, 64 << 20, 1_000_000
MAX_FILES = 20_000
_XZ_MEMORY = 128 << 20  # bytes; `xz -9` needs 65 MiB to unpack
_PATCHES, _MAILS = (".patch", ".diff"), (".mbox", ".mbx", ".eml")
_PACKED = (".gz", ".xz", ".bz2", ".zst")  # the last two are not read, and the error says so
_FOLDERS = ("kernel", "kernel/sched", "mm")  # where a patch may have been made, instead of the top
_Read = Callable[[str], SourceFile | None]
_LIST = "a file called series may list what to apply"
_DIFF = re.compile(rb"^(?:diff --git a/|--- \S[^\n]*\n\+\+\+ )", re.MULTILINE)


@dataclass(frozen=True)
class SeriesInfo:
    """The record of a series in results: name, digest of the patches, their subjects."""

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
    """A parsed series."""

    name: str
    patches: tuple[Patch, ...]

    @property
    def info(self) -> SeriesInfo:
        """The record for results."""
        digest = hashlib.sha256("".join(patch.digest for patch in self.patches).encode())
        return SeriesInfo(
            self.name, digest.hexdigest(), tuple(patch.subject for patch in self.patches)
        )


def parse_series(text: str, file: Path | None = None) -> tuple[str, ...]:
    """Return the patch names of a quilt `series` file, in order.

    Comments begin with "#". Raises UserError for a name outside the folder, a repeated name and a
    strip level other than -p1.
    """
    names: dict[str, None] = {}
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
        names[name] = None
    return tuple(names)


def load_series(path: Path) -> Series:
    """Read a series from a folder or a file.

    A folder has a file `series` (quilt), or patches that are applied in the order of their names;
    a file is a mailbox or one patch. Raises UserError.
    """
    with reading(path):
        is_folder = path.is_dir()
    if not is_folder:
        return _load_file(path)
    file = path / "series"
    if not os.path.lexists(file):
        return _load_folder(path)
    names = parse_series(_text(_data_in(file, path)), file)
    if not names:
        raise UserError("lists no patch", file=file)
    for name in names:
        if not os.path.lexists(path / name):
            raise UserError(f"{name} is listed but missing", file=file)
    texts = (text for name in names for text in _texts_in(path / name, path))
    return Series(path.name, _parse_patches(texts, file))


def _load_folder(path: Path) -> Series:
    """Read a folder without a file `series`, such as that of `git format-patch`."""
    with reading(path):
        files = sorted(filter(is_named_as_patch, path.iterdir()))
    # A cover letter holds no diff.
    listed = [file for file in files if "cover-letter" not in file.name]
    mails = _mails_in(listed, path)
    texts = (text for file in listed
             for text in (mails[file] if file in mails else _texts_in(file, path)))  # fmt: skip
    patches = _parse_patches(texts, path)
    if not patches:
        raise UserError("holds no file called series, *.patch, *.diff or *.mbox", file=path)
    # A mailbox or a packed file may hold the patches that lie beside it, as `b4 am` leaves them.
    plain = {patch.files for patch in patches if patch.path.suffix in _PATCHES}
    rest = tuple(p for p in patches if p.path.suffix in _PATCHES or p.files not in plain)
    boxes = [p.path.name for p in rest if p.path.suffix not in (*_PATCHES, ".eml")]
    if boxes and any(file.suffix in _PATCHES for file in mails):
        raise UserError(f"holds several versions of a series, and {boxes[0]}; {_LIST}", file=path)
    return Series(path.resolve().name, rest)


def _mails_in(files: Iterable[Path], folder: Path) -> dict[Path, list[tuple[Path, str]]]:
    """Return for each mail (.eml, or .patch of several versions) the patch in its place."""
    split = {
        file: split_messages(_unpacked(_data_in(file, folder), file))
        for file in files
        if file.suffix in (".eml", *_PATCHES)
    }
    mails = {file: messages[0] for file, messages in split.items() if len(messages) == 1}
    versions = versions_among({file: mails[file] for file in mails if file.suffix in _PATCHES})
    names = [file for file in mails if file.suffix == ".eml" or file in versions]
    try:
        chosen = choose_patches([mails[file] for file in names])
    except PatchError as error:
        what = "patches" if versions.issuperset(names) else "mails"
        raise UserError(f"the {what} in it: {error}; {_LIST}", file=folder) from None
    places = sorted(at for at, _ in chosen)
    patches = {
        names[place]: _texts_in(names[at], folder) if names[at] in versions else [(names[at], text)]
        for place, (at, text) in zip(places, chosen, strict=True)
    }
    return {file: [] for file in names} | patches


def _load_file(path: Path) -> Series:
    data = _unpacked(read_bounded(path, MAX_PATCH_BYTES), path)
    if is_mailbox(data) or is_encoded(data):
        return load_mailbox([data], path)
    return Series(path.stem, _parse_patches([(path, _text(data))], path))


def load_mailbox(boxes: Sequence[bytes], path: Path, name: str = "") -> Series:
    """Read mailboxes in order; `path` is for errors and the default name. Raises UserError."""
    texts = _mail_texts(boxes, path)
    try:
        return Series(name or path.stem, _parse_patches(texts, path))
    except UserError:
        if len(texts) == 1:
            _parse_patch(_text(boxes[0]), path)  # the same error, with the line numbers of the file
        raise


def _mail_texts(boxes: Sequence[bytes], path: Path) -> list[tuple[Path, str]]:
    """Return the decoded patches of mailboxes, each with a path for errors. Raises UserError."""
    try:
        texts = [text for box in boxes for text in split_mailbox(box)]
    except PatchError as error:
        raise UserError(str(error), file=path) from None
    if not texts:
        raise UserError("is a mailbox without a patch", file=path)
    # A message has no file; errors name its number.
    names = [path.with_name(f"{path.name}, patch {number}") for number in range(1, len(texts) + 1)]
    return list(zip([path] if len(texts) == 1 else names, texts, strict=True))


def is_named_as_patch(path: Path) -> bool:
    """Tell whether a file is a patch, a mailbox or a mail by its name; it may be packed."""
    return (path.stem if path.suffix in _PACKED else path.name).endswith((*_PATCHES, *_MAILS))


def looks_like_patch(start: bytes) -> bool:
    """Tell whether a file that begins with these bytes holds a patch."""
    return is_mailbox(start) or _DIFF.search(start) is not None


def _unpacked(data: bytes, path: Path) -> bytes:
    """Unpack a list's archive (t.mbox.gz) or a patch of kernel.org (.xz), up to the largest patch.

    Raises UserError for other compressed data.
    """
    for start, form in ((b"(\xb5/\xfd", "zstd"), (b"BZh", "bzip2")):
        if data.startswith(start):
            reason = f"is compressed by {form}, and must be unpacked first"
            raise UserError(reason, file=path, choices=["gzip", "xz"])
    try:
        if data.startswith(b"\x1f\x8b"):
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_PATCH_BYTES + 1)
        elif data.startswith(b"\xfd7zXZ\0"):
            data = _unpacked_xz(data)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"cannot be unpacked: {error}", file=path) from None
    return _limited(data, path)


def _unpacked_xz(data: bytes) -> bytes:
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY)
    unpacked = unpacker.decompress(data, MAX_PATCH_BYTES + 1)
    if not unpacker.eof and len(unpacked) <= MAX_PATCH_BYTES:
        raise EOFError("it ends too early")
    return unpacked


def apply_series(
    series: Iterable[Series], read: Callable[[str], str | None]
) -> Mapping[str, str | None]:
    """Apply series to texts that `read` returns, as `patch_files` does to files."""

    def read_source(name: str) -> SourceFile | None:
        text = read(name)
        return None if text is None else SourceFile(text)

    patched = patch_files(series, read_source)
    return {name: None if file is None else file.text for name, file in patched.items()}


def patch_files(series: Iterable[Series], read: _Read) -> Mapping[str, SourceFile | None]:
    """Apply series in order, with git-apply(1), to files that `read` returns.

    `read` returns None for no file, and raises NotPlain for a link. Returns every touched file,
    None for a deleted one. Raises UserError that names the patch and shows the file's lines where a
    hunk does not fit, HostError without git.
    """
    patches = [patch for applied in series for patch in applied.patches]
    touched = _touched(patches)
    files = {name: _read(name, patch, read) for name, patch in touched.items()}
    if not patches:
        return files
    with tempfile.TemporaryDirectory(prefix="numalab-series.") as scratch:
        index = PatchIndex(Path(scratch))
        index.put({name: file for name, file in files.items() if file is not None})
        _apply(index, patches, read)
        entries = index.entries()
        for name, entry in entries.items():
            if name not in files or entry.mode not in (PLAIN, EXECUTABLE):
                # git and parse_patch() read a crafted patch differently.
                raise UserError(f"git changes {name!r} in another way", file=patches[-1].path)
        patched = {**dict.fromkeys(files), **index.read(entries)}
    new = [name for name, file in patched.items() if file is not None and files[name] is None]
    for name in new:
        parents = (str(parent) for parent in PurePosixPath(name).parents[:-1])
        for parent in (parent for parent in parents if parent not in patched):
            with suppress(NotPlain):  # a folder, as it should be
                if read(parent) is not None:
                    reason = f"does not apply: in the source {parent} is a file"
                    raise UserError(reason, file=touched[name].path)
    return patched


def _touched(patches: list[Patch]) -> dict[str, Patch]:
    """Return the names of all files that patches touch, with the first patch."""
    touched: dict[str, Patch] = {}
    for patch in patches:
        for file in patch.files:
            for name in (file.old, file.new):
                if name is not None:
                    touched.setdefault(name, patch)
        if len(touched) > MAX_FILES:
            raise UserError(f"more than {MAX_FILES} files are touched", file=patch.path)
    return touched


def _read(name: str, patch: Patch, read: _Read) -> SourceFile | None:
    try:
        return read(name)
    except NotPlain as error:
        raise UserError(f"does not apply: in the source {error}", file=patch.path) from None


def _apply(index: PatchIndex, patches: list[Patch], read: _Read) -> None:
    """Apply all patches with few calls of git; UserError for the first that fails."""
    done, count = 0, len(patches)
    while done < len(patches):
        reason = index.apply(patch.text for patch in patches[done : done + count])
        if reason is None:
            done += count
        elif count > 1:
            count //= 2
        else:
            reason = _explain(index, patches[done], reason)
            raise UserError(
                reason + _better_name(patches[done], reason, read), file=patches[done].path
            )


def _explain(index: PatchIndex, patch: Patch, reason: str) -> str:
    """Explain why a patch does not apply, with the file's lines where a hunk does not fit."""
    names = {name for file in patch.files for name in (file.old, file.new) if name}
    entries = index.entries()
    before = index.read({name: entries[name] for name in names & entries.keys()})
    try:
        apply_patch(patch.files, {name: file.text for name, file in before.items()}.get)
    except HunkFailed as error:
        reason = str(error)
    return f"does not apply: {reason}"


def _better_name(patch: Patch, reason: str, read: _Read) -> str:
    """Return a hint at a name without the first folders, as in a patch for -p0; "" for none."""
    for name in (file.old for file in patch.files):
        if name and reason.endswith(f" {name} does not exist"):
            for folder in _FOLDERS:
                with suppress(NotPlain):
                    if read(f"{folder}/{name}") is not None:
                        how = "names begin at the top of the tree, behind a/ or b/ (-p1)"
                        return f", but {folder}/{name} does: {how}"
    return ""


def _texts_in(path: Path, folder: Path) -> list[tuple[Path, str]]:
    """Read a patch of a folder; git-apply(1) cannot read that of an encoded mail as it is."""
    data = _unpacked(_data_in(path, folder), path)
    is_box = path.suffix in (*_MAILS, *_PACKED) and is_mailbox(data)
    return _mail_texts([data], path) if is_box or is_encoded(data) else [(path, _text(data))]


def _data_in(path: Path, folder: Path) -> bytes:
    """Read a file of a series folder, which is foreign: no link may lead out of it."""
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise UserError("is a link that leads out of the series", file=path)
    return read_bounded(path, MAX_PATCH_BYTES)


def _parse_patches(texts: Iterable[tuple[Path, str]], path: Path) -> tuple[Patch, ...]:
    """Parse patches with their files; UserError when they are too large in total."""
    patches: list[Patch] = []
    size = lines = 0
    for file, text in texts:
        size += len(text)
        lines += text.count("\n")
        for number, most, what in (
            (len(patches) + 1, MAX_PATCHES, "patches"),
            (size, MAX_SERIES_BYTES, "bytes"),
            (lines, MAX_LINES, "lines"),
        ):
            if number > most:
                raise UserError(f"more than {most} {what} in one series", file=path)
        patches.append(_parse_patch(text, file))
    return tuple(patches)


def _parse_patch(text: str, path: Path) -> Patch:
    try:
        files = parse_patch(text)
    except PatchError as error:
        raise UserError(str(error), file=path) from None
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    return Patch(path, parse_subject(text) or path.stem, digest, text, files)


def read_patch(path: Path) -> str:
    """Return a patch's text, bytes that are not UTF-8 as surrogates. Raises UserError."""
    # Kernel sources are UTF-8 with a few exceptions, which must stay unchanged.
    return _text(read_bounded(path, MAX_PATCH_BYTES))


def _text(data: bytes) -> str:
    return with_line_feeds(data).decode("utf-8", "surrogateescape")


def _limited(data: bytes, path: Path) -> bytes:
    if len(data) > MAX_PATCH_BYTES:
        raise UserError(f"larger than {MAX_PATCH_BYTES >> 20} MiB", file=path)
    return data
