"""Results as one file, and back. An archive may come from anybody: nothing in it is believed."""

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

import zstandard

from lab.errors import UserError
from lab.store import UNFINISHED, Results, RunDir, make_dir, replacing
from lab.study.stored import damage_explained, load_plan

MOST_FILES = 2_000_000
MOST_BYTES = 256 << 30
LARGEST_FILE = 4 << 30
DEEPEST = 12
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,:+@=-]{0,199}")
_LEVEL = 9
_PACK_LEVEL = 3

OnFile = Callable[[str], None]


def export_results(results: Results, target: Path, on_file: OnFile | None = None) -> int:
    """Write results to a tar archive that is compressed by zstd; returns the number of files.

    The same results give the same bytes. Runs that are no result and job disks are left out. Raises
    UserError for what are no results, HostError when it cannot be written.
    """
    with damage_explained(results.path):
        load_plan(results)
    files = list(_files(results))
    compressor = zstandard.ZstdCompressor(level=_LEVEL, threads=0)
    with (
        replacing(target) as temporary,
        temporary.open("wb") as raw,
        compressor.stream_writer(raw) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in files:
            name = path.relative_to(results.path).as_posix()
            if on_file is not None:
                on_file(name)
            info = tarfile.TarInfo(name)
            info.size, info.mode = path.stat().st_size, 0o600
            with path.open("rb") as data:
                tar.addfile(info, data)
    return len(files)


def pack_folder(folder: Path) -> bytes:
    """Pack a run's folder; its job disk is left out."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in _files(Results(folder)):
            tar.add(path, path.relative_to(folder).as_posix(), recursive=False)
    return zstandard.compress(raw.getvalue(), _PACK_LEVEL)


def unpack_folder(data: bytes, target: Path) -> None:
    """Unpack what `pack_folder` made somewhere else, in place of what is at `target`.

    Raises UserError for what is not such a thing: a worker is believed no more than an archive.
    """
    try:
        with replacing(target) as temporary:
            make_dir(temporary)
            with zstandard.ZstdDecompressor().stream_reader(data) as unpacked:
                _unpack(unpacked, temporary, target, None)
    except (zstandard.ZstdError, tarfile.TarError, EOFError) as error:
        raise UserError(f"not a run: {error}", file=target) from None


def _files(results: Results) -> Iterator[Path]:
    """Yield the files that belong to results, in order; links are left out."""
    job_disk = RunDir(Path()).job_disk.name
    for path in sorted(results.path.rglob("*")):
        parts = path.relative_to(results.path).parts
        unfinished = any(Path(part).suffix in UNFINISHED for part in parts)
        hidden = any(part.startswith(".") for part in parts)
        if path.is_symlink() or not path.is_file() or unfinished or hidden:
            continue
        if path.name != job_disk:
            yield path


def import_results(archive: Path, target: Path, on_file: OnFile | None = None) -> Results:
    """Unpack an archive into a new folder, whole or not at all.

    Raises UserError for what is not such an archive: names that lead elsewhere, links and devices,
    too many or too large files, no plan that this numalab reads; and where `target` is there.
    """
    if target.exists():
        raise UserError("is there already", file=target)
    try:
        raw = archive.open("rb")
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", file=archive) from None
    try:
        with raw, replacing(target) as temporary:
            make_dir(temporary)
            with zstandard.ZstdDecompressor().stream_reader(raw) as unpacked:
                _unpack(unpacked, temporary, archive, on_file)
            with damage_explained(archive):
                load_plan(Results(temporary))
    except (zstandard.ZstdError, tarfile.TarError, EOFError) as error:
        raise UserError(f"not an archive of results: {error}", file=archive) from None
    return Results(target)


def _unpack(stream: IO[bytes], folder: Path, archive: Path, on_file: OnFile | None) -> None:
    count = size = 0
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            path = _checked(member, archive)
            count, size = count + 1, size + member.size
            if count > MOST_FILES or size > MOST_BYTES:
                raise UserError(
                    f"holds more than {MOST_FILES} files or {MOST_BYTES} bytes", file=archive
                )
            if on_file is not None:
                on_file(member.name)
            data = tar.extractfile(member)
            assert data is not None
            if (folder / path).exists():
                raise UserError(f"holds a file twice: {member.name!r}", file=archive)
            make_dir((folder / path).parent)
            with (folder / path).open("xb") as file:
                while block := data.read(1 << 20):
                    file.write(block)


def _checked(member: tarfile.TarInfo, archive: Path) -> PurePosixPath:
    """Return where a member goes below the target; UserError where it must not go anywhere."""
    path = PurePosixPath(member.name)
    if not member.isreg():
        raise UserError(f"holds something else than a file: {member.name[:80]!r}", file=archive)
    if (
        not path.parts
        or len(path.parts) > DEEPEST
        or not all(_NAME.fullmatch(part) for part in path.parts)
        or any(Path(part).suffix in UNFINISHED for part in path.parts)
    ):
        raise UserError(f"holds a file with a forbidden name: {member.name[:80]!r}", file=archive)
    if not 0 <= member.size <= LARGEST_FILE:
        raise UserError(f"holds a file that is too large: {member.name[:80]!r}", file=archive)
    return path
