"""Reads stored results from their JSON and Parquet files.

A file that cannot be read, or does not fit its model, raises a UserError that names the file: the
results are damaged.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import polars as pl
from pydantic import BaseModel, TypeAdapter, ValidationError

from numalab.analysis.findings import Findings, read_findings
from numalab.document import Count
from numalab.errors import UserError
from numalab.files import bound_json, read_regular, reading, utf8_path
from numalab.measure import LARGEST_NUMBER, Measure, Number, valid_in
from numalab.parquet import collect, read_parquet, scan_parquet
from numalab.reach.merge import merged
from numalab.reach.model import PatchReach, RunReach
from numalab.recording.events import COLUMNS, typed
from numalab.recording.marks import Mark
from numalab.recording.recording import read_domains
from numalab.recording.spans import SPANS, RunTimeline, timeline_of
from numalab.results.compact import (
    CompactRun,
    read_compact_plan,
    read_compact_runs,
    read_compact_unfinished,
)
from numalab.results.layout import Results, no_link
from numalab.results.manifest import Manifest
from numalab.results.plan import Cell, StoredPlan
from numalab.results.stored import FORMAT, Stored, StoredMeasure
from numalab.run_dir import RunDir
from numalab.topology.sched_domains import SchedLog

_MEASURES = TypeAdapter(tuple[StoredMeasure, ...])
_MARKS = TypeAdapter(tuple[Mark, ...])

M = TypeVar("M", bound=BaseModel)
K = TypeVar("K")


class _Formatted(Stored):
    format: Count


@dataclass(frozen=True)
class StoredRun:
    """A finished run, as it was stored; `measures` by name.

    Values that the mode cannot give are None. `added` are the names of measures that `numalab
    measure` computed later. `compact`: only the manifest and the measures are stored, and
    `directory` does not exist.
    """

    directory: RunDir
    manifest: Manifest
    measures: Mapping[str, Measure]
    compact: bool = False
    added: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        """Its name."""
        return self.manifest.run

    @property
    def file(self) -> Path:
        """The file that holds its manifest."""
        results = Results(self.directory.path.parent.parent)
        return results.compact if self.compact else self.directory.manifest

    @property
    def cell(self) -> Cell:
        """The cell of the matrix that it belongs to."""
        return self.manifest.cell

    def value(self, measure: str) -> Number:
        """Return the value of a measure, None where the run could not measure it or lacks it."""
        stored = self.measures.get(measure)
        return None if stored is None else stored.value

    def without(self, names: Collection[str]) -> "StoredRun":
        """Return it without some measures."""
        if not names:
            return self
        kept = {name: stored for name, stored in self.measures.items() if name not in names}
        return replace(self, measures=kept)


@contextmanager
def damage_explained(path: Path) -> Iterator[None]:
    """Turn what reading one damaged file raises into a UserError that names it."""
    try:
        yield
    except FileNotFoundError:
        raise UserError("no such file", file=path) from None
    except ValidationError as error:
        if error.error_count() > _MOST_ERRORS:
            raise _damaged(path, f"{error.error_count()} errors") from None
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        reason = f"{where}: {first['msg']}" if where else first["msg"]
        raise _damaged(path, reason) from None
    except (OSError, ValueError, RecursionError, pl.exceptions.PolarsError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _damaged(path: Path, reason: str) -> UserError:
    plain = "".join(c if c.isprintable() else " " for c in reason.partition("\n")[0])[:200]
    return UserError(f"a file of these results is damaged ({plain})", file=path)


@dataclass(frozen=True)
class _Limits:
    """How many bytes and values a kind of JSON file may have."""

    size: int
    values: int

    def read(self, path: Path) -> bytes:
        """Read a file. Raises OSError, or ValueError for one that is larger."""
        return self.check(read_regular(path, self.size, follow=False))

    def check(self, data: bytes) -> bytes:
        """Return the text of a document. Raises ValueError for one that is larger."""
        if len(data) > self.size:
            raise ValueError(f"{len(data)} bytes, and at most {self.size} are read")
        return bound_json(data, self.values)


# A value of a plan may take 200 bytes; each of another file, where it is wrong, 3,000 for its
# errors. The plan of most runs, and the findings of 64 tasks on 64 nodes, have room.
_PLAN = _Limits(128 << 20, 4_000_000)
_OF_RUN = _Limits(8 << 20, 200_000)
_NO_MANIFEST = "no manifest (a full disk, a damaged copy?): remove this folder, or use --resume"
_RUNS = _Limits(128 << 20, 4_000_000)  # of all manifests in a compact file
_FINDINGS = _Limits(64 << 20, 2_000_000)
_MOST_ERRORS = 1000  # that are explained: each takes a kilobyte
_MOST_SPANS = 2_000_000
_MOST_MARK_VALUES = 10_000
_NEVER_NULL = ("cpu", "start_ns", "end_ns", "pid", "of_interest")
_MOST_EVENTS = 4 << 20  # that a timeline is made of
_EVENTS_BYTES = 640 << 20


def _read_stored(path: Path, data: bytes, model: type[M]) -> M:
    """Read a document that names its format. Raises UserError for another format or damage."""
    with damage_explained(path):
        number = _Formatted.model_validate_json(data).format
        if number == FORMAT:
            return model.model_validate_json(data)
    raise UserError(
        f"written by another numalab: format {number}, this one reads {FORMAT}", file=path
    )


def load_plan(results: Results) -> StoredPlan:
    """Load the plan. Raises UserError when another numalab wrote it, or it is damaged."""
    path = results.plan_file
    if results.path.is_file():
        raise UserError("not a folder of results", file=results.path)
    with reading(path):
        if not results.exist:
            raise UserError("these are no results of a study: there is no plan", file=results.path)
    with damage_explained(path):
        data = _PLAN.check(read_compact_plan(path)) if results.is_compact else _PLAN.read(path)
    return _read_stored(path, data, StoredPlan)


def load_manifest(directory: RunDir) -> Manifest:
    """Load the manifest of a run. Raises UserError."""
    for folder in (directory.path, directory.out):
        no_link(folder)
    with damage_explained(directory.manifest):
        data = _OF_RUN.read(directory.manifest)
    return _read_stored(directory.manifest, data, Manifest)


def load_run(directory: RunDir) -> StoredRun:
    """Load one finished run. Raises UserError."""
    manifest = load_manifest(directory)
    if manifest.run != directory.path.name:
        raise _damaged(directory.manifest, f"it is of the run {manifest.run}")
    measures = valid_in(read_measures(directory.measures), manifest.mode)
    if not os.path.lexists(directory.added_measures):
        return StoredRun(directory, manifest, measures)
    later = valid_in(read_measures(directory.added_measures), manifest.mode)
    added = frozenset(later.keys() - measures.keys())
    # The measures of the run itself never change.
    return StoredRun(directory, manifest, {**measures, **later, **measures}, added=added)


def read_measures(path: Path) -> Mapping[str, Measure]:
    """Read the measures of one run by name. Raises UserError for a damaged file."""
    with damage_explained(path):
        data = _OF_RUN.read(path)
        return measures_by_name([stored.measure() for stored in _MEASURES.validate_json(data)])


def measures_by_name(measures: Sequence[Measure]) -> Mapping[str, Measure]:
    """Return measures by name. Raises ValueError for a value that no table holds, and for two of
    one name."""
    named: dict[str, Measure] = {}
    for measure in measures:
        if measure.value is not None and not abs(measure.value) < LARGEST_NUMBER:
            raise ValueError(f"{measure.name[:80]} is out of all bounds")
        if named.setdefault(measure.name, measure) is not measure:
            raise ValueError(f"{measure.name[:80]} is in it twice")
    return named


def _from_compact(results: Results, run: CompactRun) -> StoredRun:
    path = results.compact
    manifest = _read_stored(path, run.manifest, Manifest)
    if manifest.run != run.name:
        raise _damaged(path, f"the manifest of {run.name[:80]} is of the run {manifest.run}")
    with damage_explained(path):
        measures = valid_in(measures_by_name(run.measures), manifest.mode)
        return StoredRun(results.run(run.name), manifest, measures, compact=True, added=run.added)


def load_study(results: Results) -> tuple[StoredPlan, tuple[StoredRun, ...]]:
    """Load the plan and all finished runs, in the order of the plan.

    Raises UserError, also for a run that the plan lacks, or has otherwise.
    """
    plan = load_plan(results)
    if results.is_compact:
        with damage_explained(results.compact):
            stored = read_compact_runs(results.compact)
            _RUNS.check(b"".join(run.manifest for run in stored))
        runs = [_from_compact(results, run) for run in stored]
    else:
        runs = [load_run(directory) for directory in results.finished().values()]
    order = {run.id: place for place, run in enumerate(plan.runs)}
    for run in runs:
        about = run.manifest
        planned = plan.runs[order[run.id]] if run.id in order else None
        parts = (about.cell, about.variant, about.seed)
        if planned is None or parts != (planned.cell, planned.variant, planned.seed):
            # A copy of a run would count as one more of its seed, and change p values.
            reason = f"{run.id} is no run of this study: plan.json has no such run"
            raise UserError(reason, file=run.file)
    runs.sort(key=lambda run: order[run.id])
    return plan, tuple(runs)


def load_unfinished(results: Results, plan: StoredPlan) -> Mapping[str, Manifest]:
    """Load the manifests of planned runs that ended without a result, by run.

    Raises UserError for an ended run without a whole manifest: it would seem never tried.
    """
    if results.is_compact:
        with damage_explained(results.compact):
            texts = read_compact_unfinished(results.compact)
            _RUNS.check(b"".join(texts.values()))
        read = (_read_stored(results.compact, text, Manifest) for text in texts.values())
        return {manifest.run: manifest for manifest in read}
    manifests: dict[str, Manifest] = {}
    finished = results.finished()
    for run in plan.runs:
        if run.id in finished:
            continue
        failed, final = results.failed(run.id), results.run(run.id)
        for ended in (failed, final):
            if ended.path.exists() and not ended.manifest.exists():
                raise UserError(_NO_MANIFEST, file=ended.path)
        kept = () if final.path.exists() else (failed, results.interrupted(run.id))  # it finished
        if whole := next((folder for folder in kept if folder.manifest.exists()), None):
            manifests[run.id] = load_manifest(whole)
    return manifests


def load_reach(
    results: Results, plan: StoredPlan, stored: Sequence[StoredRun]
) -> PatchReach | None:
    """Load the executions of changed lines in all runs, and in those of a patch's hunt.

    `stored` are the finished runs; lost runs have counts, too. None where none were counted, and
    for compact results of a numalab that did not store those of their runs. Raises UserError.
    """
    if results.is_compact:
        return _read_reach(results.all_reach, PatchReach)
    folders = [
        *((run.cell, run.directory) for run in stored),
        *((run.cell, results.failed(run.id)) for run in plan.runs),
    ]
    runs = [(str(cell), reach) for cell, reach in load_reaches(folders)]
    if (hunted := _read_reach(results.hunt_reach, PatchReach)) is not None:
        sides = (hunted.baseline, hunted.patched)
        runs = [*(("hunt", side) for side in sides if side is not None), *runs]
    latest = runs[-1][1].series if runs else ""
    return merged((label, run) for label, run in runs if run.series == latest) if runs else None


def load_reaches(folders: Iterable[tuple[K, RunDir]]) -> Iterator[tuple[K, RunReach]]:
    """Yield the reach of the runs that have one, each with its key. Raises UserError."""
    for key, folder in folders:
        if (reach := _read_reach(folder.reach, RunReach)) is not None:
            yield key, reach


def _read_reach(path: Path, model: type[M]) -> M | None:
    """Read the reach of a run or a patch; None where there is no such file. Raises UserError."""
    if not os.path.lexists(path):
        return None
    no_link(path.parent)
    with damage_explained(path):
        return model.model_validate_json(_FINDINGS.read(path))


def load_runs(results: Results) -> tuple[StoredPlan, tuple[StoredRun, ...]]:
    """Load the plan and all finished runs. Raises UserError, also where no run has finished."""
    plan, runs = load_study(results)
    if not runs:
        raise UserError("no run has finished", file=results.path)
    return plan, runs


def of_variant(runs: Sequence[StoredRun], variant: str | None) -> list[StoredRun]:
    """Return the runs of a variant."""
    return [run for run in runs if run.manifest.variant == variant]


def load_findings(directory: RunDir) -> Findings:
    """Read the findings of a run. Raises UserError."""
    with damage_explained(directory.analysis):
        return read_findings(_FINDINGS.read(directory.analysis))


def load_timeline(directory: RunDir, tasks: Sequence[str]) -> RunTimeline | None:
    """Read the timeline of a run, or make it from the events of a long recording.

    `tasks` are those of interest. None for a recording without sched_switch. Raises UserError.
    """
    if directory.timeline.exists():
        with damage_explained(directory.timeline):
            return _read_timeline(directory)
    with damage_explained(directory.events):
        table = scan_parquet(directory.events, COLUMNS, most_rows=_MOST_EVENTS)
        events = collect(_checked_events(table))
    return timeline_of(events, tasks)


def _read_timeline(directory: RunDir) -> RunTimeline:
    """Read a stored timeline. Raises ValueError, OSError or PolarsError for a damaged file."""
    table = scan_parquet(directory.timeline, most_rows=_MOST_SPANS)
    about = pl.read_parquet_metadata(utf8_path(directory.timeline))
    if missing := {"length_ns", "marks"} - about.keys():
        raise ValueError(f"without {', '.join(sorted(missing))}")
    if table.collect_schema() != pl.Schema(SPANS):
        raise ValueError("other columns than a timeline has")
    marks = bound_json(about["marks"].encode(), _MOST_MARK_VALUES).decode()
    spans = collect(table)
    if any(spans.select(_NEVER_NULL).null_count().row(0)):
        raise ValueError("a span without a CPU, a time or a task")
    length = int(about["length_ns"])
    within = (pl.col("start_ns") >= 0) & (pl.col("end_ns") <= length)
    if not spans.select(within.all()).item() or length < 0:
        raise ValueError("a span outside the window")
    return RunTimeline(length, spans, _MARKS.validate_json(marks))


def load_events(directory: RunDir) -> pl.DataFrame:
    """Load every column of a run's events, those of all recordings in their types.

    Raises UserError.
    """
    with damage_explained(directory.events):
        return collect(_checked_events(scan_parquet(directory.events, most=_EVENTS_BYTES)))


def _checked_events(table: pl.LazyFrame) -> pl.LazyFrame:
    """Return the events in their types. Raises ValueError for a table that is none of events."""
    schema = table.collect_schema()
    for name in ("time_ns", "cpu", "pid"):
        if not schema.get(name, pl.Null).is_integer():
            raise ValueError(f"it has no column of numbers {name}")
    if schema.get("event") != pl.String:
        raise ValueError("it has no column of texts event")
    return typed(table)


def load_all_events(directory: RunDir) -> pl.DataFrame:
    """Load a run's events as they are stored. Raises UserError."""
    with damage_explained(directory.events):
        return read_parquet(directory.events, _EVENTS_BYTES)


def load_domains(directory: RunDir) -> SchedLog:
    """Read the sched domains that a run's kernel printed. Raises UserError."""
    with damage_explained(directory.domains):
        return read_domains(directory)
