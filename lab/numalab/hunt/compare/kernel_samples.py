"""Samples of one property of one load on both kernels, and whether they show a difference."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from statistics import fmean

from numalab.hunt.compare.noise import ratio_of_means
from numalab.hunt.finding import APART, BootResult, Finding

# The smallest share of pairs of samples in which the kernel is worse than the reference kernel:
# after one boot (three samples), and after all three boots. For equal kernels with nine samples
# each, the false-positive rate of the second is 0.1 %; the ratio of the means lowers it.
_SHARE_FIRST = 0.7
_SHARE_LAST = 0.9
# The same in the later boots, whose samples had no part in selecting the findings.
_SHARE_AGAIN = 0.8
_SHARE_OF_DIFFERENCE_AGAIN = 0.9


def how_often_more(mine: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the share of pairs in which `mine` is larger; a tie is half: Mann-Whitney's U."""
    wins = sum((a > b) + 0.5 * (a == b) for a in mine for b in theirs)
    return wins / (len(mine) * len(theirs))


@dataclass
class KernelSamples:
    """Samples of one property of one load: of the kernel, and of the reference kernel if any.

    A property with the limit 0 is an invariant. One sample of a load shows a violation; for a
    property of the whole boot it takes two boots, and two thirds of the samples if it is weak. The
    reference kernel must never violate it. With a `ratio`, this ratio of the means is enough, but
    all pairs of samples must be apart. Up to a third of the samples of a side may lack a value: a
    guest may be lost, or a task run too rarely for a percentile. An invariant needs those of the
    reference kernel only.
    """

    with_reference: bool
    mine: list[Finding] = field(default_factory=list)
    theirs: list[Finding] = field(default_factory=list)
    failed: bool = False
    ratio: float | None = None
    mine_missing: int = 0
    theirs_missing: int = 0

    def take(
        self, result: BootResult, prop: str, places: Sequence[int | None], *, mine: bool
    ) -> None:
        """Add the samples of one boot, which ran the load at these places among its loads."""
        findings = [result.of(prop, place) for place in places]
        missing = findings.count(None)
        self.failed |= bool(result.error and missing)
        if mine:
            self.mine_missing += missing
        else:
            self.theirs_missing += missing
        (self.mine if mine else self.theirs).extend(filter(None, findings))

    def may_show(self) -> bool:
        """Whether further boots may still confirm the violation."""
        return self._shows(_SHARE_FIRST, last=False)

    def show(self, least_share: float = _SHARE_LAST) -> bool:
        """Whether the kernel violates the property, and the reference kernel does not."""
        return self._shows(least_share, last=True)

    def show_again(self) -> bool:
        """Whether samples from later boots confirm the violation independently."""
        differs = bool(self.mine) and self.mine[0].differential
        return self._shows(_SHARE_OF_DIFFERENCE_AGAIN if differs else _SHARE_AGAIN, last=True)

    @property
    def lacks_values(self) -> bool:
        """Whether a boot failed, or more than a third of the samples of a side have no value."""
        mine_missing = 0 if self.is_invariant else self.mine_missing
        return (
            self.failed
            or 2 * mine_missing > len(self.mine)
            or 2 * self.theirs_missing > len(self.theirs)
        )

    @property
    def share(self) -> float:
        """The share of pairs in which the kernel is worse; 0 without pairs."""
        if not (self.mine and self.theirs):
            return 0.0
        return how_often_more(*([item.value for item in side] for side in (self.mine, self.theirs)))

    @property
    def is_invariant(self) -> bool:
        """Whether the limit of the property is 0."""
        return bool(self.mine) and self.mine[0].most <= 0

    @property
    def apart(self) -> bool:
        """Whether every sample of the kernel is worse than every sample of the reference kernel.

        For two equal kernels with nine samples each, the probability is 1 / C(18, 9) = 0.002 %.
        """
        return self.share == 1.0

    @property
    def is_sure(self) -> bool:
        """Whether no later boots are needed to confirm the violation.

        A boot has hundreds of differential values, so these always need them, and so do small
        ratios.
        """
        if self.is_invariant:
            return True
        first = self.mine[0]
        return self.apart and not first.differential and self._least_ratio >= APART

    @property
    def _least_ratio(self) -> float:
        return ratio_of_means(self.mine[0]) if self.ratio is None else self.ratio

    def _shows(self, least_share: float, *, last: bool) -> bool:
        if not self.mine or self.lacks_values:
            return False
        first = self.mine[0]
        violations = sum(finding.violated for finding in self.mine)
        if self.is_invariant:
            least = 2 / 3 * len(self.mine) if first.weak else 1 if first.load is not None else 2
            enough = violations >= least or not last
            return enough and not any(finding.violated for finding in self.theirs)
        if not self.with_reference:
            share = 2 / 3 if last else 1 / 2
            return not first.weak and violations >= share * len(self.mine)
        value = attrgetter("value")
        mean, reference_mean = fmean(map(value, self.mine)), fmean(map(value, self.theirs))
        suspect = first.most if first.suspect is None else first.suspect
        if self.ratio is not None:
            least_share = 1.0
        enough = mean > suspect or self.ratio is not None
        return enough and mean >= self._least_ratio * reference_mean and self.share >= least_share


def mean_of(samples: Sequence[Finding]) -> Finding:
    """Return the mean of the samples of a boot."""
    value, figure = (fmean(map(attrgetter(name), samples)) for name in ("value", "figure"))
    return replace(samples[0], value=value, measured=figure)
