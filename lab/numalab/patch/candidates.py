"""Which measures of which cells seem to differ in the first runs, and what counts as a change."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Literal

from numalab.measure import Direction, MeasureInfo
from numalab.patch.standard import BASELINE, PATCHED
from numalab.reach.model import Side
from numalab.report.build.study import several_meanings
from numalab.results.plan import Cell
from numalab.results.reader import StoredRun
from numalab.statistics.comparison import FEWEST, Comparison, compare_samples
from numalab.statistics.sequential import FreshSample
from numalab.statistics.summary import Summary, numbers

Went = Literal["improved", "regressed", "changed"]

LEAST_PERCENT = 10.0  # of the larger mean: smaller changes are not reported
_LEAST_POINTS = 2.0  # of measures in percent
_LEAST_COUNT = 1.0  # of measures that are whole numbers
_MOST, _MOST_IN_CELL = 8, 2  # candidates: each more makes the others need more runs
_CLEAR = 1.3  # differences by the half width of their 95 % interval
_VAGUE = 1.0  # the interval excludes 0; three runs that spread much show no more of a halving
# Measures that a verdict names although they did not change, the most telling first.
HEADLINES = (
    "idle_while_overloaded",
    "task_busy_share_min",
    "queue_imbalance",
    "schedstat_wait_mean",
    "numa_local_faults",
    "task_node_migrations",
)
# A share has no value where there is nothing to share: where this counter is 0.
_WHOLES = {"numa_local_faults": "vmstat_numa_hint_faults"}
_DURATION = "ms"  # the parameter of loads that run for a fixed time
_WORK = "user_time"  # there it is what the tasks got, and less is no improvement
# The number of a CPU or a node is arbitrary: a task that moves elsewhere is no change. Counters of
# allocations depend on the memory that the boot left, which the seed hardly changes.
_ARBITRARY = re.compile(
    r"_(cpu|node)\d|_last_cpu|_done$|^unknown_time$|^schedstat_wait_time$"
    r"|^vmstat_numa_(foreign|hit|interleave|local|miss|other)$|^vmstat_pg(maj)?fault$"
)


@dataclass(frozen=True)
class Candidate:
    """A measure of a cell that seems to differ; `clear` is how clearly, above 1."""

    cell: Cell
    info: MeasureInfo
    clear: float


@dataclass(frozen=True)
class OneSided:
    """A measure that in a cell all runs of one kernel have (`side`), and none of the other."""

    cell: Cell
    name: str
    side: Side


def compare(sample: FreshSample) -> Comparison:
    """Compare the two sides; directions are judged by `went`."""
    return compare_samples(sample.before, sample.after, direction=Direction.NONE)


def went(info: MeasureInfo, difference: float) -> Went:
    """Return what a shown difference of the means is: better, worse, or neither."""
    if info.direction is Direction.NONE:
        return "changed"
    return "improved" if (difference > 0) == (info.direction is Direction.HIGHER) else "regressed"


def is_notable(comparison: Comparison, unit: str) -> bool:
    """Return whether a difference of the means is large enough to be reported."""
    least = least_effect(comparison, unit)
    return comparison.difference is not None and abs(comparison.difference) >= least


def least_effect(comparison: Comparison, unit: str) -> float:
    """Return the smallest difference that is reported, in the measure's unit."""
    sides = [side for side in (comparison.before, comparison.after) if side is not None]
    share = LEAST_PERCENT / 100 * max((abs(side.mean) for side in sides), default=0.0)
    if unit == "%":
        return max(share, _LEAST_POINTS)
    whole = all(value.is_integer() for side in sides for value in (side.minimum, side.maximum))
    return max(share, _LEAST_COUNT) if whole else share


def judged(runs: Sequence[StoredRun]) -> tuple[MeasureInfo, ...]:
    """Return the measures that a verdict may be about, in the order of measurement."""
    infos: dict[str, MeasureInfo] = {}
    mixed = several_meanings(runs)
    for run in runs:
        for name, measure in run.measures.items():
            info = measure.info
            if name == _WORK and _DURATION in run.manifest.workload.parameters:
                info = replace(info, direction=Direction.NONE)
            if not (_ARBITRARY.search(name) or info.is_identifier or name in mixed):
                infos.setdefault(name, info)
    return tuple(infos.values())


def sample(runs: Iterable[StoredRun], cell: Cell, measure: str) -> FreshSample:
    """Return the values of a measure in the runs of a cell, by seed."""
    mine = sorted((run for run in runs if run.cell == cell), key=lambda run: run.manifest.seed)
    before, after = (
        [run.value(measure) for run in mine if run.manifest.variant == variant]
        for variant in (BASELINE, PATCHED)
    )
    return FreshSample(before, after)


def one_sided_measures(runs: Sequence[StoredRun], cells: Iterable[Cell]) -> Iterator[OneSided]:
    """Yield the measures that one kernel alone has in cells that have runs of both kernels."""
    for cell in cells:
        mine = [run for run in runs if run.cell == cell]
        for info in judged(mine):
            had: dict[str, set[bool]] = {BASELINE: set(), PATCHED: set()}
            for run in mine:
                had[run.manifest.variant].add(_has(run, info.name))
            if had == {BASELINE: {True}, PATCHED: {False}}:
                yield OneSided(cell, info.name, BASELINE)
            elif had == {BASELINE: {False}, PATCHED: {True}}:
                yield OneSided(cell, info.name, PATCHED)


def _has(run: StoredRun, name: str) -> bool:
    whole = _WHOLES.get(name)
    return run.value(name) is not None or (whole is not None and run.value(whole) == 0)


def find_candidates(
    runs: Sequence[StoredRun], cells: Sequence[Cell], last_seed: int
) -> tuple[Candidate, ...]:
    """Return the measures that seem to differ most, at most 8, and 2 of a cell.

    Measures with a better direction come first, of them the headlines. A cell without a clear
    difference of such a measure may have one vague candidate, after all clear ones. This is a
    choice and no test: only fresh runs decide (`numalab.statistics.sequential`). A continued
    experiment has some already; so runs with a seed above `last_seed` are left out.
    """
    chosen = [item for cell in cells for item in _candidates_of(runs, cell, last_seed)]
    return tuple(sorted(chosen, key=lambda item: (item.clear < _CLEAR, _rank(item)))[:_MOST])


def _candidates_of(runs: Iterable[StoredRun], cell: Cell, last_seed: int) -> list[Candidate]:
    """Return the candidates of a cell. A clear one that is neither better nor worse hides none."""
    every = sorted(differing(runs, cell, last_seed, least=_VAGUE), key=_rank)
    clear = [item for item in every if item.clear >= _CLEAR]
    if clear and clear[0].info.direction is not Direction.NONE:
        return clear[:_MOST_IN_CELL]
    return [*every[:1], *(item for item in clear if item is not every[0])][:_MOST_IN_CELL]


def differing(
    runs: Iterable[StoredRun], cell: Cell, last_seed: int, *, least: float = _CLEAR
) -> tuple[Candidate, ...]:
    """Return all measures of a cell that seem to differ in the runs up to a seed."""
    mine = [run for run in runs if run.cell == cell and run.manifest.seed <= last_seed]
    return tuple(
        Candidate(cell, info, clear)
        for info in judged(mine)
        if (clear := _clearness(sample(mine, cell, info.name), info.unit)) >= least
    )


def _rank(candidate: Candidate) -> tuple[bool, bool, float, str]:
    info = candidate.info
    undirected = info.direction is Direction.NONE
    return undirected, info.name not in HEADLINES, -candidate.clear, info.name


def _clearness(sides: FreshSample, unit: str) -> float:
    """Return a difference by the half width of its 95 % interval; 0 for one that is too small.

    With equally many runs it is Student's, with a common variance (Biometrika 6, 1908). Where the
    three runs of one kernel are alike, Welch's has two degrees of freedom, and hides a halving.
    The price is more candidates that fresh runs find alike.
    """
    if min(len(numbers(sides.before)), len(numbers(sides.after))) < FEWEST:
        return 0.0
    comparison = compare(sides)
    if comparison.interval is None or not is_notable(comparison, unit):
        return 0.0
    samples = [side for side in (comparison.before, comparison.after) if side is not None]
    low, high = comparison.interval
    half = (high - low) / 2
    if len({side.n for side in samples}) == 1:
        half = _common_half(samples)
    return abs(comparison.difference or 0.0) / half if half else 1e9


def _common_half(samples: Sequence[Summary]) -> float:
    """Return the half width of the 95 % interval of the difference of two means."""
    from scipy.special import stdtrit  # noqa: PLC0415 - takes 0.2 s

    freedom = sum(side.n - 1 for side in samples)
    common = sum((side.n - 1) * (side.stddev or 0.0) ** 2 for side in samples) / freedom
    return float(stdtrit(freedom, 0.975)) * sqrt(common * sum(1 / side.n for side in samples))
