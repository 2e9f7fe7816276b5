"""Every measure of a cell compared over its variants, as a report shows it."""

from collections.abc import Mapping, Sequence

from numalab.measure import MeasureInfo
from numalab.report.document import MeasureComparison
from numalab.statistics.comparison import Comparison, compare_table
from numalab.statistics.summary import Values, summarise

Samples = Mapping[str, Values]


def compare_variants(
    measures: Sequence[MeasureInfo], key_measures: Sequence[str], variants: Sequence[Samples]
) -> tuple[MeasureComparison, ...]:
    """Compare every variant with the first, measure by measure; the last's outcome is the row's.

    `variants` gives for each the values of its runs by measure. The key measures are what the study
    is about, so they are corrected among themselves, and all others as a second family: counting a
    hundred counters must not hide what was asked for.
    """
    families: list[list[MeasureInfo]] = [[], []]
    for info in measures:
        families[info.name not in key_measures].append(info)
    found: dict[str, MeasureComparison] = {}
    for family in families:
        compared = compare_table(
            [
                (variants[0].get(info.name, ()), other.get(info.name, ()), info.direction)
                for other in variants[1:]
                for info in family
            ]
        )
        for place, info in enumerate(family):
            found[info.name] = _row(info.name, variants, compared[place :: len(family)])
    return tuple(found[info.name] for info in measures)


def _row(name: str, variants: Sequence[Samples], versus: Sequence[Comparison]) -> MeasureComparison:
    last = versus[-1] if versus else None
    return MeasureComparison(
        measure=name,
        summaries=tuple(summarise(each.get(name, ())) for each in variants),
        changes=(None, *(each.change for each in versus)),
        outcome=last.outcome if last else "not comparable",
        verdict=last.verdict if last else "only one variant has run",
        versus=(None, *versus),
    )
