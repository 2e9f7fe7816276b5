"""What a hunt has done and confirmed so far."""

from collections import Counter
from dataclasses import dataclass, field

from numalab.hunt.case import Case
from numalab.hunt.compare.outcomes import Closest, Suspicion
from numalab.hunt.finding import Finding
from numalab.units import counted


@dataclass(frozen=True)
class ConfirmedViolation:
    """A violation that was confirmed and shrunk.

    `first` is the original case, `case` the smallest; boots of the smallest with each of `seeds`
    show `finding`. `minutes` and `boots` are the wall time and the boots, stored ones included,
    from the start of the hunt to the confirmation, `shrunk_minutes` and `shrunk_boots` to the end
    of shrinking. `after` is the number of machines up to the original case.
    """

    first: Case
    case: Case
    finding: Finding
    seeds: tuple[int, ...]
    minutes: float
    shrunk_minutes: float
    after: int
    boots: int
    shrunk_boots: int


@dataclass
class Hunt:
    """The progress of a hunt: machines and loads booted, and the closeness by property.

    `covered` counts the classes of machines and the kinds of loads that were judged, `different`
    the boots of each machine: a machine whose loads came close is booted again with other loads.
    `unjudged` of the `loads` had lost events, or did not start.
    """

    machines: int = 0
    loads: int = 0
    unjudged: int = 0
    suspicions: list[Suspicion] = field(default_factory=list)
    violations: list[ConfirmedViolation] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    covered: Counter[str] = field(default_factory=Counter)
    different: Counter[str] = field(default_factory=Counter)
    closest: dict[str, Closest] = field(default_factory=dict)

    @property
    def untried(self) -> str:
        """What follows an outcome without a finding: how many suspicions had no fresh boots."""
        count = sum(item.over for item in self.suspicions)
        over = f"; the budget was over before {counted(count, 'suspicion')} could be tried"
        return over if count else ""

    @property
    def line(self) -> str:
        """What was done so far, and which values came closest to their limits, in one line."""
        close = sorted(self.closest.items(), key=lambda item: -item[1].closeness)[:3]
        shown = ", ".join(f"{name} {value}" for name, value in close)
        size = f"{counted(self.machines, 'machine')}, {counted(self.loads, 'load')}"
        return f"{size}, {len(self.violations)} found; closest: {shown or 'none'}"

    @property
    def all_failed(self) -> bool:
        """Whether it booted machines and could judge none."""
        return 0 < self.machines == len(self.failed)

    @property
    def unconfirmed(self) -> list[Finding]:
        """The suspected findings that fresh boots did not confirm."""
        return [item.finding for item in self.suspicions if not item.confirmed]
