"""Comparison of two samples: a test, a confidence interval, and the smallest detectable effect.

The measures of a table share one error rate by Holm's correction. A difference is shown when the
corrected p is below `LEVEL`. The result names its test:

- **Mann-Whitney, exact**, with enough runs. It assumes nothing about the distribution, but its p
  cannot go below 0.1 with 3 and 3 runs, or 0.008 with 5 and 5.
- **Welch's t** with fewer runs. It assumes a normal distribution, which few runs cannot prove; so
  the two sides must also not overlap, and each must have `FEWEST` runs or more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import comb, fsum, sqrt
from sys import float_info
from typing import TYPE_CHECKING, Literal

from numalab.measure import Direction
from numalab.statistics.summary import Summary, Values, change_percent, numbers, summarise
from numalab.units import runs_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Outcome = Literal["better", "worse", "different", "no difference shown", "not comparable"]

Names = tuple[str, str]  # of the two sides
SIDES: Names = ("before", "after")
LEVEL = 0.05  # how often a table without any real difference may show one
POWER = 0.8  # how often the smallest effect would have been shown
FEWEST = 3  # runs on each side
TOO_FEW = f"too few runs to compare (at least {FEWEST} on each side)"
_LEAST_P = 0.0001  # of less only this is said
MOST_EXACT = 120  # runs of both sides; with more, the normal approximation is close
# A whole number stands for anything within half of it, which is this much variance (Sheppard).
WHOLE_NUMBER_VARIANCE = 1 / 12

MANN_WHITNEY = "Mann-Whitney"
WELCH = "Welch's t"


@dataclass(frozen=True)
class Comparison:
    """One measure of two variants.

    `difference` is mean after - mean before, `interval` its uncorrected 95 % confidence interval by
    Welch's t. `change` is in percent of the mean before, None where that is 0. `corrected` is
    `p_value` corrected for `family` measures. `smallest_effect` is the true difference that runs
    with this spread show in `POWER` of all repetitions. `above`: after is larger by the statistic
    of the test, which is ranks for Mann-Whitney; one outlier may put the mean on the other side.
    """

    before: Summary | None
    after: Summary | None
    outcome: Outcome
    verdict: str
    difference: float | None = None
    interval: tuple[float, float] | None = None
    change: float | None = None
    separated: bool = False
    test: str = ""
    p_value: float | None = None
    corrected: float | None = None
    family: int = 1
    smallest_effect: float | None = None
    above: bool = False

    @property
    def shown(self) -> bool:
        """Whether the runs show a difference, in whichever direction."""
        return self.outcome in {"better", "worse", "different"}

    def percent(self, value: float) -> float | None:
        """Return a difference in percent of the mean before; None where that is 0 or missing."""
        return 100 * value / abs(self.before.mean) if self.before and self.before.mean else None


def separated(before: Sequence[float], after: Sequence[float]) -> bool:
    """Say whether all values of one side are below all values of the other."""
    return bool(before and after) and (max(before) < min(after) or max(after) < min(before))


def smallest_rank_p(n_before: int, n_after: int) -> float:
    """Return the smallest two-sided p of an exact rank test: 2 / C(n, k), complete separation by
    chance.
    """
    return min(1.0, 2 / comb(n_before + n_after, n_before))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return p values corrected for multiple tests (S. Holm, Scand. J. Statist. 6, 1979, 65-70)."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return tuple(corrected)


def compare_samples(
    before: Values,
    after: Values,
    *,
    direction: Direction,
    family: int = 1,
    names: Names = SIDES,
) -> Comparison:
    """Compare two variants, called `names`, by one measure; None is a run without a value.

    p is multiplied by `family`, the number of comparisons: Holm's first and strictest step.
    """
    comparison = _tested(before, after, family, names)
    corrected = None if comparison.p_value is None else min(1.0, family * comparison.p_value)
    return _judged(comparison, corrected, direction, names)


def compare_table(
    rows: Sequence[tuple[Values, Values, Direction]], names: Sequence[Names] = ()
) -> tuple[Comparison, ...]:
    """Compare two variants by all measures of a table, rows of (before, after, direction).

    `names` are those of the two variants of each row; without, `SIDES`.
    Rows with one value in all runs, or fewer than two values on a side, have no test, and do not
    count for the correction (R. E. Tarone, Biometrics 46, 1990, 515-522).
    """
    family = sum(_has_test(before, after) for before, after, _ in rows) or 1
    names = names or [SIDES] * len(rows)
    comparisons = [
        _tested(before, after, family, sides)
        for (before, after, _), sides in zip(rows, names, strict=True)
    ]
    places = [
        place for place, comparison in enumerate(comparisons) if comparison.p_value is not None
    ]
    corrected: dict[int, float] = dict(
        zip(places, holm([comparisons[place].p_value or 0.0 for place in places]), strict=True)
    )
    return tuple(
        _judged(comparison, corrected.get(place), rows[place][2], names[place])
        for place, comparison in enumerate(comparisons)
    )


def not_comparable(before: Values, after: Values, reason: str) -> Comparison:
    """Give the summaries of two sides that must not be compared, and why."""
    return Comparison(summarise(before), summarise(after), "not comparable", reason)


def smallest_effect(before: Values, after: Values, *, runs: int, family: int = 1) -> float | None:
    """Return the difference of means that `runs` new runs of each side would show.

    New runs are assumed to spread as these do: the minimum detectable effect of `_welch`, in the
    unit of the values. None for fewer than two values on a side or `FEWEST` new runs.
    """
    sides = [numbers(values) for values in (before, after)]
    if min(map(len, sides)) < 2 or runs < FEWEST:
        return None
    floor = WHOLE_NUMBER_VARIANCE if all(map(_whole, sides)) else 0.0
    parts = [max(_variance(side), floor) / runs for side in sides]
    return sqrt(sum(parts)) * _reach(parts, [runs, runs], family)


def rank_p(before: Values, after: Values) -> float:
    """Return the two-sided p of the rank sum test; 1 if a side is empty or nothing varies."""
    first, second = numbers(before), numbers(after)
    return _mann_whitney(first, second) if _varies(first, second) else 1.0


def _varies(before: Values, after: Values) -> bool:
    first, second = numbers(before), numbers(after)
    return bool(first and second) and len({*first, *second}) > 1


def _has_test(before: Values, after: Values) -> bool:
    return min(len(numbers(before)), len(numbers(after))) >= 2 and _varies(before, after)


def _tested(before: Values, after: Values, family: int, names: Names) -> Comparison:
    """Take every figure of a comparison that does not depend on the other rows of its table."""
    first, second = numbers(before), numbers(after)
    if not (first and second):
        reason = f"no run of {names[bool(first)]} could measure it"
        return not_comparable(before, after, reason)
    old, new = summarise(first), summarise(second)
    assert old is not None
    assert new is not None
    comparison = Comparison(
        before=old,
        after=new,
        outcome="no difference shown",
        verdict="",
        difference=new.mean - old.mean,
        change=change_percent(old.mean, new.mean),
        separated=separated(first, second),
        family=family,
        above=new.mean > old.mean,
    )
    if not _has_test(first, second):
        return comparison
    p_welch, interval, smallest = _welch(first, second, family)
    if smallest_rank_p(old.n, new.n) * family < LEVEL:  # else ranks could show nothing
        test, p_value = MANN_WHITNEY, _mann_whitney(first, second)
        comparison = replace(comparison, above=_ranked_above(first, second))
    else:
        test, p_value = WELCH, p_welch
    return replace(
        comparison, test=test, p_value=p_value, interval=interval, smallest_effect=smallest
    )


def _welch(
    before: Sequence[float], after: Sequence[float], family: int
) -> tuple[float, tuple[float, float], float]:
    """Return p, the 95 % interval of the difference of means, and the smallest effect.

    B. L. Welch, Biometrika 34, 1947, 28-35. The smallest effect is H. S. Bloom's minimum detectable
    effect (Evaluation Review 19, 1995, 547-556) at level / `family`: (t at the level + t at the
    power) x standard error.
    """
    from scipy.special import stdtr, stdtrit  # noqa: PLC0415 - takes 0.2 s; `--help` needs none

    floor = WHOLE_NUMBER_VARIANCE if _whole(before) and _whole(after) else 0.0
    parts = [max(_variance(side), floor) / len(side) for side in (before, after)]
    difference = fsum(after) / len(after) - fsum(before) / len(before)
    error = sqrt(sum(parts))
    if error == 0:
        return 0.0, (difference, difference), 0.0
    freedom = _freedom(parts, [len(before), len(after)])
    p_value = 2 * float(stdtr(freedom, -abs(difference) / error))
    reach = error * float(stdtrit(freedom, 1 - LEVEL / 2))
    needed = _reach(parts, [len(before), len(after)], family)
    return p_value, (difference - reach, difference + reach), error * needed


def _reach(parts: Sequence[float], runs: Sequence[int], family: int) -> float:
    """Return how many standard errors a difference needs; `parts` are the squared error's."""
    from scipy.special import stdtrit  # noqa: PLC0415

    if not sum(parts):
        return 0.0
    freedom = _freedom(parts, runs)
    return float(stdtrit(freedom, 1 - LEVEL / family / 2) + stdtrit(freedom, POWER))


def _freedom(parts: Sequence[float], runs: Sequence[int]) -> float:
    """Return the degrees of freedom of Welch and Satterthwaite."""
    if sum(parts) ** 2 < float_info.min:  # the squares of tiny variances would be 0
        parts = [part / sum(parts) for part in parts]
    degrees = [part**2 / (n - 1) for part, n in zip(parts, runs, strict=True)]
    return sum(parts) ** 2 / sum(degrees)


def _variance(values: Sequence[float]) -> float:
    mean = fsum(values) / len(values)
    return fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _whole(values: Sequence[float]) -> bool:
    return all(value.is_integer() for value in values)


def _mann_whitney(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the two-sided p of the rank sums: exact, ties included, up to `MOST_EXACT` runs."""
    if len(before) + len(after) > MOST_EXACT:
        from scipy.stats import mannwhitneyu  # noqa: PLC0415 - takes 0.5 s

        return float(mannwhitneyu(before, after, method="asymptotic").pvalue)
    fewer, more = sorted((before, after), key=len)
    ordered = sorted((*fewer, *more))
    # Twice the mean rank of equal values, which is a whole number.
    ranks = {value: ordered.index(value) * 2 + ordered.count(value) + 1 for value in ordered}
    shares = _rank_sums(tuple(ranks[value] for value in ordered), len(fewer))
    total = sum(ranks[value] for value in fewer)
    return min(1.0, 2 * float(min(shares[: total + 1].sum(), shares[total:].sum())))


@lru_cache(maxsize=256)
def _rank_sums(ranks: tuple[int, ...], size: int) -> "NDArray[np.float64]":
    """Return which share of all choices of `size` ranks has each sum, from 0 on.

    A choice with a further rank is one without it, or one of a rank fewer with it (B. Streitberg,
    J. Roehmel, Computational Statistics & Data Analysis 1, 1986, 285-296).
    """
    import numpy as np  # noqa: PLC0415 - `--help` needs none

    ways = np.zeros((size + 1, sum(sorted(ranks)[-size:]) + 1))
    ways[0, 0] = 1.0
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
    shares: NDArray[np.float64] = ways[size] / ways[size].sum()
    return shares


def _ranked_above(before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether of most pairs the run after is above: its U exceeds half of all pairs."""
    signs = ((new > old) - (new < old) for old in before for new in after)
    return sum(signs) > 0


def _judged(
    comparison: Comparison, corrected: float | None, direction: Direction, names: Names
) -> Comparison:
    """Add outcome and verdict to a comparison that was measured."""
    before, after = comparison.before, comparison.after
    if before is None or after is None:
        return comparison
    enough = min(before.n, after.n) >= FEWEST
    apart = comparison.separated or comparison.test == MANN_WHITNEY
    shown = enough and apart and corrected is not None and corrected < LEVEL
    comparison = replace(comparison, corrected=corrected)
    outcome: Outcome = "no difference shown"
    if shown:
        better = comparison.above == (direction == "higher")
        outcome = "different" if direction == "none" else "better" if better else "worse"
    return replace(
        comparison, outcome=outcome, verdict=_verdict(comparison, before, after, names, shown=shown)
    )


def _verdict(
    comparison: Comparison, before: Summary, after: Summary, names: Names, *, shown: bool
) -> str:
    if before.minimum == before.maximum == after.minimum == after.maximum:
        return f"the same value in all {before.n + after.n} runs"
    side = "above" if comparison.above else "below"
    base, other = f"{before.n} of {names[0]}", f"{runs_of(after.n)} of {names[1]}"
    text = f"the {other} and the {base} overlap"
    if comparison.separated:
        text = f"all {other} are {side} all {base}"
    elif shown:
        text = f"the {other} are mostly {side} the {base}"
        if comparison.above != (after.mean > before.mean):
            text += ", though outliers put their mean on the other side"
    if min(before.n, after.n) < FEWEST:
        return f"{text}, but so few runs show nothing" if comparison.separated else text
    if shown:
        return f"{text} ({_p_text(comparison)})"
    so = ", but that is not enough" if comparison.separated else ""
    return f"{text}{so} ({_p_text(comparison)}){_could_show(comparison)}"


def _p_text(comparison: Comparison) -> str:
    """Write `Welch's t, p = 0.0013, corrected for 15 tests 0.02`."""
    if comparison.p_value is None or comparison.corrected is None:
        return "no test"
    equals = "" if comparison.p_value < _LEAST_P else "= "
    text = f"{comparison.test}, p {equals}{_p(comparison.p_value)}"
    return (
        f"{text}, corrected for {comparison.family} tests {_p(comparison.corrected)}"
        if comparison.family > 1
        else text
    )


def _p(value: float) -> str:
    return f"< {_LEAST_P}" if value < _LEAST_P else f"{value:.2g}"


def _could_show(comparison: Comparison) -> str:
    if not comparison.smallest_effect:
        return ""
    percent = comparison.percent(comparison.smallest_effect)
    size = f"{comparison.smallest_effect:.3g}" if percent is None else f"{percent:.2g} %"
    if percent is not None and percent >= 100:
        size = f"{percent:.0f} %"
    return f"; the smallest change that would show: {size}"
