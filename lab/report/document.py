"""The report as one JSON document: every measure of every run, and what they were compared to.

`docs/reports.md` describes the format. `version` rises when a key changes its meaning or goes
away; new keys alone do not raise it.
"""

import json
from dataclasses import asdict
from math import isfinite
from typing import Any

from lab.report import figures
from lab.report.model import Comparison, Run, StudyReport
from lab.topology.model import Topology

FORMAT = "numalab-report"
VERSION = 1

Json = dict[str, Any]


def report_document(report: StudyReport) -> Json:
    """Return the report as a document of objects, lists, texts and numbers.

    Timelines and the drawing are left out: they are in the runs' event tables and the page. A
    figure that a guest could not measure is null.
    """
    names = [variant.name for variant in report.variants]
    return {
        "format": FORMAT,
        "version": VERSION,
        "study": report.study,
        "question": report.question,
        "verdict": report.verdict,
        "reference": report.reference,
        "axis": report.axis,
        "created": report.created,
        "mode": {
            "name": report.mode,
            "reason": report.mode_reason,
            "placement": figures.kind_note("placement", report.mode),
            "timing": figures.kind_note("timing", report.mode),
        },
        "workload": report.workload,
        "again": list(report.again),
        "topology": _topology(report.topology),
        "variants": [asdict(variant) for variant in report.variants],
        "measures": [asdict(info) for info in report.measures],
        "key_measures": list(report.key_measures),
        "runs": [_run(run) for run in report.runs],
        "comparisons": [_comparison(each, names) for each in report.comparisons],
        "sched_domains": [asdict(domains) for domains in report.domains],
        "claims": [asdict(claim) for claim in report.claims],
    }


def render_document(report: StudyReport) -> str:
    """Return the document as JSON text with a final newline; never NaN or Infinity."""
    document = report_document(report)
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _topology(topology: Topology) -> Json:
    return {
        "name": topology.name,
        "summary": topology.summary,
        "nodes": [asdict(node) for node in topology.nodes],
        "distances": [list(row) for row in topology.distances],
    }


def _run(run: Run) -> Json:
    return {
        "id": run.id,
        "variant": run.variant,
        "seed": run.seed,
        "status": run.status,
        "seconds": run.seconds,
        "measures": {reading.measure: _finite(reading.value) for reading in run.readings},
        "provenance": asdict(run.provenance),
    }


def _comparison(comparison: Comparison, names: list[str]) -> Json:
    return {
        "measure": comparison.measure,
        "outcome": comparison.outcome,
        "verdict": comparison.verdict,
        "variants": {
            name: {**(asdict(summary) if summary else {"n": 0}), "change_percent": percent}
            for name, summary, percent in zip(
                names, comparison.summaries, comparison.changes, strict=True
            )
        },
    }


def _finite(value: float | int | None) -> float | int | None:
    return value if value is not None and isfinite(value) else None
