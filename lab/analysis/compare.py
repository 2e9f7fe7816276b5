"""Two variants compared by one measure.

What a handful of runs can honestly show: their means, how far they spread, and whether the two
groups lie apart from each other altogether. Tests of significance belong beside `separated` here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, fsum, sqrt
from typing import Literal

from lab.analysis.measure import Direction

Outcome = Literal["better", "worse", "different", "no difference shown", "not comparable"]
FEWEST = 3  # with two runs each, a complete separation comes about by chance one time in three


@dataclass(frozen=True)
class Summary:
    """The runs of one variant: how many, and their figures. `stddev` is the sample's (n - 1),
    None for a single run."""

    n: int
    mean: float
    minimum: float
    maximum: float
    stddev: float | None


@dataclass(frozen=True)
class Comparison:
    """One measure, before and after.

    `change` is by how many percent of the mean before the mean after is larger, None where that is
    0 or either side is missing. `improvement` is the same counted in the measure's direction
    (positive is better). `separated` is whether every run after lies on the same side of every run
    before; `chance` how likely that is when nothing differs.
    """

    before: Summary | None
    after: Summary | None
    change: float | None
    improvement: float | None
    separated: bool
    chance: float | None
    outcome: Outcome
    verdict: str


def summarise(values: Sequence[float | int | None]) -> Summary | None:
    """Summarise the runs of a variant; runs that could not give the value are left out.

    None when there is no value at all.
    """
    there = sorted(float(value) for value in values if value is not None)
    if not there:
        return None
    n, mean = len(there), fsum(there) / len(there)
    squares = fsum((value - mean) ** 2 for value in there)
    stddev = sqrt(squares / (n - 1)) if n > 1 else None
    return Summary(n, mean, there[0], there[-1], stddev)


def change_percent(before: float, after: float) -> float | None:
    """Return by how many percent of `before` `after` is larger; None when `before` is 0."""
    return 100 * (after - before) / before if before else None


def improvement_percent(before: float, after: float, direction: Direction) -> float | None:
    """Return the %Change of a kernel changelog: positive is better, the mean before is 100 %.

    Kernel changelogs count so whichever way is better: 758.98 s to 498.12 s is 34.37 % (lower is
    better), 22801 to 27059 operations +18.67 % (higher is better). None when `before` is 0 or the
    measure has no better direction.
    """
    change = change_percent(before, after)
    if change is None or direction == "none":
        return None
    return -change if direction == "lower" else change


def separated(before: Sequence[float], after: Sequence[float]) -> bool:
    """Say whether all values of one side are below all values of the other."""
    return bool(before and after) and (max(before) < min(after) or max(after) < min(before))


def shown(before: Summary, after: Summary) -> bool:
    """Say whether the runs show a difference: all of one side below all of the other, and at least
    `FEWEST` runs on each."""
    apart = before.maximum < after.minimum or after.maximum < before.minimum
    return apart and min(before.n, after.n) >= FEWEST


def chance_of_separation(n_before: int, n_after: int) -> float:
    """Return how likely complete separation is when both sides are drawn alike.

    Of all the ways to tell n_before of the runs from the rest, two are apart: 2 / C(n, k), the
    exact permutation test's smallest two-sided p.
    """
    return min(1.0, 2 / comb(n_before + n_after, n_before))


def compare(
    before: Sequence[float | int | None],
    after: Sequence[float | int | None],
    direction: Direction,
) -> Comparison:
    """Compare the runs of two variants by one measure. A value of None is a run without it."""
    there = [[float(v) for v in side if v is not None] for side in (before, after)]
    first, second = summarise(before), summarise(after)
    if first is None or second is None:
        side = "before" if first is None else "after"
        verdict = f"no run {side} could measure it"
        return Comparison(
            first, second, None, None, separated=False, chance=None,
            outcome="not comparable", verdict=verdict,
        )  # fmt: skip
    apart = separated(*there)
    return Comparison(
        before=first,
        after=second,
        change=change_percent(first.mean, second.mean),
        improvement=improvement_percent(first.mean, second.mean, direction),
        separated=apart,
        chance=chance_of_separation(first.n, second.n) if apart else None,
        outcome=_outcome(first, second, direction),
        verdict=_verdict(first, second, apart=apart),
    )


def _outcome(before: Summary, after: Summary, direction: Direction) -> Outcome:
    if not shown(before, after):
        return "no difference shown"
    if direction == "none":
        return "different"
    return "better" if (after.mean > before.mean) == (direction == "higher") else "worse"


def _verdict(before: Summary, after: Summary, *, apart: bool) -> str:
    if not apart:
        if before.minimum == before.maximum == after.minimum == after.maximum:
            return f"the same value in all {before.n + after.n} runs"
        return f"the {before.n} runs before and the {after.n} after overlap"
    side = "above" if after.mean > before.mean else "below"
    text = f"all {after.n} of {after.n} runs after are {side} all {before.n} before"
    if min(before.n, after.n) < FEWEST:
        return f"{text}, but so few runs show nothing"
    return f"{text} (by chance alone: {chance_of_separation(before.n, after.n):.1%})"
