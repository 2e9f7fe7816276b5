"""All measures and findings of one run."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from numalab.analysis.collect_findings import collect_findings
from numalab.analysis.findings import Findings
from numalab.analysis.measures import catalogue
from numalab.analysis.measures.run_data import CommandData, RunData
from numalab.capture.guest_time import JoinedTables
from numalab.capture.samples import Samples
from numalab.measure import Measure
from numalab.recording.chunks import ROWS
from numalab.recording.recording import read_run
from numalab.recording.timeline import RunTimeline
from numalab.recording.window import Window
from numalab.run_dir import RunDir
from numalab.topology.model import Topology


@dataclass(frozen=True)
class Analysis:
    """What a run gave: single numbers, what a reader can look deeper into, and who ran where.

    `timeline` is None where the recording does not tell who ran, or is longer than `ROWS`.
    """

    measures: tuple[Measure, ...]
    findings: Findings
    window: Window
    timeline: RunTimeline | None = field(default=None, compare=False)


def analyse_run(
    events: pl.DataFrame | pl.LazyFrame,
    topology: Topology | None,
    *,
    tasks: Sequence[str],
    allowed_cpus: Sequence[int] | None = None,
    recorded: Collection[str] | None = None,
    counters: Mapping[str, int] | None = None,
    samples: Samples | None = None,
    command: CommandData | None = None,
    directory: RunDir | None = None,
    memory: JoinedTables | None = None,
    rows: int = ROWS,
) -> Analysis:
    """Compute every measure of a run, and its findings.

    `events` is the table that `decode_trace` wrote (at least `COLUMNS`, as far as it has them), or
    a scan of it, which is read `rows` at a time.
    Without a topology the CPUs are those with events, and of those that need the
    nodes those of one node are left out, the others None.
    `tasks` are the names of the tasks of interest, none meaning every task but the idle ones.
    `allowed_cpus` are the CPUs that they were allowed on (all without).
    `recorded` are the `system:event` (or `system`) names that were asked for: a measure of an event
    that was not is None, not 0; without it all were. `counters` is how much each counter of
    /proc/vmstat grew.
    `samples` are counters sampled on the trace's clock. `command` is what was read of the command,
    and `directory` the run's files, for measures that are taken of these. `memory` is what the
    memory model of mode timed counted.
    """
    run = read_run(
        events,
        topology,
        tasks=tasks,
        allowed_cpus=allowed_cpus,
        recorded=recorded,
        samples=samples,
        rows=rows,
    )
    measures = catalogue.compute_measures(RunData(run, counters, command, directory, memory))
    return Analysis(measures, collect_findings(run, memory), run.window, run.sums.timeline)
