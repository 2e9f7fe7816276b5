"""Trends: small differences from the reference kernel that go the same way in most loads.

A change of a rate or of a threshold is smaller than the noise of one load, but has the same
direction in each. Two equal kernels differ in either direction with the same probability. Then
the sum of the differences of independent loads, divided by the root of the sum of their squares,
exceeds t with a probability of at most exp(-t^2 / 2) (Efron, "Student's t-test under symmetry
conditions", JASA 1969).
"""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from numalab.hunt.case import Case
from numalab.hunt.compare.noise import excess
from numalab.hunt.finding import BootResult, Finding

_STRONG = 4.2  # 0.015 % for each property by the bound
_FEWEST = 12  # loads
_IGNORED = 0.1  # of each excess: what a few more instructions change in every load
_LEAST = 0.25  # of the excess of a load that is tried
_KEPT = 6  # loads of a property with the largest excess


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
class _Sums:
    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    clearest: list[Compared] = field(default_factory=list)


@dataclass
class Trends:
    """The excess of each property over all loads of a hunt."""

    sums: dict[str, _Sums] = field(default_factory=dict)

    def add(self, pair: Compared) -> None:
        """Add a load. Its excess counts as at most 1, so that no load decides alone."""
        sums = self.sums.setdefault(pair.finding.prop, _Sums())
        size = min(1.0, max(0.0, abs(pair.excess) - _IGNORED))
        clipped = math.copysign(size, pair.excess)
        sums.count += 1
        sums.total += clipped
        sums.squares += clipped**2
        if pair.excess >= _LEAST and pair.finding.load is not None:
            sums.clearest.append(pair)
            sums.clearest.sort(key=lambda item: -item.excess)
            del sums.clearest[_KEPT:]

    def strength(self, prop: str) -> float:
        """Return the sum over the root of the sum of squares; 0 for too few loads."""
        sums = self.sums.get(prop)
        if sums is None or sums.count < _FEWEST or sums.squares <= 0:
            return 0.0
        return sums.total / math.sqrt(sums.squares)

    def strong(
        self, properties: Collection[str], worn: Callable[[str], float] = lambda _: 1.0
    ) -> list[tuple[float, Compared]]:
        """Return the clearest loads of the properties with a strong trend, with its strength.

        The strength is divided by `worn` of the property.
        """
        return [
            (strength, pair)
            for prop, sums in self.sums.items()
            if prop in properties and (strength := self.strength(prop) / worn(prop)) >= _STRONG
            for pair in sums.clearest
        ]
