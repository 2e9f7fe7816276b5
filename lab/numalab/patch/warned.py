"""What only one of two kernels reports in its log."""

from collections import Counter
from collections.abc import Iterator, Sequence
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
    """Return the reports of one kernel alone, in any number of runs.

    Only cells count in which the other kernel finished as many runs, or enough of them.
    """
    runs = {side: [run for run in outcome.runs if run.manifest.variant == side]
            for side in get_args(Side)}  # fmt: skip
    return tuple(
        report
        for side, other in zip(get_args(Side), reversed(get_args(Side)), strict=True)
        for report in _reports(side, runs[side], runs[other])
    )


def uncompared(outcome: ExperimentOutcome) -> Iterator[str]:
    """Yield the reports of one kernel in cells in which the other one finished too few runs."""
    compared = {(report.side, report.name) for report in one_sided(outcome)}
    often = Counter(
        (run.manifest.variant, name) for run in outcome.runs for name in run.manifest.kernel_reports
    )
    for side, other in zip(get_args(Side), reversed(get_args(Side)), strict=True):
        for (variant, name), count in often.items():
            if variant == side and (other, name) not in often and (side, name) not in compared:
                part = f"{name} in {runs_of(count)} of {NAMES[side]}"
                yield f"{part}, where {NAMES[other]} finished too few to compare"


def _reports(
    side: Side, runs: Sequence[StoredRun], of_other: Sequence[StoredRun]
) -> Iterator[KernelReport]:
    finished = Counter(run.cell for run in of_other)
    of_both = {name for run in of_other for name in run.manifest.kernel_reports}
    names = dict.fromkeys(name for run in runs for name in run.manifest.kernel_reports)
    for name in (name for name in names if name not in of_both):
        warned = [run for run in runs if name in run.manifest.kernel_reports]
        often = Counter(run.cell for run in warned)
        cells = {cell for cell in finished if finished[cell] >= min(often[cell], FEWEST_LOST)}
        if first := next((run.id for run in warned if run.cell in cells), ""):
            count = sum(run.cell in cells for run in runs)
            yield KernelReport(side, name, sum(often[cell] for cell in cells), count, first)
