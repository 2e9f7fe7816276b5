"""Assigns host nodes to guest nodes so that their distances correspond best.

That is a quadratic assignment (Koopmans and Beckmann 1957): give each guest node a host node so
that the sum over pairs of nearness(guest pair) x distance(host pair) is smallest. Nearness counts
from the mean guest distance, so a pair that is further than that wants a far host pair: the sum is
the covariance of the two tables, negated. scipy's solver is a heuristic (Vogelstein et al. 2015),
so it starts several times, with fixed seeds.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Table = Sequence[Sequence[int]]

_STARTS = 12
_CLOSE = 0.01


@dataclass(frozen=True)
class Correspondence:
    """The agreement between the orders of the host's and the guest's distances.

    `rank_correlation`: Spearman's rho over all ordered pairs of guest nodes (1.0: the same order;
    None where all distances of the guest or of the host are the same). `compared`: pairs of pairs
    whose guest distances differ; of those, `reversed` have the opposite order on the host, and
    `levelled` the same host distance. `worst` shows one reversed or levelled case, in words.
    """

    rank_correlation: float | None
    compared: int
    reversed: int
    levelled: int
    worst: str


NOT_COMPARED = Correspondence(None, 0, 0, 0, "")


def assign(guest: Table, slots: Table) -> tuple[int, ...]:
    """Return the slot of each guest node, all different: the best of several starts.

    Both are square tables of distances; there are at least as many slots as guest nodes.
    """
    count, places = len(guest), len(slots)
    if count == 1 or _is_flat(slots):
        return tuple(range(count))
    # Both take 0.2 s to load, and most hosts have one node.
    import numpy as np  # noqa: PLC0415
    from scipy.optimize import quadratic_assignment  # noqa: PLC0415

    total = sum(d for i, row in enumerate(guest) for j, d in enumerate(row) if i != j)
    mean = total / (count * (count - 1))
    nearness = np.zeros((places, places))  # padded with nodes to which distance does not matter
    for i, row in enumerate(guest):
        for j, distance in enumerate(row):
            # The last term lets nodes that are all equally far lie close together.
            nearness[i, j] = 0 if i == j else mean - distance + _CLOSE
    apart = np.array(slots, dtype=float)
    best: tuple[float, tuple[int, ...]] | None = None
    for seed in range(_STARTS):
        start: dict[str, Any] = {"rng": np.random.default_rng(seed)}
        if seed:  # the first start is the barycenter
            start["P0"] = "randomized"
        rough = quadratic_assignment(nearness, apart, method="faq", options=start)
        guess = np.column_stack([np.arange(places), rough.col_ind])
        solution = quadratic_assignment(
            nearness,
            apart,
            method="2opt",
            options={"partial_guess": guess, "rng": np.random.default_rng(seed)},
        )
        cost, slot_of = float(solution.fun), tuple(int(slot) for slot in solution.col_ind[:count])
        if best is None or cost < best[0] - 1e-9:
            best = cost, slot_of
        if compare(guest, slots, best[1]).levelled == compare(guest, slots, best[1]).reversed == 0:
            break
    assert best is not None
    return best[1]


def compare(guest: Table, slots: Table, slot_of: Sequence[int]) -> Correspondence:
    """Compare the order of the guest's distances with that of the slots assigned to its nodes."""
    pairs = [(i, j) for i in range(len(guest)) for j in range(len(guest)) if i != j]
    both = [(guest[i][j], slots[slot_of[i]][slot_of[j]]) for i, j in pairs]
    counts = Counter(both)
    compared = opposite = same = 0
    for (near, host_near), many in counts.items():
        for (far, host_far), times in counts.items():
            if near < far:
                compared += many * times
                opposite += many * times * (host_near > host_far)
                same += many * times * (host_near == host_far)
    return Correspondence(
        _spearman([a for a, _ in both], [b for _, b in both]),
        compared,
        opposite,
        same,
        _worst(dict(zip(reversed(both), reversed(pairs), strict=True))),
    )


def _worst(example: dict[tuple[int, int], tuple[int, int]]) -> str:
    """Return, in words, the largest difference between the two orders."""
    wrong = [
        (host_near - host_far, far - near, (near, host_near), (far, host_far))
        for near, host_near in example
        for far, host_far in example
        if near < far and host_near >= host_far
    ]
    if not wrong:
        return ""
    _, _, near, far = max(wrong)
    (a, b), (c, d) = example[near], example[far]
    return (
        f"nodes {a} and {b} are nearer ({near[0]}) than {c} and {d} ({far[0]}),"
        f" but their host nodes are {near[1]} and {far[1]} apart"
    )


def _is_flat(slots: Table) -> bool:
    return len({d for i, row in enumerate(slots) for j, d in enumerate(row) if i != j}) <= 1


def _spearman(left: Sequence[int], right: Sequence[int]) -> float | None:
    """Spearman's rank correlation, ties sharing their mean rank; None if one side is constant."""
    if len(set(left)) < 2 or len(set(right)) < 2:
        return None
    from scipy.stats import spearmanr  # noqa: PLC0415 - as above

    return float(spearmanr(left, right).statistic)
