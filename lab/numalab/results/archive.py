"""Packs results into an archive or a compact table, and unpacks archives.

An archive is not trusted: names, sizes and types of its files are checked.
"""

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath, PurePosixPath
from typing import IO

import zstandard

from numalab.errors import HostError, UserError, shown
from numalab.files import (
    create,
    free_space,
    make_dir,
    open_regular,
    reading,
    replacing,
    write_text,
)
from numalab.places import BELIEVED
from numalab.results.compact import write_compact
from numalab.results.layout import (
    Results,
    is_of_results,
    is_of_unfinished,
    require_no_result,
)
from numalab.results.manifest import Manifest
from numalab.results.plan import StoredPlan
from numalab.results.reader import (
    StoredRun,
    load_plan,
    load_reach,
    load_study,
    load_unfinished,
)
from numalab.results.stored import is_plain
from numalab.run_dir import RunDir, is_returned_name

MOST_FILES = 2_000_000
MOST_BYTES = 256 << 30
LARGEST_FILE = 4 << 30
DEEPEST = 15  # folders: runs/RUN/out and the 12 levels below it that are collected
LARGEST_HEADER = 1 << 16  # bytes of an extended header; a name has 255 at most
LARGEST_WINDOW = 128 << 20  # bytes that unpacking keeps in memory
_PLANS = (Results(Path()).plan.name, Results(Path()).compact.name)
_OF_PATCH = (
    Results(Path()).verdict.name,
    Results(Path()).hunt_reach.name,
    Results(Path()).all_reach.name,
)
_RUNS = Results(Path()).run("a").path.parent.name
_RETURNED = RunDir(Path()).returned.parts
_OTHER_FORMATS = (".7z", ".bz2", ".gz", ".rar", ".tar", ".tbz2", ".tgz", ".txz", ".xz", ".zip")
_LEVEL = 9
_PACK_LEVEL = 3

OnFile = Callable[[str], None]


def export_results(
    results: Results,
    target: Path,
    on_file: OnFile | None = None,
    on_left_out: OnFile | None = None,
) -> int:
    """Write results to a tar archive that is compressed by zstd; returns the number of files.

    The same results give the same bytes. Job disks, files that numalab did not write, and all but
    the manifests and the reach of runs without a result are left out. `on_left_out` gets the paths
    of links, and of paths that no archive may hold, below $OUT. Raises UserError for a folder
    without results, a file that cannot be read and a `target` that is one of their files, HostError
    when the archive cannot be written.
    """
    if target.suffix.lower() in _OTHER_FORMATS:
        reason = "the archive is a tar compressed by zstd; name it, for example, out.tar.zst"
        raise UserError(reason, file=target, key="TARGET")
    load_plan(results)
    require_no_result(target, "TARGET")
    # A folder that has a plan may have a compact form beside it, which nothing would read.
    beside = set() if results.is_compact else {results.compact}
    files = [
        path
        for path in _files(results.path, on_left_out)
        if is_of_results(path.relative_to(results.path)) and path not in beside
    ]
    compressor = zstandard.ZstdCompressor(level=_LEVEL, threads=0, write_checksum=True)
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
            with reading(path):
                data = open_regular(path, follow=False)
            with data:
                info.size, info.mode = os.fstat(data.fileno()).st_size, 0o600
                tar.addfile(info, data)
    return len(files)


def export_compact(
    results: Results, target: Results, finish: Callable[[Results], None] = lambda _: None
) -> int:
    """Write the compact form of results to a new folder; returns the number of finished runs.

    The verdict on a patch is copied, and its reach is summed over its hunt and all runs. Of a run
    without a result it has the manifest. `finish` may add files to `target`. Raises UserError for a
    folder without results, damaged results and an existing `target`, HostError when the form cannot
    be written; then there is no target.
    """
    with reading(target.path):
        if os.path.lexists(target.path):
            raise UserError("exists already", file=target.path)
    plan, runs = load_study(results)
    left = load_unfinished(results, plan)
    reach = load_reach(results, plan, runs)
    with _new_folder(target.path):
        _write_compact(target, plan, runs, left)
        if reach is not None:
            write_text(target.all_reach, reach.model_dump_json(indent=1) + "\n")
        if results.verdict.exists():
            with (
                open_regular(results.verdict, follow=False) as old,
                create(target.verdict) as new,
            ):
                shutil.copyfileobj(old, new)
        finish(target)
    return len(runs)


@contextmanager
def _new_folder(path: Path) -> Iterator[None]:
    """Make a folder, and remove it again when the block fails. An OSError is a HostError."""
    make_dir(path)
    try:
        yield
    except BaseException as error:
        shutil.rmtree(path, ignore_errors=True)
        if isinstance(error, OSError):
            raise HostError(f"cannot write {shown(path)}: {error.strerror or error}") from error
        raise


def _write_compact(
    target: Results,
    plan: StoredPlan,
    runs: Sequence[StoredRun],
    left: Mapping[str, Manifest],
) -> None:
    rows = [
        *((run.manifest, run.measures.values(), run.added) for run in runs),
        *((manifest, (), ()) for manifest in left.values()),
    ]
    write_compact(
        target.compact,
        plan.model_dump_json(),
        (
            (
                json.dumps(run.table()),
                (run.run, run.topology, run.workload.label, run.variant, run.seed),
                measures,
                added,
            )
            for run, measures, added in rows
        ),
    )


def pack_folder(folder: Path) -> bytes:
    """Pack the folder of a run without its job disk."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in _files(folder):
            tar.add(path, path.relative_to(folder).as_posix(), recursive=False)
    return zstandard.compress(raw.getvalue(), _PACK_LEVEL)


def unpack_folder(data: bytes, target: Path) -> None:
    """Unpack an archive of `pack_folder`, which replaces `target`.

    Raises UserError for another archive: a worker is trusted no more than an archive.
    """
    try:
        with replacing(target) as temporary:
            make_dir(temporary)
            with _unpacked(data) as unpacked:
                _unpack(unpacked, temporary, target, None, place=target.parent)
    except (zstandard.ZstdError, tarfile.TarError, EOFError) as error:
        raise UserError(f"not a run: {error}", file=target) from None


def _files(folder: Path, on_left_out: OnFile | None = None) -> Iterator[Path]:
    """Yield the files of a folder in order, without links and names that no result has."""
    job_disk = RunDir(Path()).job_disk.name
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        names, returned = _split(place)
        if path.is_file() and not path.is_symlink() and _is_allowed(place):
            if returned or path.name != job_disk:
                yield path
        elif on_left_out and returned and all(map(is_plain, names)) and not _is_folder(path):
            on_left_out(place.as_posix())


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _split(path: PurePath) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the parts of a place in results or in a run, those below $OUT apart."""
    parts = path.parts
    begin = (2 if parts[:1] == (_RUNS,) else 0) + len(_RETURNED)
    if parts[:begin][-len(_RETURNED) :] != _RETURNED:
        return parts, ()
    return parts[:begin], parts[begin:]


def _is_allowed(path: PurePath) -> bool:
    """Return whether an archive may hold a file at this place in results or in a run."""
    names, returned = _split(path)
    named = all(map(is_plain, names)) and all(map(is_returned_name, returned))
    placed = 0 < len(path.parts) <= DEEPEST and BELIEVED.isdisjoint(path.parts[:-1])
    return placed and (named or is_of_unfinished(path))


def import_results(archive: Path, target: Path, on_file: OnFile | None = None) -> Results:
    """Unpack the plan, the runs and what is stored of a patch into a new folder, whole or not at
    all.

    Pages and other files that `report` makes are left out: a page may run any script. Raises
    UserError for names outside the folder, links, devices, too many or too large files, a plan that
    this numalab does not read, and an existing `target`.
    """
    with reading(target):
        if os.path.lexists(target):
            raise UserError("is there already", file=target)
    with reading(archive):
        raw = open_regular(archive)
    try:
        with raw, replacing(target) as temporary:
            make_dir(temporary)
            with _unpacked(raw) as unpacked:
                _unpack(unpacked, temporary, archive, on_file, place=target, wanted=_is_data)
            _check_plan(temporary, archive)
    except (zstandard.ZstdError, tarfile.TarError, EOFError) as error:
        raise UserError(f"not an archive of results: {error}", file=archive) from None
    return Results(target)


def _check_plan(folder: Path, archive: Path) -> None:
    """Raise a UserError that names the archive, not the temporary folder, for a bad plan or two."""
    if all((folder / name).exists() for name in _PLANS):
        reason = f"holds {' and '.join(_PLANS)}, of which only the first would be read"
        raise UserError(reason, file=archive)
    try:
        load_plan(Results(folder))
    except UserError as error:
        reason = str(error).removeprefix(f"{folder}: ").replace(f"{folder}/", "")
        raise UserError(reason, file=archive) from None


def _unpacked(packed: IO[bytes] | bytes) -> "zstandard.ZstdDecompressionReader":
    # Across frames: what follows the end of the archive is an error, and is not left out.
    decompressor = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW)
    return decompressor.stream_reader(packed, read_across_frames=True)


class _Header(tarfile.TarInfo):
    """A header with extensions of bounded size: tarfile reads them whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Header":
        """Read one block of 512 bytes. Raises ReadError for headers that `export` never writes."""
        header = super().frombuf(buf, encoding, errors)
        if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) and header.size > LARGEST_HEADER:
            raise tarfile.ReadError(f"a header of {header.size} bytes")
        if header.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("a sparse file")
        return header


def _opened(stream: IO[bytes]) -> tarfile.TarFile:
    with _sense():
        return tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header)


def _next(tar: tarfile.TarFile) -> tarfile.TarInfo | None:
    with _sense():
        return tar.next()


@contextmanager
def _sense() -> Iterator[None]:
    """Turn the many exceptions of tarfile for a damaged header into ReadError."""
    try:
        yield
    except (ValueError, ArithmeticError, LookupError, RecursionError) as error:
        raise tarfile.ReadError(f"a damaged header: {type(error).__name__}") from error


def _is_data(path: PurePosixPath) -> bool:
    """Return whether a file is the plan, of a run or a patch, or the compact form."""
    return str(path) in (*_PLANS, *_OF_PATCH) or (path.parts[0] == _RUNS and len(path.parts) > 1)


def _unpack(
    stream: IO[bytes],
    folder: Path,
    archive: Path,
    on_file: OnFile | None,
    *,
    place: Path,
    wanted: Callable[[PurePosixPath], bool] = lambda _path: True,
) -> None:
    """Unpack into the temporary `folder`; a message for a full disk names the `place` instead."""
    count = size = 0
    free = free_space(folder)
    with _opened(stream) as tar:
        while (member := _next(tar)) is not None:
            tar.members = []  # type: ignore[attr-defined]  # it keeps every member in memory
            path = _checked(member, archive)
            count, size = count + 1, size + member.size
            if count > MOST_FILES or size > MOST_BYTES:
                raise UserError(
                    f"holds more than {MOST_FILES} files or {MOST_BYTES} bytes", file=archive
                )
            if size > free:
                raise HostError(f"{shown(place)} has no space for the files of {shown(archive)}")
            if not wanted(path):
                continue
            if (folder / path).is_file():
                raise UserError(f"holds a file twice: {member.name!r}", file=archive)
            if (folder / path).is_dir() or any((folder / up).is_file() for up in path.parents):
                raise UserError(f"holds a file that is a folder: {member.name!r}", file=archive)
            if on_file is not None:
                on_file(member.name)
            data = tar.extractfile(member)
            assert data is not None
            make_dir((folder / path).parent)
            with (folder / path).open("xb") as file:
                shutil.copyfileobj(data, file, 1 << 20)
        _check_end(stream)


def _check_end(stream: IO[bytes]) -> None:
    """Read what follows the last file: zeros, and the checksum. Raises ReadError or ZstdError."""
    size = 0
    while data := stream.read(tarfile.RECORDSIZE):
        size += len(data)
        if data.strip(b"\0") or size > tarfile.RECORDSIZE:
            raise tarfile.ReadError("data after its end")


def _checked(member: tarfile.TarInfo, archive: Path) -> PurePosixPath:
    """Return the place of a member below the target. Raises UserError for a forbidden member."""
    path = PurePosixPath(member.name)
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
        raise UserError(f"holds a member that is no file: {member.name[:80]!r}", file=archive)
    if not _is_allowed(path):
        raise UserError(f"holds a file with a forbidden name: {member.name[:80]!r}", file=archive)
    if not 0 <= member.size <= LARGEST_FILE:
        raise UserError(f"holds a file that is too large: {member.name[:80]!r}", file=archive)
    return path
