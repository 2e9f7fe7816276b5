"""Finds the assignment of slots to guest nodes with the least cost (see `correspond`)."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, quadratic_assignment

_STARTS = 12
_MOST_COMPARED = 50_000  # 8 nodes on 8 are 40,320
_MOST_TRIED = 20_000

_Table = Sequence[Sequence[int]]


def cheapest(
    guest: _Table, slots: _Table, needs: _Table | None, wishes: _Table | None
) -> tuple[int, ...]:
    """Return the slot of each guest node, as `correspond.assign` does."""
    case, count, places = _case(guest, slots, needs, wishes), len(guest), len(slots)
    if math.perm(places, count) <= _MOST_COMPARED:
        return case.best(itertools.permutations(range(places), count))
    chosen = _improved(case, case.best(_guesses(case)))
    if case.disorder(chosen) and (ordered := _Search(case, chosen).slots()):
        chosen = _improved(case, case.best((chosen, ordered)))
    return chosen


def _improved(case: "_Case", chosen: tuple[int, ...]) -> tuple[int, ...]:
    """Improve an assignment with swaps and moves until none is better."""
    places = len(case.slots)
    while (better := case.best((chosen, *_neighbours(chosen, places)))) != chosen:
        chosen = better
    return chosen


def nearest(guest: _Table, hosts: _Table, candidates: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the first of the candidates that keep distances best; nodes may share host nodes.

    Of those that keep distances equally well, the fewest pairs of nodes share one.
    """
    return replace(_case(guest, hosts, None, None), close=0).best(candidates)


@dataclass(frozen=True)
class _Case:
    """An assignment to make, as arrays.

    `close`: 1 to let nodes that are all equally far lie close together, 0 otherwise.
    """

    guest: NDArray[np.int64]
    slots: NDArray[np.int64]
    needs: NDArray[np.int64]
    wishes: NDArray[np.int64]
    close: int = 1

    def nearness(self) -> NDArray[np.int64]:
        """Return 100 times the mean guest distance less each, in units that make it whole."""
        count = len(self.guest)
        pairs = count * (count - 1)
        total = int(self.guest.sum() - self.guest.trace())
        near = 100 * (total - pairs * self.guest) + self.close * pairs
        near[range(count), range(count)] = 0
        return near

    def best(self, assignments: Iterable[Sequence[int]]) -> tuple[int, ...]:
        """Return the best assignment, the first of equal ones."""
        tried = np.array(list(assignments))
        nodes = np.arange(len(self.guest))
        left, right = np.nonzero(1 - np.eye(len(nodes), dtype=int))
        apart = self.slots[tried[:, left], tried[:, right]]
        keys = (
            (tried[:, left] == tried[:, right]).sum(axis=1),
            apart @ self.nearness()[left, right],
            self.wishes[nodes, tried].sum(axis=1),
            self._wrong(self.guest[left, right], apart),
            self.needs[nodes, tried].sum(axis=1),
        )
        return tuple(int(slot) for slot in tried[np.lexsort(keys)[0]])

    def disorder(self, chosen: Sequence[int]) -> int:
        """Count the pairs of pairs that one assignment reverses or levels."""
        left, right = np.nonzero(1 - np.eye(len(self.guest), dtype=int))
        slots = np.array([chosen])
        apart = self.slots[slots[:, left], slots[:, right]]
        return int(self._wrong(self.guest[left, right], apart)[0])

    def _wrong(self, near: NDArray[np.int64], apart: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count, for each row of `apart`, the pairs of pairs that are reversed or levelled."""
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


def _case(guest: _Table, slots: _Table, needs: _Table | None, wishes: _Table | None) -> _Case:
    zero = np.zeros((len(guest), len(slots)), dtype=np.int64)
    return _Case(
        np.array(guest, dtype=np.int64),
        np.array(slots, dtype=np.int64),
        zero if needs is None else np.array(needs, dtype=np.int64),
        zero if wishes is None else np.array(wishes, dtype=np.int64),
    )


def _guesses(case: _Case) -> Iterator[tuple[int, ...]]:
    """Yield the best slots by themselves, and what the solver finds from several starts."""
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


class _Search:
    """Searches slots that keep the order of distances, by backtracking, in bounded steps.

    What slots lack may be no more in sum than with the assignment `chosen`.
    """

    def __init__(self, case: _Case, chosen: Sequence[int]) -> None:
        self._case = case
        self._steps = _MOST_TRIED
        self._ranks = np.unique(case.guest, return_inverse=True)[1].reshape(case.guest.shape)
        lacks = case.needs - case.needs.min(axis=1, keepdims=True)
        self._lacks, self._slack = lacks, int(lacks[range(len(chosen)), chosen].sum())
        order = [0]
        while len(order) < len(chosen):  # next the node that is nearest to one of these
            rest = [node for node in range(len(chosen)) if node not in order]
            order.append(rest[int(case.guest[order][:, rest].min(axis=0).argmin())])
        self._order = order

    def slots(self) -> tuple[int, ...] | None:
        """Return the slot of each guest node; None where none came up."""
        levels = int(self._ranks.max()) + 1
        none = np.full(levels, -1), np.full(levels, np.iinfo(np.int64).max)
        slots = self._rest([], self._slack, *none)
        if slots is None:
            return None
        return tuple(slots[self._order.index(node)] for node in range(len(slots)))

    def _rest(
        self, slots: list[int], slack: int, high: NDArray[np.int64], low: NDArray[np.int64]
    ) -> list[int] | None:
        """Complete `slots`; `high` and `low` are the host distances so far of each guest one."""
        if len(slots) == len(self._order):
            return slots
        node, before = self._order[len(slots)], self._order[: len(slots)]
        ranks = np.concatenate([self._ranks[node, before], self._ranks[before, node]])
        table = self._case.slots
        for slot in np.nonzero(self._lacks[node] <= slack)[0]:
            if slot in slots or self._steps <= 0:
                continue
            self._steps -= 1
            apart = np.concatenate([table[slot, slots], table[slots, slot]])
            highest, lowest = high.copy(), low.copy()
            np.maximum.at(highest, ranks, apart)
            np.minimum.at(lowest, ranks, apart)
            if (np.maximum.accumulate(highest)[:-1] < lowest[1:]).all():
                left = slack - int(self._lacks[node, slot])
                if whole := self._rest([*slots, int(slot)], left, highest, lowest):
                    return whole
        return None


def _neighbours(chosen: tuple[int, ...], places: int) -> Iterator[tuple[int, ...]]:
    """Yield all assignments in which two guest nodes swap slots, or one has a free slot."""
    for slot, other in itertools.combinations(range(places), 2):
        swap = {slot: other, other: slot}
        if slot in chosen or other in chosen:
            yield tuple(swap.get(place, place) for place in chosen)
