"""Look for a trend of calls again: in the machines where it shows most, with other seeds."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from numalab.hunt.calls.trend import CallTrend, differences, ignored_of
from numalab.hunt.case import Case
from numalab.hunt.compare.trend import trend_strength
from numalab.hunt.confirm import FreshBoots
from numalab.hunt.finding import BootResult, Finding
from numalab.hunt.simplify.simplify import simplified
from numalab.hunt.suspects.suspect import Suspect
from numalab.hunt.workers import Boot, BudgetOverError
from numalab.units import counted

# One function and one kind are tested now. By the bound of numalab.hunt.compare.trend, equal
# kernels reach this strength with a probability of at most 0.1 %, if loads are independent. But a
# boot may run some code more often in all of its loads, so its boots have to show the trend, too.
_STRENGTH, _OF_BOOTS = 3.7, 3.0
_HOPELESS, _OF_BOOTS_HOPELESS = 1.2, 0.6  # below which no other seed is tried
_SEED, _FEWEST = 60, 2  # above the hunt's seed; the fewest seeds
_MOST = 20  # boots of each kernel
Pairs = list[tuple[float, float]]  # calls on both kernels in the loads of a boot
Settled = tuple[Case, Finding, tuple[int, ...]]


@dataclass(frozen=True)
class Retrial:
    """The loads of `seeds` seeds together: how strong the trend is, and in how many it shows.

    `strength` is that of single loads, `of_boots` that of the loads of each boot together.
    """

    seeds: int
    strength: float
    of_boots: float
    larger: int
    count: int

    def __str__(self) -> str:
        """Write it for a sentence."""
        return (
            f"{self.larger} of {self.count} with {counted(self.seeds, 'other seed')}"
            f" (t = {self.strength:.1f}, of boots {self.of_boots:.1f})"
        )

    @property
    def confirms(self) -> bool:
        """Whether these loads alone confirm the trend."""
        enough = self.strength >= _STRENGTH and self.of_boots >= _OF_BOOTS
        return self.seeds >= _FEWEST and enough

    @property
    def is_hopeful(self) -> bool:
        """Whether another seed may confirm it."""
        hopeful = self.strength >= _HOPELESS and self.of_boots >= _OF_BOOTS_HOPELESS
        return hopeful and not self.confirms


def look_again(trend: CallTrend, fresh_boots: FreshBoots) -> Retrial:
    """Boot the cases of a trend on both kernels with other seeds, until they decide."""
    fresh = fresh_boots.judging([trend.clearest.finding])
    assert fresh.reference is not None
    boots: list[Pairs] = []
    for number in range(max(_FEWEST, _MOST // len(trend.cases))):
        wanted: list[Boot] = [
            (case, side.for_confirmation(), fresh.seed + _SEED + number)
            for side in (fresh.bench, fresh.reference)
            for case in trend.cases
        ]
        results = fresh.workers.boot(wanted)
        mine, theirs = results[: len(trend.cases)], results[len(trend.cases) :]
        boots += _pairs(trend, mine, theirs)
        retrial = _retrial(trend, number + 1, boots)
        if not retrial.is_hopeful:
            break
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
            if (shown := boots.settle(limited, case)) is not None:
                small = simplified(boots, shown[0], case, goes_on, shown[1])
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
) -> Iterator[Pairs]:
    """Yield for each case the calls on both kernels in each load that both were counted in."""
    prop = trend.clearest.finding.prop
    for case, *sides in zip(trend.cases, mine, theirs, strict=True):
        pairs: Pairs = []
        for place in range(len(case.loads)):
            calls = [side.of(prop, place) for side in sides]
            if None not in calls:
                first, second = (item.figure for item in calls if item is not None)
                pairs.append((first, second))
        yield pairs


def _retrial(trend: CallTrend, seeds: int, boots: Sequence[Pairs]) -> Retrial:
    sign = 1 if trend.change == "more" else -1
    ignored = np.array(ignored_of(trend.function))
    sides = (np.array(pairs, np.float64).T for pairs in boots if pairs)
    along = [sign * differences(mine, theirs, ignored) for mine, theirs in sides]
    loads = np.concatenate([*along, np.zeros(0)])
    # Over the root of the number of loads, so that boots of equal kernels spread equally.
    of_boots = np.array([np.sum(own) / math.sqrt(len(own)) for own in along], np.float64)
    count = sum(first + second > 0 for pairs in boots for first, second in pairs)
    return Retrial(seeds, _strength(loads), _strength(of_boots), int(np.sum(loads > 0)), count)


def _strength(values: npt.NDArray[np.float64]) -> float:
    return float(trend_strength(np.sum(values), np.sum(values**2)))
