"""The report as one JSON document: every measure of every run, and what they were compared to.

`numalab.report.formats.document_format` is its shape, docs/report.schema.json its schema.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from numalab.measure import MeasureInfo, MeasureKind
from numalab.report import figures
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
    WorkloadDocument,
)
from numalab.report.model import ClaimOutcome, MeasureComparison, Run, StudyReport

_VERSUS = (
    *("difference", "interval", "test", "p_value", "corrected", "family", "smallest_effect"),
    *("outcome", "verdict"),
)


def report_document(reports: Sequence[StudyReport]) -> dict[str, Any]:
    """Return a study's report as a document of objects, lists, texts and numbers.

    Timelines and the drawing are left out: they are in the runs' event tables and the page. A
    figure that a guest could not measure is null. Half of a surrogate pair, which is no text to
    most readers of JSON, becomes U+FFFD.
    """
    first = reports[0]
    document = asdict(
        ReportDocument(
            format=FORMAT,
            version=VERSION,
            study=first.study,
            question=first.question,
            reference=first.reference,
            axis=first.axis,
            created=first.created,
            again=list(dict.fromkeys(line for report in reports for line in report.commands)),
            cells=[_cell(report) for report in reports],
        )
    )
    for cell in document["cells"]:
        if not cell["mode"]["model"]:  # only mode timed has one
            del cell["mode"]["model"], cell["mode"]["modelled"]
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    found: dict[str, Any] = json.loads(whole)
    return found


def render_document(reports: Sequence[StudyReport]) -> str:
    """Return the document as JSON text with a final newline; never NaN or Infinity."""
    return json.dumps(report_document(reports), indent=1, allow_nan=False) + "\n"


def _cell(report: StudyReport) -> CellDocument:
    topology = report.topology
    names = [variant.name for variant in report.variants]
    return CellDocument(
        cell=report.cell,
        verdict=report.verdict,
        remarks=list(report.remarks),
        mode=ModeDocument(
            name=report.mode,
            reason=report.mode_reason,
            placement=figures.kind_note(MeasureKind.PLACEMENT, report.mode),
            timing=figures.kind_note(MeasureKind.TIMING, report.mode),
            modelled=figures.MODELLED_NOTE if report.model else "",
            model=list(report.model),
        ),
        topology=TopologyDocument(
            name=topology.name,
            summary=topology.summary,
            nodes=list(topology.nodes),
            distances=[list(row) for row in topology.distances],
        ),
        workload=WorkloadDocument(
            name=report.workload_name,
            label=report.workload_label,
            command=report.workload,
            parameters=dict(report.parameters),
        ),
        variants=list(report.variants),
        measures=[_measure(info) for info in report.measures],
        key_measures=list(report.key_measures),
        runs=[_run(run) for run in report.runs],
        comparisons=[_comparison(each, names) for each in report.comparisons],
        sched_domains=list(report.domains),
        claims=[_claim(each) for each in report.claims],
    )


def _claim(claim: ClaimOutcome) -> ClaimDocument:
    return ClaimDocument(
        text=claim.text,
        expected=claim.expected,
        measured=claim.measured,
        holds=claim.holds,
        measure=claim.measure,
        kind=claim.kind,
        published=claim.published,
        verdict=claim.verdict_text,
        required=claim.required,
    )


def _measure(info: MeasureInfo) -> MeasureDocument:
    return MeasureDocument(
        info.name, info.unit, info.direction, info.kind, info.definition, info.source
    )


def _run(run: Run) -> RunDocument:
    return RunDocument(
        id=run.id,
        variant=run.variant,
        seed=run.seed,
        status=run.ending,
        seconds=run.seconds,
        measures={reading.measure: _finite(reading.value) for reading in run.readings},
        provenance=run.provenance,
    )


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


def _finite(value: float | int | None) -> float | int | None:
    return value if value is not None and isfinite(value) else None
