"""Decisions about many measures, with runs added until each is clear, at one error rate.

The first runs (screening) propose candidates by any rule. Only *fresh* runs decide: they took no
part in the choice, so the measures that were not chosen need no correction (data splitting: D. R.
Cox, Biometrika 62, 1975, 441-444). The candidates share the level by Holm's correction, and the
looks share it as well: each look may spend a part, and all parts together are the level (K. K. G.
Lan, D. L. DeMets, Biometrika 70, 1983, 659-663). Both hold however measures and looks depend on
each other, since they follow from Bonferroni's inequality.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from numalab.statistics.comparison import holm, rank_p
from numalab.statistics.summary import Values, numbers

LEVEL = 0.01  # how often a patch without any effect may be called a change
LOOKS = (8, 12, 18)  # fresh runs on each side at each look
_FUTILE = 0.5  # with a p value above it, more runs are not worth their time


@dataclass(frozen=True)
class FreshSample:
    """The fresh runs of one candidate: values before and after."""

    before: Values
    after: Values

    @property
    def fewest(self) -> int:
        """The number of runs on the side that has fewer."""
        return min(len(numbers(self.before)), len(numbers(self.after)))


@dataclass(frozen=True)
class FreshDecision:
    """A candidate after a look: its p value, the corrected one, and what follows.

    `corrected` compares with `share`, the part of the level that this look may spend. A candidate
    is `open` if it is not shown and more runs may still show it.
    """

    p_value: float
    corrected: float
    share: float
    open: bool

    @property
    def shown(self) -> bool:
        """Whether the fresh runs show a difference."""
        return self.corrected < self.share


def share_of_look(look: int, looks: Sequence[int] = LOOKS, level: float = LEVEL) -> float:
    """Return the part of the level that a look (from 0) may spend; the last takes the rest."""
    return level / 4 if look < len(looks) - 1 else level - level / 4 * (len(looks) - 1)


def decide(
    samples: Sequence[FreshSample], share: float, family: int | None = None
) -> list[FreshDecision]:
    """Decide about all candidates of a look.

    `family` is the number of candidates at the first look (default: these). Candidates that were
    shown or dropped earlier still count, so that dropping one never helps another.

    The test is the rank sum test of Mann and Whitney, exact where it can be counted: a few runs in
    two clusters would pass a t test by chance.
    """
    p_values = [rank_p(sample.before, sample.after) for sample in samples]
    absent = max(0, (family or 0) - len(samples))
    corrected = holm([*p_values, *[1.0] * absent])[: len(samples)]
    return [
        FreshDecision(p_value, adjusted, share, adjusted >= share and p_value <= _FUTILE)
        for p_value, adjusted in zip(p_values, corrected, strict=True)
    ]
