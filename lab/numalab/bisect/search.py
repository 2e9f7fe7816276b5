"""Which step of a history to try next, so that few have to be tried. Pure; see git-bisect(1)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

_GOLDEN = 0.618  # its multiples, without their whole parts, never come close to each other


@dataclass(frozen=True)
class Search:
    """A search for the first bad of some steps, each of which changes what its parents are.

    A step is named by its place, sets of steps are the bits of an integer. `ancestry` holds for
    each step itself and those below it. `suspects` are those that may be the first bad one, `bad`
    the last of them, which is known to be bad; `skipped` cannot be tried.
    """

    ancestry: tuple[int, ...]
    suspects: int
    bad: int
    skipped: int = 0

    def next(self) -> int | None:
        """Return the step that halves the suspects best; None when no other can be tried.

        After skipped ones it is another one that is still worth it, because neighbours of a step
        that does not build mostly do not build either.
        """
        total = self.suspects.bit_count()
        below = {
            place: (self.ancestry[place] & self.suspects).bit_count()
            for place in places(self.suspects & ~self.skipped & ~(1 << self.bad))
        }
        if not below:
            return None
        best_first = sorted(below, key=lambda place: -min(below[place], total - below[place]))
        skipped = (self.suspects & self.skipped).bit_count()
        return best_first[int(len(best_first) * (skipped * _GOLDEN % 1.0))]

    def is_good(self, place: int) -> "Search":
        """Take in that a step is good, and so is all below it."""
        return replace(self, suspects=self.suspects & ~self.ancestry[place])

    def is_bad(self, place: int) -> "Search":
        """Take in that a step is bad: it or one below it is the first."""
        return replace(self, suspects=self.suspects & self.ancestry[place], bad=place)

    def skip(self, place: int) -> "Search":
        """Take in that a step cannot be tried."""
        return replace(self, skipped=self.skipped | 1 << place)


def start_search(parents: Sequence[Sequence[int]]) -> Search:
    """Start with the parents of each step, which come before it; the last step is bad.

    Parents that are known to be good are left out.
    """
    ancestry: list[int] = []
    for place, above in enumerate(parents):
        bits = 1 << place
        for parent in above:
            bits |= ancestry[parent]
        ancestry.append(bits)
    return Search(tuple(ancestry), ancestry[-1], len(ancestry) - 1)


def places(bits: int) -> Iterator[int]:
    """Give the places of the bits that are set, lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
