"""Reads stored results: the one place that knows their files are JSON and Parquet.

What cannot be read, or is not what its model says, is a UserError that names the file: the results
are damaged. Whatever else goes wrong later is not theirs.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import from_json

from numalab.analysis.findings import Findings, read_findings
from numalab.errors import UserError
from numalab.files import bound_json, read_regular
from numalab.measure import LARGEST_NUMBER, Measure, Number
from numalab.parquet import collect, read_parquet, scan_parquet
from numalab.recording.events import COLUMNS, typed
from numalab.recording.recording import read_domains
from numalab.recording.timeline import RunTimeline, timeline_of
from numalab.results.cell import Cell
from numalab.results.layout import Results, no_link
from numalab.results.manifest import Manifest
from numalab.results.plan import StoredPlan
from numalab.results.stored import FORMAT, READABLE, StoredMeasure
from numalab.results.stored_analysis import read_timeline
from numalab.results.upgrade import MANIFEST, PLAN, Step, upgraded
from numalab.run_dir import RunDir
from numalab.topology.observed.sched_log import SchedLog

_MEASURES = TypeAdapter(tuple[StoredMeasure, ...])
_PLAIN = TypeAdapter(dict[str, Any])

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class StoredRun:
    """A finished run, as it was stored; `measures` by name."""

    directory: RunDir
    manifest: Manifest
    measures: Mapping[str, Measure]

    @property
    def id(self) -> str:
        """Its name."""
        return self.manifest.run

    @property
    def cell(self) -> Cell:
        """The cell of the matrix that it belongs to."""
        return self.manifest.cell

    def value(self, measure: str) -> Number:
        """Return what the run measured, None where it could not or does not know the measure."""
        found = self.measures.get(measure)
        return None if found is None else found.value


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
        return bound_json(read_regular(path, self.size, follow=False), self.values)


# A value of a plan may take 200 bytes; each of another file, where it is wrong, 3,000 for its
# errors. The plan of most runs, and the findings of 64 tasks on 64 nodes, have room.
_PLAN = _Limits(128 << 20, 4_000_000)
_OF_RUN = _Limits(8 << 20, 200_000)
_FINDINGS = _Limits(64 << 20, 2_000_000)
_MOST_ERRORS = 1000  # that are explained: each takes a kilobyte
_MOST_EVENTS = 4 << 20  # that a timeline is made of
_EVENTS_BYTES = 640 << 20


def _read_stored(path: Path, limits: _Limits, model: type[M], steps: Mapping[int, Step]) -> M:
    """Read a file that says its format. Raises UserError for one of another numalab."""
    with damage_explained(path):
        data = limits.read(path)
        found = _PLAIN.validate_python(from_json(data, allow_inf_nan=False)).get("format")
        if found == FORMAT:
            return model.model_validate_json(data)
        if found in READABLE:
            try:
                data = _PLAIN.dump_json(upgraded(from_json(data, allow_inf_nan=False), steps))
            except (KeyError, IndexError, TypeError, AttributeError) as error:
                raise ValueError(f"not of format {found}: {error!r}") from None
            return model.model_validate_json(data)
    formats = f"{', '.join(map(str, READABLE[:-1]))} and {READABLE[-1]}"
    shown = found if isinstance(found, int | None) and (found or 0) < 1000 else "unknown"
    raise UserError(
        f"written by another numalab: format {shown}, this one reads {formats}", file=path
    )


def load_plan(results: Results) -> StoredPlan:
    """Load what was planned. Raises UserError when another numalab wrote it, or it is damaged."""
    return _read_stored(results.plan, _PLAN, StoredPlan, PLAN)


def load_manifest(directory: RunDir) -> Manifest:
    """Load what is known of a run. Raises UserError."""
    for folder in (directory.path, directory.out):
        no_link(folder)
    return _read_stored(directory.manifest, _OF_RUN, Manifest, MANIFEST)


def load_run(directory: RunDir) -> StoredRun:
    """Load one finished run. Raises UserError."""
    manifest = load_manifest(directory)
    if manifest.run != directory.path.name:
        raise _damaged(directory.manifest, f"it is of the run {manifest.run}")
    with damage_explained(directory.measures):
        data = _OF_RUN.read(directory.measures)
        stored = [each.measure() for each in _MEASURES.validate_json(data)]
        for each in stored:
            if each.value is not None and not abs(each.value) < LARGEST_NUMBER:
                raise ValueError(f"{each.name[:80]} is out of all bounds")
    return StoredRun(directory, manifest, {each.name: each for each in stored})


def load_runs(results: Results) -> tuple[StoredPlan, tuple[StoredRun, ...]]:
    """Load the plan and all finished runs, in the order of the plan. Raises UserError."""
    plan = load_plan(results)
    order = {run.id: place for place, run in enumerate(plan.runs)}
    runs = [load_run(directory) for directory in results.finished().values()]
    runs.sort(key=lambda run: order.get(run.id, len(order)))
    if not runs:
        raise UserError("no run has finished", file=results.path)
    return plan, tuple(runs)


def of_variant(runs: Sequence[StoredRun], variant: str | None) -> list[StoredRun]:
    """Return the runs of a variant."""
    return [run for run in runs if run.manifest.variant == variant]


def load_findings(directory: RunDir) -> Findings | None:
    """Read what the analysis of a run found; None for a run of a numalab that had none.

    Raises UserError.
    """
    if not directory.analysis.exists():
        return None
    with damage_explained(directory.analysis):
        return read_findings(_FINDINGS.read(directory.analysis))


def load_timeline(directory: RunDir, tasks: Sequence[str]) -> RunTimeline | None:
    """Read who ran where in a run, from its events where that is not stored.

    `tasks` are those of interest. None for a run whose recording does not tell. Raises UserError.
    """
    if directory.timeline.exists():
        with damage_explained(directory.timeline):
            return read_timeline(directory)
    with damage_explained(directory.events):
        table = scan_parquet(directory.events, COLUMNS, most_rows=_MOST_EVENTS)
        there = table.collect_schema()
        for name in ("time_ns", "cpu", "pid"):
            if not there.get(name, pl.Null).is_integer():
                raise ValueError(f"it has no column of numbers {name}")
        if there.get("event") != pl.String:
            raise ValueError("it has no column of texts event")
        events = collect(typed(table))
    return timeline_of(events, tasks)


def load_all_events(directory: RunDir) -> pl.DataFrame:
    """Load every column of a run's events. Raises UserError."""
    with damage_explained(directory.events):
        return read_parquet(directory.events, _EVENTS_BYTES)


def load_domains(directory: RunDir) -> SchedLog:
    """Read the sched domains that a run's kernel printed. Raises UserError."""
    stored = directory.domains.exists()
    with damage_explained(directory.domains if stored else directory.dmesg):
        return read_domains(directory)
