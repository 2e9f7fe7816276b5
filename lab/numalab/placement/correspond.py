"""Assigns host nodes to guest nodes so that their distances correspond best.

The order of distances comes first, as times are valid only if no pair of pairs changes it. Then
that is a quadratic assignment (Koopmans and Beckmann 1957): give each guest node a host node so
that the sum over pairs of nearness(guest pair) x distance(host pair) is smallest. Nearness counts
from the mean guest distance, so a pair that is further than that wants a far host pair: the sum is
the covariance of the two tables, negated. On small hosts all assignments are compared. On others,
scipy's solver is a heuristic (Vogelstein et al. 2015): it starts several times, with fixed seeds,
and swaps improve the best.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Table = Sequence[Sequence[int]]

_STARTS = 12
_MOST_COMPARED = 50_000  # 8 nodes on 8 are 40,320


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


def assign(
    guest: Table, slots: Table, needs: Table | None = None, wishes: Table | None = None
) -> tuple[int, ...]:
    """Return the slot of each guest node, all different.

    `guest` and `slots` are square tables of distances; there are at least as many slots as guest
    nodes. `needs[node][slot]` and `wishes[node][slot]` are costs of a slot; their sums come before
    and after the order of distances. Of equal assignments, the first by slot numbers is returned.
    """
    count, places = len(guest), len(slots)
    costs = [table for table in (needs, wishes) if table is not None]
    if count == 1 or _is_flat(slots):
        first = tuple(range(count))
        if all(min(row) == row[slot] for table in costs for slot, row in enumerate(table)):
            return first
    # It takes 0.2 s to load, and most hosts have one node.
    import numpy as np  # noqa: PLC0415

    zero = np.zeros((count, places), dtype=np.int64)
    case = _Case(
        np.array(guest, dtype=np.int64),
        np.array(slots, dtype=np.int64),
        zero if needs is None else np.array(needs, dtype=np.int64),
        zero if wishes is None else np.array(wishes, dtype=np.int64),
    )
    if math.perm(places, count) <= _MOST_COMPARED:
        return case.best(itertools.permutations(range(places), count))
    chosen = case.best(_guesses(case))
    while (better := case.best((chosen, *_neighbours(chosen, places)))) != chosen:
        chosen = better
    return chosen


@dataclass(frozen=True)
class _Case:
    """An assignment to make, as arrays."""

    guest: "NDArray[np.int64]"
    slots: "NDArray[np.int64]"
    needs: "NDArray[np.int64]"
    wishes: "NDArray[np.int64]"

    def nearness(self) -> "NDArray[np.int64]":
        """Return 100 times the mean guest distance less each, in units that make it whole."""
        count = len(self.guest)
        pairs = count * (count - 1)
        total = int(self.guest.sum() - self.guest.trace())
        # The last term lets nodes that are all equally far lie close together.
        near = 100 * (total - pairs * self.guest) + pairs
        near[range(count), range(count)] = 0
        return near

    def best(self, assignments: Iterable[Sequence[int]]) -> tuple[int, ...]:
        """Return the best assignment, the first of equal ones."""
        import numpy as np  # noqa: PLC0415

        tried = np.array(list(assignments))
        nodes = np.arange(len(self.guest))
        left, right = np.nonzero(1 - np.eye(len(nodes), dtype=int))
        apart = self.slots[tried[:, left], tried[:, right]]
        keys = (
            apart @ self.nearness()[left, right],
            self.wishes[nodes, tried].sum(axis=1),
            self._wrong(self.guest[left, right], apart),
            self.needs[nodes, tried].sum(axis=1),
        )
        return tuple(int(slot) for slot in tried[np.lexsort(keys)[0]])

    def _wrong(self, near: "NDArray[np.int64]", apart: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Count, for each row of `apart`, the pairs of pairs that are reversed or levelled."""
        import numpy as np  # noqa: PLC0415

        levels = np.unique(self.slots)
        wrong = np.zeros(len(apart), dtype=np.int64)
        nearer = np.zeros((len(levels), len(apart)), dtype=np.int64)
        for distance in np.unique(near):
            pairs = apart[:, near == distance]
            counts = np.array([(pairs == level).sum(axis=1) for level in levels])
            wrong += (counts * nearer).sum(axis=0)
            # Nearer pairs on the guest that are as far apart on the host, or farther.
            nearer += counts[::-1].cumsum(axis=0)[::-1]
        return wrong


def _guesses(case: _Case) -> Iterator[tuple[int, ...]]:
    """Yield the best slots by themselves, and what the solver finds from several starts."""
    import numpy as np  # noqa: PLC0415
    from scipy.optimize import linear_sum_assignment, quadratic_assignment  # noqa: PLC0415

    count, places = case.needs.shape
    yield tuple(linear_sum_assignment(case.needs)[1])
    nearness = np.zeros((places, places))  # padded with nodes to which distance does not matter
    nearness[:count, :count] = case.nearness()
    apart = case.slots.astype(float)
    for seed in range(_STARTS):
        start: dict[str, Any] = {"rng": np.random.default_rng(seed)}
        if seed:  # the first start is the barycenter
            start["P0"] = "randomized"
        rough = quadratic_assignment(nearness, apart, method="faq", options=start)
        guess = np.column_stack([np.arange(places), rough.col_ind])
        options = {"partial_guess": guess, "rng": np.random.default_rng(seed)}
        solution = quadratic_assignment(nearness, apart, method="2opt", options=options)
        yield tuple(solution.col_ind[:count])


def _neighbours(chosen: tuple[int, ...], places: int) -> Iterator[tuple[int, ...]]:
    """Yield all assignments in which two guest nodes swap slots, or one has a free slot."""
    for slot, other in itertools.combinations(range(places), 2):
        swap = {slot: other, other: slot}
        if slot in chosen or other in chosen:
            yield tuple(swap.get(place, place) for place in chosen)


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
