"""Curves over time: the mean of the runs of each variant, with a band from minimum to maximum."""

from collections.abc import Sequence
from math import ceil
from typing import Any

from numalab.analysis.findings import TimeSeries
from numalab.recording.window import MAX_SLICES
from numalab.report.document import CellReport
from numalab.report.formatting import printable
from numalab.report.page.charts import PALETTE, node_color

MOST_STEPS = MAX_SLICES  # of a curve
MOST_POINTS = 1600  # of a diagram: 32 links of a large mesh have 50 steps each
_ROUNDING_MS = 1e-3  # by which the end of a slice may miss that of a step
Json = dict[str, Any]
Place = tuple[int | None, tuple[int, int] | None]  # node, link


def curves(report: CellReport) -> list[Json]:
    """Return the diagrams of every series of the runs, with `most`, the top of their scale.

    A series without nodes is one diagram of all variants; a series of nodes or links has a diagram
    for each variant. A line is packed by column; its colour is `color`, or that of the variant
    number `place`. A point is the mean of its step of time, `step` ms; its band has every value in
    the step. Steps without a value are left out.
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
        diagrams = _diagrams(report, places, length / steps or 1.0, steps)
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
    report: CellReport,
    places: dict[Place, dict[str, list[TimeSeries]]],
    width: float,
    steps: int,
) -> list[tuple[str, list[Json]]]:
    names = [variant.name for variant in report.variants]
    if len(places) == 1:
        (runs,) = places.values()
        lines = [
            {"label": printable(name), "color": "", "place": index}
            | _columns(runs[name], width, steps)
            for index, name in enumerate(names)
            if name in runs
        ]
        return [("", lines)]
    by_variant = {
        name: [
            {"label": runs[name][0].label, "color": "", "place": -1}
            | _color(report, place, index)
            | _columns(runs[name], width, steps)
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


def _columns(runs: Sequence[TimeSeries], width: float, steps: int) -> Json:
    """Return the mean, minimum and maximum of the runs in each step of time that a run reaches."""
    columns: Json = {"step": width, "start": [], "mean": [], "low": [], "high": [], "runs": []}
    for place, of_runs in enumerate(zip(*(_parts(run, width, steps) for run in runs), strict=True)):
        reached = [parts for parts in of_runs if parts]
        if reached:
            means = [
                sum(length * value for length, value in parts) / sum(length for length, _ in parts)
                for parts in reached
            ]
            values = [value for parts in reached for _, value in parts]
            columns["start"].append(round((place + 1) * width, 3))
            columns["mean"].append(round(sum(means) / len(means), 4))
            columns["low"].append(round(min(values), 4))
            columns["high"].append(round(max(values), 4))
            columns["runs"].append(len(reached))
    return columns


def _parts(series: TimeSeries, width: float, steps: int) -> list[list[tuple[float, float]]]:
    """Return for each step of `width` ms the values in it, each with its length in ms."""
    parts: list[list[tuple[float, float]]] = [[] for _ in range(steps)]
    for begin, end, value in zip((0.0, *series.at_ms), series.at_ms, series.values, strict=False):
        first, last = int((begin + _ROUNDING_MS) / width), ceil((end - _ROUNDING_MS) / width)
        for place in range(first, min(last, steps)):
            length = min(end, (place + 1) * width) - max(begin, place * width)
            if value is not None and length > 0:
                parts[place].append((length, value))
    return parts
