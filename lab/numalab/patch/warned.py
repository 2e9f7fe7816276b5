"""What only one of two kernels reports in its log."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from numalab.patch.experiment import FEWEST_LOST, ExperimentOutcome
from numalab.patch.standard import BASELINE, PATCHED
from numalab.reach.model import Side
from numalab.results.reader import StoredRun
from numalab.units import runs_of

NAMES = {BASELINE: "the baseline", PATCHED: "the patched kernel"}


@dataclass(frozen=True)
class KernelReport:
    """An error report in the logs of `runs` of `count` runs of one kernel, and none of the other.

    `first` is the first of these runs.
    """

    side: Side
    name: str
    runs: int
    count: int
    first: str

    def __str__(self) -> str:
        """Write it as a sentence without its end."""
        other = next(name for side, name in NAMES.items() if side != self.side)
        part = f"{self.runs} of {runs_of(self.count)} of {NAMES[self.side]}"
        return f"{self.name} in {part}, none of {other}"


def reports_of(outcome: ExperimentOutcome) -> tuple[KernelReport, ...]:
    """Return the reports of one kernel alone, in at least two runs; one run may be chance."""
    return tuple(report for report in one_sided(outcome) if report.runs >= FEWEST_LOST)


def one_sided(outcome: ExperimentOutcome) -> tuple[KernelReport, ...]:
    """Return the reports of one kernel alone, in any number of runs."""
    runs = {side: [run for run in outcome.runs if run.manifest.variant == side]
            for side in get_args(Side)}  # fmt: skip
    counts = {side: Counter(name for run in of for name in run.manifest.kernel_reports)
              for side, of in runs.items()}  # fmt: skip
    return tuple(
        KernelReport(side, name, count, len(runs[side]), _first(runs[side], name))
        for side, other in zip(get_args(Side), reversed(get_args(Side)), strict=True)
        for name, count in counts[side].items()
        if name not in counts[other] and len(runs[other]) >= min(count, FEWEST_LOST)
    )


def _first(runs: Sequence[StoredRun], name: str) -> str:
    return next(run.id for run in runs if name in run.manifest.kernel_reports)
