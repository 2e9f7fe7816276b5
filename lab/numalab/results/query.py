"""A catalogue of runs and measures in Parquet, and SQL over it.

Each folder of results has its own. It is derived from the files of the runs, and brought up to date
by their times, so it may be deleted at any time.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from numalab.errors import HostError, UserError
from numalab.files import replacing, utf8_path
from numalab.parquet import collect, read_parquet, scan_parquet, table_size
from numalab.results.layout import Results, each_once, no_link
from numalab.results.manifest import UNKNOWN, Manifest
from numalab.results.reader import StoredRun, damage_explained, load_run, load_study
from numalab.run_dir import RunDir
from numalab.units import runs_of

RUNS = pl.Schema(
    {
        "run": pl.String,
        "study": pl.String,
        "topology": pl.String,
        "workload": pl.String,
        "variant": pl.String,
        "seed": pl.Int64,
        "mode": pl.String,
        "status": pl.String,
        "seconds": pl.Float64,
        "guest_seconds": pl.Float64,
        "kernel": pl.String,
        "release": pl.String,
        "series": pl.String,
        "image": pl.String,
        "qemu": pl.String,
        "processor": pl.String,
        "started": pl.String,
        "events": pl.Int64,
        "lost_events": pl.Int64,
        "modified_ns": pl.Int64,
    }
)
MEASURES = pl.Schema(
    {
        "run": pl.String,
        "topology": pl.String,
        "workload": pl.String,
        "variant": pl.String,
        "seed": pl.Int64,
        "measure": pl.String,
        "value": pl.Float64,
        "unit": pl.String,
        "direction": pl.String,
        "kind": pl.String,
    }
)
# Atomic groups: no comment is tried again at another length.
_SELECT = re.compile(r"(?>\s|\(|--[^\n]*\n|/\*(?s:.*?)\*/)*+(?:select|with)\b", re.IGNORECASE)
_EVENTS_BYTES = 512 << 20  # of the columns of all event tables that a query uses
DEEPEST = 4  # folders between the one that is named and results


@dataclass(frozen=True)
class Catalogue:
    """The runs of some results and their measures."""

    results: Results
    runs: pl.DataFrame
    measures: pl.DataFrame


def find_results(path: Path) -> tuple[Results, ...]:
    """Return the results at `path` or below it, in order; links to them are no further results.

    Raises UserError when there are none.
    """
    results = tuple(map(Results, sorted(each_once(_below(path, DEEPEST)))))
    if not results:
        raise UserError("there are no results here", file=path)
    return results


def _below(path: Path, depth: int) -> Iterator[Path]:
    if Results(path).exist:
        yield path
    elif depth and path.is_dir():
        for entry in sorted(path.iterdir()):
            if entry.is_dir() and not entry.name.startswith("."):
                yield from _below(entry, depth - 1)


def catalogue(results: Results) -> Catalogue:
    """Return the catalogue of results, brought up to date; only new runs are read.

    Raises UserError for damaged results.
    """
    if results.is_compact:
        return Catalogue(results, *_tables([(run, 0) for run in load_study(results)[1]]))
    modified_of = {name: _modified(folder) for name, folder in results.finished().items()}
    runs, measures = _stored(results)
    catalogued = dict(zip(runs["run"], runs["modified_ns"], strict=True))
    new = [name for name, modified in modified_of.items() if catalogued.get(name) != modified]
    gone = [name for name in catalogued if name not in modified_of]
    if not (new or gone):
        return Catalogue(results, runs, measures)
    outdated = pl.Series([*new, *gone], dtype=pl.String).implode()
    read = _tables([(load_run(results.run(name)), modified_of[name]) for name in new])
    runs, measures = (
        pl.concat([old.filter(~pl.col("run").is_in(outdated)), added])
        for old, added in zip((runs, measures), read, strict=True)
    )
    updated = Catalogue(results, runs.sort("run"), measures.sort("run", maintain_order=True))
    with suppress(HostError, UserError):  # a folder without write permission can still be read
        store(updated)
    return updated


def _modified(run: RunDir) -> int:
    """Return when the manifest or the measures of a run last changed (ns)."""
    latest = 0
    for path in (run.manifest, run.measures, run.added_measures):
        with suppress(FileNotFoundError):
            latest = max(latest, path.stat().st_mtime_ns)
    return latest


def _stored(results: Results) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read the stored catalogue; return empty tables if it is missing or damaged."""
    try:
        tables = (results.runs_table, results.measures_table)
        stored = (read_parquet(path) for path in tables if path.is_file())
        runs, measures = stored
        if runs.schema == RUNS and measures.schema == MEASURES:
            return runs, measures
    except (OSError, ValueError, pl.exceptions.PolarsError):
        pass
    return pl.DataFrame(schema=RUNS), pl.DataFrame(schema=MEASURES)


def store(tables: Catalogue) -> None:
    """Write a catalogue to the folder of its results. Raises HostError."""
    no_link(tables.results.runs_table.parent)
    # The runs last: a run in this table is not read again.
    pairs = (
        (tables.results.measures_table, tables.measures),
        (tables.results.runs_table, tables.runs),
    )
    for path, table in pairs:
        with replacing(path) as temporary:
            table.write_parquet(utf8_path(temporary))


def _tables(runs: Iterable[tuple[StoredRun, int]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows of runs and of their measures; a run comes with the time of its change."""
    rows: list[tuple[object, ...]] = []
    measures: list[tuple[object, ...]] = []
    for run, modified in runs:
        about, label = run.manifest, run.cell.label
        rows.append((run.id, *_row(about, label), modified))
        key = (run.id, about.topology, label, about.variant, about.seed)
        for name, measure in run.measures.items():
            info = measure.info
            measures.append((*key, name, measure.value, info.unit, info.direction, info.kind))
    return (
        pl.DataFrame(rows, schema=RUNS, orient="row"),
        pl.DataFrame(measures, schema=MEASURES, orient="row"),
    )


def _row(about: Manifest, label: str) -> Iterator[object]:
    kernel, qemu = about.kernel, about.versions.qemu
    yield from (about.study, about.topology, label, about.variant, about.seed)
    yield from (about.mode, about.status, about.seconds, about.guest_seconds)
    yield from (kernel.name, kernel.release)
    yield " ".join(series.name for series in kernel.series)
    yield about.image.digest
    yield None if qemu == UNKNOWN else qemu
    yield about.host and about.host.processor
    yield about.started or None
    yield about.trace and about.trace.events
    yield about.trace and about.trace.lost


def query(
    catalogues: Sequence[Catalogue], sql: str, say: Callable[[str], None] = lambda _: None
) -> pl.DataFrame:
    """Run a SELECT over the tables `runs`, `measures` and `events` of some results.

    Every table has a column `results`, the folder. `say` receives how many runs the table `events`
    lacks, if it is used. Raises UserError for other statements, for SQL
    that polars does not support, and for unknown tables and columns.
    """
    if not _SELECT.match(sql):
        reason = f"only SELECT is possible, not {sql.strip()[:40]!r}"
        choices = [f"SELECT * FROM {name}" for name in ("runs", "measures", "events")]
        raise UserError(reason, key="SQL", choices=choices)
    tables: dict[str, pl.LazyFrame] = {
        "runs": _together((entry.results, entry.runs) for entry in catalogues),
        "measures": _together((entry.results, entry.measures) for entry in catalogues),
    }
    try:
        return collect(pl.SQLContext(tables).execute(sql))
    except (pl.exceptions.PolarsError, RecursionError, ValueError) as error:
        first = str(error).partition("\n")[0][:300]
    # `runs` has a column of that name, so only polars knows whether the table is used.
    if re.search(r"relation .?events.? was not found", first):
        tables["events"] = _events(catalogues, sql, say)
        try:
            return collect(pl.SQLContext(tables).execute(sql))
        except (pl.exceptions.PolarsError, RecursionError, ValueError) as error:
            first = str(error).partition("\n")[0][:300]
    raise UserError(f"{first} (tables: runs, measures, events)", key="SQL")


def _together(tables: Iterable[tuple[Results, pl.DataFrame]]) -> pl.LazyFrame:
    return pl.concat(
        table.lazy().with_columns(pl.lit(str(results.path)).alias("results"))
        for results, table in tables
    )


def _events(catalogues: Sequence[Catalogue], sql: str, say: Callable[[str], None]) -> pl.LazyFrame:
    """Scan the event tables of all runs; a column that a run lacks is null.

    Raises UserError if the columns that the query may use take too much memory.
    """
    frames, total = [], 0
    for entry in catalogues:
        for name in entry.runs["run"]:
            path = entry.results.run(name).events
            if path.exists():
                with damage_explained(path):
                    size = table_size(path)
                    columns = _columns_in(sql, size.columns)
                    frame = scan_parquet(path, columns)
                total += size.of(columns)
                if total > _EVENTS_BYTES:
                    raise UserError(
                        f"the columns of the query take more than {_EVENTS_BYTES >> 20} MiB: name"
                        " fewer columns, or a folder with fewer runs",
                        key="SQL",
                    )
                where = (
                    pl.lit(name).alias("run"),
                    pl.lit(str(entry.results.path)).alias("results"),
                )
                frames.append(frame.with_columns(*where))
    if not frames:
        raise UserError("these runs have no event tables", key="SQL")
    every = sum(entry.runs.height for entry in catalogues)
    if missing := every - len(frames):
        say(f"left out: {missing} of {runs_of(every)} have no event table")
    return pl.concat(frames, how="diagonal_relaxed")


def _columns_in(sql: str, columns: Collection[str]) -> list[str]:
    """Return the columns that a query may use: all, unless it names each one that it uses."""
    text = re.sub(r"count\s*\(\s*\*\s*\)", "", sql.casefold())
    if not text.lstrip().startswith("select") or re.search(r"\*|\bcolumns\b|\bnatural\b", text):
        return list(columns)
    return [name for name in columns if name.casefold() in text] or list(columns)[:1]
