"""One command, or a shell, in one guest: what `numalab boot` and `numalab shell` do."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from numalab.campaign.build import Builds, with_choice, with_kernel
from numalab.campaign.check import check_topology, kernel_remarks
from numalab.errors import GuestLost, HostError, LabError, UserError
from numalab.files import check_free, left_by_guest, make_dir, replacing
from numalab.guest.console import Beat
from numalab.guest.kvm import Choice
from numalab.guest.run import Outcome, Remark, RemarkKind, require_room, run_guest
from numalab.guest.watch import Limits
from numalab.kernel.kernel_artifact import BuiltKernel
from numalab.kernel.kernel_specs import KernelSpec
from numalab.machine.model import Job, Machine
from numalab.places import cache_dir
from numalab.qemu.emulator import parse_qemu_version
from numalab.qemu.guest import Guest
from numalab.qemu.hypervisor import EMBED
from numalab.results.guest_output import read_guest_view
from numalab.run_dir import RunDir, check_guest_path
from numalab.scratch import scratch_folder
from numalab.topology.topology import Topology

if TYPE_CHECKING:
    from numalab.locality.locality import Locality, Marks
    from numalab.reach.line_table import LineTable
    from numalab.reach.model import RunReach

_MOST_MIB = 32  # of files on the usual job disk, which also holds the results


@dataclass(frozen=True)
class Booted:
    """What the command printed (bytes, as it did) and how it ended."""

    stdout: bytes
    stderr: bytes
    outcome: Outcome
    differences: tuple[str, ...]
    kept: Path | None
    reach: "RunReach | None" = None
    locality: "Locality | None" = None


def guest(
    topology: Topology, kernel: str, prepared: Builds, choice: Choice, *, trace_mib: int = 0
) -> Machine:
    """Return a guest with one of the kernels that were prepared, by its name."""
    built = prepared.kernels[kernel]
    machine = Machine(
        topology=topology,
        bzimage=Path(),
        rootfs=prepared.root(built),
        mode=choice.mode,
        seed=1,
        name=f"boot-{topology.name}",
        trace_memory_mib=trace_mib,
    )
    return with_kernel(with_choice(machine, choice), built)


def check_host_root(kernel: BuiltKernel) -> None:
    """Raise UserError for a kernel that cannot mount the root folder of this host."""
    if lacking := kernel.lacks("VIRTIO_PCI", "NET_9P_VIRTIO", "9P_FS", "OVERLAY_FS"):
        reason = f"kernel {kernel.spec_name} lacks {', '.join(lacking)}, as the fragment virtme has"
        raise UserError(reason, key="--host-root", choices=("--kernel debian-6.12-virtme",))


def boot(
    machine: Machine,
    kernel: KernelSpec,
    argv: tuple[str, ...],
    *,
    connection: str = EMBED,
    events: tuple[str, ...] = (),
    keep: Path | None = None,
    allow_mismatch: bool = False,
    on_beat: Callable[[Beat], None] | None = None,
    limits: Limits | None = None,
    table: "LineTable | None" = None,
    files: Mapping[str, bytes] = MappingProxyType({}),
    returned: Path | None = None,
    between: "Marks | None" = None,
) -> Booted:
    """Boot a guest with `kernel`, run `argv` in it, and return what it printed.

    The run directory is removed, unless `keep` says where to leave it, or the guest was lost.
    `table` lists the lines to count. `files` go below /job/files, and what the command leaves below
    $OUT goes to the folder `returned`. Memory accesses `between` two marks are counted (mode
    timed). Raises what `run_guest` raises, and TopologyMismatch.
    """
    if between is not None:
        from numalab.locality.locality import EVENTS, read_locality  # noqa: PLC0415 - takes 0.3 s

        events = tuple(dict.fromkeys((*events, *EVENTS)))
    with run_folder(keep) as directory:
        try:
            booted = boot_in(
                directory, machine, kernel, argv, connection=connection, events=events,
                allow_mismatch=allow_mismatch, on_beat=on_beat, limits=limits, table=table,
                files=files,
            )  # fmt: skip
        except LabError as error:
            if returned is not None and directory.returned.is_dir():
                try:
                    copy_returned(directory, returned)
                except HostError as failure:
                    error.notes = (*error.notes, str(failure))
            raise
        if returned is not None:
            try:
                copy_returned(directory, returned)
            except HostError as error:
                error.printed = (booted.stdout, booted.stderr)
                error.notes = booted.outcome.new_notes
                raise
        if between is not None:
            counted = read_locality(directory, machine.topology, between, files)
            booted = replace(booted, locality=counted)
    return replace(booted, kept=keep)


def boot_in(
    directory: RunDir,
    machine: Machine,
    kernel: KernelSpec,
    argv: tuple[str, ...],
    *,
    connection: str = EMBED,
    events: tuple[str, ...] = (),
    allow_mismatch: bool = False,
    on_beat: Callable[[Beat], None] | None = None,
    limits: Limits | None = None,
    table: "LineTable | None" = None,
    files: Mapping[str, bytes] = MappingProxyType({}),
    sample_ms: int = 0,
    tunables: Mapping[str, str] = MappingProxyType({}),
) -> Booted:
    """Do what `boot` does in a folder that stays.

    Raises WorkloadFailed, too, for a command that filled the job disk.

    Every `sample_ms` of guest time, the memory of the command's processes is read (0: never).
    `tunables` are files of the guest, and the values to write to them before the command.
    """
    sampled = "p" if sample_ms else ""
    job = Job(
        argv=argv, events=events, files=files, sample_ms=sample_ms, sampled=sampled,
        tunables=tunables,
    )  # fmt: skip
    if more_mib := _more_mib(files):
        machine = replace(machine, job_disk_mib=machine.job_disk_mib + more_mib)
    counting: AbstractContextManager[Machine] = nullcontext(machine)
    if table is not None:
        from numalab.reach import counting as reach_counting  # noqa: PLC0415 - rarely used

        counting = reach_counting.counting(machine, table, directory)
    with counting as counted:
        outcome = run_guest(
            counted, job, directory, connection=connection, limits=limits, on_beat=on_beat
        )
    stdout, stderr = left_by_guest(directory.stdout), left_by_guest(directory.stderr)
    try:
        require_room(directory, outcome.collected, machine.job_disk_mib)
        view = read_guest_view(directory)
        differences = check_topology(
            machine.topology,
            kernel,
            view,
            reserved_mib=machine.trace_memory_mib,
            allow=allow_mismatch,
            qemu=parse_qemu_version(outcome.versions["qemu"]),
            cmdline=machine.extra_cmdline,
        )
    except LabError as error:
        error.printed, error.notes = (stdout, stderr), outcome.new_notes
        raise
    texts = kernel_remarks(view, machine.topology, machine.extra_cmdline)
    unknown = Remark.of_texts(RemarkKind.UNKNOWN_KERNEL, texts)
    outcome = replace(outcome, remarks=(*outcome.remarks, *unknown))
    reach = None if table is None else reach_counting.read_reach(directory)
    return Booted(stdout, stderr, outcome, tuple(map(str, differences)), None, reach)


def copy_returned(directory: RunDir, folder: Path) -> None:
    """Copy the files that a command left below $OUT to a new or empty folder of the host.

    Raises HostError.
    """
    make_dir(folder)
    if not directory.returned.is_dir():
        return
    try:
        shutil.copytree(directory.returned, folder, copy_function=_copy_whole, dirs_exist_ok=True)
    except OSError as error:
        raise HostError(f"cannot write {folder}: {error.strerror or error}") from None


def _copy_whole(source: str, target: str) -> None:
    """Copy a file whole or not at all. Raises HostError."""
    with replacing(Path(target)) as temporary:
        shutil.copy2(source, temporary)


def _more_mib(files: Mapping[str, bytes]) -> int:
    """Return how much larger than usual the job disk must be, in steps of an NVDIMM."""
    mib = sum(map(len, files.values())) >> 20
    return 0 if mib < _MOST_MIB else mib + (mib & 1)


def shell(
    machine: Machine,
    job: Job,
    join: Callable[[Guest], AbstractContextManager[None]],
    *,
    connection: str = EMBED,
    limits: Limits,
) -> Outcome:
    """Boot a guest whose console is a terminal, until the shell in it ends.

    `join` is given the guest once it runs. Raises what `run_guest` raises; only then is the run
    directory kept.
    """
    with run_folder(None) as directory:
        return run_guest(
            machine, job, directory, connection=connection, limits=limits, join=join, rescue=False
        )


@contextmanager
def run_folder(keep: Path | None) -> Iterator[RunDir]:
    """Give a run directory in the cache that is removed at the end, or the one to keep.

    That of a lost guest stays in the cache, under a name of its own.
    """
    if keep is not None:
        check_guest_path(keep)
        check_free(keep, "--keep")
        try:
            yield RunDir(keep)
        except LabError:
            with suppress(OSError):  # only an empty folder goes
                keep.rmdir()
            raise
        return
    boots = cache_dir("boots")
    with scratch_folder(boots, "boot-") as path:
        try:
            yield RunDir(path)
        except GuestLost as lost:
            kept = Path(tempfile.mkdtemp(prefix="lost-", dir=boots))
            path.rename(kept)  # takes the place of an empty folder, rename(2)
            raise lost.moved(kept) from None
