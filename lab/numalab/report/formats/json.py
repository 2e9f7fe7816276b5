"""The report as one JSON document: every measure of every run, and what they were compared to.

`numalab.report.formats.document_format` is its shape, docs/report.schema.json its schema.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any, TypeVar

from numalab.measure import MeasureKind
from numalab.report import figures
from numalab.report.document import NOT_RUN, MeasureComparison, Run, StudyReport, StudyResults
from numalab.report.formats.document_format import (
    FORMAT,
    VERSION,
    CellDocument,
    ClaimDocument,
    ComparisonDocument,
    MeasureDocument,
    ModeDocument,
    ReportDocument,
    RunDocument,
    SideDocument,
    TopologyDocument,
    UnfinishedDocument,
    UnfinishedRunDocument,
    WorkloadDocument,
)

T = TypeVar("T")

_VERSUS = (
    *("difference", "interval", "test", "p_value", "corrected", "family", "smallest_effect"),
    *("outcome", "verdict"),
)


def report_document(study: StudyResults) -> dict[str, Any]:
    """Return a study's report as a document of objects, lists, texts and numbers.

    What is missing comes before the cells.

    Timelines and the drawing are left out: they are in the runs' event tables and the page. A
    figure that a guest could not measure is null. Half of a surrogate pair, which is no text to
    most readers of JSON, becomes U+FFFD.
    """
    first = study.reports[0] if study.reports else None
    document = asdict(
        _as(
            ReportDocument,
            study,
            format=FORMAT,
            version=VERSION,
            axis=first.axis if first else "kernel",
            created=first.created if first else "",
            again=list(study.commands),
            cells=[_cell(report) for report in study.reports],
            unfinished=_unfinished(study),
        )
    )
    cells, missing = document.pop("cells"), document.pop("unfinished")
    document |= ({"unfinished": missing} if missing else {}) | {"cells": cells}
    for cell in document["cells"]:
        if not cell["mode"]["model"]:  # only mode timed has one
            del cell["mode"]["model"], cell["mode"]["modelled"]
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    found: dict[str, Any] = json.loads(whole)
    return found


def _unfinished(study: StudyResults) -> UnfinishedDocument | None:
    missing = study.unfinished
    if not missing:
        return None
    runs = [
        _as(UnfinishedRunDocument, run, cell=cell, status=str(run.status or NOT_RUN))
        for cell, run in missing
    ]
    return UnfinishedDocument(
        cells_planned=study.cells,
        cells_finished=len(study.reports),
        runs_planned=study.planned,
        runs_finished=study.planned - len(missing),
        runs=runs,
    )


def render_document(study: StudyResults) -> str:
    """Return the document as JSON text with a final newline; never NaN or Infinity."""
    return json.dumps(report_document(study), indent=1, allow_nan=False) + "\n"


def _cell(report: StudyReport) -> CellDocument:
    names = [variant.name for variant in report.variants]
    return _as(
        CellDocument,
        report,
        mode=ModeDocument(
            name=report.mode,
            reason=report.mode_reason,
            placement=figures.kind_note(MeasureKind.PLACEMENT, report.mode),
            timing=figures.kind_note(MeasureKind.TIMING, report.mode),
            modelled=figures.MODELLED_NOTE if report.model else "",
            model=list(report.model),
        ),
        topology=_as(TopologyDocument, report.topology),
        workload=WorkloadDocument(
            name=report.workload_name,
            label=report.workload_label,
            command=report.workload,
            parameters=dict(report.parameters),
        ),
        measures=[_as(MeasureDocument, info) for info in report.measures],
        runs=[_run(run) for run in report.runs],
        comparisons=[_comparison(each, names) for each in report.comparisons],
        sched_domains=list(report.domains),
        claims=[_as(ClaimDocument, each, verdict=each.verdict_text) for each in report.claims],
    )


def _run(run: Run) -> RunDocument:
    measures = {reading.measure: _finite(reading.value) for reading in run.readings}
    return _as(RunDocument, run, status=run.ending, measures=measures)


def _comparison(comparison: MeasureComparison, names: Sequence[str]) -> ComparisonDocument:
    return ComparisonDocument(
        measure=comparison.measure,
        outcome=comparison.outcome,
        verdict=comparison.verdict,
        variants={name: _side(comparison, place) for place, name in enumerate(names)},
    )


def _side(comparison: MeasureComparison, place: int) -> SideDocument:
    summary = comparison.summaries[place]
    versus = comparison.versus[place] if comparison.versus else None
    told = {name: getattr(versus, name) for name in _VERSUS} if versus else {}
    figures_of = asdict(summary) if summary else {"n": 0}
    return SideDocument(**figures_of, **told, change_percent=comparison.changes[place])


def _as(kind: type[T], value: object, **other: object) -> T:
    """Make a part of the document: `other`, and of a value what has the names of its fields."""
    names = kind.__annotations__.keys() - other.keys()
    return kind(**{name: getattr(value, name) for name in names}, **other)


def _finite(value: float | int | None) -> float | int | None:
    return value if value is not None and isfinite(value) else None
