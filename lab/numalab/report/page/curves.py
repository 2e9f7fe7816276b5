"""Curves over time: the mean of the runs of each variant, with a band from minimum to maximum."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from numalab.analysis.findings import TimeSeries
from numalab.report.document import CellReport
from numalab.report.formatting import printable
from numalab.report.page.charts import PALETTE, node_color

MOST_STEPS = 100  # of a curve
MOST_POINTS = 1600  # of a diagram: 32 links of a large mesh have 50 steps each
Json = dict[str, Any]
Place = tuple[int | None, tuple[int, int] | None]  # node, link


def curves(report: CellReport) -> list[Json]:
    """Return the diagrams of every series of the runs, with `most`, the top of their scale.

    A series without nodes is one diagram of all variants; a series of nodes or links has a diagram
    for each variant. A line is packed by column; its colour is `color`, or that of the variant
    number `place`.
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
        highs = [high for _, lines in diagrams for line in lines for high in line["high"]]
        result.append(
            {
                "name": name,
                "title": printable(first.title),
                "unit": first.unit,
                "most": max(highs, default=0.0),
                "diagrams": [{"heading": head, "lines": lines} for head, lines in diagrams],
            }
        )
    return result


def _diagrams(
    report: CellReport, places: dict[Place, dict[str, list[TimeSeries]]], ends: Sequence[float]
) -> list[tuple[str, list[Json]]]:
    names = [variant.name for variant in report.variants]
    if len(places) == 1:
        (runs,) = places.values()
        lines = [
            {"label": printable(name), "color": "", "place": index} | _columns(runs[name], ends)
            for index, name in enumerate(names)
            if name in runs
        ]
        return [("", lines)]
    by_variant = {
        name: [
            {"label": runs[name][0].label, "color": "", "place": -1}
            | _color(report, place, index)
            | _columns(runs[name], ends)
            for index, (place, runs) in enumerate(places.items())
            if name in runs
        ]
        for name in names
    }
    return [(printable(name), lines) for name, lines in by_variant.items() if lines]


def _color(report: CellReport, place: Place, index: int) -> Json:
    node, link = place
    if link is not None:
        return {"color": PALETTE[index % len(PALETTE)]}
    return {"place": index} if node is None else {"color": node_color(report.topology, node)}


def _columns(runs: Sequence[TimeSeries], ends: Sequence[float]) -> Json:
    """Return the mean, minimum and maximum of the runs at each time that a run reaches."""
    steps = [(end, [v for run in runs if (v := _value(run, end)) is not None]) for end in ends]
    reached = [(end, values) for end, values in steps if values]
    return {
        "start": [round(end, 3) for end, _ in reached],
        "mean": [round(sum(values) / len(values), 4) for _, values in reached],
        "low": [round(min(values), 4) for _, values in reached],
        "high": [round(max(values), 4) for _, values in reached],
        "runs": [len(values) for _, values in reached],
    }


def _value(series: TimeSeries, at_ms: float) -> float | None:
    """Return the value of the step at a time; None after the last step."""
    index = bisect_left(series.at_ms, at_ms)
    return series.values[index] if index < len(series.values) else None
