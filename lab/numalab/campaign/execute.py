"""Executes one run: boot, decode, measure; in whichever process it is asked for."""

import dataclasses
import errno
import os
import shutil
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import polars as pl

from numalab.campaign import describe
from numalab.campaign.check import check_topology, kernel_remarks
from numalab.campaign.prepare import with_choice, with_kernel
from numalab.campaign.task import Ended, Task, failed
from numalab.capture.decode import decode_trace
from numalab.capture.memory_parquet import keep_memory_tables
from numalab.capture.spec import render_events
from numalab.errors import (
    CaptureIncomplete,
    GuestLost,
    HostBusy,
    HostError,
    LabError,
    LossCause,
    WorkloadFailed,
)
from numalab.files import write_json
from numalab.guest.run import Outcome, run_guest
from numalab.guest.watch import Limits
from numalab.machine.model import DETERMINISTIC, Job, Machine
from numalab.results.manifest import Manifest, RecordingFacts, RunStatus
from numalab.results.names import UNFINISHED
from numalab.results.run_files import RunFiles, scan_events
from numalab.study.guest import guest_of
from numalab.workload.metric_parsers import explain_failure

OnPhase = Callable[[str], None]

# What an error of the host is, as opposed to a file that a guest has made unreadable.
_OF_HOST = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_FULL = 1 << 20  # bytes: what is left on a disk on which nothing more can be written
_WHILE_BUSY = 2.0  # seconds from one look at the host to the next


def execute_task(task: Task, on_phase: OnPhase) -> Ended:
    """Execute a run in `<run>.running` and give the folder the name of what became of it.

    A run that fails leaves what there was in `<run>.failed`; Ctrl-C (KeyboardInterrupt) ends the
    guest, keeps the folder as `<run>.interrupted`, and goes on to the caller.
    """
    began = time.monotonic()
    try:
        _execute(task, on_phase)
    except LabError as error:
        by_host = isinstance(error, HostError) or (
            isinstance(error, GuestLost) and error.cause is LossCause.HOST
        )
        return failed(task.run.id, time.monotonic() - began, error, by_host=by_host)
    except Exception:  # a bug must not end the runs beside this one
        text = f"numalab itself failed:\n{traceback.format_exc()}"
        return Ended(task.run.id, time.monotonic() - began, text, LabError.exit_code)
    return Ended(task.run.id, time.monotonic() - began)


def _execute(task: Task, on_phase: OnPhase) -> None:
    try:
        _attempt(task, on_phase)
    except KeyboardInterrupt:
        # It may have come while the run was given its last name. It comes only once to a worker.
        if task.directory.path.is_dir():
            record = task.manifest.but(status=RunStatus.INTERRUPTED)
            _settle(task, record, task.results.interrupted(task.run.id).path.name)
        raise


def _attempt(task: Task, on_phase: OnPhase) -> None:
    path, files = task.directory.path, RunFiles(task.directory)
    shutil.rmtree(path, ignore_errors=True)
    began = time.monotonic()
    record = describe.here(task.manifest)
    interrupted, gave_none = (f"{task.run.id}.{how}" for how in ("interrupted", "failed"))
    machine = _machine(task)
    if machine.mode in DETERMINISTIC:
        record = record.but(icount_shift=machine.shift)
    if machine.mode == "timed":
        record = record.but(quantum_ns=machine.turn_ns, memory=describe.memory(task.topology))
    # What it stays unless something else becomes of it: KeyboardInterrupt can come anywhere.
    final, record = interrupted, record.but(status=RunStatus.INTERRUPTED)
    try:
        outcome = _boot_when_free(task, machine, on_phase)
        record = describe.outcome(record, outcome)
        _require_success(task, files, outcome.status)
        on_phase("measuring")
        record = _measured(task, files, record)
        final, record = task.run.id, record.but(status=RunStatus.OK)
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        full = _host_failure(error, path)
        # What a guest leaves is not to be trusted, and one run must not end a study.
        reason = full or f"what the guest left cannot be read: {type(error).__name__}: {error}"
        final, record = gave_none, record.but(status=RunStatus.FAILED, reason=reason)
        raise (HostError(full) if full else WorkloadFailed(reason)) from error
    except GuestLost as error:
        lost = error.moved(path.with_name(gave_none))
        record = _salvaged(task, files, record)
        record = record.but(status=RunStatus.LOST, cause=lost.cause, reason=str(lost))
        final = gave_none
        raise lost from None
    except Exception as error:
        if isinstance(error, LabError):
            record = _salvaged(task, files, record)
        final, record = gave_none, record.but(status=RunStatus.FAILED, reason=str(error))
        raise
    finally:
        record = record.but(seconds=round(time.monotonic() - began, 2))
        if path.is_dir():
            _settle(task, record, final)
        if final == task.run.id:  # what earlier attempts left tells nothing any more
            for suffix in UNFINISHED:
                shutil.rmtree(path.with_name(f"{final}{suffix}"), ignore_errors=True)


def _settle(task: Task, record: Manifest, final: str) -> None:
    """Write what is known of a run, and give its folder its last name.

    Without a manifest there is no result: it has failed where that cannot be written, and the
    HostError goes on.
    """
    path = task.directory.path

    def rename(name: str) -> None:
        shutil.rmtree(path.with_name(name), ignore_errors=True)
        path.rename(path.with_name(name))

    try:
        write_json(task.directory.manifest, record.table())
    except Exception:
        rename(task.results.failed(task.run.id).path.name)
        raise
    rename(final)


def _host_failure(error: Exception, path: Path) -> str:
    """Say what the host lacks, if that is why what a guest left could not be taken in."""
    number = error.errno if isinstance(error, OSError) else None
    disk = os.statvfs(path)
    full = (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail) * disk.f_frsize < _FULL
    if number not in _OF_HOST and not full:
        return ""
    reason = os.strerror(number) if number in _OF_HOST else os.strerror(errno.ENOSPC)
    return f"cannot take in what the guest left in {path}: {reason}"


def _machine(task: Task) -> Machine:
    machine = dataclasses.replace(
        guest_of(task.study, task.topology, task.run.workload),
        rootfs=task.rootfs,
        seed=task.run.seed,
        name=task.run.id,
        trace_memory_mib=task.capture.buffer_mib,
    )
    return with_kernel(with_choice(machine, task.setting.choice), task.built)


def _boot_when_free(task: Task, machine: Machine, on_phase: OnPhase) -> Outcome:
    """Boot; while guests of another numalab have the host, wait, as long as a run may take."""
    deadline = time.monotonic() + task.study.limits.run
    while True:
        try:
            return _boot(task, machine, on_phase)
        except HostBusy as busy:
            if time.monotonic() >= deadline:
                raise
            on_phase(f"waiting, {str(busy).splitlines()[0]}")
            time.sleep(_WHILE_BUSY)


def _boot(task: Task, machine: Machine, on_phase: OnPhase) -> Outcome:
    job = Job(
        argv=task.workload.argv,
        tunables={path: str(value) for path, value in task.inputs.tunables.items()},
        events=render_events(task.capture),
        clock=task.capture.clock,
        perf_stat=task.capture.perf_stat,
        sample_ms=task.capture.sample_ms,
        sampled=task.capture.sampled,
        numastat=task.capture.numastat,
        files=task.files,
        # Where the kernel cannot keep the trace in reserved memory: as much of the guest's own.
        buffer_kib=max(64, (task.capture.buffer_mib << 10) // task.topology.cpu_count),
    )
    limits = task.study.limits
    return run_guest(
        machine,
        job,
        task.directory,
        connection=task.setting.connection,
        limits=Limits(boot=limits.boot, silence=limits.silence, total=limits.run),
        on_beat=lambda beat: on_phase(f"{beat.phase}, {beat.uptime:.1f} s of guest time"),
    )


def _measured(task: Task, files: RunFiles, run: Manifest) -> Manifest:
    """Check the machine, decode the recording, take the measures."""
    differences = check_topology(
        task.topology,
        task.kernel,
        files,
        reserved_mib=_machine(task).trace_memory_mib,
        allow=task.setting.allow_mismatch,
    )
    recording = _decoded(task, files)
    if task.capture.lost_is_error and not recording.whole:
        raise CaptureIncomplete(
            f"{recording.lost} events were lost at {recording.gaps} places;"
            " a larger buffer_mib in [capture] may help"
        )
    notes: tuple[str, ...] = ()
    if run.mode == "timed":
        switches = scan_events(task.directory).filter(pl.col("event") == "sched_switch")
        notes = keep_memory_tables(task.directory, task.topology, switches.collect())
    files.measure(task.topology, task.workload, task.capture)
    return run.but(
        trace=recording,
        topology_differences=tuple(map(str, differences)),
        notes=(*run.notes, *kernel_remarks(files), *notes),
    )


def _require_success(task: Task, files: RunFiles, status: int) -> None:
    if status != 0:
        why = explain_failure(task.workload.name, status, files.printed, files.dmesg)
        raise WorkloadFailed(why)


def _decoded(task: Task, files: RunFiles) -> RecordingFacts:
    """Decode the recording, and say how much of it there is."""
    directory = task.directory
    decoded = decode_trace(directory.trace, task.topology, directory.events)
    return describe.recording(decoded, files.buffer_stats)


def _salvaged(task: Task, files: RunFiles, run: Manifest) -> Manifest:
    """Decode as much of a failed run's recording as there is; it is kept, but gives no result."""
    directory = task.directory
    if directory.trace.exists() and not directory.events.exists():
        with suppress(LabError):
            return run.but(trace=_decoded(task, files))
    return run
