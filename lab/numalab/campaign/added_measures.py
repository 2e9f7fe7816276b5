"""Computes measures that were added to the registry later, for stored runs with their events."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from shlex import quote

from numalab.analysis.measures.family import (
    MEASURES,
    MeasureGroup,
    compute_group,
    explain,
    groups,
)
from numalab.capture.spec import CaptureSpec, load_capture
from numalab.errors import LabError, UserError
from numalab.files import write_json
from numalab.measure import Measure, SourceKind, modelled
from numalab.progress import Progress
from numalab.recording.recording import Recording
from numalab.results.layout import Results, no_link
from numalab.results.reader import (
    StoredRun,
    damage_explained,
    load_events,
    load_runs,
    measures_by_name,
)
from numalab.results.run_files import RunFiles
from numalab.results.stored import StoredMeasure
from numalab.study.model import Study
from numalab.study.stored import stored_study, stored_topology
from numalab.topology.predict.firmware import as_guest_numbers
from numalab.topology.topology import Topology
from numalab.workload.workload import list_workloads, load_workload, resolve

EVENTS = "its events (events.parquet)"
WHAT_IT_NAMES = "the node, CPU or counter of its name"


@dataclass(frozen=True)
class Lacking:
    """Runs without the data of a measure; `measure` is empty for every measure."""

    measure: str
    needs: tuple[str, ...]
    runs: tuple[str, ...]


@dataclass(frozen=True)
class AddedMeasures:
    """The measures added to each run, by run, and the runs without their data.

    `failed` has a message for each measure, or group of measures, of a plug-in that failed.
    """

    measures: Mapping[str, tuple[Measure, ...]]
    lacking: tuple[Lacking, ...]
    failed: tuple[str, ...] = ()


def add_measures(
    results: Results, names: Collection[str] = (), on_progress: Progress | None = None
) -> AddedMeasures:
    """Compute the measures of the registry that `measures.json` of each run lacks, and store them.

    With `names` only these. They go to `added-measures.json`, where a measure of the same name is
    replaced; `measures.json` stays as it is. One without a value is stored only if `names` has it.
    Which events were recorded is what the study asks for. Raises UserError for damaged and for
    compact results, and an unknown name.
    """
    for name in names:
        explain(name)
    plan, runs = load_runs(results)
    if results.is_compact:
        hint = f"recreate them with `numalab verify {quote(str(results.path))} --output FOLDER`"
        raise UserError(f"compact results have no events: {hint}", file=results.path)
    study = stored_study(plan, results)
    capture = load_capture(study.capture, results.plan)
    added: dict[str, tuple[Measure, ...]] = {}
    lacking: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    failed: dict[str, str] = {}
    for count, run in enumerate(runs):
        if on_progress is not None:
            on_progress(run.id, count / len(runs))
        stored = run.measures.keys() - run.added
        wanted = [group for group in groups() if _is_wanted(group, stored, names)]
        if not wanted:
            continue
        if not run.directory.events.exists():
            lacking["", (EVENTS,)].append(run.id)
            continue
        recording = _recording(run, study, capture)
        measures = []
        computed = [
            measure
            for measure in _compute(wanted, recording, run, failed)
            if measure.name not in stored and (not names or measure.name in names)
        ]
        for measure in _not_given(wanted, {*names} - stored, computed, failed):
            needs = _needs(measure, recording) or (WHAT_IT_NAMES,)
            lacking[measure.name, needs].append(run.id)
        for measure in computed:
            if needs := _needs(measure, recording):
                lacking[measure.name, needs].append(run.id)
            elif measure.value is not None or measure.name in names:
                measures.append(measure)
        if measures:
            added[run.id] = tuple(measures)
            _store(run, measures)
    somewhere = _names_in(added.values(), runs)
    if added:
        # The catalogue of `query` compares the newest time of a run's files; a manifest from a
        # clock that was ahead would hide the change.
        no_link(results.runs_table.parent)
        results.runs_table.unlink(missing_ok=True)
    return AddedMeasures(
        added,
        tuple(
            Lacking(name, needs, tuple(runs_of))
            for (name, needs), runs_of in lacking.items()
            if needs != (WHAT_IT_NAMES,) or name not in somewhere
        ),
        tuple(failed.values()),
    )


def _names_in(added: Iterable[Iterable[Measure]], runs: Iterable[StoredRun]) -> set[str]:
    """Return the measures that some run has: another one's machine need not have that CPU."""
    return {measure.name for measures in added for measure in measures}.union(
        *(run.measures for run in runs)
    )


def _is_wanted(group: MeasureGroup, stored: Collection[str], names: Collection[str]) -> bool:
    """Return whether a group may give a measure that is wanted and not stored."""
    if names:
        wanted = [name for name in names if name not in stored]
        return any(family.explain(name) for family in group.families for name in wanted)
    return not all(any(map(family.explain, stored)) for family in group.families)


def _recording(run: StoredRun, study: Study, capture: CaptureSpec) -> Recording:
    about, directory = run.manifest, run.directory
    topology = stored_topology(study, about, directory.manifest)
    with damage_explained(directory.path):
        recording = RunFiles(directory).add_counters(
            Recording(
                load_events(directory),
                as_guest_numbers(topology),
                tasks=about.workload.tasks,
                allowed_cpus=about.workload.allowed_cpus or None,
            ),
            capture,
            about.workload.name,
        )
    assert recording.command is not None
    command = replace(recording.command, memory_mib=_memory_mib(run, study, topology))
    recording = replace(recording, command=command)
    if directory.times.exists() or about.trace is None:
        return recording
    # Without the files of its guest it is not known which optional events the kernel lacks.
    optional = {event.name for event in capture.events if event.optional}
    occurred = about.trace.counts
    return replace(
        recording,
        recorded=[
            name
            for name in recording.recorded or ()
            if name not in optional or name.rpartition(":")[2] in occurred
        ],
    )


def _memory_mib(run: StoredRun, study: Study, topology: Topology) -> float:
    """Return the memory that a run's workload allocates, 0 if the lab has another workload now."""
    about = run.manifest.workload
    for use in study.workloads:
        if use.label == about.label and use.name in list_workloads():
            with suppress(UserError):
                bound = resolve(load_workload(use.name), use.parameters, topology)
                if bound.parameters == about.parameters:
                    return bound.memory_mib
    return 0.0


def _compute(
    wanted: Sequence[MeasureGroup], recording: Recording, run: StoredRun, failed: dict[str, str]
) -> Iterator[Measure]:
    """Yield the measures of groups; put the first failure of a plug-in's group into `failed`."""
    for group in wanted:
        try:
            measures = _storable(group, recording, run)
        except LabError as error:
            if MEASURES.is_built_in(group.name):
                raise
            failed.setdefault(group.name, str(error))
            continue
        yield from map(modelled, measures) if run.manifest.mode == "timed" else measures


def _not_given(
    wanted: Sequence[MeasureGroup],
    names: Collection[str],
    computed: Sequence[Measure],
    failed: Collection[str],
) -> Iterator[Measure]:
    """Yield, without a value, those of `names` that no group gave, as it lacks all their data.

    A group that failed could not give any.
    """
    families = [family for group in wanted if group.name not in failed for family in group.families]
    for name in sorted({*names} - {measure.name for measure in computed}):
        if any(family.explain(name) for family in families):
            yield Measure(explain(name), None)


def _storable(group: MeasureGroup, recording: Recording, run: StoredRun) -> list[Measure]:
    """Compute the measures of a group. Raises UserError where they fail, or cannot be stored."""
    try:
        measures = compute_group(group, recording)
        measures_by_name([StoredMeasure.of(measure).measure() for measure in measures])
    except ValueError as error:
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
        raise UserError(
            f"the measure {group.name!r} cannot be stored: {reason}", file=run.directory.path
        ) from error
    return measures


def _needs(measure: Measure, recording: Recording) -> tuple[str, ...]:
    """Return the data that a measure without value needs and the run lacks."""
    if measure.value is not None:
        return ()
    needs = []
    for source in measure.info.sources:
        if source.kind is not SourceKind.TRACE:
            needs.append(str(source))
        elif source.what:
            needs += [name for name in source.what.split(", ") if not recording.has(name)]
    return tuple(needs)


def _store(run: StoredRun, measures: Sequence[Measure]) -> None:
    """Write the measures, and those added before, in order of their names."""
    merged = {name: run.measures[name] for name in run.added}
    merged |= {measure.name: measure for measure in measures}
    table = [StoredMeasure.of(merged[name]).model_dump() for name in sorted(merged)]
    write_json(run.directory.added_measures, table)
