"""Curves over time: the mean of the runs of each variant, with a band from minimum to maximum."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from numalab.analysis.findings import TimeSeries
from numalab.report.document import CellReport
from numalab.report.figures import printable
from numalab.report.page.charts import PALETTE, node_color

MOST_STEPS = 100  # of a curve
MOST_POINTS = 1600  # of a diagram: 32 links of a large mesh have 50 steps each
Place = tuple[int | None, tuple[int, int] | None]  # node, link
Point = tuple[float, float, float, float, int]  # time [ms], mean, minimum, maximum, runs


@dataclass(frozen=True)
class CurveLine:
    """One curve with its band. `color` is the index of a variant, or a colour of its own."""

    label: str
    color: int | str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Diagram:
    """Curves that share one pair of axes; `heading` distinguishes the diagrams of one series."""

    heading: str
    lines: tuple[CurveLine, ...]


@dataclass(frozen=True)
class Curves:
    """All diagrams of one kind of series, with one scale."""

    name: str
    title: str
    unit: str
    diagrams: tuple[Diagram, ...]

    @property
    def most(self) -> float:
        """The largest value in any band."""
        lines = (line for diagram in self.diagrams for line in diagram.lines)
        return max((point[3] for line in lines for point in line.points), default=0.0)


def curves(report: CellReport) -> list[Curves]:
    """Return the diagrams of every series of the runs.

    A series without nodes is one diagram of all variants; a series of nodes or links has a diagram
    for each variant.
    """
    length = max((run.findings.length_ms for run in report.findings), default=0.0)
    kinds: dict[str, dict[Place, dict[str, list[TimeSeries]]]] = {}
    for run in report.findings:
        for series in run.findings.series:
            variants = kinds.setdefault(series.name, {}).setdefault((series.node, series.link), {})
            variants.setdefault(run.variant, []).append(series)
    result = []
    for name, places in kinds.items():
        first = next(iter(next(iter(places.values())).values()))[0]
        steps = max(1, min(MOST_STEPS, MOST_POINTS // max(1, len(places))))
        ends = [length * (step + 1) / steps for step in range(steps)]
        diagrams = _diagrams(report, places, ends)
        result.append(Curves(name, printable(first.title), first.unit, diagrams))
    return result


def _diagrams(
    report: CellReport, places: dict[Place, dict[str, list[TimeSeries]]], ends: Sequence[float]
) -> tuple[Diagram, ...]:
    names = [variant.name for variant in report.variants]
    if len(places) == 1:
        (runs,) = places.values()
        lines = [
            CurveLine(printable(name), index, _points(runs[name], ends))
            for index, name in enumerate(names)
            if name in runs
        ]
        return (Diagram("", tuple(lines)),)
    by_variant = {
        name: tuple(
            CurveLine(runs[name][0].label, _color(report, place, index), _points(runs[name], ends))
            for index, (place, runs) in enumerate(places.items())
            if name in runs
        )
        for name in names
    }
    return tuple(Diagram(printable(name), lines) for name, lines in by_variant.items() if lines)


def _color(report: CellReport, place: Place, index: int) -> int | str:
    node, link = place
    if link is not None:
        return PALETTE[index % len(PALETTE)]
    return index if node is None else node_color(report.topology, node)


def _points(runs: Sequence[TimeSeries], ends: Sequence[float]) -> tuple[Point, ...]:
    points = []
    for end in ends:
        values = [value for run in runs if (value := _value(run, end)) is not None]
        if values:
            points.append((end, sum(values) / len(values), min(values), max(values), len(values)))
    return tuple(points)


def _value(series: TimeSeries, at_ms: float) -> float | None:
    """Return the value of the step at a time; None after the last step."""
    index = bisect_left(series.at_ms, at_ms)
    return series.values[index] if index < len(series.values) else None


def by_column(line: CurveLine) -> dict[str, object]:
    """Pack a curve by column for the page."""
    at, mean, low, high, runs = zip(*line.points, strict=True) if line.points else ((),) * 5
    return {
        "label": line.label,
        "color": line.color if isinstance(line.color, str) else "",
        "place": line.color if isinstance(line.color, int) else -1,
        "start": [round(value, 3) for value in at],
        "mean": [round(value, 4) for value in mean],
        "low": [round(value, 4) for value in low],
        "high": [round(value, 4) for value in high],
        "runs": list(runs),
    }
