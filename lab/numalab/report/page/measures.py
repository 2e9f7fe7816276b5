"""Measures as rows of a page's tables: figures, changes, intervals, verdicts and strips."""

from typing import Any

from markupsafe import Markup

from numalab.report import formatting
from numalab.report.comparisons import MeasureComparison
from numalab.report.document import CellReport
from numalab.statistics.comparison import Comparison
from numalab.statistics.summary import Summary

Json = dict[str, Any]
WIDTH, LINE, EDGE = 150, 14, 6  # pixels, of a strip


def measure_row(report: CellReport, row: MeasureComparison) -> Json:
    """Return a measure as a table shows it: figures, changes, verdict and a strip of all runs."""
    info = report.measure(row.measure)
    places = formatting.row_decimals(row.summaries)
    return {
        "info": info,
        "worth": report.mode.note(info.kind),
        "cells": [_summary(summary, places) for summary in row.summaries],
        "changes": [
            {
                "text": formatting.change(row, index),
                "value": row.changes[index],
                "outcome": row.outcome_of(index),
                **_statistics(row.versus_of(index)),
            }
            for index in range(1, len(report.variants))
        ],
        "n": formatting.samples(row.summaries),
        "strip": render_strip(report, row),
        "strip_text": "; ".join(
            ", ".join(f"{value:.4g}" for value in report.values(variant.name, info.name)) or "none"
            for variant in report.variants
        ),
    }


def _statistics(versus: Comparison | None) -> Json:
    """Return the interval, the corrected p and the smallest effect of a comparison."""
    corrected = versus.corrected if versus else None
    smallest = versus.smallest_effect if versus else None
    return {
        "interval": formatting.interval(versus),
        "p": "" if corrected is None else formatting.p_value(corrected),
        "p_value": corrected,
        "smallest": _smallest(versus, smallest) if versus and smallest else "",
        "smallest_value": smallest,
        "verdict": versus.verdict if versus else "",
    }


def _smallest(versus: Comparison, effect: float) -> str:
    percent = versus.percent(effect)
    if percent is None:
        return f"{effect:{',.0f' if effect >= 999.5 else '.3g'}}"
    return f"{percent:.2g}%" if percent < 99.5 else f"{percent:.0f}%"


def _summary(summary: Summary | None, places: int) -> Json:
    if summary is None:
        return {
            "mean": formatting.NOT_SUPPORTED,
            "stddev": "",
            "range": "",
            "value": None,
            "sd": None,
        }
    mean, stddev = formatting.mean_and_stddev(summary, places)
    ends = (summary.minimum, summary.maximum)
    return {
        "mean": mean,
        "stddev": stddev,
        "range": " to ".join(formatting.number(end, places, grouped=True) for end in ends),
        "value": summary.mean,
        "sd": summary.stddev,
    }


def render_strip(report: CellReport, row: MeasureComparison) -> Markup:
    """Draw a measure of every run on one scale from 0: a line for each variant, a dot for each run.

    A tick marks the mean. A share in percent is drawn on 0 to 100. The text alternative lists the
    values.
    """
    info = report.measure(row.measure)
    values = [report.values(variant.name, info.name) for variant in report.variants]
    flat = [value for line in values for value in line]
    low, high = min([0.0, *flat]), max([0.0, *flat])
    if info.unit.startswith("%") and low >= 0 and high <= 100:
        high = 100.0
    scale = (WIDTH - 2 * EDGE) / (high - low or 1.0)
    parts, texts = [], []
    for place, (variant, line) in enumerate(zip(report.variants, values, strict=True)):
        y = place * LINE + LINE / 2
        parts.append(f'<path class="base" d="M{EDGE} {y}H{WIDTH - EDGE}"/>')
        summary = row.summaries[place]
        if summary is not None:
            x = EDGE + (summary.mean - low) * scale
            parts.append(f'<path class="mean v{place}" d="M{x:.1f} {y - 6}V{y + 6}"/>')
        for value in line:
            x = EDGE + (value - low) * scale
            parts.append(f'<circle class="dot v{place}" cx="{x:.1f}" cy="{y}" r="3.2"/>')
        places = formatting.decimals(line) if line else 0
        listed = ", ".join(formatting.number(value, places) for value in line) or "none"
        texts.append(f"{variant.name}: {listed}")
    text = Markup.escape(
        formatting.printable(f"{'; '.join(texts)} {info.unit}; from {low:g} to {high:g}")
    )
    height = LINE * len(report.variants)
    return Markup(
        f'<svg class="strip" role="img" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}"><title>{text}</title>{"".join(parts)}</svg>'
    )
