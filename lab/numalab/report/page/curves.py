"""Curves over time: the mean of the runs of each variant, with a band from their least to most."""

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


@dataclass(frozen=True)
class CurveLine:
    """One curve with its band. `color` is a place among the variants, or a colour of its own.

    Each point is (time in ms, mean, least, most, number of runs that have a value there).
    """

    label: str
    color: int | str
    points: tuple[tuple[float, float, float, float, int], ...]


@dataclass(frozen=True)
class Diagram:
    """Curves that share one pair of axes; `heading` tells diagrams of one series apart."""

    heading: str
    lines: tuple[CurveLine, ...]


@dataclass(frozen=True)
class Curves:
    """All diagrams of one kind of series, with the scale that they share."""

    name: str
    title: str
    unit: str
    diagrams: tuple[Diagram, ...]

    @property
    def most(self) -> float:
        """The largest value in any band."""
        return max(
            (
                point[3]
                for diagram in self.diagrams
                for curve in diagram.lines
                for point in curve.points
            ),
            default=0.0,
        )


def curves(report: CellReport) -> list[Curves]:
    """Return the diagrams of every series that some run has.

    A series with one label is one diagram of all variants; with a label for each node, there is a
    diagram for each variant, with nodes as lines.
    """
    length = max((run.findings.length_ms for run in report.findings), default=0.0)
    kinds: dict[str, dict[Place, dict[str, list[TimeSeries]]]] = {}
    for run in report.findings:
        for series in run.findings.series:
            variants = kinds.setdefault(series.name, {}).setdefault((series.node, series.link), {})
            variants.setdefault(run.variant, []).append(series)
    return [
        Curves(
            name,
            printable(first.title),
            first.unit,
            _diagrams(report, nodes, _grid(length, len(nodes))),
        )
        for name, nodes in kinds.items()
        for first in [next(iter(next(iter(nodes.values())).values()))[0]]
    ]


def _grid(length: float, lines: int) -> list[float]:
    """Return the ends of the steps that each of so many curves of a diagram has, in ms."""
    steps = max(1, min(MOST_STEPS, MOST_POINTS // max(1, lines)))
    return [length * (step + 1) / steps for step in range(steps)]


def _diagrams(
    report: CellReport,
    nodes: dict[Place, dict[str, list[TimeSeries]]],
    grid: Sequence[float],
) -> tuple[Diagram, ...]:
    names = [variant.name for variant in report.variants]
    if len(nodes) == 1:
        (variants,) = nodes.values()
        lines = [
            CurveLine(printable(name), place, _points(variants[name], grid))
            for place, name in enumerate(names)
            if name in variants
        ]
        return (Diagram("", tuple(lines)),)
    return tuple(
        Diagram(
            printable(name),
            tuple(
                CurveLine(
                    runs[name][0].label, _color(report, node, place), _points(runs[name], grid)
                )
                for place, (node, runs) in enumerate(nodes.items())
                if name in runs
            ),
        )
        for name in names
        if any(name in runs for runs in nodes.values())
    )


def _color(report: CellReport, owner: Place, place: int) -> int | str:
    node, link = owner
    if link is not None:
        return PALETTE[place % len(PALETTE)]
    return place if node is None else node_color(report.topology, node)


def _points(
    runs: Sequence[TimeSeries], grid: Sequence[float]
) -> tuple[tuple[float, float, float, float, int], ...]:
    points = []
    for at in grid:
        values = [value for run in runs if (value := _value(run, at)) is not None]
        if values:
            mean = sum(values) / len(values)
            points.append((at, mean, min(values), max(values), len(values)))
    return tuple(points)


def _value(series: TimeSeries, at_ms: float) -> float | None:
    """Return the value of the step that a moment lies in; None after the last."""
    place = bisect_left(series.at_ms, at_ms)
    return series.values[place] if place < len(series.values) else None


def by_column(line: CurveLine) -> dict[str, object]:
    """Pack a curve by column for the page, so that not every point names its columns."""
    return {
        "label": line.label,
        "color": line.color if isinstance(line.color, str) else "",
        "place": line.color if isinstance(line.color, int) else -1,
        "start": [round(at, 3) for at, *_ in line.points],
        "mean": [round(mean, 4) for _, mean, *_ in line.points],
        "low": [round(low, 4) for _, _, low, *_ in line.points],
        "high": [round(high, 4) for *_, high, _ in line.points],
        "runs": [count for *_, count in line.points],
    }
