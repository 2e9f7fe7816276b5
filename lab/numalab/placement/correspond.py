"""Assigns host nodes to guest nodes so that their distances correspond best.

The order of distances comes first, as times are valid only if no pair of pairs changes it. Then
that is a quadratic assignment (Koopmans and Beckmann 1957): give each guest node a host node so
that the sum over pairs of nearness(guest pair) x distance(host pair) is smallest. Nearness counts
from the mean guest distance, so a pair that is further than that wants a far host pair: the sum is
the covariance of the two tables, negated. On small hosts all assignments are compared. On others,
scipy's solver is a heuristic (Vogelstein et al. 2015): it starts several times, with fixed seeds,
and swaps improve the best. If that changes the order of distances, a bounded search tries to keep
it; with dozens of host nodes it may miss an assignment that does.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

Table = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Correspondence:
    """The agreement between the orders of the host's and the guest's distances.

    `rank_correlation`: Spearman's rho over all ordered pairs of guest nodes (1.0: the same order;
    None where all distances of the guest or of the host are the same). `compared`: pairs of pairs
    whose guest distances differ; of those, `reversed` have the opposite order on the host, and
    `levelled` the same host distance. `worst` shows one reversed or levelled case, in words.
    `parted` shows two pairs whose distances are equal in the guest, and those of their host nodes
    not; empty for none.
    """

    rank_correlation: float | None
    compared: int
    reversed: int
    levelled: int
    worst: str
    parted: str = ""


NOT_COMPARED = Correspondence(None, 0, 0, 0, "")


def assign(
    guest: Table, slots: Table, needs: Table | None = None, wishes: Table | None = None
) -> tuple[int, ...]:
    """Return the slot of each guest node, all different.

    `guest` and `slots` are square tables of distances; there are at least as many slots as guest
    nodes. `needs[node][slot]` and `wishes[node][slot]` are costs of a slot; their sums come before
    and after the order of distances. Of equal assignments, the first by slot numbers is returned.
    """
    count = len(guest)
    costs = [table for table in (needs, wishes) if table is not None]
    if count == 1 or _is_flat(slots):
        first = tuple(range(count))
        if all(min(row) == row[slot] for table in costs for slot, row in enumerate(table)):
            return first
    # It takes 0.2 s to load, and most hosts have one node.
    from numalab.placement.assignment import cheapest  # noqa: PLC0415

    return cheapest(guest, slots, needs, wishes)


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
    example = dict(zip(reversed(both), reversed(pairs), strict=True))
    return Correspondence(
        _spearman([a for a, _ in both], [b for _, b in both]),
        compared,
        opposite,
        same,
        _worst(example),
        _parted(example),
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


def _parted(example: dict[tuple[int, int], tuple[int, int]]) -> str:
    """Return, in words, the two pairs of equal guest distance that differ most on the host."""
    spans: dict[int, list[int]] = {}
    for distance, on_host in example:
        spans.setdefault(distance, []).append(on_host)
    distance = max(spans, key=lambda key: max(spans[key]) - min(spans[key]), default=0)
    near, far = min(spans.get(distance, [0])), max(spans.get(distance, [0]))
    if near == far:
        return ""
    (a, b), (c, d) = example[distance, near], example[distance, far]
    return (
        f"nodes {a} and {b} are as far apart as {c} and {d} ({distance}),"
        f" but their host nodes are {near} and {far} apart"
    )


def _is_flat(slots: Table) -> bool:
    return len({d for i, row in enumerate(slots) for j, d in enumerate(row) if i != j}) <= 1


def _spearman(left: Sequence[int], right: Sequence[int]) -> float | None:
    """Spearman's rank correlation, ties sharing their mean rank; None if one side is constant."""
    if len(set(left)) < 2 or len(set(right)) < 2:
        return None
    from scipy.stats import spearmanr  # noqa: PLC0415 - as above

    return float(spearmanr(left, right).statistic)
