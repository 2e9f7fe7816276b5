"""compact.parquet: all manifests and all measures of some results in one table.

A row is a measure of a run. The first row of a run also holds its manifest, and the first row of
the table the plan, both as the texts of their JSON files. A run without a result has a row without
a measure. Events, timelines, findings and logs are
left out: deterministic runs give them again (`numalab verify --output`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from numalab.errors import UserError
from numalab.files import replacing, utf8_path
from numalab.measure import Measure, MeasureInfo
from numalab.parquet import collect, scan_parquet
from numalab.results.stored import StoredMeasure

# `value` is also of integers, which `integer` holds exactly.
COLUMNS = pl.Schema(
    {
        "run": pl.String,
        "topology": pl.String,
        "workload": pl.String,
        "variant": pl.String,
        "seed": pl.Int64,
        "measure": pl.String,
        "value": pl.Float64,
        "integer": pl.Int64,
        "unit": pl.String,
        "direction": pl.String,
        "kind": pl.String,
        "definition": pl.String,
        "source": pl.String,
        "manifest": pl.String,
        "plan": pl.String,
    }
)
# True for the measures that `numalab measure` added; without any there is no such column.
_ADDED = pl.Schema({"added": pl.Boolean})
_INFO = ("measure", "unit", "direction", "kind", "definition", "source")
_OF_MEASURE = len(COLUMNS) - 7  # columns: all but those of the run, the manifest and the plan
_INFOS = TypeAdapter(tuple[StoredMeasure, ...])
_MOST_ROWS = 1_000_000
_MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class CompactRun:
    """A run of a compact file; `manifest` as JSON, not checked."""

    name: str
    manifest: bytes
    measures: tuple[Measure, ...]
    added: frozenset[str]


def write_compact(
    path: Path,
    plan: str,
    runs: Iterable[tuple[str, tuple[object, ...], Iterable[Measure], Collection[str]]],
) -> None:
    """Write a compact file.

    A run is its manifest as JSON, the values of `run` to `seed`, its measures (none without a
    result), and the names of those that were added. Raises UserError for more measures than can be
    read.
    """
    rows: list[tuple[object, ...]] = []
    for manifest, key, measures, added in runs:
        text: str | None = manifest
        for measure in measures:
            info, value = measure.info, measure.value
            exact = value if isinstance(value, int) else None
            about = (info.unit, info.direction, info.kind, info.definition, info.source)
            last = (text, None if rows else plan, info.name in added)
            rows.append((*key, info.name, value, exact, *about, *last))
            text = None
        if text is not None:
            rows.append((*key, *[None] * _OF_MEASURE, text, None if rows else plan, False))
    if not 0 < len(rows) <= _MOST_ROWS:
        raise UserError(f"{len(rows)} measures: 1 to {_MOST_ROWS} are possible", file=path)
    schema = pl.Schema({**COLUMNS, **_ADDED})
    table = pl.DataFrame(rows, schema, orient="row", strict=False)
    if not table["added"].any():
        table = table.drop("added")
    with replacing(path) as temporary:
        table.write_parquet(utf8_path(temporary), compression_level=19)


def read_compact_plan(path: Path) -> bytes:
    """Return the plan of a compact file as JSON.

    Raises ValueError, OSError or PolarsError for a damaged file.
    """
    plan = collect(_scanned(path).select("plan").head(1))["plan"].to_list()
    if not plan or plan[0] is None:
        raise ValueError("it has no plan")
    return str(plan[0]).encode()


def read_compact_runs(path: Path) -> tuple[CompactRun, ...]:
    """Return the runs of a compact file. Raises what `read_compact_plan` raises."""
    scanned = _scanned(path)
    if "added" not in scanned.collect_schema():
        scanned = scanned.with_columns(added=False)
    scanned = scanned.filter(~_without_result())
    table = collect(scanned.select("run", *_INFO, "value", "integer", "manifest", "added"))
    infos = table.select(_INFO).unique(maintain_order=True).with_row_index("info")
    stored = _INFOS.validate_json(
        infos.select(pl.col("measure").alias("name"), *_INFO[1:], value=None).write_json()
    )
    numbered = table.join(infos, on=_INFO, how="left", maintain_order="left", nulls_equal=True)
    rows = numbered.select("run", "manifest", "info", "value", "integer", "added").iter_rows()
    runs = tuple(_runs(rows, [measure.measure().info for measure in stored]))
    if len({run.name for run in runs}) < len(runs):
        raise ValueError("the rows of a run are not together")
    return runs


def read_compact_unfinished(path: Path) -> Mapping[str, bytes]:
    """Return the manifests of runs without a result, as JSON and not checked, by name.

    Raises what `read_compact_plan` raises.
    """
    rows = collect(_scanned(path).filter(_without_result()).select("run", "manifest"))
    if any(rows.null_count().row(0)):
        raise ValueError("a run has no name or no manifest")
    return {name: str(manifest).encode() for name, manifest in rows.iter_rows()}


def _without_result() -> pl.Expr:
    return pl.all_horizontal(pl.col(*_INFO, "value", "integer").is_null())


def _scanned(path: Path) -> pl.LazyFrame:
    table = scan_parquet(path, most=_MOST_BYTES, most_rows=_MOST_ROWS)
    if table.collect_schema() not in (COLUMNS, pl.Schema({**COLUMNS, **_ADDED})):
        raise ValueError("other columns than compact results have")
    return table


def _runs(rows: Iterable[tuple[Any, ...]], infos: list[MeasureInfo]) -> Iterator[CompactRun]:
    for name, group in groupby(rows, lambda row: row[0]):
        of_run = list(group)
        if name is None or of_run[0][1] is None:
            raise ValueError(f"the run {name} has no name or no manifest")
        measures = tuple(
            Measure(infos[info], value if integer is None else integer)
            for _, _, info, value, integer, _ in of_run
        )
        added = frozenset(infos[row[2]].name for row in of_run if row[5])
        yield CompactRun(str(name), str(of_run[0][1]).encode(), measures, added)
