"""Runs one task in the process that calls it: boots its guest, measures, settles its folder."""

import dataclasses
import errno
import os
import platform
import shutil
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from numalab.campaign.build import with_choice, with_kernel
from numalab.campaign.measure import measure, salvage
from numalab.campaign.task import Ended, Task, failed
from numalab.capture.spec import render_events
from numalab.errors import GuestLost, HostBusy, HostError, LabError, LossCause, WorkloadFailed
from numalab.files import free_space, write_json
from numalab.guest.run import Outcome, require_room, run_guest
from numalab.guest.watch import Limits
from numalab.host.read import slowness
from numalab.machine.model import DETERMINISTIC, Job, Machine
from numalab.plugins import explain_fault
from numalab.reach.counting import counting
from numalab.results.manifest import (
    HostFacts,
    Manifest,
    RunStatus,
    Versions,
)
from numalab.results.run_files import RunFiles
from numalab.results.stored import UNFINISHED
from numalab.scheduler.in_guest import explain_end, parse_record
from numalab.study.guest import guest_of
from numalab.workload.luggage import require_preloaded
from numalab.workload.metric_parsers import explain_failure

OnPhase = Callable[[str], None]
Boot = Callable[[Task, Machine, OnPhase], Outcome]

WAITING = "waiting"  # the first word of the phase in which other guests have the host
# Errors of the host, as opposed to a file that a guest has made unreadable.
_OF_HOST = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_FULL = 1 << 20  # free bytes below which a disk counts as full


def boot_guest(task: Task, machine: Machine, on_phase: OnPhase) -> Outcome:
    """Boot the guest of a task and run its workload."""
    argv, files = task.workload.argv, task.files
    if task.scheduler is not None:
        argv, files = task.scheduler.around(argv), {**files, **task.scheduler.files}
    job = Job(
        argv=argv,
        tunables={path: str(value) for path, value in task.inputs.tunables.items()},
        events=render_events(task.capture),
        clock=task.capture.clock,
        perf_stat=task.capture.perf_stat,
        sample_ms=task.capture.sample_ms,
        sampled=task.capture.sampled,
        numastat=task.capture.numastat,
        files=files,
        # For a kernel that cannot keep its trace in reserved memory: as much of its own memory.
        buffer_kib=max(64, (task.capture.buffer_mib << 10) // task.topology.cpu_count),
    )
    with counting(machine, task.table, task.directory) as counted:
        return run_guest(
            counted,
            job,
            task.directory,
            connection=task.setting.connection,
            limits=limits_of(task),
            on_beat=lambda beat: on_phase(f"{beat.phase}, {beat.uptime:.1f} s of guest time"),
        )


def limits_of(task: Task) -> Limits:
    """Return the time limits of a task's guest.

    Where the study leaves the defaults of `boot` and `silence`, they follow the current speed of
    this host, and `boot` the number of the guest's CPUs, as those of `run_guest` do.
    """
    table = task.study.limits
    scaled = Limits().for_cpus(task.topology.cpu_count).on_a_host(slowness(load=False))
    return Limits(
        boot=scaled.boot if table.boot == Limits.boot else table.boot,
        silence=scaled.silence if table.silence == Limits.silence else table.silence,
        total=table.run,
    )


def run_task(task: Task, on_phase: OnPhase, *, boot: Boot = boot_guest) -> Ended:
    """Execute a run in `<run>.running`, and rename the folder by its outcome.

    A run that fails leaves its files in `<run>.failed`. Ctrl-C (KeyboardInterrupt) ends the
    guest, keeps the folder as `<run>.interrupted`, and is raised again.
    """
    began = time.monotonic()
    try:
        _settle_if_interrupted(task, on_phase, boot)
    except LabError as error:
        by_host = isinstance(error, HostError) or (
            isinstance(error, GuestLost) and error.cause is LossCause.HOST
        )
        return failed(task.run.id, time.monotonic() - began, error, by_host=by_host)
    except Exception as error:  # a bug must not end the other runs
        if fault := explain_fault(error):
            return failed(task.run.id, time.monotonic() - began, fault, by_host=False)
        text = f"numalab itself failed:\n{traceback.format_exc()}"
        return Ended(task.run.id, time.monotonic() - began, text, LabError.exit_code)
    return Ended(task.run.id, time.monotonic() - began)


def _settle_if_interrupted(task: Task, on_phase: OnPhase, boot: Boot) -> None:
    try:
        _attempt(task, on_phase, boot)
    except KeyboardInterrupt:
        # It may come while the run gets its last name. A worker gets only one.
        if task.directory.path.is_dir():
            record = task.manifest.but(status=RunStatus.INTERRUPTED)
            _settle(task, record, task.results.interrupted(task.run.id).path.name)
        raise


def _attempt(task: Task, on_phase: OnPhase, boot: Boot) -> None:
    path, files = task.directory.path, RunFiles(task.directory)
    shutil.rmtree(path, ignore_errors=True)
    began = time.monotonic()
    interrupted, without_result = (f"{task.run.id}.{how}" for how in ("interrupted", "failed"))
    machine = task_machine(task)
    record = describe_start(task, machine)
    # The default outcome: KeyboardInterrupt can come anywhere.
    final, record = interrupted, record.but(status=RunStatus.INTERRUPTED)
    try:
        outcome = boot_when_free(task, machine, on_phase, boot)
        record = describe_outcome(record, outcome)
        require_room(task.directory, outcome.collected, machine.job_disk_mib)
        record = _require_scheduler(task, files, record)
        _require_success(task, files, outcome.status)
        on_phase("measuring")
        record = measure(task, files, record, reserved_mib=machine.trace_memory_mib)
        final, record = task.run.id, record.but(status=RunStatus.OK)
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        full = _host_failure(error, path)
        # The files of a guest are not trusted, and one run must not end a study.
        reason = full or f"what the guest left cannot be read: {type(error).__name__}: {error}"
        final, record = without_result, record.but(status=RunStatus.FAILED, reason=reason)
        raise (HostError(full) if full else WorkloadFailed(reason)) from error
    except GuestLost as error:
        lost = error.moved(path.with_name(without_result))
        record = salvage(task, files, record)
        record = record.but(status=RunStatus.LOST, cause=lost.cause, reason=str(lost))
        final = without_result
        raise lost from None
    except Exception as error:
        if isinstance(error, LabError):
            record = salvage(task, files, record)
        final, record = without_result, record.but(status=RunStatus.FAILED, reason=str(error))
        raise
    finally:
        record = record.but(seconds=round(time.monotonic() - began, 2))
        if path.is_dir():
            _settle(task, record, final)
        if final == task.run.id:  # earlier attempts are obsolete
            for suffix in UNFINISHED:
                shutil.rmtree(path.with_name(f"{final}{suffix}"), ignore_errors=True)


def _settle(task: Task, record: Manifest, final: str) -> None:
    """Write the manifest of a run, and give its folder its last name.

    A run without a manifest has no result: where it cannot be written, the run has failed, and
    the HostError is raised again.
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
    """Return why the host could not take in the files of a guest; empty: the host is fine."""
    number = error.errno if isinstance(error, OSError) else None
    if number not in _OF_HOST and free_space(path) >= _FULL:
        return ""
    reason = os.strerror(number) if number in _OF_HOST else os.strerror(errno.ENOSPC)
    return f"cannot take in what the guest left in {path}: {reason}"


def task_machine(task: Task) -> Machine:
    """Return the machine that a task boots."""
    machine = dataclasses.replace(
        guest_of(task.study, task.topology, task.run.workload),
        rootfs=task.rootfs,
        seed=task.run.seed,
        name=task.run.id,
        trace_memory_mib=task.capture.buffer_mib,
    )
    return with_kernel(with_choice(machine, task.setting.choice), task.built)


def boot_when_free(
    task: Task, machine: Machine, on_phase: OnPhase, boot: Boot, *, pause: float = 2.0
) -> Outcome:
    """Boot; wait while other guests have the host, at most as long as a run may take.

    `pause` is the time between two attempts in seconds.
    """
    deadline = time.monotonic() + task.study.limits.run
    while True:
        try:
            return boot(task, machine, on_phase)
        except HostBusy as busy:
            if time.monotonic() >= deadline:
                raise
            on_phase(f"{WAITING}, {str(busy).splitlines()[0]}")
            time.sleep(pause)


def _require_scheduler(task: Task, files: RunFiles, record: Manifest) -> Manifest:
    """Return the manifest with the scheduler that the guest had until its command ended.

    Raises WorkloadFailed with the scheduler's messages if it was not enabled for all that time.
    """
    if task.scheduler is None or record.scheduler is None:
        return record
    ended = parse_record(files.scheduler)
    name = task.scheduler.scheduler.spec.name
    if why := explain_end(name, ended, files.scheduler_log, files.dmesg):
        raise WorkloadFailed(why)
    partial = f"{name} schedules only tasks of SCHED_EXT (SCX_OPS_SWITCH_PARTIAL)"
    notes = (*record.notes, *([partial] if ended.partial else []))
    return record.but(scheduler_ops=ended.ops, notes=notes)


def _require_success(task: Task, files: RunFiles, status: int) -> None:
    if status == 0 and task.capture.perf_stat and not task.directory.times.exists():
        # `perf stat` returns 0 where a signal ended the program that writes them.
        reason = "it, or what measures its time, was killed or could not write them"
        raise WorkloadFailed(f"{task.workload.name} left no times: {reason}")
    if status != 0:
        why = explain_failure(task.workload.name, status, files.printed, files.dmesg)
        raise WorkloadFailed(why)
    require_preloaded(task.workload.name, files.printed)


def describe_start(task: Task, machine: Machine) -> Manifest:
    """Return the manifest of a run that starts here and now."""
    record = task.manifest.but(
        host=describe_host(), started=datetime.now(UTC).isoformat(timespec="seconds")
    )
    if machine.mode in DETERMINISTIC:
        record = record.but(icount_shift=machine.shift)
    if machine.mode == "timed":
        record = record.but(quantum_ns=machine.turn_ns)
    return record


def describe_host() -> HostFacts:
    """Describe this host without its name: kernel, processor, CPUs and memory (MiB)."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return HostFacts(
        kernel=platform.release(),
        processor=_processor(),
        cpus=os.cpu_count(),
        memory_mib=pages >> 20,
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def describe_outcome(run: Manifest, result: Outcome) -> Manifest:
    """Add the outcome of a run whose command ended."""
    return run.but(
        exit_status=result.status,
        guest_seconds=result.guest_seconds,
        wall_seconds={name: round(value, 3) for name, value in result.wall_seconds.items()},
        cmdline=result.cmdline,
        versions=Versions(**result.versions),
        proof=result.proof,
        timing=result.timing,
        notes=tuple(result.notes),
    )
