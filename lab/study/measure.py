"""Takes the measures of one run out of its folder."""

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import polars as pl
from pydantic import TypeAdapter

from lab.analysis.findings import Findings
from lab.analysis.growth import allocation_measures, wait_measures
from lab.analysis.measure import Measure
from lab.analysis.outcome import metric_measures, perf_measures, time_measures
from lab.analysis.run import analyse_run
from lab.analysis.table import COLUMNS
from lab.capture.counters import (
    difference,
    parse_numastat,
    parse_schedstat,
    parse_vmstat,
)
from lab.capture.perf_stat import perf_counts
from lab.capture.samples import Samples, parse_samples
from lab.capture.spec import ON_SAMPLE_CLOCK, CaptureSpec
from lab.capture.times import parse_times
from lab.errors import WorkloadFailed
from lab.store import RunDir, left_by_guest, write_text
from lab.topology.model import Topology
from lab.workload.model import BoundWorkload
from lab.workload.parse import parse_metrics


def load_events(directory: RunDir) -> pl.DataFrame:
    """Load what the measures and the timeline read of a run's events."""
    names = pl.read_parquet_schema(directory.events)
    return pl.read_parquet(directory.events, columns=[name for name in COLUMNS if name in names])


def scan_events(directory: RunDir) -> pl.LazyFrame:
    """Scan what the measures read of a run's events, without loading them."""
    table = pl.scan_parquet(directory.events)
    names = table.collect_schema().names()
    return table.select([name for name in COLUMNS if name in names])


def save_findings(directory: RunDir, findings: Findings) -> None:
    """Write what the analysis of a run found, without the blanks that would double its size."""
    write_text(directory.analysis, json.dumps(asdict(findings), separators=(",", ":")) + "\n")


def load_findings(directory: RunDir) -> Findings | None:
    """Read what the analysis of a run found; None for a run of a numalab that had none.

    Raises ValueError for a damaged file.
    """
    if not directory.analysis.exists():
        return None
    return TypeAdapter(Findings).validate_json(directory.analysis.read_bytes())


def measure(
    directory: RunDir, topology: Topology, workload: BoundWorkload, capture: CaptureSpec
) -> tuple[Measure, ...]:
    """Compute every measure of a run from its decoded events, its counters and what it printed.

    The findings of its analysis are written beside it (`load_findings` reads them). Raises
    WorkloadFailed when the command did not print a metric that its workload file requires.
    """
    metrics = parse_metrics(workload.metrics, _text(directory.stdout))
    before, after = (
        parse_vmstat(_text(path)) for path in (directory.vmstat_before, directory.vmstat_after)
    )
    analysis = analyse_run(
        scan_events(directory),
        topology,
        tasks=workload.tasks,
        allowed_cpus=workload.allowed_cpus or None,
        recorded=recorded(directory, capture),
        counters=difference(before, after),
        samples=_samples(directory, capture),
    )
    save_findings(directory, analysis.findings)
    return (
        *analysis.measures,
        *_growth(directory, capture),
        *time_measures(parse_times(_text_if_there(directory.times))),
        *perf_measures(perf_counts(capture.perf_stat, _text_if_there(directory.perf_stat))),
        *metric_measures(workload.name, metrics),
    )


def _growth(directory: RunDir, capture: CaptureSpec) -> tuple[Measure, ...]:
    """Return what each node's and each CPU's counters say, of what was read."""
    schedstat = (directory.schedstat_before, directory.schedstat_after)
    waits = wait_measures(*(parse_schedstat(_text_if_there(path)) for path in schedstat))
    if not capture.numastat:
        return waits
    numastat = (directory.numastat_before, directory.numastat_after)
    pages = allocation_measures(*(parse_numastat(_text_if_there(path)) for path in numastat))
    return (*waits, *pages)


def recorded(directory: RunDir, capture: CaptureSpec) -> tuple[str, ...]:
    """Return the `system:event` names that were recorded: those asked for that the kernel has."""
    absent = _text_if_there(directory.absent_events).split()
    return tuple(
        event.name for event in capture.events if not (event.optional and event.name in absent)
    )


def _samples(directory: RunDir, capture: CaptureSpec) -> Samples | None:
    """Return what was sampled, if its times are those of the trace."""
    if not capture.sample or capture.clock not in ON_SAMPLE_CLOCK:
        return None
    return parse_samples(_text_if_there(directory.samples))


def _text(path: Path) -> str:
    return left_by_guest(path).decode("utf-8", "replace")


def _text_if_there(path: Path) -> str:
    with suppress(WorkloadFailed):
        return _text(path)
    return ""
