"""The verdict on a claimed change: by its size, at one error rate for all claims of a family.

Primary claims are few and share the level by Holm's correction. All other claims are secondary:
the expected share of false ones among those that are shown is at most the level (Y. Benjamini, Y.
Hochberg, J. R. Statist. Soc. B 57, 1995, 289-300). Each family has one level for the intervals of
all its claims, at which an interval excludes the hypothesis if and only if the family rejects it:

- Holm, R of m claims rejected: level / (m - R + 1);
- Benjamini-Hochberg: level x R / m, the false coverage rate of Y. Benjamini and D. Yekutieli (J.
  Am. Statist. Assoc. 100, 2005, 71-81).

With R = 0 both take R = 1, the first step of the correction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum, inf, isinf
from typing import Literal

from numalab.measure import ClaimVerdict
from numalab.statistics.scale import Scale, change_of, margin_of, on_scale
from numalab.statistics.shift import (
    LEVEL,
    Shift,
    fewest_runs,
    reaches,
    runs_to_show,
    shift_between,
)

MARGIN = 5.0  # percent: changes below it are none
_NO_CHANGE = "no change beyond the margin"
_IDLE = "the mechanism does not act in the baseline"
_UNKNOWN = "no run of the baseline measured the mechanism"

Family = Literal["primary", "secondary"]
FAMILIES: tuple[Family, ...] = ("primary", "secondary")
Towards = Literal["higher", "lower", "same"]


@dataclass(frozen=True)
class ClaimedChange:
    """A change that a source claims, on a scale.

    `published` are the smallest and the largest shift that the source reports; None where it only
    has a direction. `rounded` are those that round to what it reports. `margin` is the change in
    percent (or units of a linear scale) below which nothing has changed. `capped` is whether the
    source reports a larger decrease than these counts can have.
    """

    towards: Towards
    scale: Scale
    published: tuple[float, float] | None = None
    margin: float = MARGIN
    rounded: tuple[float, float] | None = None
    capped: bool = False

    @property
    def unchanged(self) -> tuple[float, float]:
        """The shifts within the margin."""
        return margin_of(self.margin, self.scale)

    def is_none(self, shifts: tuple[float, float]) -> bool:
        """Whether both shifts are within the margin."""
        floor, ceiling = self.unchanged
        return floor <= shifts[0] and shifts[1] <= ceiling

    @property
    def claimed(self) -> tuple[float, float]:
        """The smallest and the largest shift that bears the claim out.

        Where only a direction is published, any change in it beyond the margin does.
        """
        if self.published is not None:
            ends = (*self.published, *(self.rounded or ()))
            return min(ends), max(ends)
        low, high = self.unchanged
        return (-inf, low) if self.towards == "lower" else (high, inf)

    @property
    def smallest(self) -> float:
        """The distance from no change that runs have to show."""
        if self.towards == "same" or self.published is None:
            return min(map(abs, self.unchanged))
        return min(map(abs, self.published))


@dataclass(frozen=True)
class ClaimTest:
    """The runs of a claim, and the test of the hypothesis that the claim denies.

    `fires` is whether the mechanism acts in the baseline, None where no run tells.
    """

    claim: ClaimedChange
    before: tuple[float, ...]
    after: tuple[float, ...]
    shift: Shift
    fires: bool | None = True

    @property
    def varies(self) -> bool:
        """Whether the runs of a side differ."""
        return any(len(set(side)) > 1 for side in (self.before, self.after))

    @cached_property
    def p_value(self) -> float:
        """The p value of no change; for `same`, the larger one of a change by the margin."""
        if self.claim.towards != "same":
            return self.shift.p_value()
        low, high = self.claim.unchanged
        if not low < self.shift.difference < high:
            return 1.0
        return max(self.shift.p_value(low), self.shift.p_value(high))


@dataclass(frozen=True)
class SizeJudgement:
    """A verdict, its reason, and the figures of the rule that gave it.

    `change` and `interval` are in percent, or in the unit of a linear scale. `runs` is how many of
    each variant would decide; None where that is not known, more than a thousand, or never.
    """

    verdict: ClaimVerdict
    detail: str
    p_value: float
    family: Family
    size: int
    level: float
    change: float
    interval: tuple[float, float]
    runs: int | None = None


def claim_test(
    claim: ClaimedChange,
    before: Sequence[float],
    after: Sequence[float],
    *,
    fires: bool | None = True,
) -> ClaimTest:
    """Test a claim. Raises ValueError for an empty sample, or a value that the scale lacks.

    No count falls below 0: a published decrease that is larger than one from these counts to 0 is
    taken as that one.
    """
    first, second = (tuple(on_scale(side, claim.scale)) for side in (before, after))
    shift = shift_between(first, second)
    if claim.scale == "count" and claim.towards == "lower" and claim.published is not None:
        most = on_scale([0.0], "count")[0] - fsum(first) / len(first)
        low, high = (max(end, most) for end in claim.published)
        least, largest = (max(end, most) for end in claim.claimed)
        capped = (low, high) != claim.published
        claim = replace(claim, published=(low, high), rounded=(least, largest), capped=capped)
    return ClaimTest(claim, first, second, shift, fires)


def family_level(family: Family, p_values: Sequence[float], size: int) -> float:
    """Return the level of all tests and intervals of a family of `size` claims.

    Claims without a p value count as not shown.
    """
    ordered, size = sorted(p_values), max(size, len(p_values), 1)
    if family == "primary":
        rejected = 0
        while rejected < len(ordered) and reaches(ordered[rejected], LEVEL / (size - rejected)):
            rejected += 1
        return LEVEL / (size - max(rejected, 1) + 1)
    shown = [rank for rank, p in enumerate(ordered, 1) if reaches(p, LEVEL * rank / size)]
    return LEVEL * max([1, *shown]) / size


def judged(test: ClaimTest, family: Family, size: int, level: float) -> SizeJudgement:
    """Judge a tested claim at the level of its family."""
    interval = test.shift.interval(level)
    verdict, detail = _verdict(test, interval)
    runs = None
    if verdict == "inconclusive":
        runs = _runs(test, level)
    scale = test.claim.scale
    low, high = (change_of(end, scale) for end in interval)
    change = change_of(test.shift.difference, scale)
    return SizeJudgement(
        verdict, detail, test.p_value, family, size, level, change, (low, high), runs
    )


def _verdict(test: ClaimTest, interval: tuple[float, float]) -> tuple[ClaimVerdict, str]:
    """Return the verdict on a claim by the interval of its shift, and the reason."""
    claim, (low, high) = test.claim, interval
    floor, ceiling = claim.unchanged
    within = claim.is_none(interval)
    if claim.towards == "same":
        if low > ceiling or high < floor:
            return "refuted", "it changes by more than the margin"
        if not test.fires:
            return ("cannot be seen", _UNKNOWN) if test.fires is None else ("vacuous", _IDLE)
        return ("reproduced", "") if within else ("inconclusive", "")
    if low > 0 or high < 0:
        if (low > 0) == (claim.towards == "higher"):
            return _right(claim, interval, within=within)
        return "refuted", _NO_CHANGE if within else "the change is opposite"
    return _unshown(test, interval, within=within)


def _unshown(
    test: ClaimTest, interval: tuple[float, float], *, within: bool
) -> tuple[ClaimVerdict, str]:
    """Return the verdict on a claimed change that the runs do not show."""
    if not test.fires:
        return ("cannot be seen", _UNKNOWN) if test.fires is None else ("not reached", _IDLE)
    if test.claim.published is None and within:
        return "refuted", _NO_CHANGE
    if _meets(test.claim.claimed, interval):
        return "inconclusive", ""
    if test.claim.published is not None:
        return "refuted", "the interval excludes the published change"
    change = "an increase" if test.claim.towards == "higher" else "a decrease"
    return "refuted", f"the interval excludes {change} beyond the margin"


def _right(
    claim: ClaimedChange, interval: tuple[float, float], *, within: bool
) -> tuple[ClaimVerdict, str]:
    """Return the verdict on a shown change in the claimed direction."""
    if claim.published is None:
        return ("direction only", "within the margin") if within else ("reproduced", "")
    if _meets(claim.claimed, interval):
        if not _meets((min(claim.published), max(claim.published)), interval):
            return "reproduced", "within the rounding of the published figures"
        return "reproduced", "a larger fall is published: to about 0" if claim.capped else ""
    least, most = claim.claimed
    nearest = most if interval[0] > most else least
    larger = interval[0] > nearest
    size = "larger" if larger == (claim.towards == "higher") else "smaller"
    return "direction only", f"{size} than published"


def _meets(claimed: tuple[float, float], interval: tuple[float, float]) -> bool:
    return claimed[0] <= interval[1] and interval[0] <= claimed[1]


def _runs(test: ClaimTest, level: float) -> int | None:
    """Return how many runs of each variant would decide, more than there are.

    They are the fewest that decide if the means and their spread stay as they are.
    """
    present = min(len(test.before), len(test.after))
    distance = _distance(test.claim, test.shift.difference)
    if isinf(distance):
        runs = fewest_runs(level)
    else:
        runs = runs_to_show(test.before, test.after, distance, level)
    return None if runs is None else max(runs, present + 1)


def _distance(claim: ClaimedChange, shift: float) -> float:
    """Return how far an interval may reach from a shift without leaving the verdict open."""
    if claim.towards == "same":
        return min(abs(shift - end) for end in claim.unchanged)
    least, most = claim.claimed
    return max(abs(shift), least - shift, shift - most)
