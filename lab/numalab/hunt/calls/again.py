"""Look for a trend of calls again: in the machines where it shows most, with other seeds."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from numalab.hunt.calls.trend import CallTrend, differences
from numalab.hunt.case import Case
from numalab.hunt.confirm import FreshBoots
from numalab.hunt.finding import BootResult, Finding
from numalab.hunt.simplify.simplify import simplified
from numalab.hunt.suspects.suspect import Suspect
from numalab.hunt.workers import Boot, BudgetOverError

# One function and one kind are tested now. By the bound of numalab.hunt.compare.trend, equal
# kernels reach the strength with a probability of at most 0.1 %.
_STRENGTH = 3.7
_HOPELESS = 1.2  # the strength below which no other seed is tried
_SEED, _FEWEST, _MOST = 60, 2, 4  # above the hunt's seed; how many are tried
Settled = tuple[Case, Finding, tuple[int, ...]]


@dataclass(frozen=True)
class Retrial:
    """The loads of `seeds` seeds together: how strong the trend is, and in how many it shows."""

    seeds: int
    strength: float
    larger: int
    count: int

    def __str__(self) -> str:
        """Write it for a sentence."""
        return (
            f"{self.larger} of {self.count} with {self.seeds} other seeds (t = {self.strength:.1f})"
        )

    @property
    def confirms(self) -> bool:
        """Whether these loads alone confirm the trend."""
        return self.seeds >= _FEWEST and self.strength >= _STRENGTH


def look_again(trend: CallTrend, fresh_boots: FreshBoots) -> Retrial:
    """Boot the cases of a trend on both kernels with other seeds, until they decide."""
    boots = fresh_boots.judging([trend.clearest.finding])
    assert boots.reference is not None
    pairs: list[tuple[float, float]] = []
    retrial = Retrial(0, _HOPELESS, 0, 0)
    while not retrial.confirms and retrial.strength >= _HOPELESS and retrial.seeds < _MOST:
        seed = boots.seed + _SEED + retrial.seeds
        wanted: list[Boot] = [
            (case, side.for_confirmation(), seed)
            for side in (boots.bench, boots.reference)
            for case in trend.cases
        ]
        results = boots.workers.boot(wanted)
        mine, theirs = results[: len(trend.cases)], results[len(trend.cases) :]
        pairs += _pairs(trend, mine, theirs)
        retrial = _retrial(trend, retrial.seeds + 1, pairs)
    return retrial


def alone(
    trend: CallTrend, retrial: Retrial, fresh_boots: FreshBoots, goes_on: Callable[[], bool]
) -> Settled | None:
    """Return the smallest case with one load that shows a trend, its finding, and the seeds.

    None if none of the clearest loads shows it alone, or the budget is over before.
    """
    boots = fresh_boots.judging([trend.clearest.finding])
    for suspect in trend.clear:
        case = suspect.case.only(suspect.case.loads[suspect.finding.load or 0])
        limited = replace(suspect.finding, most=_between(suspect))
        with suppress(BudgetOverError):
            if boots.settle(limited, case) is not None:
                small = simplified(boots, limited, case, goes_on)
                return small and (small[0], explained(small[1], trend, retrial), small[2])
    return None


def finding_of(trend: CallTrend, retrial: Retrial) -> Finding:
    """Return the finding about the clearest load, with a limit between both kernels' values."""
    mine, theirs = trend.clearest.finding, trend.clearest.theirs
    assert theirs is not None
    text = f"{mine.text}, with the reference kernel {theirs.text.rpartition(': ')[2]}"
    most = _between(trend.clearest)
    return explained(
        replace(mine, text=text, most=most, suspect=None, differential=False), trend, retrial
    )


def explained(finding: Finding, trend: CallTrend, retrial: Retrial) -> Finding:
    """Return the finding about one load with the place of a block, and all loads in its text."""
    loads = f"loads ({trend.kind})" if trend.kind else "loads"
    place = f" ({trend.place})" if trend.place else ""
    text = (
        f"{finding.text}{place}; {trend.change} in {trend.larger} of {trend.count} {loads}"
        f" (t = {trend.strength:.1f}), and in {retrial}"
    )
    return replace(finding, text=text)


def _between(suspect: Suspect) -> float:
    """Return the geometric mean of both kernels' values, which are compared by their ratio."""
    assert suspect.theirs is not None
    return float(f"{math.sqrt(suspect.finding.value * suspect.theirs.value):.4g}")


def _pairs(
    trend: CallTrend, mine: Sequence[BootResult], theirs: Sequence[BootResult]
) -> Iterator[tuple[float, float]]:
    """Yield the calls on both kernels in each load that both were counted in."""
    prop = trend.clearest.finding.prop
    for case, *sides in zip(trend.cases, mine, theirs, strict=True):
        for place in range(len(case.loads)):
            calls = [side.of(prop, place) for side in sides]
            if None not in calls:
                first, second = (item.figure for item in calls if item is not None)
                yield first, second


def _retrial(trend: CallTrend, seeds: int, pairs: Sequence[tuple[float, float]]) -> Retrial:
    mine, theirs = (np.array([pair[side] for pair in pairs], np.float64) for side in (0, 1))
    along = differences(mine, theirs) * (1 if trend.change == "more" else -1)
    squares = float(np.sum(along**2))
    strength = float(np.sum(along)) / math.sqrt(squares) if squares else 0.0
    return Retrial(seeds, strength, int(np.sum(along > 0)), int(np.sum(mine + theirs > 0)))
