"""A recording from anywhere, also from bare metal: decoded and measured without a study."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.analysis.measure import Measure
from lab.analysis.run import OF_NODES, measure_run
from lab.analysis.window import Window, find_window
from lab.capture.decode import Decoded, decode_trace
from lab.cpulist import format_cpulist
from lab.errors import UserError
from lab.store import RunDir, write_json
from lab.study.measure import load_events
from lab.topology.model import Topology
from lab.topology.read_any import read_machine


@dataclass(frozen=True)
class Recording:
    """What a recording gave. `notes` say what a reader of the measures should know."""

    decoded: Decoded
    window: Window
    measures: tuple[Measure, ...]
    notes: tuple[str, ...]


def measure_recording(
    trace: Path,
    topology: Topology | None,
    directory: RunDir,
    *,
    tasks: Sequence[str] = (),
    allowed_cpus: Sequence[int] | None = None,
) -> Recording:
    """Decode `trace` into `directory`, measure it, and write events.parquet and measures.json.

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
    events = load_events(directory)
    try:
        _check_cpus(trace, set(events["cpu"].unique().to_list()), topology, allowed_cpus)
    except UserError:
        directory.events.unlink()
        raise
    # What never happened was perhaps not recorded: the file does not say which events were asked
    # for. A 0 would claim that it was.
    recorded = [name if ":" in name else f":{name}" for name in decoded.counts]
    measures = measure_run(
        events, topology, tasks=tasks, allowed_cpus=allowed_cpus, recorded=recorded
    )
    write_json(directory.measures, [asdict(each) for each in measures])
    window = find_window(events)
    return Recording(decoded, window, measures, _notes(decoded, window, measures, topology))


def _check_cpus(
    trace: Path, seen: set[int], topology: Topology | None, allowed: Sequence[int] | None
) -> None:
    known = seen
    if topology is not None:
        known = {cpu for node in topology.nodes for cpu in node.cpus}
        if seen - known:
            raise UserError(
                f"was recorded on CPUs {format_cpulist(seen)}, "
                f"and {topology.name} only has {format_cpulist(known)}",
                file=trace,
            )
    if allowed is not None and (missing := set(allowed) - known):
        raise UserError(
            f"there are no CPUs {format_cpulist(missing)} (there are {format_cpulist(known)})",
            key="--cpus",
        )


def read_recorded_machine(source: Path) -> tuple[Topology, tuple[str, ...]]:
    """Read the machine that a recording is from: `numactl -H`, hwloc's XML or a sysfs tree.

    Returns it with notes on what had to be changed. Raises UserError for what is none of these, and
    where the CPUs would be numbered anew: then no CPU of the recording could be found in it.
    """
    imported = read_machine(str(source), None, name=source.stem)
    if any(note.startswith("numbered CPUs anew") for note in imported.notes):
        raise UserError("its CPU numbers have gaps, which a topology cannot have", file=source)
    return imported.topology, imported.notes


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
            text for text, there in (("begin", window.begun), ("end", window.ended)) if not there
        ]
        notes.append(
            f"no marker numalab: {' nor '.join(missing)}; the recording's own stands for it"
        )
    if topology is None:
        notes.append(
            f"the nodes of the CPUs are not known, which these need: {', '.join(OF_NODES)}"
        )
    of_nodes = OF_NODES if topology is None else ()
    absent = [each.name for each in measures if each.value is None and each.name not in of_nodes]
    if absent:
        notes.append(
            "an event that these need never happened, or was not recorded: " + ", ".join(absent)
        )
    return tuple(notes)
