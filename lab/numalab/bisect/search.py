"""Select the next step of a bisection, so that few are tested; see git-bisect(1)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

_GOLDEN = 0.618  # its multiples, without their whole parts, never come close to each other


@dataclass(frozen=True)
class Search:
    """The state of a search for the first bad step.

    A step is an index; a set of steps is the bits of an integer. `ancestry` is, for each step, the
    step and its ancestors. `suspects` may be the first bad step, `bad` is the last of them and
    tested bad; `skipped` cannot be tested.
    """

    ancestry: tuple[int, ...]
    suspects: int
    bad: int
    skipped: int = 0

    def next(self) -> int | None:
        """Return the step that halves the suspects best; None if none is left to test.

        After a skipped step it avoids the neighbours, which mostly do not build either.
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
        """Return the search after a good step, whose ancestors are good as well."""
        return replace(self, suspects=self.suspects & ~self.ancestry[place])

    def is_bad(self, place: int) -> "Search":
        """Return the search after a bad step: it or an ancestor is the first."""
        return replace(self, suspects=self.suspects & self.ancestry[place], bad=place)

    def skip(self, place: int) -> "Search":
        """Return the search after a step that cannot be tested."""
        return replace(self, skipped=self.skipped | 1 << place)


def start_search(parents: Sequence[Sequence[int]]) -> Search:
    """Return a search over steps with these parents, of which the last step is bad.

    Parents come before their children; good ones are left out.
    """
    ancestry: list[int] = []
    for place, above in enumerate(parents):
        bits = 1 << place
        for parent in above:
            bits |= ancestry[parent]
        ancestry.append(bits)
    return Search(tuple(ancestry), ancestry[-1], len(ancestry) - 1)


def places(bits: int) -> Iterator[int]:
    """Yield the indices of the set bits, lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
