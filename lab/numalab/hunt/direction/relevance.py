"""Which kinds of loads run the changed code, so that they are drawn more often."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from numalab.hunt.calls.functions import is_changed_line
from numalab.hunt.case import Case
from numalab.hunt.finding import CallsByLoad
from numalab.hunt.loads.kinds import load_traits, trend_kinds

_FEWEST = 6  # loads of a kind
_OFTEN = 0.5  # the share of all loads from which on there is nothing to gain
_MOST = 8.0


@dataclass
class Relevance:
    """How many loads of each kind ran, and in how many of them a changed line did.

    A patch of NUMA balancing needs tasks with memory, and one of the deadline class deadline
    tasks. In a load without them the kernels can only differ by chance.
    """

    loads: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    count: int = 0
    total: int = 0

    def take(self, case: Case, calls: CallsByLoad) -> None:
        """Add the loads of a boot in which changed lines were counted."""
        for number, counts in calls.items():
            ran = any(map(is_changed_line, counts))
            kinds = load_traits(case.machine, case.loads[number]) | trend_kinds(case.machine)
            self.count += 1
            self.total += ran
            self.loads.update(kinds)
            self.reached.update(kinds if ran else ())

    @property
    def is_rare(self) -> bool:
        """Whether changed lines have run, but not in most loads."""
        return 0 < self.total < _OFTEN * self.count

    def weight(self, kinds: Collection[str]) -> float:
        """Return how much more often than others a load of these kinds runs a changed line, 1 to 8.

        The kind with the largest share counts. 1 until a changed line has run, and where most loads
        run one.
        """
        if not self.is_rare:
            return 1.0
        shares = (
            (self.reached[kind] + 0.5) / (self.loads[kind] + 1)
            for kind in kinds
            if self.loads[kind] >= _FEWEST
        )
        return min(_MOST, max(1.0, max(shares, default=0.0) * self.count / self.total))
