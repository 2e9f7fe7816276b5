"""The report of one recording: one run of one variant."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from numalab.report import document
from numalab.report.build.recording import MeasuredRecording
from numalab.report.comparisons import compare_variants
from numalab.report.modes import RunMode
from numalab.report.timeline import timeline_of
from numalab.results.manifest import RunStatus
from numalab.topology.topology import Topology

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


def recording_report(
    trace: Path, recording: MeasuredRecording, topology: Topology, tasks: Sequence[str]
) -> document.CellReport:
    """Return the report of a recording that `measure_recording` measured."""
    infos = tuple(measure.info for measure in recording.analysis.measures)
    samples = {measure.name: [measure.value] for measure in recording.analysis.measures}
    keys = [name for name in KEYS if samples.get(name, [None])[0] is not None]
    ran = recording.analysis.timeline if recording.decoded.events <= MOST_DRAWN else None
    recorded = datetime.fromtimestamp(trace.stat().st_mtime, UTC)
    words = [f"--tasks '{name}'" for name in tasks]
    return document.CellReport(
        study=trace.name,
        question=f"What does {trace.name} show?",
        verdict=_verdict(recording),
        reference="",
        axis="recording",
        mode=RunMode("recording"),
        workload=document.CellWorkload("", "", ", ".join(tasks) or "every task", {}),
        created=recorded.isoformat(timespec="seconds"),
        commands=(" ".join(["numalab", "trace", str(trace), *words]),),
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
    lost = f", {decoded.lost} known to be lost" if decoded.gaps else ""
    return (
        f"{decoded.events:,} events{lost}; NUMA balancing decided "
        f"{recording.analysis.findings.decisions_in_all} times in {seconds:.3f} s."
    )


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
            image="none",
            image_digest="",
            placement="recorded elsewhere",
            events=recording.decoded.events,
            lost_events=recording.decoded.lost,
        ),
    )
