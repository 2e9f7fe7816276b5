"""What differs between the variants of a study, cell by cell: every format shows it first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from pydantic import computed_field

from numalab.measure import Direction, MeasureInfo, MeasureKind, SourceKind
from numalab.report.comparisons import MeasureComparison
from numalab.report.json_fields import NotInJson
from numalab.statistics.comparison import LEVEL, Comparison, Outcome, holm

Role = Literal["key", "metric", "other"]
ROLES: tuple[Role, ...] = ("key", "metric", "other")
OUTCOMES: tuple[Outcome, ...] = (
    "worse", "better", "different", "no difference shown", "not comparable"
)  # fmt: skip


@dataclass(frozen=True)
class MeasureDifference:
    """One measure of one variant against the baseline, in one cell.

    `role` is `key` for a key measure or the measure of a claim, `metric` for a number with a better
    direction that the workload printed. `overall` is the p value corrected over all cells of the
    study: Holm's correction over the key measures of all cells, or over all their other measures.
    """

    measure: str
    unit: str
    direction: Direction
    kind: MeasureKind
    role: Role
    variant: str
    comparison: NotInJson[Comparison]
    overall: float | None = None

    @computed_field
    @property
    def outcome(self) -> Outcome:
        """The outcome in its cell."""
        return self.comparison.outcome

    @computed_field
    @property
    def change_percent(self) -> float | None:
        """The change in percent of the baseline's mean; null where that is 0 or missing."""
        return self.comparison.change

    @property
    def shown(self) -> bool:
        """Whether the runs of the cell show a difference, in whichever direction."""
        return self.comparison.shown

    @property
    def sure(self) -> bool:
        """Whether the difference is shown, and stays significant among all cells of the study."""
        return self.shown and self.overall is not None and self.overall < LEVEL


@dataclass(frozen=True)
class CellDifferences:
    """What differs in one cell, most important first.

    `same` are the key measures and the metrics of the workload that show no difference.
    """

    cell: str
    machine: str
    workload: str
    shown: tuple[MeasureDifference, ...]
    same: tuple[MeasureDifference, ...]

    @property
    def outcomes(self) -> frozenset[Outcome]:
        """The outcomes among the differences: `worse`, `better`, `different`."""
        return frozenset(difference.outcome for difference in self.shown)


def compared(
    measures: Sequence[MeasureInfo],
    key_measures: Sequence[str],
    comparisons: Sequence[MeasureComparison],
) -> tuple[MeasureDifference, ...]:
    """Return every comparison of a cell with the baseline, most important first.

    The order is by role, then worse, better, different, then by corrected p.
    """
    infos = {info.name: info for info in measures}
    every = [
        _difference(infos[row.measure], row.measure in key_measures, variant, versus)
        for row in comparisons
        for variant, versus in zip(row.names, row.versus, strict=False)
        if versus is not None
    ]
    return tuple(sorted(every, key=_importance))


def _difference(
    info: MeasureInfo, key: bool, variant: str, versus: Comparison
) -> MeasureDifference:
    metric = info.comes_from(SourceKind.WORKLOAD) and info.direction is not Direction.NONE
    role: Role = "key" if key else "metric" if metric else "other"
    return MeasureDifference(info.name, info.unit, info.direction, info.kind, role, variant, versus)


def _importance(difference: MeasureDifference) -> tuple[int, int, float]:
    corrected = difference.comparison.corrected
    return (
        ROLES.index(difference.role),
        OUTCOMES.index(difference.outcome),
        inf if corrected is None else corrected,
    )


def in_cell(
    cell: str, machine: str, workload: str, every: Iterable[MeasureDifference]
) -> CellDifferences:
    """Sort the comparisons of a cell into what differs, and what should but does not."""
    every = tuple(every)
    return CellDifferences(
        cell=cell,
        machine=machine,
        workload=workload,
        shown=tuple(item for item in every if item.shown),
        same=tuple(item for item in every if item.role != "other" and not item.shown),
    )


def over_all_cells(cells: Sequence[Sequence[MeasureDifference]]) -> list[list[MeasureDifference]]:
    """Add `overall` to the comparisons of some cells.

    Each cell has an error rate of its own, so among twenty cells one would differ by chance. The
    key measures of all cells are one family of Holm's correction, all other measures another.
    """
    corrected: dict[tuple[int, int], float] = {}
    for key in (True, False):
        tests = [
            (number, place, item.comparison.p_value)
            for number, cell in enumerate(cells)
            for place, item in enumerate(cell)
            if (item.role == "key") == key and item.comparison.p_value is not None
        ]
        values = holm([p_value for _, _, p_value in tests])
        corrected |= {
            (number, place): value for (number, place, _), value in zip(tests, values, strict=True)
        }
    return [
        [replace(item, overall=corrected.get((number, place))) for place, item in enumerate(cell)]
        for number, cell in enumerate(cells)
    ]


def ranked(cells: Iterable[CellDifferences]) -> tuple[CellDifferences, ...]:
    """Order cells: those with something worse first, then better, different, no difference."""
    return tuple(sorted(cells, key=_rank))


def _rank(cell: CellDifferences) -> tuple[int, int]:
    return min(
        ((OUTCOMES.index(item.outcome), ROLES.index(item.role)) for item in cell.shown),
        default=(len(OUTCOMES), 0),
    )
