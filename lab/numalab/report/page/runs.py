"""The runs of a page: every figure, the programs and hosts, and the placement."""

from collections.abc import Sequence
from typing import Any

from numalab.report import figures
from numalab.report.document import CellReport, Run

Json = dict[str, Any]


def run_values(report: CellReport) -> Json:
    """Return every figure of every run: a row for each measure, runs by variant and seed."""
    # A variant of which every run failed is not compared, but its runs are shown.
    order = list(
        dict.fromkeys([*(v.name for v in report.variants), *(r.variant for r in report.runs)])
    )
    runs = sorted(report.runs, key=lambda run: (order.index(run.variant), run.seed, run.id))
    summaries = {row.measure: row.summaries for row in report.comparisons}
    rows = []
    for info in report.measures:
        values = [run.measures.get(info.name) for run in runs]
        places = figures.decimals(values)
        if places:  # not for counts, whose stddev alone needs decimals
            places = max(places, figures.row_decimals(summaries.get(info.name, ())))
        cells = [(value, figures.number(value, places, grouped=True)) for value in values]
        rows.append((info, cells))
    counts = [(variant, sum(run.variant == variant for run in runs)) for variant in order]
    return {"runs": runs, "counts": counts, "rows": rows}


def shared_facts(runs: Sequence[Run]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the programs, host and image by name, with the runs of each value."""
    facts = [
        ("QEMU", [run.provenance.qemu for run in runs]),
        ("libvirt", [run.provenance.libvirt for run in runs]),
        ("host", [run.provenance.host for run in runs]),
        ("image", [f"{r.provenance.image} {r.provenance.image_digest}".strip() for r in runs]),
    ]
    return [(name, _by_value(runs, values)) for name, values in facts]


def _by_value(runs: Sequence[Run], values: Sequence[str]) -> list[tuple[str, str]]:
    """Return each distinct value with the runs that have it, or `all runs`."""
    distinct = list(dict.fromkeys(values))
    whose = [
        "all runs"
        if len(distinct) == 1
        else ", ".join(run.id for run, own in zip(runs, values, strict=True) if own == value)
        for value in distinct
    ]
    return list(zip(distinct, whose, strict=True))


def placement_facts(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the placement of the runs, and whether each fact is as requested."""
    facts = [(run.id, fact, fact.agrees) for run in runs for fact in run.provenance.proof]
    return {
        "summaries": _by_value(runs, [run.provenance.placement for run in runs]),
        "facts": facts,
        "agreeing": sum(agrees for _, _, agrees in facts),
    }
