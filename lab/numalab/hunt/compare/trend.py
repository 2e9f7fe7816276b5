"""Trends: small differences from the reference kernel that go the same way in most loads.

A change of a rate or of a threshold is smaller than the noise of one load, but has the same
direction in each. Two equal kernels differ in either direction with the same probability. Then
the sum of the differences of independent loads, divided by the root of the sum of their squares,
exceeds t with a probability of at most exp(-t^2 / 2) (Efron, "Student's t-test under symmetry
conditions", JASA 1969).

The sums are over all loads, and over the loads of each kind and on each kind of machine: a change
of the placement at fork shows in loads that fork, and one of cores on machines with SMT. Each is
lost among all others.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from numalab.hunt.case import Case
from numalab.hunt.compare.noise import excess
from numalab.hunt.finding import BootResult, Finding
from numalab.hunt.loads.kinds import load_traits, trend_kinds

_STRONG = 4.2  # 0.015 % for each property by the bound
_STRONG_OF_KIND = 4.8  # 0.001 % for each property and kind
_FEWEST = 12  # loads
_IGNORED = 0.1  # of each excess: what a few more instructions change in every load
_LEAST = 0.25  # of the excess of a load that is tried
_TINY = 1e-9  # below the square of any difference that counts
_KEPT = 6  # loads of a property with the largest excess
ALL = ""  # the kind of all loads
_Floats = npt.NDArray[np.float64]
Key = tuple[str, str]  # a property, and a kind of loads


def trend_strength(total: _Floats | float, squares: _Floats | float) -> _Floats:
    """Return sums of differences over the roots of the sums of their squares; 0 without any."""
    strength: _Floats = np.asarray(total) / np.sqrt(np.maximum(squares, _TINY))
    return strength


@dataclass(frozen=True)
class Compared:
    """A finding about a load, the reference kernel's, and the excess."""

    case: Case
    finding: Finding
    theirs: Finding
    excess: float


def compared(case: Case, mine: BootResult, theirs: BootResult) -> Iterator[Compared]:
    """Yield the worst finding of each property and load that both kernels were judged for."""
    references = _worst(theirs)
    for key, finding in _worst(mine).items():
        if key in references:
            yield Compared(case, finding, references[key], excess(finding, references[key]))


def _worst(result: BootResult) -> dict[tuple[str, int | None], Finding]:
    worst: dict[tuple[str, int | None], Finding] = {}
    for finding in result.findings:
        key = finding.prop, finding.load
        if key not in worst or finding.closeness > worst[key].closeness:
            worst[key] = finding
    return worst


@dataclass
class TrendSums:
    """Sums of the excess of a property over loads of a kind, and the loads with the largest.

    `least` is the smallest excess, at most 0.
    """

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    least: float = 0.0
    clearest: list[Compared] = field(default_factory=list)

    def add(self, pair: Compared) -> None:
        """Add a load. Its excess counts as at most 1, so that no load decides alone."""
        size = min(1.0, max(0.0, abs(pair.excess) - _IGNORED))
        clipped = math.copysign(size, pair.excess)
        self.count += 1
        self.total += clipped
        self.squares += clipped**2
        self.least = min(self.least, pair.excess)
        if pair.excess >= _LEAST and pair.finding.load is not None:
            self.clearest.append(pair)
            self.clearest.sort(key=lambda item: -item.excess)
            del self.clearest[_KEPT:]

    @property
    def strength(self) -> float:
        """0 for too few loads."""
        return float(trend_strength(self.total, self.squares)) if self.count >= _FEWEST else 0.0

    @property
    def hunch(self) -> float:
        """The strength with one unit of noise added, so that it exists for few loads."""
        return self.total / math.sqrt(1.0 + self.squares)


@dataclass
class Trends:
    """The excess of each property over the loads of a hunt: all of them, and those of each kind."""

    sums: dict[Key, TrendSums] = field(default_factory=dict)

    def add(self, pair: Compared) -> None:
        """Add a property of a load."""
        for key in _keys(pair.case, pair.finding):
            self.sums.setdefault(key, TrendSums()).add(pair)

    def strength(self, prop: str, kind: str = ALL) -> float:
        """Return the strength of a property's trend; 0 for too few loads."""
        key = prop, kind
        return self.sums[key].strength if key in self.sums else 0.0

    def by_chance(self, prop: str) -> float:
        """Return the excess that a property of a load has by chance, at least 1.

        It is the largest in the other direction: equal kernels differ in both by the same.
        """
        key = prop, ALL
        return max(1.0, -self.sums[key].least) if key in self.sums else 1.0

    def strong(
        self, properties: Collection[str], worn: Callable[[str], float] = lambda _: 1.0
    ) -> list[tuple[float, Compared]]:
        """Return the clearest loads of the properties with a strong trend, with its strength.

        The strength is divided by `worn` of the property.
        """
        strongest: dict[int, tuple[float, Compared]] = {}
        for key in self._strong(properties, worn):
            strength = self.sums[key].strength / worn(key[0])
            for pair in self.sums[key].clearest:
                before = strongest.get(id(pair))
                if before is None or before[0] < strength:
                    strongest[id(pair)] = strength, pair
        return list(strongest.values())

    def hunch(self, case: Case, finding: Finding) -> float:
        """Return the largest hunch about a property in loads of the same kinds; 0 for none."""
        keys = _keys(case, finding)
        return max((self.sums[key].hunch for key in keys if key in self.sums), default=0.0)

    def hunches(self, properties: Collection[str]) -> Mapping[str, float]:
        """Return the largest hunch of any property for each kind of loads and machines."""
        largest: dict[str, float] = {}
        for (prop, kind), sums in self.sums.items():
            if kind and prop in properties:
                largest[kind] = max(largest.get(kind, 0.0), sums.hunch)
        return largest

    def _strong(
        self, properties: Collection[str], worn: Callable[[str], float] = lambda _: 1.0
    ) -> list[Key]:
        return [
            (prop, kind)
            for (prop, kind), sums in self.sums.items()
            if prop in properties
            and sums.strength / worn(prop) >= (_STRONG_OF_KIND if kind else _STRONG)
        ]


def _keys(case: Case, finding: Finding) -> list[Key]:
    machine = case.machine
    kinds = set(trend_kinds(machine))
    if finding.load is not None:
        kinds |= load_traits(machine, case.loads[finding.load])
    return [(finding.prop, kind) for kind in (ALL, *sorted(kinds))]
