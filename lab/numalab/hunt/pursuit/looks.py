"""Whether one kernel shows something more than another, from a few looks at each."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from numalab.hunt.finding import APART, Examined, Finding

# In what share of all pairs of looks the kernel is the worse, at least: after one boot of three
# looks, and after all three of them. Of two kernels that are alike, nine looks at each come out so
# once in a thousand times, and their means are not 1.5 apart in most of these.
_SOON = 0.7
_IN_THE_END = 0.9
# And in boots made afterwards, whose looks had no part in choosing what is worth them.
_AFTERWARDS = 0.8


def how_often_more(mine: Sequence[float], theirs: Sequence[float]) -> float:
    """Return in what share of pairs mine is more, a tie being half a pair: Mann and Whitney's U."""
    wins = sum((a > b) + 0.5 * (a == b) for a in mine for b in theirs)
    return wins / (len(mine) * len(theirs))


@dataclass
class Looks:
    """Looks at a property of one load: of the kernel, and of the rival if there is one.

    A property that allows nothing at all (`most` is 0) is a promise: one look at a load shows that
    it is broken, two boots if it is one of the whole boot, and the rival must never break it.
    """

    beside_rival: bool
    mine: list[Finding] = field(default_factory=list)
    theirs: list[Finding] = field(default_factory=list)
    failed: bool = False

    def take(
        self, examined: Examined, prop: str, places: Sequence[int | None], *, mine: bool
    ) -> None:
        """Take the looks of one more boot, which did the load at these places among its loads."""
        findings = [examined.of(prop, place) for place in places]
        self.failed |= None in findings
        (self.mine if mine else self.theirs).extend(
            finding for finding in findings if finding is not None
        )

    def may_show(self) -> bool:
        """Whether it is worth going on."""
        return self._shows(_SOON, last=False)

    def show(self) -> bool:
        """Whether the kernel shows it, and the rival does not."""
        return self._shows(_IN_THE_END, last=True)

    def show_again(self) -> bool:
        """Whether looks that were taken after others had shown it show it as well."""
        return self._shows(_AFTERWARDS, last=True)

    @property
    def promised(self) -> bool:
        """Whether the property allows nothing at all."""
        return bool(self.mine) and self.mine[0].most <= 0

    @property
    def apart(self) -> bool:
        """Whether every look at the kernel is worse than every one at the rival.

        Of nine looks at each of two kernels that are alike, 1 / C(18, 9), twice in 100,000 times.
        """
        if not (self.mine and self.theirs):
            return False
        return min(finding.value for finding in self.mine) > max(
            finding.value for finding in self.theirs
        )

    def _shows(self, least_often: float, *, last: bool) -> bool:
        if self.failed or not self.mine:
            return False
        bad = [finding.violated for finding in self.mine]
        if self.promised:
            least = 1 if self.mine[0].load is not None else 2
            enough = sum(bad) >= least or not last
            return enough and not any(finding.violated for finding in self.theirs)
        if not self.beside_rival:
            share = 2 / 3 if last else 1 / 2
            return not self.mine[0].weak and sum(bad) >= share * len(bad)
        values = [finding.value for finding in self.mine]
        reference = [finding.value for finding in self.theirs]
        mean, other = sum(values) / len(values), sum(reference) / len(reference)
        suspect = self.mine[0].most if self.mine[0].suspect is None else self.mine[0].suspect
        often = how_often_more(values, reference)
        return mean > suspect and mean >= APART * other and often >= least_often
