"""How much each property leaves to the kernel, and why (docs/explanation/hunting.md)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from numalab.hunt.finding import Finding
from numalab.hunt.load import PartKind


@dataclass(frozen=True)
class Limit:
    """The most that a value may be, and from where on a rival is asked (None: not before)."""

    most: float
    suspect: float | None = None

    def found(
        self, prop: str, load: int | None, value: float, text: str, *, weak: bool = False
    ) -> Finding:
        """Return what was seen of a property, held against this limit."""
        return Finding(prop, load, round(value, 4), self.most, text, weak, self.suspect)


@dataclass(frozen=True)
class Tolerances:
    """The limits of each property. Times are guest time.

    The most lies above what the unmodified kernel showed in the survey (docs/results/hunts.md);
    from where on a rival is asked, where it showed it in one load of five or fewer.
    """

    unreached: Limit = Limit(0.5, 0.3)  # share of the settled time
    idle_ms: Mapping[PartKind, Limit] = field(
        default_factory=lambda: {
            "hog": Limit(1600.0, 200.0), "sleeper": Limit(800.0, 40.0),
            "waker": Limit(400.0, 20.0), "forker": Limit(400.0, 20.0),
            "memory": Limit(1600.0, 200.0),
        }
    )  # fmt: skip
    neighbour_ms: Limit = Limit(800.0, 8.0)  # the longest
    lost_share: Limit = Limit(0.6, 0.02)  # of the time in which tasks were runnable
    unfair: Limit = Limit(3.0, 1.6)  # times less than an even share
    disproportion: Limit = Limit(2.5, 1.3)  # times less than the share of the weight, on one CPU
    node_moves: Limit = Limit(6.0, 1.0)  # a second and task
    cpu_moves: Limit = Limit(1000.0, 2.0)  # a second and task
    outside_ms: Limit = Limit(0.0)
    late_ms: Limit = Limit(4.0, 0.15)  # the 90th percentile
    response_ms: Limit = Limit(1000.0, 3.0)  # the 90th percentile
    far_share: Limit = Limit(0.9, 0.25)  # of the accesses of memory users, at the end
    faults: Limit = Limit(5000.0, 100.0)  # a second and task, settled
    page_moves: Limit = Limit(50000.0, 50.0)  # a second and task, settled
    swaps: Limit = Limit(20.0, 2.0)  # NUMA moves and swaps a second and task, settled
    sticks: Limit = Limit(500.0, 4.0)  # a second and task, settled
    busy_core: Limit = Limit(20.0, 0.3)  # a memory user
    held_back: Limit = Limit(2.0, 1.2)  # times less than with each task on a random CPU
    shared_core: Limit = Limit(0.9, 0.2)  # share of the settled time


TOLERANCES = Tolerances()
