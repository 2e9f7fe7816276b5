"""Runs a plan: boot, decode, measure, one run after the other."""

import dataclasses
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from lab.capture.counters import parse_trace_stats
from lab.capture.decode import decode_trace
from lab.capture.spec import render_events
from lab.errors import CaptureIncomplete, GuestLost, HostError, LabError, UserError, WorkloadFailed
from lab.machine.hypervisor import EMBED
from lab.machine.kvm import Choice
from lab.machine.machine import Job, Machine
from lab.machine.run import Outcome, run_guest
from lab.machine.watch import Limits
from lab.store import (
    FORMAT,
    Results,
    RunDir,
    left_by_guest,
    locked,
    project_dir,
    read_json,
    write_json,
)
from lab.study import manifest
from lab.study.check import check_topology
from lab.study.measure import measure
from lab.study.model import Variant, study_table
from lab.study.plan import Plan, PlannedRun
from lab.study.prepare import Prepared
from lab.study.stored import damage_explained
from lab.topology.model import Topology
from lab.workload.model import BoundWorkload


@dataclass(frozen=True)
class Setting:
    """How runs are executed on this host."""

    choice: Choice
    connection: str = EMBED
    allow_mismatch: bool = False
    fail_fast: bool = False


@dataclass(frozen=True)
class Failure:
    """A run that gave no result, and why."""

    run: str
    error: LabError


# (run id, phase or result in words, runs ended)
Tell = Callable[[str, str, int], None]


def execute(
    plan: Plan, prepared: Prepared, results: Results, setting: Setting, tell: Tell
) -> tuple[Failure, ...]:
    """Execute the runs that `results` lacks, in the plan's order.

    Returns the failures. A run that fails leaves what there was in its folder, and the others go
    on (unless `fail_fast`). Ctrl-C ends the running guest, keeps its folder as
    `<run>.interrupted`, and goes on to the caller. Raises UserError when `results` belong to
    another study.
    """
    with locked(results.path, wait=False):
        with damage_explained(results.path):
            _claim_results(plan, results)
            _check_finished(plan, prepared, results, setting)
        return _execute_all(plan, prepared, results, setting, tell)


def _execute_all(
    plan: Plan, prepared: Prepared, results: Results, setting: Setting, tell: Tell
) -> tuple[Failure, ...]:
    failures: list[Failure] = []
    for number, run in enumerate(plan.runs):
        if run.id in results.finished():
            continue

        def on_phase(text: str, run_id: str = run.id, done: int = number) -> None:
            tell(run_id, text, done)

        try:
            _execute(_Cell(plan, run, prepared, setting, results.running(run.id), on_phase))
        except LabError as error:
            failures.append(Failure(run.id, error))
            tell(run.id, f"failed: {error}", number + 1)
            # What is wrong with the host is wrong for the next run as well.
            if setting.fail_fast or isinstance(error, HostError):
                break
        else:
            tell(run.id, "done", number + 1)
    return tuple(failures)


def _shown_path(path: Path) -> str:
    """Return a study's path as it would be typed in the project, or only its name."""
    with suppress(ValueError):
        return str(path.resolve().relative_to(project_dir().resolve()))
    return path.name


def _check_finished(plan: Plan, prepared: Prepared, results: Results, setting: Setting) -> None:
    """Refuse to add to runs that were made from other inputs. Raises UserError."""
    finished = results.finished()
    for run in plan.runs:
        if run.id not in finished:
            continue
        found = read_json(finished[run.id].manifest)
        now = manifest.inputs(plan, run, prepared, setting.choice)
        for key in manifest.IDENTITY:
            if found.get(key) != now[key]:
                raise UserError(
                    f"{run.id} was made with another {key}; start anew instead of resuming",
                    file=results.path,
                )


def _claim_results(plan: Plan, results: Results) -> None:
    if results.plan.exists() and read_json(results.plan).get("digest") != plan.digest:
        raise UserError("these results are of another study or an older version", file=results.path)
    write_json(
        results.plan,
        {
            "format": FORMAT,
            "study": plan.name,
            "digest": plan.digest,
            "path": _shown_path(plan.path),
            "preset": plan.preset,
            "file": study_table(plan.study),
            "runs": [dataclasses.asdict(run) for run in plan.runs],
        },
    )


@dataclass(frozen=True)
class _Cell:
    """One run and all it needs."""

    plan: Plan
    run: PlannedRun
    prepared: Prepared
    setting: Setting
    directory: RunDir
    on_phase: Callable[[str], None]

    @property
    def topology(self) -> Topology:
        return self.plan.topologies[self.run.topology]

    @property
    def workload(self) -> BoundWorkload:
        return self.plan.workload_of(self.run)

    @property
    def variant(self) -> Variant:
        return self.plan.study.variants[self.run.variant]


def _execute(cell: _Cell) -> None:
    """Execute one run in `<run>.running` and give the folder the name of what became of it."""
    path = cell.directory.path
    shutil.rmtree(path, ignore_errors=True)
    began = time.monotonic()
    record = manifest.inputs(cell.plan, cell.run, cell.prepared, cell.setting.choice)
    final = f"{cell.run.id}.failed"
    machine = _machine(cell)
    if machine.mode == "icount":
        record["icount_shift"] = machine.icount_shift
    try:
        outcome = _boot(cell, machine)
        record |= manifest.outcome(outcome)
        if outcome.status != 0:
            raise WorkloadFailed(f"the workload exited with status {outcome.status}")
        cell.on_phase("measuring")
        record |= _measured(cell) | {"status": "ok"}
        final = cell.run.id
    except KeyboardInterrupt:
        final = f"{cell.run.id}.interrupted"
        record |= {"status": "interrupted"}
        raise
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        # What a guest leaves is not to be trusted, and one run must not end a study.
        reason = f"what the guest left cannot be read: {type(error).__name__}: {error}"
        record |= {"status": "failed", "reason": reason}
        raise WorkloadFailed(reason) from error
    except GuestLost as error:
        lost = _renamed(error, path, path.with_name(final))
        record |= {"status": "lost", "reason": str(lost)} | _salvaged(cell)
        raise lost from None
    except LabError as error:
        record |= {"status": "failed", "reason": str(error)} | _salvaged(cell)
        raise
    finally:
        record["seconds"] = round(time.monotonic() - began, 2)
        if path.is_dir():
            write_json(cell.directory.manifest, record)
            shutil.rmtree(path.with_name(final), ignore_errors=True)
            path.rename(path.with_name(final))


def _renamed(error: GuestLost, old: Path, new: Path) -> GuestLost:
    """Say where what a lost guest left lies once its folder has its last name."""
    reason = error.reason.replace(str(old.absolute()), str(new)).replace(str(old), str(new))
    return GuestLost(reason, kept=new, tail=error.tail)


def _machine(cell: _Cell) -> Machine:
    return Machine(
        topology=cell.topology,
        bzimage=cell.prepared.kernels[cell.variant.kernel].bzimage,
        rootfs=cell.prepared.image.path,
        mode=cell.setting.choice.mode,
        cpu_model=cell.setting.choice.cpu_model,
        seed=cell.run.seed,
        name=cell.run.id,
        trace_memory_mib=cell.plan.capture.buffer_mib,
    )


def _boot(cell: _Cell, machine: Machine) -> Outcome:
    job = Job(
        argv=cell.workload.argv,
        tunables={path: str(value) for path, value in cell.variant.tunables.items()},
        events=render_events(cell.plan.capture),
        clock=cell.plan.capture.clock,
    )
    limits = cell.plan.study.limits
    return run_guest(
        machine,
        job,
        cell.directory,
        connection=cell.setting.connection,
        limits=Limits(boot=limits.boot, silence=limits.silence, total=limits.run),
        on_beat=lambda beat: cell.on_phase(f"{beat.phase}, {beat.uptime:.1f} s of guest time"),
    )


def _measured(cell: _Cell) -> manifest.Record:
    """Check the machine, decode the recording, take the measures."""
    directory, capture = cell.directory, cell.plan.capture
    differences = check_topology(
        cell.topology,
        cell.plan.kernels[cell.variant.kernel],
        directory,
        reserved_mib=capture.buffer_mib,
        allow=cell.setting.allow_mismatch,
    )
    recording = _decoded(cell)
    if capture.lost_is_error and not recording["whole"]:
        raise CaptureIncomplete(
            f"{recording['lost']} events were lost at {recording['gaps']} places;"
            " a larger buffer_mib in [capture] may help"
        )
    measures = measure(directory, cell.topology, cell.workload, capture)
    write_json(directory.measures, [dataclasses.asdict(each) for each in measures])
    return {"trace": recording, "topology_differences": list(differences)}


def _decoded(cell: _Cell) -> manifest.Record:
    """Decode the recording, and say how much of it there is."""
    directory = cell.directory
    decoded = decode_trace(directory.trace, cell.topology, directory.events)
    stats = ""
    with suppress(WorkloadFailed):  # a rescued guest may have left none
        stats = left_by_guest(directory.trace_stats).decode("utf-8", "replace")
    return manifest.trace(decoded, parse_trace_stats(stats))


def _salvaged(cell: _Cell) -> manifest.Record:
    """Decode as much of a failed run's recording as there is; it is kept, but gives no result."""
    directory = cell.directory
    if directory.trace.exists() and not directory.events.exists():
        with suppress(LabError):
            return {"trace": _decoded(cell)}
    return {}
