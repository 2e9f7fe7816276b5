"""The job disk: a small ext4 image that carries the job in and the results out.

What is read back was written by a guest, and a guest may write anything to its disk: names are
checked, files are taken out by inode number, and sizes and counts are bounded.
"""

import errno
import os
import re
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lab.errors import HostError
from lab.machine.machine import Job
from lab.process import CommandFailed, CommandTimedOut, PrintedTooMuch, find_program, run
from lab.store import make_dir

_MIB = 1 << 20
_PACKAGE = "e2fsprogs"
# Any fixed numbers do: two disks of the same job are to be the same, byte for byte.
_UUID = "6e756d61-6c61-4220-a069-6d6167650001"
_TIME = 1_704_067_200  # 2024-01-01T00:00:00Z
_FIXED_TIME = {"E2FSPROGS_FAKE_TIME": str(_TIME), "SOURCE_DATE_EPOCH": str(_TIME)}
_INODES = 4096
_S_IFMT, _S_IFDIR, _S_IFREG = 0o170000, 0o040000, 0o100000
_KINDS = {0o120000: "symbolic link", 0o020000: "device", 0o060000: "device", 0o010000: "fifo"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
_DEBUGFS_SECONDS = 60.0
# A folder with a million names is refused as soon as this much of it is listed.
_LONGEST_LISTING = 4 * _MIB
_MOST_REFUSED = 4  # after so many folders like that, no other is looked at


@dataclass(frozen=True)
class Bounds:
    """How much is taken from a guest: bytes in all, bytes of one file, entries, folders deep."""

    total: int = 512 * _MIB
    one: int = 256 * _MIB
    entries: int = 4096
    depth: int = 6


@dataclass(frozen=True)
class Entry:
    """One name on the guest's disk, as debugfs lists it."""

    inode: int
    mode: int
    name: str
    size: int


@dataclass(frozen=True)
class Collected:
    """What was taken out, by path below /job/out with its size, and what was not and why."""

    files: dict[str, int]
    left_out: tuple[str, ...]


def render_job(job: Job, trace_instance: str) -> dict[str, bytes]:
    """Render the files of /job for the guest's init. Pure; `images/guest/init` reads them."""
    texts = {
        "mode": job.mode,
        "argv": shlex.join(job.argv),
        "env": "\n".join(f"{name}={shlex.quote(value)}" for name, value in job.env.items()),
        "tunables": "\n".join(f"{path} {value}" for path, value in job.tunables.items()),
        "events": "\n".join(job.events),
        "trace_instance": trace_instance,
        "clock": job.clock,
        "buffer_kib": str(job.buffer_kib),
        "perf_stat": "\n".join(job.perf_stat),
        "sample": f"{job.sample_ms} {job.sampled}" if job.sample_ms and job.sampled else "",
        "numastat": "before and after" if job.numastat else "",
    }
    files = {name: f"{text}\n".encode() if text else b"" for name, text in texts.items()}
    return files | {f"files/{name}": data for name, data in job.files.items()}


def make_job_disk(path: Path, files: dict[str, bytes], size_mib: int) -> None:
    """Make the disk with `files` in it. Raises HostError when the host's disk is full."""
    mke2fs = find_program("mke2fs", _PACKAGE)
    try:
        _reserve(path, size_mib * _MIB)
        with tempfile.TemporaryDirectory(prefix=".job.", dir=path.parent) as scratch:
            _stage(Path(scratch), files)
            # No journal and no lazy initialisation: nothing writes to it by itself.
            features = "^has_journal,^metadata_csum,^64bit,^resize_inode"
            extended = f"hash_seed={_UUID},lazy_itable_init=0,nodiscard,root_owner=0:0"
            run(
                [
                    *(mke2fs, "-q", "-F", "-t", "ext4", "-O", features, "-E", extended),
                    *("-U", _UUID, "-N", str(_INODES), "-m", "0", "-d", scratch, path),
                ],
                env=_FIXED_TIME,
                timeout=60,
            )
            # mke2fs copies the time of change from the host, which nothing there can set.
            names = sorted(str(p.relative_to(scratch)) for p in Path(scratch).rglob("*"))
            commands = [f"sif /{name} ctime @{_TIME}" for name in ["", *names]]
            _debugfs(path, commands, path.parent, writing=True)
    except OSError as error:
        raise HostError(f"cannot write {path}: {error.strerror}") from None


def read_job_disk(
    path: Path, into: Path, folder: str = "/out", bounds: Bounds = Bounds()
) -> Collected:
    """Take the regular files below `folder` of a job disk out to the folder `into`.

    The disk may be in any state. Names that are no plain names, links, devices, and what is past
    the bounds are left out and listed. Raises HostError when the disk cannot be read at all, or
    what is on it cannot be written.
    """
    make_dir(into)
    chosen, left_out = _survey(path, folder, bounds)
    files: dict[str, int] = {}
    # One inode may have several names; the last one takes the file.
    last = {entry.inode: name for name, entry in sorted(chosen.items())}
    try:
        with tempfile.TemporaryDirectory(prefix=".out.", dir=into.parent) as scratch:
            commands = [f"dump <{entry.inode}> {entry.inode}" for entry in chosen.values()]
            _debugfs(path, commands, Path(scratch))
            for name, entry in sorted(chosen.items()):
                taken = Path(scratch) / str(entry.inode)
                try:
                    _move(taken, into, Path(name), last=last[entry.inode] == name)
                    files[name] = (into / name).stat().st_size
                except (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError):
                    left_out.append(f"{name}: unreadable")
    except OSError as error:
        raise HostError(f"cannot write {into}: {error.strerror}") from None
    return Collected(files, tuple(left_out))


def _move(taken: Path, into: Path, name: Path, *, last: bool) -> None:
    """Give a file its name below `into`, for this user only, as are the folders above it."""
    taken.chmod(0o600)
    for parent in reversed(name.parents):
        (into / parent).mkdir(mode=0o700, exist_ok=True)
    taken.rename(into / name) if last else os.link(taken, into / name)


def parse_listing(text: str) -> tuple[list[Entry], int]:
    """Parse what `ls -p` of debugfs prints: `/inode/mode/uid/gid/name/size/` a line.

    Returns the entries and how many lines could not be understood (a name with a line break in
    it, for instance). `.` and `..` are not returned.
    """
    entries, bad = [], 0
    for line in text.splitlines():
        if not line.strip():
            continue
        parts = line.split("/")
        if len(parts) != 8 or parts[0] or parts[7].strip():
            bad += 1
            continue
        inode, mode, name, size = parts[1], parts[2], parts[5], parts[6]
        if name in {".", ".."} or inode == "0":  # 0: a slot that is not in use
            continue
        if not (inode.isdecimal() and re.fullmatch("[0-7]+", mode)):
            bad += 1
            continue
        entries.append(Entry(int(inode), int(mode, 8), name, int(size) if size.isdecimal() else 0))
    return entries, bad


def _survey(path: Path, folder: str, bounds: Bounds) -> tuple[dict[str, Entry], list[str]]:
    """List the disk level by level and choose what is taken."""
    chosen: dict[str, Entry] = {}
    left_out: list[str] = []
    total = seen = 0
    level: list[tuple[PurePosixPath, str]] = [(PurePosixPath(), folder)]
    visited: set[int] = set()
    for _ in range(bounds.depth):
        listings = _list(path, [place for _, place in level])
        below = [parent for parent, _ in level]
        level = []
        for parent, listing in zip(below, listings, strict=True):
            if listing is None:
                left_out.append(f"{parent}: too many names")
                continue
            entries, bad = parse_listing(listing)
            if bad:
                left_out.append(f"{parent}: {bad} names that are no names")
            for entry in entries:
                seen += 1
                if seen > bounds.entries:
                    left_out.append(f"{parent}: more than {bounds.entries} files")
                    return chosen, left_out
                why = _refuse(entry, bounds, total)
                name = parent / _shown(entry.name)
                if why:
                    left_out.append(f"{name}: {why}")
                elif entry.mode & _S_IFMT == _S_IFDIR:
                    if entry.inode not in visited:
                        visited.add(entry.inode)
                        level.append((name, f"<{entry.inode}>"))
                else:
                    total += entry.size
                    chosen[str(name)] = entry
        if not level:
            return chosen, left_out
    left_out += [f"{parent}: more than {bounds.depth} folders deep" for parent, _ in level]
    return chosen, left_out


def _refuse(entry: Entry, bounds: Bounds, total: int) -> str:
    """Say why an entry is not taken; an empty text if it is."""
    kind = entry.mode & _S_IFMT
    if not _NAME.fullmatch(entry.name):
        return "not a plain name"
    if kind == _S_IFDIR:
        return ""
    if kind != _S_IFREG:
        return f"a {_KINDS.get(kind, 'special file')}"
    if entry.size > bounds.one:
        return f"{entry.size} bytes is too large"
    if total + entry.size > bounds.total:
        return "too much in all"
    return ""


def _shown(name: str) -> str:
    return name if _NAME.fullmatch(name) else ascii(name)[1:60].replace("/", "?")


def _list(path: Path, places: Sequence[str]) -> list[str | None]:
    """List folders of the disk, with one debugfs where none of them has too many names (None)."""
    try:
        return [*_list_all(path, places)]
    except PrintedTooMuch:
        if len(places) == 1:
            return [None]
    listings: list[str | None] = []
    for place in places:
        too_many = listings.count(None) == _MOST_REFUSED
        listings += [None] if too_many else _list(path, [place])
    return listings


def _list_all(path: Path, places: Sequence[str]) -> list[str]:
    """List folders of the disk; debugfs echoes each command before its output."""
    text = _debugfs(path, [f"ls -l -p {place}" for place in places], path.parent)
    listings: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.startswith("debugfs: ls -l -p "):
            listings.append("")
        elif listings:
            listings[-1] += line
    if len(listings) != len(places):
        raise HostError(f"debugfs listed {len(listings)} folders of {len(places)} in {path}")
    return listings


def _debugfs(path: Path, commands: Sequence[str], cwd: Path, *, writing: bool = False) -> str:
    debugfs = find_program("debugfs", _PACKAGE)
    flags = ["-w"] if writing else []
    try:
        completed = run(
            [debugfs, *flags, "-f", "-", path.absolute()],
            stdin="".join(f"{command}\n" for command in commands),
            env=_FIXED_TIME,
            cwd=cwd,
            timeout=_DEBUGFS_SECONDS,
            most=_LONGEST_LISTING,
        )
    except (CommandFailed, CommandTimedOut) as error:
        raise HostError(f"the guest's job disk {path} cannot be read: {error}") from None
    if (full := os.strerror(errno.ENOSPC)) in completed.stderr:
        raise HostError(f"cannot write {cwd}: {full}", mend="free some space there")
    if "Filesystem not open" in completed.stderr:  # debugfs ends with status 0 all the same
        why = completed.stderr.splitlines()[-2:][0]
        raise HostError(f"the guest's job disk {path} cannot be read: {why}")
    return completed.stdout


def _reserve(path: Path, size: int) -> None:
    """Take the disk's space now: a hole that cannot be filled later would kill QEMU."""
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def _stage(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(0o755 if name.startswith("files/") else 0o644)
        os.utime(target, (_TIME, _TIME))
    (folder / "out").mkdir(exist_ok=True)
    for directory in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        directory.chmod(0o755)
        os.utime(directory, (_TIME, _TIME))
