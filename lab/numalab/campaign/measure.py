"""Measures a run: checks its machine against the prediction, decodes its trace, takes measures."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict

import polars as pl

from numalab.campaign.check import check_topology, kernel_remarks
from numalab.campaign.task import Task
from numalab.capture.counters import BufferStats
from numalab.capture.decode import Decoded, decode_guest
from numalab.capture.joined_tables import keep_memory_tables
from numalab.errors import CaptureIncomplete, LabError
from numalab.qemu.emulator import parse_qemu_version
from numalab.results.kernel_log import report_names
from numalab.results.manifest import Manifest, RecordingFacts
from numalab.results.run_files import RunFiles, scan_events
from numalab.study.guest import guest_of
from numalab.topology.predict.firmware import as_guest_numbers


def measure(task: Task, files: RunFiles, run: Manifest, *, reserved_mib: int) -> Manifest:
    """Check the machine, decode the recording and take the measures; return the manifest.

    Raises TopologyMismatch, WorkloadFailed, and CaptureIncomplete for lost events where the
    study forbids them.
    """
    cmdline = guest_of(task.study, task.topology, task.run.workload).extra_cmdline
    differences = check_topology(
        task.topology,
        task.kernel,
        files.guest_view,
        reserved_mib=reserved_mib,
        allow=task.setting.allow_mismatch,
        qemu=parse_qemu_version(run.versions.qemu),
        cmdline=cmdline,
    )
    recording = _decode(task, files)
    if task.capture.lost_is_error and not recording.whole:
        raise CaptureIncomplete(
            f"{recording.lost} events are known to be lost, at {recording.gaps} places; "
            + "; ".join([*recording.problems, "a larger buffer_mib in [capture] may help"])
        )
    notes: tuple[str, ...] = ()
    if run.mode == "timed":
        switches = scan_events(task.directory).filter(pl.col("event") == "sched_switch")
        notes = keep_memory_tables(
            task.directory, as_guest_numbers(task.topology), switches.collect()
        )
    analysis = files.measure(as_guest_numbers(task.topology), task.workload, task.capture)
    return run.but(
        trace=recording.model_copy(update={"lacking": analysis.lacking}),
        kernel_reports=report_names(files.dmesg),
        topology_differences=tuple(map(str, differences)),
        notes=(
            *run.notes,
            *absent_notes(task.study.capture.get("optional_events", ()), files.absent_events),
            *kernel_remarks(files.guest_view, task.topology, cmdline),
            *notes,
            *analysis.notes,
        ),
    )


def absent_notes(optional: Sequence[str], absent: Collection[str]) -> Iterator[str]:
    """Note which optional events of a study its kernel lacks: a name may be misspelt.

    Not those of named sets: older kernels lack them, and the measures of them have no value.
    """
    if names := [name for name in optional if name in absent]:
        yield f"not in this kernel: {', '.join(names)}"


def salvage(task: Task, files: RunFiles, run: Manifest) -> Manifest:
    """Decode what a failed run recorded, as far as possible. The run still has no result."""
    directory = task.directory
    if directory.trace.exists() and not directory.events.exists():
        with suppress(LabError):
            return run.but(trace=_decode(task, files))
    return run


def _decode(task: Task, files: RunFiles) -> RecordingFacts:
    decoded = decode_guest(task.directory, as_guest_numbers(task.topology))
    return describe_recording(decoded, files.buffer_stats)


def describe_recording(decoded: Decoded, stats: Sequence[BufferStats]) -> RecordingFacts:
    """Describe a recording: its size, and the events that it lacks.

    An overwritten buffer shows only that events are missing; its own statistics have their number.
    """
    lost = max(decoded.lost, sum(cpu.lost for cpu in stats))
    facts = asdict(decoded) | {"lost": lost, "whole": decoded.whole and not lost}
    facts["problems"] = decoded.faults
    return RecordingFacts.model_validate(facts)
