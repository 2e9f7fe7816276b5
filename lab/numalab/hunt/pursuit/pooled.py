"""What a kernel does somewhat worse than its rival in most loads of a kind, and in none for sure.

One load is told from chance by looking at it again and again (`looks`). A kernel that moves tasks
twice as often wherever there is room shows in no load for sure, and in all of them together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scipy.stats import binomtest

from numalab.hunt.finding import APART, Examined
from numalab.hunt.load import Load

# One value of two is the worse one from here on; what is nearer tells nothing.
_DIFFERS = 1.3
_LEAST = 1e-3
# The level at which a question is worth machines of its own, and the one at which these decide.
# A hunt asks ten or so in an hour, so that of a hundred hunts on a kernel that is like its rival
# one comes out so.
_WORTH = 0.01
_SHOWN = 0.001


@dataclass(frozen=True)
class Tendency:
    """An answer: a kernel is worse in `worse` loads of a kind and better in `better`, of `loads`.

    `mine` and `theirs` are the means over all loads; `minutes` is the wall time until it was shown.
    """

    prop: str
    kind: str
    loads: int
    worse: int
    better: int
    mine: float
    theirs: float
    minutes: float

    @property
    def text(self) -> str:
        """It in a sentence."""
        return (
            f"{self.prop}: worse in {self.worse} of {self.loads} loads of the kind {self.kind!r} on"
            f" machines that were not chosen for it, better in {self.better}; on average"
            f" {self.mine:.4g} to {self.theirs:.4g}"
        )


@dataclass(frozen=True)
class Question:
    """Whether a property is worse in loads of a kind."""

    prop: str
    kind: str


@dataclass
class Pairs:
    """Values of both kernels with the same machine, load and seed."""

    mine: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def take(self, mine: float, theirs: float) -> None:
        """Take one more pair."""
        self.mine.append(mine)
        self.theirs.append(theirs)

    @property
    def chance(self) -> float:
        """How often two kernels that are alike come out so: the one-sided sign test."""
        if not self.worse + self.better:
            return 1.0
        return float(binomtest(self.worse, self.worse + self.better, alternative="greater").pvalue)

    @property
    def worse(self) -> int:
        """In how many pairs mine is the worse value."""
        return self._more(self.mine, self.theirs)

    @property
    def better(self) -> int:
        """In how many pairs it is the better one."""
        return self._more(self.theirs, self.mine)

    @property
    def apart(self) -> bool:
        """Whether the mean of mine is so much worse that it matters."""
        return sum(self.mine) >= APART * sum(self.theirs)

    @staticmethod
    def _more(some: Sequence[float], others: Sequence[float]) -> int:
        return sum(a > _DIFFERS * b and a - b > _LEAST for a, b in zip(some, others, strict=True))


@dataclass
class Pooled:
    """All pairs of a hunt by question, and which questions were asked on machines of their own."""

    pairs: dict[Question, Pairs] = field(default_factory=dict)
    asked: set[Question] = field(default_factory=set)

    def take(self, loads: Sequence[Load], mine: Examined, theirs: Examined) -> None:
        """Take what two boots with the same loads and seed show."""
        others = {(each.prop, each.load): each for each in theirs.findings}
        for each in mine.findings:
            other = others.get((each.prop, each.load))
            if each.load is None or other is None or each.most <= 0:
                continue
            question = Question(each.prop, loads[each.load].kind)
            self.pairs.setdefault(question, Pairs()).take(each.value, other.value)

    def next_question(self, properties: frozenset[str]) -> Question | None:
        """Return the question that is most worth machines of its own, if one is; each once."""
        worth: Mapping[Question, float] = {
            question: pairs.chance
            for question, pairs in self.pairs.items()
            if question.prop in properties and question not in self.asked and pairs.apart
        }
        best = min(worth, key=lambda each: (worth[each], each.prop, each.kind), default=None)
        if best is None or worth[best] > _WORTH:
            return None
        self.asked.add(best)
        return best


def answer(question: Question, pairs: Pairs, minutes: float) -> Tendency | None:
    """Return what pairs that were made to decide a question say; None where they do not."""
    if not pairs.apart or pairs.chance > _SHOWN:
        return None
    count = len(pairs.mine)
    return Tendency(
        question.prop, question.kind, count, pairs.worse, pairs.better,
        round(sum(pairs.mine) / count, 4), round(sum(pairs.theirs) / count, 4), minutes,
    )  # fmt: skip
