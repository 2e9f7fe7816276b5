"""Executes one run: boot, decode, measure; in whichever process it is asked for."""

import dataclasses
import re
import shutil
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import polars as pl

from lab.capture.counters import parse_trace_stats
from lab.capture.decode import decode_trace
from lab.capture.spec import render_events
from lab.errors import (
    CaptureIncomplete,
    GuestLost,
    HostBusy,
    HostError,
    LabError,
    WorkloadFailed,
)
from lab.machine.machine import Job, Machine
from lab.machine.run import Outcome, run_guest
from lab.machine.watch import Limits
from lab.store import UNFINISHED, left_by_guest, write_json
from lab.study import manifest
from lab.study.check import check_topology
from lab.study.guest import guest_of
from lab.study.measure import measure
from lab.study.prepare import with_kernel
from lab.study.task import Ended, Task, failed
from lab.workload.parse import explain_failure

OnPhase = Callable[[str], None]

_WHILE_BUSY = 2.0  # seconds from one look at the host to the next

# What lab.machine.run says where QEMU was ended from outside, mostly for want of memory.
_ENDED_FROM_OUTSIDE = re.compile("QEMU was killed|QEMU ended unexpectedly|somebody else ended")


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
            isinstance(error, GuestLost) and bool(_ENDED_FROM_OUTSIDE.match(error.reason))
        )
        return failed(task.run.id, time.monotonic() - began, error, by_host=by_host)
    except Exception:  # a bug must not end the runs beside this one
        text = f"numalab itself failed:\n{traceback.format_exc()}"
        return Ended(task.run.id, time.monotonic() - began, text, LabError.exit_code)
    return Ended(task.run.id, time.monotonic() - began)


def _execute(task: Task, on_phase: OnPhase) -> None:
    path = task.directory.path
    shutil.rmtree(path, ignore_errors=True)
    began = time.monotonic()
    record = task.record | manifest.here()
    final = f"{task.run.id}.failed"
    machine = _machine(task)
    if machine.mode == "icount":
        record["icount_shift"] = machine.icount_shift
    try:
        outcome = _boot_when_free(task, machine, on_phase)
        record |= manifest.outcome(outcome)
        if outcome.status != 0:
            raise WorkloadFailed(_why_it_failed(task, outcome.status))
        on_phase("measuring")
        record |= _measured(task) | {"status": "ok"}
        final = task.run.id
    except KeyboardInterrupt:
        final = f"{task.run.id}.interrupted"
        record |= {"status": "interrupted"}
        raise
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        # What a guest leaves is not to be trusted, and one run must not end a study.
        reason = f"what the guest left cannot be read: {type(error).__name__}: {error}"
        record |= {"status": "failed", "reason": reason}
        raise WorkloadFailed(reason) from error
    except GuestLost as error:
        lost = _renamed(error, path, path.with_name(final))
        record |= {"status": "lost", "reason": str(lost)} | _salvaged(task)
        raise lost from None
    except LabError as error:
        record |= {"status": "failed", "reason": str(error)} | _salvaged(task)
        raise
    finally:
        record["seconds"] = round(time.monotonic() - began, 2)
        if path.is_dir():
            write_json(task.directory.manifest, record)
            shutil.rmtree(path.with_name(final), ignore_errors=True)
            path.rename(path.with_name(final))
        if final == task.run.id:  # what earlier attempts left tells nothing any more
            for suffix in UNFINISHED:
                shutil.rmtree(path.with_name(f"{final}{suffix}"), ignore_errors=True)


def _renamed(error: GuestLost, old: Path, new: Path) -> GuestLost:
    """Say where what a lost guest left lies once its folder has its last name."""
    reason = error.reason.replace(str(old.absolute()), str(new)).replace(str(old), str(new))
    return GuestLost(reason, kept=new, tail=error.tail)


def _machine(task: Task) -> Machine:
    machine = dataclasses.replace(
        guest_of(task.study, task.topology),
        rootfs=task.rootfs,
        mode=task.setting.choice.mode,
        cpu_model=task.setting.choice.cpu_model,
        seed=task.run.seed,
        name=task.run.id,
        trace_memory_mib=task.capture.buffer_mib,
    )
    return with_kernel(machine, task.built)


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
        tunables={path: str(value) for path, value in task.variant.tunables.items()},
        events=render_events(task.capture),
        clock=task.capture.clock,
        perf_stat=task.capture.perf_stat,
        sample_ms=task.capture.sample_ms,
        sampled=task.capture.sampled,
        numastat=task.capture.numastat,
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


def _measured(task: Task) -> manifest.Record:
    """Check the machine, decode the recording, take the measures."""
    directory, capture = task.directory, task.capture
    differences = check_topology(
        task.topology,
        task.kernel,
        directory,
        reserved_mib=_machine(task).trace_memory_mib,
        allow=task.setting.allow_mismatch,
    )
    recording = _decoded(task)
    if capture.lost_is_error and not recording["whole"]:
        raise CaptureIncomplete(
            f"{recording['lost']} events were lost at {recording['gaps']} places;"
            " a larger buffer_mib in [capture] may help"
        )
    measures = measure(directory, task.topology, task.workload, capture)
    write_json(directory.measures, [dataclasses.asdict(each) for each in measures])
    return {"trace": recording, "topology_differences": list(differences)}


def _why_it_failed(task: Task, status: int) -> str:
    there = task.directory
    printed = _left(there.stderr) or _left(there.stdout)
    return explain_failure(task.workload.name, status, printed, _left(there.dmesg))


def _left(path: Path) -> str:
    """Read what a guest left, or nothing if it left none."""
    with suppress(WorkloadFailed):
        return left_by_guest(path).decode("utf-8", "replace")
    return ""


def _decoded(task: Task) -> manifest.Record:
    """Decode the recording, and say how much of it there is."""
    directory = task.directory
    decoded = decode_trace(directory.trace, task.topology, directory.events)
    stats = _left(directory.trace_stats)  # a rescued guest may have left none
    return manifest.trace(decoded, parse_trace_stats(stats))


def _salvaged(task: Task) -> manifest.Record:
    """Decode as much of a failed run's recording as there is; it is kept, but gives no result."""
    directory = task.directory
    if directory.trace.exists() and not directory.events.exists():
        with suppress(LabError):
            return {"trace": _decoded(task)}
    return {}
