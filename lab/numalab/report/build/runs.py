"""The runs of a report: those that finished, and the planned ones that have no result."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from types import MappingProxyType

from numalab.errors import UserError
from numalab.locks import is_locked
from numalab.report import document
from numalab.report.build.placement_rows import placement_line, proof_rows
from numalab.results.layout import Results
from numalab.results.manifest import UNKNOWN, Manifest, RunStatus
from numalab.results.plan import Cell, PlannedRun, StoredPlan
from numalab.results.reader import StoredRun, load_manifest, load_unfinished
from numalab.results.status import RunState, State, out_of_time, unfinished_state
from numalab.units import counted

LONGEST_REASON = 4000  # characters: of a reason that a guest wrote
_MOST_NOTES, _LONGEST_NOTE = 50, 500  # characters: guests wrote parts of them
_STATUS = {State.FAILED: RunStatus.FAILED, State.INTERRUPTED: RunStatus.INTERRUPTED}
_NO_PROVENANCE = document.Provenance(UNKNOWN, UNKNOWN, UNKNOWN, "", "", "", events=0, lost_events=0)


def described(
    about: Manifest, measures: Mapping[str, float | int | None] = MappingProxyType({})
) -> document.Run:
    """Describe a run by its manifest; parts of a failed run may be unknown."""
    trace = about.trace
    return document.Run(
        id=about.run,
        variant=about.variant,
        seed=about.seed,
        status=about.status or RunStatus.FAILED,
        measures=measures,
        provenance=document.Provenance(
            qemu=about.versions.qemu,
            libvirt=about.versions.libvirt,
            host=UNKNOWN if about.host is None else str(about.host),
            image=about.image.name,
            image_digest=about.image.digest,
            placement=placement_line(about.proof, about.timing),
            events=0 if trace is None else trace.events,
            lost_events=0 if trace is None else trace.lost,
            proof=proof_rows(about.proof, about.timing),
        ),
        seconds=about.seconds,
        reason=about.reason[:LONGEST_REASON],
        notes=tuple(note[:_LONGEST_NOTE] for note in islice(_notes(about), _MOST_NOTES)),
    )


def _notes(about: Manifest) -> Iterator[str]:
    """Yield the problems of a run's recording, and its notes without those on its placement, which
    its provenance has."""
    if trace := about.trace:
        yield from trace.problems
        if trace.gaps and not trace.lost:
            places = counted(trace.gaps, "place")
            yield f"events are missing, at {places}; nobody knows how many"
        yield from trace.notes
    placed = {about.proof.note} if about.proof is not None else set()
    disturbed = set(map(str, about.timing.disturbs)) if about.timing is not None else set()
    yield from (note for note in about.notes if note not in placed | disturbed)


def unfinished_by_cell(
    results: Results,
    plan: StoredPlan,
    stored: Sequence[StoredRun],
    errors: Mapping[str, str],
) -> dict[Cell, tuple[document.Run, ...]]:
    """Return the planned runs without a result, by cell, in the order of the plan.

    `stored` are the runs with a final folder; a manifest among them may record a failure. Compact
    results have only the manifests. `errors` are reasons by run, for runs that stored none.
    """
    active = is_locked(results.path)
    ended = {**load_unfinished(results, plan)} if results.is_compact else {}
    ended |= {run.id: run.manifest for run in stored}
    states = {
        planned: unfinished_state(results, planned, active=active)
        for planned in plan.runs
        if planned.id not in ended or ended[planned.id].status is not RunStatus.OK
    }
    named = {*ended, *errors}
    idle = {
        planned.id
        for planned, state in states.items()
        if state.state is State.WAITING and planned.id not in named
    }
    left_out = out_of_time(plan, idle)
    runs: dict[Cell, list[document.Run]] = {}
    for planned, state in states.items():
        about = ended.get(planned.id) or _manifest(results, state)
        why = replace(state, text=document.NO_TIME) if planned.id in left_out else state
        run = _unfinished(planned, why, about, errors.get(planned.id, ""))
        runs.setdefault(planned.cell, []).append(run)
    return {cell: tuple(of_cell) for cell, of_cell in runs.items()}


def _manifest(results: Results, state: RunState) -> Manifest | None:
    """Load the manifest of an unfinished run; None where it cannot be read."""
    folders = {State.FAILED: results.failed, State.INTERRUPTED: results.interrupted}
    with suppress(UserError):
        if state.state in folders:
            return load_manifest(folders[state.state](state.run))
    return None


def _unfinished(
    planned: PlannedRun, state: RunState, about: Manifest | None, error: str
) -> document.Run:
    """Describe a planned run by its manifest, else by the state of its folder."""
    if about is not None:
        run = described(about)
        status = RunStatus.FAILED if run.ok else run.status
        reason = run.reason or error
    else:
        status = _STATUS.get(state.state, RunStatus.FAILED if error else None)
        text = "still running" if state.state is State.RUNNING else state.text
        reason = error or text
    return document.Run(
        id=planned.id,
        variant=planned.variant,
        seed=planned.seed,
        status=status,
        measures={},
        provenance=_NO_PROVENANCE if about is None else run.provenance,
        seconds=None if about is None else run.seconds,
        reason=reason[:LONGEST_REASON],
        notes=() if about is None else run.notes,
    )
