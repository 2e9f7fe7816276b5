"""Which words of the run queues a kernel leaves in many boots, and its reference kernel in none.

A counter that is raised and not lowered again misleads decisions later, if at all, and no trace
shows it. But it remains: in mode icount the run queues of most boots of one kernel hold something
in the same words.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import comb

from numalab.hunt.case import Case
from numalab.hunt.compare.run_queues import Word, member_at
from numalab.hunt.finding import BootResult
from numalab.hunt.suspects.suspect import Suspect

# Of Fisher's exact test for one word. Some 20 of 864 words are neither always 0 nor never, so this
# costs boots, but no false positive: the boots that confirm decide.
_CHANCE = 1e-2


@dataclass
class Leftovers:
    """In how many boots each kernel left something in a word of its run queues.

    All boots of a hunt count, those that confirm as well: what remains does not depend on what they
    are for. `members` are those of struct rq by their offsets, as far as they are known.
    """

    members: Mapping[int, str] = field(default_factory=dict)
    boots: Counter[int] = field(default_factory=Counter)  # by the size of struct rq
    reference_boots: Counter[int] = field(default_factory=Counter)
    mine: Counter[Word] = field(default_factory=Counter)
    theirs: Counter[Word] = field(default_factory=Counter)
    _clearest: dict[Word, Suspect] = field(default_factory=dict)
    _tried: set[Word] = field(default_factory=set)

    def add(self, case: Case, result: BootResult, *, mine: bool) -> None:
        """Add a boot of the kernel (`mine`) or of the reference kernel."""
        left = result.run_queues
        if left is None:
            return
        (self.boots if mine else self.reference_boots)[left.size] += 1
        for offset, cpus in left.held.items():
            word = Word(offset, left.size, member_at(self.members, offset))
            (self.mine if mine else self.theirs)[word] += 1
            before = self._clearest.get(word)
            if mine and (before is None or cpus > before.score):
                finding = result.of(word.prop, None)
                assert finding is not None
                self._clearest[word] = Suspect(case, finding, None, float(cpus))

    def suspect(self) -> Suspect | None:
        """Return the clearest word that chance does not explain, each one once; None without."""
        chances = {
            word: chance(boots, self.boots[word.size], self.reference_boots[word.size])
            for word, boots in self.mine.items()
            if word not in self._tried and not self.theirs[word]
        }
        word = min(chances, key=lambda word: (chances[word], word.offset), default=None)
        if word is None or chances[word] > _CHANCE:
            return None
        self._tried.add(word)
        return self._clearest[word]


def chance(boots: int, of: int, beside: int) -> float:
    """Return the p value of Fisher's exact test, one-sided: in `boots` of `of`, in 0 of `beside`.

    That is the share of the ways to choose `boots` of all that are all of one kernel.
    """
    return comb(of, boots) / comb(of + beside, boots)
