"""Takes the measures of one run out of its folder."""

import polars as pl

from lab.analysis.measure import Measure
from lab.analysis.run import COLUMNS, measure_run
from lab.capture.counters import difference, parse_vmstat
from lab.capture.spec import CaptureSpec
from lab.store import RunDir, left_by_guest
from lab.topology.model import Topology
from lab.workload.model import BoundWorkload


def load_events(directory: RunDir) -> pl.DataFrame:
    """Load what the measures and the timeline read of a run's events."""
    names = pl.read_parquet_schema(directory.events)
    return pl.read_parquet(directory.events, columns=[name for name in COLUMNS if name in names])


def measure(
    directory: RunDir, topology: Topology, workload: BoundWorkload, capture: CaptureSpec
) -> tuple[Measure, ...]:
    """Compute every measure of a run from its decoded events and its counters."""
    before, after = (
        parse_vmstat(left_by_guest(path).decode("utf-8", "replace"))
        for path in (directory.vmstat_before, directory.vmstat_after)
    )
    return measure_run(
        load_events(directory),
        topology,
        tasks=workload.tasks,
        allowed_cpus=workload.allowed_cpus or None,
        recorded=[event.name for event in capture.events],
        counters=difference(before, after),
    )
