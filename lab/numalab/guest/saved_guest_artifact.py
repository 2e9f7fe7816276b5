"""Saved guests: a session continues in half a second where an earlier guest waited for commands.

Everything that decides what a guest did until then is in the name of its entry in the cache: the
machine, kernel, image, QEMU, libvirt (which makes QEMU's command line), job and seed. An entry that
is damaged is made again.
"""

import math
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.artifact.builder import Artifact, Work, build
from numalab.artifact.digest import digest_of, remembered
from numalab.artifact.kinds import Kind, record_title, register_kind
from numalab.document import read_record
from numalab.errors import GuestLost, HostError
from numalab.files import write_json
from numalab.guest.run import Outcome, run_guest
from numalab.guest.session import Session
from numalab.guest.watch import Limits
from numalab.machine.model import Job, Machine
from numalab.process import find_program
from numalab.qemu.binding import library_version
from numalab.qemu.jobdisk import copy_job_disk, render_job
from numalab.run_dir import RunDir

_FORMAT = 1  # raise it when guests must be saved again
_RECORD = "saved.json"
# Not kvm, whose placement is proved from the guest's first instruction on; not timed, whose memory
# model keeps its caches outside of QEMU's state.
MODES = ("tcg", "icount")


@dataclass(frozen=True)
class _Record:
    machine: str
    sha256: Mapping[str, str]


SAVED = register_kind(
    Kind(name="saved guest", folder="saved-guests", title=record_title(_RECORD, "machine"))
)


def start_session(
    machine: Machine, job: Job, directory: RunDir, connection: str, *, cold: bool = False
) -> Session:
    """Start a session, in the modes of `MODES` from a saved guest; `cold` boots one.

    The guest is booted, too, where none can be saved or the saved one does not start; that is then
    removed. Raises what `run_guest` raises.
    """
    if machine.mode in MODES and not cold:
        private = replace(machine, pages="anonymous")  # QEMU saves no shared memory
        with suppress(HostError):
            saved = _ensure_saved(private, job, connection)
            try:
                return _started(private, job, directory, connection, saved)
            except (HostError, GuestLost):
                shutil.rmtree(saved.path, ignore_errors=True)
    return _started(machine, job, directory, connection)


def _started(
    machine: Machine, job: Job, directory: RunDir, connection: str, saved: RunDir | None = None
) -> Session:
    """Start a session whose thread runs the guest for as long as it takes."""
    session = Session(directory, machine.job_disk_mib)

    def run(session: Session) -> Outcome:
        return run_guest(
            machine, job, directory, connection=connection, limits=Limits(total=math.inf),
            join=session.joined, rescue=False, saved=saved,
        )  # fmt: skip

    try:
        session.start(run, saved=saved is not None)
    except BaseException:
        session.end()
        raise
    return session


def _ensure_saved(machine: Machine, job: Job, connection: str) -> RunDir:
    """Return a guest that waits for commands, booted and saved if the cache lacks it."""

    def make(work: Work) -> None:
        work.entry.mkdir(mode=0o700)
        _save(machine, job, connection, work.entry.parent, RunDir(work.entry))

    entry = SAVED.entry(saved_digest(machine, job))
    return build(Artifact(SAVED, machine.topology.name, entry, make, read_saved))


def saved_digest(machine: Machine, job: Job) -> str:
    """Return the digest of everything that decides the state of a guest that waits."""
    nowhere = Path()
    described = replace(
        machine, name="saved", bzimage=nowhere, rootfs=nowhere, initrd=None, emulator=None,
        host_cpus=(), vcpu_cpus=(), host_nodes=(),
    )  # fmt: skip
    qemu = machine.emulator or find_program("qemu-system-x86_64", "qemu-system-x86")
    files = (qemu, machine.bzimage, machine.rootfs, machine.initrd)
    hashes = [_hash(path) for path in files if path is not None]
    job_files = repr(render_job(job, ""))
    return digest_of([_FORMAT, repr(described), hashes, library_version()[0], job_files])


def _save(machine: Machine, job: Job, connection: str, scratch: Path, target: RunDir) -> None:
    """Boot a guest, and save it when it waits for its first command."""
    directory = RunDir(scratch / "run")
    session = _started(machine, job, directory, connection)
    try:
        session.guest.save_state(target.saved_state)
        copy_job_disk(directory.job_disk, target.job_disk, machine.job_disk_mib, reserve=False)
        shutil.copyfile(directory.console, target.console)
        shutil.copyfile(directory.heartbeat, target.heartbeat)
    finally:
        session.end()
    record = {"machine": machine.topology.name, "sha256": _hashes(target)}
    write_json(target.path / _RECORD, record)


def read_saved(entry: Path) -> RunDir | None:
    """Return a saved guest; None where there is none, or a file of it has changed."""
    record = read_record(entry / _RECORD, _Record)
    try:
        whole = record is not None and record.sha256 == _hashes(RunDir(entry))
    except OSError:
        return None
    return RunDir(entry) if whole else None


def _hashes(saved: RunDir) -> dict[str, str]:
    files = (saved.saved_state, saved.job_disk, saved.console, saved.heartbeat)
    return {path.name: _hash(path) for path in files}


def _hash(path: Path) -> str:
    """Return the SHA-256 of a file, which is read again when its size or times change."""
    return remembered(path, lambda _: {})["sha256"]
