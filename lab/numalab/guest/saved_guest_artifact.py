"""Saved guests: a guest that has booted once is started as often as it is needed.

The first guest of a machine is saved in its hold (`guest/hold.py`), before anything of its job has
been read; later ones continue there, each with a job disk and a seed of its own. Everything that
decides what a guest did until then is in the name of its entry in the cache: the machine, kernel,
image, command line, QEMU, and libvirt (which makes QEMU's command line). An entry that is damaged
is removed, and made again.
"""

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from numalab.artifact.cache import keep_newest
from numalab.artifact.digest import digest_of, hash_file, remembered
from numalab.artifact.kinds import Kind, entry_lock, record_title, register_kind
from numalab.document import read_record
from numalab.errors import HostError
from numalab.files import create, free_space, replacing, write_json
from numalab.guest.hold import turns_left
from numalab.locks import locked
from numalab.machine.memory import HeldMemory, read_blocks, write_blocks
from numalab.machine.model import Machine, Plugin
from numalab.process import find_program
from numalab.qemu.binding import library_version
from numalab.qemu.cmdline import HOLD_TURNS
from numalab.qemu.emulator import qemu_version
from numalab.qemu.guest import Guest
from numalab.run_dir import RunDir

_FORMAT = 2  # raise it when guests must be saved again
_RECORD = "saved.json"
_NODE = "node"  # and its number: the files of its memory
_COUNTS = "counts"  # and the number of the plugin
_FREE = 2 << 30  # bytes of the disk that are left to other files
_LOOKS = 12  # at a guest that is not held, before it is given up
_LOOKS_LEFT = 6  # of the hold, when the guest is stopped: stopping takes as long as some looks
# Left when QEMU has answered the last command: one that it is still busy with when the last CPU
# halts moves the guest's clock by half a microsecond (icount_start_warp_timer(), QEMU 10.0).
_LEAST_TURNS = 1_500
_NAP = 0.001  # seconds
_PAUSE = 600.0  # seconds until a guest is tried again whose hold was missed
_SAVES_CLOCKS = (10, 0)  # the emulators that save the clocks of CPUs in mode timed (patch 0014)
_MOST = 40  # entries; the one that was used longest ago goes


@dataclass(frozen=True)
class _Record:
    """`blocks`: by the file of a node's memory, the numbers of the blocks in it."""

    machine: str
    sha256: Mapping[str, str]
    blocks: Mapping[str, Sequence[int]]


SAVED = register_kind(
    Kind(name="saved guest", folder="saved-guests", title=record_title(_RECORD, "machine"))
)


@dataclass(frozen=True)
class SavedGuest:
    """A guest that has booted: the files of its entry in the cache."""

    directory: RunDir
    blocks: Mapping[str, Sequence[int]]

    def copy_files(self, run_dir: RunDir, plugins: tuple[Plugin, ...]) -> None:
        """Give a new guest the logs and the counts of this one. Raises OSError."""
        _copy(self.directory.console, run_dir.console)
        _copy(self.directory.heartbeat, run_dir.heartbeat)
        for number, path in enumerate(mapped_files(plugins)):
            shutil.copyfile(self.directory.path / f"{_COUNTS}{number}", path)  # which is there

    def load(self, guest: Guest, memory: HeldMemory) -> None:
        """Continue this guest in a QEMU that waits for it. Raises HostError."""
        try:
            for number, descriptor in enumerate(memory.fds):
                name = f"{_NODE}{number}"
                read_blocks(self.directory.path / name, self.blocks[name], descriptor)
        except (OSError, KeyError) as error:
            raise HostError(f"cannot read {self.directory.path}: {error}") from None
        guest.load_state(self.directory.saved_state)

    def forget(self) -> None:
        """Remove it: it does not start."""
        shutil.rmtree(self.directory.path, ignore_errors=True)


def saved_entry(
    machine: Machine, cmdline: str, emulator: Path | None, *, interactive: bool = False
) -> Path | None:
    """Return the entry of the guest from which a machine starts; None: it has to boot.

    `emulator` is the QEMU that is started, None the host's. The clock of an `interactive` guest
    does not run ahead while it is idle.
    """
    if machine.mode not in HOLD_TURNS or machine.huge or machine.gdb is not None:
        return None
    if any(plugin.mapped is None and plugin.begins_anew is None for plugin in machine.plugins):
        return None
    if machine.mode == "timed" and qemu_version(emulator) < _SAVES_CLOCKS:
        return None
    nowhere = Path()
    described = replace(
        machine, name="saved", seed=0, cold=False, bzimage=nowhere, rootfs=nowhere, initrd=None,
        emulator=None, host_cpus=(), vcpu_cpus=(), host_nodes=(), plugins=(), cpu_model="host",
        measures_time=False, shares_cpus=False, memory_model=None,
    )  # fmt: skip
    programs = [plugin.path for plugin in machine.plugins]
    qemu = find_program("qemu-system-x86_64", "qemu-system-x86")
    files = (emulator or qemu, qemu, machine.bzimage, machine.rootfs, machine.initrd, *programs)
    try:
        hashes = [_hash(path) for path in files if path is not None]
        sites = [hash_file(path) for path in mapped_files(machine.plugins)]
        models = [hash_file(plugin.begins_anew) for plugin in machine.plugins if plugin.begins_anew]
    except OSError:  # the start of the guest says which file is missing
        return None
    parts = [_FORMAT, repr(described), interactive, cmdline, hashes, sites, models]
    parts += [library_version()[0]]
    return SAVED.entry(digest_of(parts))


def read_saved(entry: Path) -> SavedGuest | None:
    """Return a saved guest; None where there is none of this user, or a file of it has changed."""
    record = read_record(entry / _RECORD, _Record)
    try:
        if record is None or record.sha256 != _hashes(entry, _hash):
            return None
        if entry.stat().st_uid != os.geteuid():
            return None
        os.utime(entry)  # the time of last use
    except OSError:
        return None
    return SavedGuest(RunDir(entry), record.blocks)


def save_when_held(
    entry: Path, machine: Machine, guest: Guest, memory: HeldMemory, run_dir: RunDir
) -> bool:
    """Save a guest that has said that it is held, and let it go on.

    It is not saved where another process saves the same one, where the host is too slow to meet the
    hold, or has no space. Returns whether the guest still does what it would do without that: not
    if it was looked at or stopped when the hold had ended, or was about to. After that it is not
    tried again for ten minutes. Raises HostError if it cannot be resumed.
    """
    cpus = machine.topology.cpu_count
    with suppress(HostError, OSError), locked(entry_lock(entry), wait=False):
        if read_saved(entry) is not None or free_space(entry.parent) < _FREE:
            return True
        missed = entry.with_name(f".{entry.name}.missed")
        if missed.exists() and time.time() - missed.stat().st_mtime < _PAUSE:
            return True
        missed.touch(mode=0o600)
        if not _met(guest, cpus, HOLD_TURNS[machine.mode]):
            return False
        guest.stop()
        try:
            if not _is_held(guest, cpus):
                return False
            missed.unlink()
            _write(entry, machine, guest, memory, run_dir)
        finally:
            guest.resume()
        return _is_held(guest, cpus)
    return True


def _is_held(guest: Guest, cpus: int) -> bool:
    """Whether a guest will be held for long enough that being looked at has not changed it."""
    left = turns_left(guest.registers(), cpus)
    return left is not None and left >= _LEAST_TURNS


def _met(guest: Guest, cpus: int, turns: int) -> bool:
    """Wait for the end of the hold, which every guest that continues goes through again.

    Reading registers changes nothing there. The end is near when only the turns of a few looks are
    left: on a busy host a look takes longer. Returns False for a guest that is not seen in its
    hold.
    """
    misses, before = 0, turns
    while misses < _LOOKS:
        left = turns_left(guest.registers(), cpus)
        if left is None:
            misses += 1
            continue
        if left <= _LOOKS_LEFT * (before - left):
            return True
        before = left
        time.sleep(_NAP)
    return False


def _write(
    entry: Path, machine: Machine, guest: Guest, memory: HeldMemory, run_dir: RunDir
) -> None:
    """Write the entry of a guest that is stopped."""
    with replacing(entry) as folder:
        folder.mkdir(mode=0o700)
        saved = RunDir(folder)
        guest.save_state(saved.saved_state)
        names = [f"{_NODE}{number}" for number in range(len(memory.fds))]
        blocks = {
            name: write_blocks(descriptor, folder / name)
            for name, descriptor in zip(names, memory.fds, strict=True)
        }
        _copy(run_dir.console, saved.console)
        _copy(run_dir.heartbeat, saved.heartbeat)
        for number, path in enumerate(mapped_files(machine.plugins)):
            _copy(path, folder / f"{_COUNTS}{number}")
        record = _Record(machine.topology.name, _hashes(folder, hash_file), blocks)
        write_json(folder / _RECORD, asdict(record))
    keep_newest(SAVED, _MOST)


def _copy(source: Path, target: Path) -> None:
    """Copy a file; only this user can read the copy. Raises OSError."""
    with source.open("rb") as file, create(target) as copy:
        shutil.copyfileobj(file, copy)


def mapped_files(plugins: tuple[Plugin, ...]) -> list[Path]:
    """Return the files in which plugins count, in order."""
    return [plugin.mapped for plugin in plugins if plugin.mapped is not None]


def _hashes(entry: Path, digest: Callable[[Path], str]) -> dict[str, str]:
    return {path.name: digest(path) for path in sorted(entry.iterdir()) if path.name != _RECORD}


def _hash(path: Path) -> str:
    """Return the SHA-256 of a file, which is read again when its size or times change."""
    return remembered(path, lambda _: {})["sha256"]
