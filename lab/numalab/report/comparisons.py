"""Every measure of a cell, compared over its variants."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from pydantic import computed_field

from numalab.measure import MeasureInfo
from numalab.report.json_fields import NotInJson
from numalab.statistics.comparison import Comparison, Outcome, compare_table
from numalab.statistics.summary import Summary, Values, summarise

Samples = Mapping[str, Values]


@dataclass(frozen=True)
class VariantFigures:
    """The runs of one variant by one measure, and how they compare with the baseline's.

    All but `n` are null where no run could measure it, and the comparison's keys for the baseline
    itself. `interval` is the 95 % confidence interval of `difference`; `corrected` is `p_value`
    after Holm's correction over `family` measures.
    """

    n: int = 0
    mean: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    stddev: float | None = None
    harmonic_mean: float | None = None
    geometric_mean: float | None = None
    change_percent: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None
    test: str = ""
    p_value: float | None = None
    corrected: float | None = None
    family: int | None = None
    smallest_effect: float | None = None
    outcome: Outcome | None = None
    verdict: str = ""


_VERSUS = VariantFigures.__annotations__.keys() & Comparison.__annotations__.keys()


@dataclass(frozen=True)
class MeasureComparison:
    """One measure over all variants, in the order of `CellReport.variants`, which `names` repeats.

    A summary is None when no run of that variant could measure it. `changes` are percentages of
    the baseline's mean; None for the baseline itself and where that mean is 0 or absent. `versus`
    holds each variant's comparison with the baseline, None for the baseline itself. Outcome and
    verdict are those of the last variant.
    """

    measure: str
    summaries: NotInJson[tuple[Summary | None, ...]]
    changes: NotInJson[tuple[float | None, ...]]
    outcome: Outcome
    verdict: str
    versus: NotInJson[tuple[Comparison | None, ...]] = ()
    names: NotInJson[tuple[str, ...]] = ()

    @computed_field
    @property
    def variants(self) -> Mapping[str, VariantFigures]:
        """The figures by variant."""
        return {name: self._figures(place) for place, name in enumerate(self.names)}

    def _figures(self, place: int) -> VariantFigures:
        summary, versus = self.summaries[place], self.versus_of(place)
        compared = {name: getattr(versus, name) for name in _VERSUS} if versus else {}
        figures = asdict(summary) if summary else {}
        return VariantFigures(**figures, **compared, change_percent=self.changes[place])

    def versus_of(self, index: int) -> Comparison | None:
        """Return the comparison of variant `index` with the baseline, if it was made."""
        return self.versus[index] if index < len(self.versus) else None

    def differs(self, index: int) -> bool:
        """Return whether variant `index` differs from the baseline, in whichever direction."""
        return index > 0 and self.outcome_of(index) in {"better", "worse", "different"}

    def outcome_of(self, index: int) -> Outcome:
        """Return the outcome of variant `index` against the baseline."""
        versus = self.versus_of(index)
        return versus.outcome if versus else self.outcome


def compare_variants(
    measures: Sequence[MeasureInfo], key_measures: Sequence[str], variants: Mapping[str, Samples]
) -> tuple[MeasureComparison, ...]:
    """Compare every variant with the baseline, measure by measure.

    `variants` holds the values of the runs by measure, for each variant. The key measures are one
    family of Holm's correction and all other measures a second one, so that a hundred counters do
    not hide a change of a key measure. Identifiers are left out.
    """
    families: list[list[MeasureInfo]] = [[], []]
    measures = [info for info in measures if not info.is_identifier]
    for info in measures:
        families[info.name not in key_measures].append(info)
    base, *compared_sides = variants.values()
    baseline, *patched = variants
    compared: dict[str, MeasureComparison] = {}
    for family in families:
        results = compare_table(
            [
                (base.get(info.name, ()), other.get(info.name, ()), info.direction)
                for other in compared_sides
                for info in family
            ],
            [(baseline, name) for name in patched for _ in family],
        )
        for place, info in enumerate(family):
            compared[info.name] = _row(info.name, variants, results[place :: len(family)])
    return tuple(compared[info.name] for info in measures)


def _row(
    name: str, variants: Mapping[str, Samples], versus: Sequence[Comparison]
) -> MeasureComparison:
    last = versus[-1] if versus else None
    return MeasureComparison(
        measure=name,
        summaries=tuple(summarise(item.get(name, ())) for item in variants.values()),
        changes=(None, *(item.change for item in versus)),
        outcome=last.outcome if last else "not comparable",
        verdict=last.verdict if last else "only one variant has run",
        versus=(None, *versus),
        names=tuple(variants),
    )
