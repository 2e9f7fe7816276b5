"""Where tasks, processes and NUMA groups had their CPU time by slice, and when they converged.

A task has converged at the first border of slices from which on, at it and at every later border,
at least `CONVERGED_PERCENT` of its CPU time until the end of the window is on one node. Borders in
the last fifth of the window do not count: little time is left there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from numalab.recording.window import Slices

Level = Literal["task", "process", "group"]
CONVERGED_PERCENT = 80.0
SETTLED_FIFTHS = 4  # of the window; the rest, at its end, is not looked into

Times = npt.NDArray[np.int64]  # CPU time in ns by slice and node


@dataclass(frozen=True)
class Ranges:
    """What CPU time is divided by: nodes and slices of the window."""

    nodes: Sequence[int]
    slices: Slices


@dataclass(frozen=True)
class Resident:
    """A task, process or group and its CPU time in nanoseconds, by slice and node."""

    level: Level
    id: int
    name: str
    ns: Times


def residents(
    time: pl.DataFrame,
    level: Level,
    ranges: Ranges,
    *,
    names: Mapping[int, str],
    member_of: Mapping[int, int] | None = None,
) -> tuple[Resident, ...]:
    """Sum the CPU time of tasks by task, process or group, those with most time first.

    `time` has pid, node, slice, ns. `member_of` gives the process or group of a task; tasks without
    one are left out. `names` are by the number of the task, process or group.
    """
    nodes, slices = ranges.nodes, ranges.slices
    place = {node: at for at, node in enumerate(nodes)}
    times: dict[int, Times] = {}
    for pid, node, number, length in time.select("pid", "node", "slice", "ns").iter_rows():
        whose = pid if member_of is None else member_of.get(pid)
        if whose is None or node not in place or not 0 <= number < slices.count:
            continue
        table = times.setdefault(whose, np.zeros((slices.count, len(nodes)), np.int64))
        table[number, place[node]] += length
    made = [Resident(level, id_, names.get(id_, ""), ns) for id_, ns in times.items()]
    return tuple(sorted(made, key=lambda resident: (-int(resident.ns.sum()), resident.id)))


def converged_slice(ns: Times, slices: Slices) -> int | None:
    """Return the slice since whose beginning the time was on one node, None for never."""
    left = ns[::-1].cumsum(axis=0)[::-1]  # from each slice to the end
    total = left.sum(axis=1)
    if not total.size or not total[0]:
        return None
    last = _last_looked_at(total, slices)
    node = int(np.argmax(left[last]))
    share = 100 * left[: last + 1, node] / total[: last + 1]
    return _since(share < CONVERGED_PERCENT)


def converged_ms(ns: Times, slices: Slices) -> float | None:
    """Return since when (ms of the window) the time was on one node, None for never."""
    since = converged_slice(ns, slices)
    return None if since is None else since * slices.step_ns / 1e6


def spread_ms(ns: Times, weights: Sequence[int], slices: Slices) -> float | None:
    """Return since when (ms) the time was spread evenly over the nodes, None for never.

    Evenly: of the time left until the end, every node with a weight (its allowed CPUs) has at least
    `CONVERGED_PERCENT` of its share by weight. The last fifth of the window does not count.
    """
    wanted = np.array(weights, np.float64)
    left = ns[::-1].cumsum(axis=0)[::-1].astype(np.float64)
    total = left.sum(axis=1)
    if not wanted.sum() or not total.size or not total[0]:
        return None
    looked_at = slice(_last_looked_at(total, slices) + 1)
    even = total[looked_at, None] * wanted / wanted.sum()
    since = _since((left[looked_at] < CONVERGED_PERCENT / 100 * even).any(axis=1))
    return None if since is None else since * slices.step_ns / 1e6


def _last_looked_at(total: npt.NDArray[np.generic], slices: Slices) -> int:
    """Return the last slice whose beginning counts: before the last fifth, and with time left."""
    with_time = int(np.flatnonzero(total)[-1])
    length = slices.end_ns - slices.start_ns
    before = -(-SETTLED_FIFTHS * length // (5 * slices.step_ns)) - 1
    return min(with_time, max(0, before))


def _since(apart: npt.NDArray[np.bool_]) -> int | None:
    """Return the first slice after which nothing is apart any more, None where the last one is."""
    if apart[-1]:
        return None
    where = np.flatnonzero(apart)
    return int(where[-1]) + 1 if where.size else 0
