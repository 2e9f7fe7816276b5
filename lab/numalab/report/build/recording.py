"""Decodes and measures a trace.dat of any machine, without a study."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.analysis.analyse import Analysis, analyse
from numalab.analysis.measures.family import (
    families_of_nodes,
    families_that_may_be_never,
)
from numalab.capture.decode import Decoded, decode_trace
from numalab.cpulist import format_cpulist
from numalab.errors import UserError
from numalab.measure import Measure
from numalab.recording.recording import Recording
from numalab.recording.window import Window
from numalab.results.run_files import save_analysis, scan_events
from numalab.run_dir import RunDir
from numalab.topology.importers.any_format import read_machine
from numalab.topology.importers.imported import ChangeKind
from numalab.topology.topology import Topology


@dataclass(frozen=True)
class MeasuredRecording:
    """What a recording gave. `notes` say what a reader of the measures should know."""

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
) -> MeasuredRecording:
    """Decode `trace` into `directory`, measure it, and write what was found there.

    That is events.parquet, measures.json, analysis.json and timeline.parquet.

    `tasks` are the names of the tasks of interest, `*` and `?` standing for any text and character;
    none means all. `allowed_cpus` are the CPUs that they might use, None means all.

    Raises UserError for what is not a recording, for a folder that holds a run of a study, and for
    CPUs that the topology or the recording lacks.
    """
    if directory.manifest.exists():
        raise UserError("holds a run of a study, which stays as it is", file=directory.path)
    if directory.path.exists() and not directory.path.is_dir():
        raise UserError("is not a folder", file=directory.path)
    decoded = decode_trace(trace, topology, directory.events)
    events = scan_events(directory)
    cpus = set(events.select("cpu").unique().collect()["cpu"].to_list())
    try:
        _check_cpus(trace, cpus, topology, allowed_cpus)
    except UserError:
        directory.events.unlink()
        raise
    # What never happened was perhaps not recorded: the file does not say which events were asked
    # for. A 0 would claim that it was.
    recorded = [name if ":" in name else f":{name}" for name in decoded.counts]
    analysis = analyse(
        Recording(events, topology, tasks=tasks, allowed_cpus=allowed_cpus, recorded=recorded)
    )
    save_analysis(directory, analysis)
    notes = _notes(decoded, analysis.window, analysis.measures, topology)
    return MeasuredRecording(decoded, analysis, notes)


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

    Returns it with notes on what had to be changed. CPUs keep their own numbers, gaps included,
    because the recording has these; such a topology is good for looking up nodes, not for a guest.
    Raises UserError for what is none of these.
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
    decoded: Decoded, window: Window, measures: Sequence[Measure], topology: Topology | None
) -> tuple[str, ...]:
    notes = list(decoded.problems)
    if decoded.gaps:
        notes.append(f"events are missing at {decoded.gaps} places, {decoded.lost} known by number")
    if decoded.unsound or decoded.unreadable:
        notes.append(
            f"{decoded.unsound} pages are damaged, {decoded.unreadable} records fit no event format"
        )
    if not (window.begun and window.ended):
        missing = [
            text
            for text, present in (("begin", window.begun), ("end", window.ended))
            if not present
        ]
        notes.append(
            f"no marker numalab: {' nor '.join(missing)}; the recording's own stands for it"
        )
    excused = families_that_may_be_never()
    if topology is None:
        of_nodes = families_of_nodes()
        notes.append(
            f"the nodes of the CPUs are not known, which these need: {', '.join(of_nodes)}"
        )
        excused = (*excused, *of_nodes)
    absent = [m.name for m in measures if m.value is None and m.name not in excused]
    if absent:
        notes.append(
            "an event that these need never happened, or was not recorded: " + ", ".join(absent)
        )
    return tuple(notes)
