"""What fresh boots show beside what they are for: a panic, a warning, another broken invariant."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from numalab.hunt.case import Case
from numalab.hunt.finding import BootResult
from numalab.hunt.suspects.suspect import Suspect

_MOST = 2  # attempts to confirm one property


@dataclass
class Sudden:
    """Violations of the whole boot in boots with other seeds than the hunt's `seed`.

    Properties that a boot of the reference kernel violates are left out.
    """

    seed: int
    properties: frozenset[str]
    suspects: dict[str, Suspect] = field(default_factory=dict)
    _of_reference: set[str] = field(default_factory=set)
    _tried: Counter[str] = field(default_factory=Counter)

    def add(self, case: Case, result: BootResult, seed: int, *, mine: bool) -> None:
        """Add a boot of the kernel (`mine`) or of the reference kernel."""
        for finding in result.violations if seed != self.seed else ():
            if finding.load is not None or finding.weak or finding.prop not in self.properties:
                continue
            if not mine:
                self._of_reference.add(finding.prop)
            elif self._tried[finding.prop] < _MOST:
                suspect = Suspect(case, finding, None, finding.closeness)
                self.suspects.setdefault(finding.prop, suspect)

    def waiting(self, confirmed: Collection[str]) -> list[Suspect]:
        """Return the first suspect of each property that is not `confirmed`."""
        without = self._of_reference.union(confirmed)
        return [item for prop, item in self.suspects.items() if prop not in without]

    def take(self, confirmed: Collection[str]) -> list[list[Suspect]]:
        """Return the same to try them, each alone, and forget them."""
        suspects = self.waiting(confirmed)
        self._tried.update(item.finding.prop for item in suspects)
        self.suspects.clear()
        return [[item] for item in suspects]
