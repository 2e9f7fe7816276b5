"""Measures as rows of a page's tables: figures, changes, intervals and verdicts."""

from typing import Any

from numalab.report import figures
from numalab.report.comparisons import MeasureComparison
from numalab.report.document import CellReport
from numalab.report.page.strips import render_strip
from numalab.statistics.comparison import Comparison
from numalab.statistics.summary import Summary

Json = dict[str, Any]


def measure_row(report: CellReport, comparison: MeasureComparison) -> Json:
    """Return what a table shows of a measure: figures, changes, verdict and a strip of all runs."""
    info = report.measure(comparison.measure)
    places = figures.row_decimals(comparison.summaries)
    return {
        "info": info,
        "worth": report.mode.note(info.kind),
        "cells": [_summary(summary, places) for summary in comparison.summaries],
        "changes": [
            {
                "text": figures.change(comparison, index),
                "value": comparison.changes[index],
                "outcome": comparison.outcome_of(index),
                **_sureness(comparison.versus[index] if comparison.versus else None),
            }
            for index in range(1, len(report.variants))
        ],
        "n": figures.samples(comparison),
        "outcome": comparison.outcome,
        "verdict": comparison.verdict,
        "strip": render_strip(report, comparison),
        "strip_text": "; ".join(
            ", ".join(f"{value:.4g}" for value in report.values(variant.name, info.name)) or "none"
            for variant in report.variants
        ),
    }


def _sureness(versus: Comparison | None) -> Json:
    """Return how sure a change is: interval, p after correction, and what could have been shown."""
    corrected = versus.corrected if versus else None
    smallest = versus.smallest_effect if versus else None
    return {
        "interval": figures.interval(versus),
        "p": "" if corrected is None else figures.p_value(corrected),
        "p_value": corrected,
        "smallest": _smallest(versus, smallest) if versus and smallest else "",
        "smallest_value": smallest,
        "verdict": versus.verdict if versus else "",
    }


def _smallest(versus: Comparison, effect: float) -> str:
    percent = versus.percent(effect)
    if percent is None:
        return f"{effect:.3g}"
    return f"{percent:.2g}%" if percent < 100 else f"{percent:.0f}%"


def _summary(summary: Summary | None, places: int) -> Json:
    if summary is None:
        return {"mean": figures.NOT_SUPPORTED, "stddev": "", "range": "", "value": None, "sd": None}
    return {
        "mean": figures.number(summary.mean, places, grouped=True),
        "stddev": ""
        if summary.stddev is None
        else figures.number(summary.stddev, places, grouped=True),
        "range": f"{figures.number(summary.minimum, places, grouped=True)} to "
        f"{figures.number(summary.maximum, places, grouped=True)}",
        "value": summary.mean,
        "sd": summary.stddev,
    }


def run_values(report: CellReport) -> Json:
    """Return every figure of every run: a row for each measure, runs by variant and seed."""
    # A variant of which every run failed is not compared, but its runs are shown.
    order = list(
        dict.fromkeys([*(v.name for v in report.variants), *(r.variant for r in report.runs)])
    )
    runs = sorted(report.runs, key=lambda run: (order.index(run.variant), run.seed, run.id))
    measures = [run.measures for run in runs]
    rows = []
    summaries = {row.measure: row.summaries for row in report.comparisons}
    for info in report.measures:
        values = [values.get(info.name) for values in measures]
        places = figures.decimals(values)
        if places:  # not for counts, whose stddev alone needs decimals
            places = max(places, figures.row_decimals(summaries.get(info.name, ())))
        cells = [(value, figures.number(value, places, grouped=True)) for value in values]
        rows.append((info, cells))
    counts = [(variant, sum(run.variant == variant for run in runs)) for variant in order]
    return {"runs": runs, "counts": counts, "rows": rows}
