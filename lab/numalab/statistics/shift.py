"""The shift between two samples: an exact test, and the interval that inverts the same test.

The test permutes the runs: without a difference, every split of all runs into two sides is as
likely as the observed one. Its p value is the share of the splits whose means differ at least as
much. The interval holds every shift that this test does not reject when it is subtracted from the
runs after (P. H. Garthwaite, Biometrics 52, 1996, 1387-1393, on how it is inverted). Interval and
test therefore always agree: the interval excludes 0 if and only if p is at most the level.

For one split the difference of means is t - c * shift, which is at least as far from 0 as the
observed d - shift between (d - t) / (1 - c) and (d + t) / (1 + c). The ends of all splits give the
p value of each shift, so nothing is searched.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb, floor, fsum, inf, isinf, sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEVEL = 0.05
POWER = 0.8  # of the smallest effect
MOST_SPLITS = 200_000  # that are counted: all of 10 and 10 runs
# Of more some are drawn (B. Phipson, G. K. Smyth, Stat. Appl. Genet. Mol. Biol. 9, 2010, 39).
_SAMPLED, _LEAST_SAMPLED, _MOST_DRAWN = 100_000, 2_000, 10_000_000
_WIDEST = 10  # runs of each side whose splits are counted
_SEED = 20_100_101
_EQUAL = 1e-9  # of a level, or of the range of the runs: rounding
MOST_RUNS = 1000  # that are worth saying


@dataclass(frozen=True)
class Shift:
    """The shift from one sample to another: its estimate, p values and intervals.

    `lower` and `upper` are the ends of the splits, each in ascending order.
    """

    difference: float
    lower: "Floats"
    upper: "Floats"

    def p_value(self, shift: float = 0.0) -> float:
        """Return the two-sided p value of a true shift."""
        if shift >= self.difference:
            count = len(self.upper) - self.upper.searchsorted(shift, "left")
        else:
            count = self.lower.searchsorted(shift, "right")
        return float(count) / len(self.upper)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the shifts whose p value is above the level; infinite if no p is so small."""
        rank = floor(level * len(self.upper) * (1 + _EQUAL)) + 1
        if rank > len(self.upper):
            return self.difference, self.difference
        return float(self.lower[rank - 1]), float(self.upper[-rank])


def reaches(p_value: float, level: float) -> bool:
    """Return whether a p value is at most the level, but for rounding."""
    return p_value <= level * (1 + _EQUAL)


def shift_between(before: Sequence[float], after: Sequence[float]) -> Shift:
    """Return the shift from one sample to another. Raises ValueError for an empty one."""
    import numpy as np  # noqa: PLC0415 - takes 0.1 s; `--help` needs none

    if not (before and after):
        raise ValueError("a sample is empty")
    first, second = len(before), len(after)
    pooled = np.array([*before, *after], dtype=float)
    slack = _EQUAL * float(np.ptp(pooled)) + 1e-12 * float(np.abs(pooled).max())
    pooled -= pooled.mean()
    sums, kept = _split_sums(pooled, first, second)
    means = sums / second - (pooled.sum() - sums) / first
    slopes = kept / second - (second - kept) / first
    difference = float(pooled[first:].mean() - pooled[:first].mean())
    with np.errstate(divide="ignore", invalid="ignore"):
        falling = (difference - means) / (1 - slopes)
        rising = (difference + means) / (1 + slopes)
    lower, upper = np.minimum(falling, rising), np.maximum(falling, rising)
    # The observed split, and with sides of one size its mirror, are as far apart at every shift.
    always = (kept == second) | ((kept == 0) & (first == second))
    lower[always], upper[always] = -inf, inf
    return Shift(difference, np.sort(lower - slack), np.sort(upper + slack))


def _split_sums(pooled: "Floats", first: int, second: int) -> "tuple[Floats, NDArray[np.intp]]":
    """Return for each split the sum of the runs after, and how many of them were after.

    The observed split is one of them. Time and memory are bounded for any number of runs.
    """
    import numpy as np  # noqa: PLC0415

    if _few(first, second):
        chosen = _every_split(first, second)
        return pooled[chosen].sum(axis=1), (chosen >= first).sum(axis=1)
    random = np.random.default_rng(_SEED)
    sums, kept = [pooled[first:].sum()], [second]
    for _ in range(_sampled(first, second) - 1):
        chosen = random.permutation(first + second)[:second]
        sums.append(pooled[chosen].sum())
        kept.append(int((chosen >= first).sum()))
    return np.array(sums), np.array(kept, dtype=np.intp)


@lru_cache(maxsize=8)
def _every_split(first: int, second: int) -> "NDArray[np.intp]":
    import numpy as np  # noqa: PLC0415

    return np.array(list(combinations(range(first + second), second)), dtype=np.intp)


def _few(first: int, second: int) -> bool:
    """Return whether all splits are counted."""
    if min(first, second) > _WIDEST:
        return False
    splits = comb(first + second, second)
    return splits <= MOST_SPLITS and splits * second <= _MOST_DRAWN


def _sampled(first: int, second: int) -> int:
    """Return how many splits are drawn where not all are counted."""
    return max(_LEAST_SAMPLED, min(_SAMPLED, _MOST_DRAWN // (first + second)))


def smallest_p(first: int, second: int) -> float:
    """Return the smallest p value that so many runs can give."""
    if not _few(first, second):
        return 1 / _sampled(first, second)
    return (2 if first == second else 1) / comb(first + second, second)


@lru_cache(maxsize=8)
def fewest_runs(level: float) -> int | None:
    """Return how many runs of each side it takes for a p value of at most `level`.

    None for a level below those of the splits that are drawn: no number of runs reaches it.
    """
    enough = (runs for runs in range(1, MOST_RUNS) if reaches(smallest_p(runs, runs), level))
    return next(enough, None)


def smallest_shift(
    before: Sequence[float], after: Sequence[float], *, runs: int, level: float
) -> float | None:
    """Return the shift that `runs` new runs of each side show in `POWER` of all repetitions.

    New runs are assumed to spread as these do. H. S. Bloom's minimum detectable effect (Evaluation
    Review 19, 1995, 547-556): (t at the level + t at the power) x standard error. None for fewer
    than two values on a side, infinity for runs whose p value cannot be so small.
    """
    from scipy.special import stdtrit  # noqa: PLC0415 - takes 0.2 s

    if min(len(before), len(after)) < 2:
        return None
    if runs < 2 or not reaches(smallest_p(runs, runs), level):
        return inf
    variances = [_variance(side) for side in (before, after)]
    freedom = 2 * (runs - 1)
    needed = float(stdtrit(freedom, 1 - level / 2) + stdtrit(freedom, POWER))
    return needed * sqrt(fsum(variances) / runs)


def runs_to_show(
    before: Sequence[float], after: Sequence[float], shift: float, level: float
) -> int | None:
    """Return how many runs of each side show a shift; None for more than `MOST_RUNS`, or unknown.

    They are the fewest whose smallest shift is at most this one.
    """
    if not shift:
        return None
    most = smallest_shift(before, after, runs=MOST_RUNS, level=level)
    if most is None or isinf(most) or most > abs(shift):
        return None
    few, many = 1, MOST_RUNS
    while many - few > 1:
        middle = (few + many) // 2
        shown = smallest_shift(before, after, runs=middle, level=level)
        few, many = (few, middle) if shown is not None and shown <= abs(shift) else (middle, many)
    return many


def _variance(values: Sequence[float]) -> float:
    mean = fsum(values) / len(values)
    return fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
