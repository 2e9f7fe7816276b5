"""The headline measures without a shown change, and which change would have been seen."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean, median

from numalab.patch.candidates import HEADLINES, compare, is_notable, judged, least_effect, sample
from numalab.results.plan import Cell
from numalab.results.reader import StoredRun
from numalab.statistics.comparison import smallest_effect
from numalab.statistics.sequential import FreshSample
from numalab.statistics.summary import numbers

_FAMILY = 5  # screening asks for about 1 %, a fifth of the usual level


@dataclass(frozen=True)
class Unchanged:
    """A measure that shows no change in `cells` cells.

    `smallest` is the change that four of five such experiments would have seen in the median cell,
    `largest` the same in the cell with the largest spread, both in the unit of the measure; None
    where they would have seen no possible one. `excluded`: the means differ by less than the
    smallest change that is reported (`least_effect`), which would have been seen in each cell.
    """

    measure: str
    unit: str
    cells: int
    smallest: float | None
    largest: float | None
    excluded: bool


def unchanged_rows(
    runs: Sequence[StoredRun], cells: Sequence[Cell], shown: Collection[tuple[str, str, str]]
) -> Iterator[Unchanged]:
    """Yield up to two rows for a measure: the cells that exclude a change, and those that do not.

    `shown` are machine, load and measure of what is no absence of change.
    """
    infos = {info.name: info for info in judged(runs)}
    for name in filter(infos.__contains__, HEADLINES):
        effects: dict[bool, list[float]] = {True: [], False: []}
        for cell in cells:
            if (cell.topology, cell.label, name) in shown:
                continue
            sides, unit = sample(runs, cell, name), infos[name].unit
            effect = smallest_effect(sides.before, sides.after, runs=sides.fewest, family=_FAMILY)
            if effect is None:
                continue
            comparison = compare(sides)
            least = least_effect(comparison, unit)
            excluded = effect <= least and not is_notable(comparison, unit)
            possible = unit != "%" or _is_possible(effect, sides)
            effects[excluded].append(max(effect, least) if possible else inf)
        for excluded, row in effects.items():
            if row:
                middle, most = (None if size == inf else size for size in (median(row), max(row)))
                yield Unchanged(name, infos[name].unit, len(row), middle, most, excluded)


def _is_possible(effect: float, sides: FreshSample) -> bool:
    """Return whether a share of 0 to 100 % can change by so many points."""
    mean = fmean(numbers(sides.before))
    return effect <= max(mean, 100.0 - mean)
