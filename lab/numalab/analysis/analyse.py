"""All measures and findings of one run."""

from dataclasses import dataclass, field

from numalab.analysis.collect_findings import collect_findings
from numalab.analysis.findings import Findings
from numalab.analysis.measures import catalogue
from numalab.measure import Measure
from numalab.recording.recording import Recording
from numalab.recording.timeline import RunTimeline
from numalab.recording.window import Window


@dataclass(frozen=True)
class Analysis:
    """The measures, findings and timeline of a run.

    `timeline` is None without sched_switch, and for recordings longer than `ROWS`.
    """

    measures: tuple[Measure, ...]
    findings: Findings
    window: Window
    timeline: RunTimeline | None = field(default=None, compare=False)


def analyse(run: Recording) -> Analysis:
    """Compute every measure of a run, and its findings.

    A measure of an event that was not recorded is None, not 0.
    """
    measures = catalogue.compute_measures(run)
    return Analysis(measures, collect_findings(run), run.window, run.sums.timeline)
