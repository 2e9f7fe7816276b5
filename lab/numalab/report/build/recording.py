"""Decodes and measures a trace.dat of any machine, and reports it as one run of one variant."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.analysis.analyse import OF_TASKS, Analysis, analyse, describe_absent
from numalab.analysis.measures.family import (
    families_of_nodes,
    families_that_may_be_never,
)
from numalab.capture.decode import Decoded, decode_trace
from numalab.cpulist import format_cpulist
from numalab.errors import UserError
from numalab.measure import Measure
from numalab.progress import Progress, no_progress
from numalab.recording.recording import Recording
from numalab.report import document
from numalab.report.comparisons import compare_variants
from numalab.report.modes import RunMode
from numalab.report.timeline import timeline_of
from numalab.results.layout import Results, require_no_result
from numalab.results.manifest import RunStatus
from numalab.results.run_files import save_analysis, scan_events
from numalab.run_dir import RunDir
from numalab.topology.importers.any_format import read_machine
from numalab.topology.importers.imported import ChangeKind
from numalab.topology.topology import Topology
from numalab.units import counted

VARIANT = "recording"
# A browser cannot draw the timeline of more events.
MOST_DRAWN = 200_000
KEYS = (
    "task_node_migrations",
    "task_ping_pongs",
    "numa_move_success",
    "numa_moves_undone",
    "tasks_converged",
    "idle_while_overloaded",
    "queue_imbalance",
)

_OF_CACHES = ("task_llc_migrations",)


@dataclass(frozen=True)
class MeasuredRecording:
    """A decoded and measured recording. `notes` are the limits of its measures."""

    decoded: Decoded
    analysis: Analysis
    notes: tuple[str, ...]


def measure_recording(
    trace: Path,
    topology: Topology | None,
    directory: RunDir,
    *,
    tasks: Sequence[str] = (),
    allowed_cpus: Sequence[int] | None = None,
    on_progress: Progress = no_progress,
) -> MeasuredRecording:
    """Decode `trace` into `directory`, measure it, and store the results.

    The files are events.parquet, measures.json, analysis.json and timeline.parquet.

    `tasks` are patterns of names of tasks of interest (`*`, `?`); none means all. `allowed_cpus`
    are the CPUs that they may use; None means all. Files of an earlier recording go. A call that
    is interrupted leaves no events.

    Raises UserError if `trace` is no recording, if the folder is one of a study's results, or if
    the topology or the recording lacks a CPU.
    """
    page = Results(directory.path).html
    for path in (page, directory.events):
        require_no_result(path, "--output")
    if directory.manifest.exists():
        raise UserError("holds a run of a study, which stays as it is", file=directory.path)
    if directory.path.exists() and not directory.path.is_dir():
        raise UserError("is not a folder", file=directory.path)
    decoded = decode_trace(trace, topology, directory.events, on_progress)
    if directory.measures.exists():
        for path in (page, directory.timeline, directory.analysis, directory.measures):
            path.unlink(missing_ok=True)
    events = scan_events(directory)
    cpus = set(events.select("cpu").unique().collect()["cpu"].to_list())
    # The file does not list the enabled events: an event without records may not have been
    # recorded, so its count is absent, not 0.
    recorded = [name if ":" in name else f":{name}" for name in decoded.counts]
    run = Recording(
        events,
        topology,
        tasks=tasks,
        allowed_cpus=allowed_cpus,
        recorded=recorded,
        on_progress=on_progress,
    )
    try:
        _check_cpus(trace, cpus, topology, allowed_cpus)
        analysis = analyse(run)
        absent = run.absent_tasks
    except BaseException:  # Ctrl-C, too
        directory.events.unlink()
        raise
    save_analysis(directory, analysis)
    no_task = bool(tasks) and len(absent) == len(tasks)  # of that, `analyse` has a note
    notes = _notes(decoded, analysis.measures, topology, excused=OF_TASKS if no_task else ())
    if silent := set(run.allowed) - cpus:
        names = format_cpulist(silent)
        notes = (
            f"no events on CPUs {names}: taken for idle, unless --cpus leaves them out",
            *notes,
        )
    if 0 < len(absent) < len(tasks):
        notes = (describe_absent(absent, run.task_names), *notes)
    return MeasuredRecording(decoded, analysis, (*analysis.notes, *notes))


def _check_cpus(
    trace: Path, recorded: set[int], topology: Topology | None, allowed: Sequence[int] | None
) -> None:
    cpus = recorded
    if topology is not None:
        cpus = {cpu for node in topology.nodes for cpu in node.cpus}
        if recorded - cpus:
            raise UserError(
                f"was recorded on CPUs {format_cpulist(recorded)}, "
                f"and {topology.name} only has {format_cpulist(cpus)}",
                file=trace,
            )
    if allowed is not None and (missing := set(allowed) - cpus):
        raise UserError(
            f"there are no CPUs {format_cpulist(missing)} (there are {format_cpulist(cpus)})",
            key="--cpus",
        )


def read_recorded_machine(source: Path) -> tuple[Topology, tuple[str, ...]]:
    """Read the machine that a recording is from: `numactl -H`, hwloc's XML or a sysfs tree.

    Returns it with notes on changes. CPUs keep their numbers, gaps included, because the recording
    has these; nodes have those of a guest. Use the topology to look up nodes, not for a guest.
    Raises UserError for any other format.
    """
    imported = read_machine(str(source), None, name=source.stem)
    old = imported.old_cpus
    nodes = tuple(
        replace(node, cpus=tuple(sorted(old[cpu] for cpu in node.cpus)))
        for node in imported.topology.nodes
    )
    unused = (ChangeKind.CPU_NUMBERS, ChangeKind.UNKNOWN_PACKAGING)
    kept = (change for change in imported.changes if change.kind not in unused)
    return replace(imported.topology, nodes=nodes), tuple(change.text for change in kept)


def _notes(
    decoded: Decoded,
    measures: Sequence[Measure],
    topology: Topology | None,
    excused: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Return the limits of measures; of those whose names start with `excused`, why is known."""
    notes = [*decoded.faults, *decoded.notes]
    if decoded.gaps:
        places = counted(decoded.gaps, "place")
        notes.append(
            f"at least {counted(decoded.lost, 'event')} missing, at {places}"
            if decoded.lost
            else f"events are missing, at {places}; nobody knows how many"
        )
    explained = [*families_that_may_be_never(), *_OF_CACHES]
    needed = ", ".join(_OF_CACHES)
    notes.append(f"the last-level caches of the CPUs are not known, which this needs: {needed}")
    if topology is None:
        of_nodes = families_of_nodes()
        notes.append(
            f"the nodes of the CPUs are not known, which these need: {', '.join(of_nodes)}"
        )
        explained += of_nodes
    absent = [
        measure.name
        for measure in measures
        if measure.value is None
        and measure.name not in explained
        and not measure.name.startswith(excused)
    ]
    if absent:
        notes.append(
            "an event that these need never happened, or was not recorded: " + ", ".join(absent)
        )
    return tuple(notes)


def recording_report(
    trace: Path,
    recording: MeasuredRecording,
    topology: Topology,
    tasks: Sequence[str],
    options: Sequence[str] = (),
) -> document.CellReport:
    """Return the report of a recording that `measure_recording` measured.

    `options` of `numalab trace` give the same page.
    """
    infos = tuple(measure.info for measure in recording.analysis.measures)
    samples = {measure.name: [measure.value] for measure in recording.analysis.measures}
    keys = [name for name in KEYS if samples.get(name, [None])[0] is not None]
    ran = recording.analysis.timeline if recording.decoded.events <= MOST_DRAWN else None
    return document.CellReport(
        study=trace.name,
        question=f"What does {trace.name} show?",
        verdict=_verdict(recording),
        reference="",
        axis="recording",
        mode=RunMode("recording"),
        workload=document.CellWorkload("", "", ", ".join(tasks) or "every task", {}),
        created="",  # the file does not have it, and a copy of it has another time
        commands=(shlex.join(["numalab", "trace", str(trace), *options]),),
        topology=topology,
        variants=(document.VariantInfo(VARIANT, VARIANT, "not known", "", "not known"),),
        measures=infos,
        key_measures=tuple(keys),
        runs=(_run(trace, recording),),
        comparisons=compare_variants(infos, tuple(keys), {VARIANT: samples}),
        timelines=() if ran is None else (timeline_of(ran, VARIANT, trace.name),),
        findings=(document.RunFindings(VARIANT, trace.name, recording.analysis.findings),),
        remarks=recording.notes,
    )


def _verdict(recording: MeasuredRecording) -> str:
    decoded, seconds = recording.decoded, recording.analysis.window.length_ns / 1e9
    lost = ", with problems (see the notes)" if decoded.problems else ""
    lost = f", {decoded.lost or 'some'} known to be lost" if decoded.gaps else lost
    decisions = recording.analysis.findings.decisions_in_all
    decided = "" if decisions is None else f"; NUMA balancing decided {decisions} times"
    return f"{decoded.events:,} events{lost}{decided} in {seconds:.3f} s."


def _run(trace: Path, recording: MeasuredRecording) -> document.Run:
    return document.Run(
        id=trace.name,
        variant=VARIANT,
        seed=0,
        status=RunStatus.OK,
        measures={measure.name: measure.value for measure in recording.analysis.measures},
        provenance=document.Provenance(
            qemu="none",
            libvirt="none",
            host="not known",
            image="",
            image_digest="",
            placement="recorded elsewhere",
            events=recording.decoded.events,
            lost_events=recording.decoded.lost,
        ),
    )
