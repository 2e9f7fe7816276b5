"""The corpus of a hunt: booted cases, the branch outcomes of each, and its energy.

The energy of a case is the chance that it is varied. As in AFLFast (Boehme et al., CCS 2016) and
FairFuzz (Lemieux and Sen, ASE 2018), outcomes that few boots produced have most of it.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from numalab.hunt.case import Case
from numalab.reach.model import LineReach, RunReach

_CHANGED = 4.0  # the weight of an outcome on a changed line; 1 in the functions around
_OPEN = 2.0  # the factor of an outcome that no boot produced, of a branch that this case executes
_MOST_CASES = 64


@dataclass(frozen=True, order=True)
class BranchOutcome:
    """A line that ran (`branch` is -1), or a way of one of its branches."""

    file: str
    line: int
    branch: int
    taken: bool


@dataclass(frozen=True)
class BootOutcomes:
    """The outcomes of one boot: produced ones, and the other ways of executed branches."""

    produced: frozenset[BranchOutcome]
    missed: frozenset[BranchOutcome]


@dataclass(frozen=True)
class CorpusCase:
    """A booted case, its number in the hunt, and its outcomes."""

    number: int
    case: Case
    outcomes: BootOutcomes


@dataclass
class Corpus:
    """Booted cases, and in how many boots each outcome was produced, or missed."""

    cases: list[CorpusCase] = field(default_factory=list)
    produced: Counter[BranchOutcome] = field(default_factory=Counter)
    missed: Counter[BranchOutcome] = field(default_factory=Counter)
    chosen: Counter[int] = field(default_factory=Counter)
    changed: set[tuple[str, int]] = field(default_factory=set)

    @property
    def has_run(self) -> bool:
        """Whether a boot ran a changed line."""
        return any((item.file, item.line) in self.changed for item in self.produced)

    def add(self, number: int, case: Case, reach: RunReach) -> None:
        """Add a booted case."""
        outcomes = boot_outcomes(reach)
        self.produced.update(outcomes.produced)
        self.missed.update(outcomes.missed)
        self.changed |= {(line.file, line.number) for line in target_lines(reach)}
        self.cases.append(CorpusCase(number, case, outcomes))
        if len(self.cases) > _MOST_CASES:
            self.cases.remove(min(self.cases, key=lambda item: (self.energy(item), item.number)))

    def choose(self, rng: random.Random) -> CorpusCase:
        """Return a case to vary; the corpus is not empty."""
        chosen = rng.choices(self.cases, [self.energy(item) + 1e-9 for item in self.cases])[0]
        self.chosen[chosen.number] += 1
        return chosen

    def energy(self, item: CorpusCase) -> float:
        """Return the energy of a case; it falls with each time that the case is chosen."""
        rare = sum(
            self._weight(outcome) / self.produced[outcome] for outcome in item.outcomes.produced
        )
        untaken = sum(
            self._weight(outcome) / self.missed[outcome]
            for outcome in item.outcomes.missed
            if not self.produced[outcome]
        )
        return (rare + _OPEN * untaken) / (1 + self.chosen[item.number])

    def _weight(self, outcome: BranchOutcome) -> float:
        return _CHANGED if (outcome.file, outcome.line) in self.changed else 1.0


def target_lines(reach: RunReach) -> tuple[LineReach, ...]:
    """Return the changed lines with code; those beside the change for a patch that only removes."""
    near = tuple(line for line in reach.lines if line.kind == "context" and line.executable)
    return reach.changed or near


def boot_outcomes(reach: RunReach) -> BootOutcomes:
    """Return the outcomes of a boot."""
    ways = list(_ways(reach.lines))
    produced = frozenset(outcome for outcome, count, _ in ways if count)
    missed = frozenset(outcome for outcome, count, executed in ways if executed and not count)
    return BootOutcomes(produced, missed)


def _ways(lines: Iterable[LineReach]) -> Iterator[tuple[BranchOutcome, int, bool]]:
    """Return each outcome, its executions, and whether its branch was executed."""
    for line in lines:
        if line.executable:
            yield BranchOutcome(line.file, line.number, -1, True), line.executions, False
        for place, branch in enumerate(line.branches):
            executed = bool(branch.taken or branch.not_taken)
            yield BranchOutcome(line.file, line.number, place, True), branch.taken, executed
            yield BranchOutcome(line.file, line.number, place, False), branch.not_taken, executed
