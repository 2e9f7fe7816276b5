"""Takes the measures of one run out of its folder."""

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import polars as pl

from numalab.analysis.analyse import analyse_run
from numalab.analysis.findings import Findings
from numalab.analysis.measures.run_data import CommandData
from numalab.analysis.tables.event_table import COLUMNS
from numalab.capture.counters import difference, parse_numastat, parse_schedstat, parse_vmstat
from numalab.capture.perf_stat import perf_counts
from numalab.capture.samples import Samples, parse_samples
from numalab.capture.spec import ON_SAMPLE_CLOCK, CaptureSpec
from numalab.capture.times import parse_times
from numalab.errors import WorkloadFailed
from numalab.files import left_by_guest, write_text
from numalab.measure import Measure
from numalab.run_dir import RunDir
from numalab.topology.model import Topology
from numalab.workload.model import BoundWorkload
from numalab.workload.parse import parse_metrics


def scan_events(directory: RunDir) -> pl.LazyFrame:
    """Scan what the measures read of a run's events, without loading them."""
    table = pl.scan_parquet(directory.events)
    names = table.collect_schema().names()
    return table.select([name for name in COLUMNS if name in names])


def save_findings(directory: RunDir, findings: Findings) -> None:
    """Write what the analysis of a run found, without the blanks that would double its size."""
    write_text(directory.analysis, json.dumps(asdict(findings), separators=(",", ":")) + "\n")


def measure(
    directory: RunDir, topology: Topology, workload: BoundWorkload, capture: CaptureSpec
) -> tuple[Measure, ...]:
    """Compute every measure of a run from its decoded events, its counters and what it printed.

    The findings of its analysis are written beside it. Raises
    WorkloadFailed when the command did not print a metric that its workload file requires.
    """
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
        command=_command(directory, workload, capture),
        directory=directory,
    )
    save_findings(directory, analysis.findings)
    return analysis.measures


def _command(directory: RunDir, workload: BoundWorkload, capture: CaptureSpec) -> CommandData:
    """Read what the command printed and took, and what was counted before and after it."""
    before, after = (
        parse_schedstat(_text_if_there(path))
        for path in (directory.schedstat_before, directory.schedstat_after)
    )
    numastat = None
    if capture.numastat:
        numastat = (
            parse_numastat(_text_if_there(directory.numastat_before)),
            parse_numastat(_text_if_there(directory.numastat_after)),
        )
    return CommandData(
        workload.name,
        parse_metrics(workload.metrics, _text(directory.stdout)),
        parse_times(_text_if_there(directory.times)),
        perf_counts(capture.perf_stat, _text_if_there(directory.perf_stat)),
        (before, after),
        numastat,
    )


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
