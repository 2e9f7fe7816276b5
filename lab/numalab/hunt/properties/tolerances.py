"""How much each property leaves to the kernel, and why (docs/hunt.md)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from numalab.hunt.load import PartKind


@dataclass(frozen=True)
class Tolerances:
    """The most that each property may have. Times are guest time.

    They lie above what the unmodified kernel of `docs/hunt.md` showed in its campaign there.
    """

    unreached: float = 0.5  # share of the settled time
    idle_ms: Mapping[PartKind, float] = field(
        default_factory=lambda: {
            "hog": 1600.0, "sleeper": 800.0, "waker": 400.0, "forker": 400.0, "memory": 1600.0,
        }
    )  # fmt: skip
    lost_share: float = 0.6  # of the time in which tasks that sleep or fork were runnable
    unfair: float = 3.0  # times less than an even share
    moves: float = 6.0  # a second and task
    outside_ms: float = 0.0
    late_ms: float = 4.0  # the 90th percentile
    far_share: float = 0.9  # of the accesses of memory users, at the end
    faults: float = 5000.0  # a second and task, settled
    swaps: float = 20.0  # NUMA moves and swaps a second and task, settled
    shared_core: float = 0.9  # share of the settled time


TOLERANCES = Tolerances()
