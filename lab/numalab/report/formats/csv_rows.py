"""The report as CSV: one row for each run and measure."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite

from numalab.report import figures
from numalab.report.document import CellReport, Run, StudyResults
from numalab.report.formats.format import register_format

COLUMNS = (
    *("study", "topology", "workload", "mode", "variant", "kernel", "seed", "run", "status"),
    *("measure", "value", "unit", "direction", "kind"),
)
_NO_MEASURE = ("",) * 5


@register_format("csv")
def render_csv(study: StudyResults) -> str:
    """Render every measure of every run as CSV (RFC 4180, but lines end with a line feed).

    A value that the guest could not measure is empty, never 0. Planned runs without a result come
    first, one row each without a measure; `status` has the reason.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for cells in (*_unfinished(study), *_finished(study)):
        *words, value, unit, direction, kind = map(figures.printable, cells)
        writer.writerow([*map(_no_formula, words), value, unit, direction, kind])
    return text.getvalue()


def _no_formula(cell: str) -> str:
    """Quote a text that a spreadsheet would take for a formula (OWASP, "CSV Injection")."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@")) else cell


def _unfinished(study: StudyResults) -> Iterator[list[str]]:
    for cell in study.unreported:
        place = [study.study, cell.cell.topology, cell.cell.label, ""]
        for run in cell.runs:
            yield [*_about(place, run, ""), *_NO_MEASURE]
    for report in study.reports:
        kernels = _kernels(report)
        for run in report.unfinished:
            yield [*_about(_place(report), run, kernels.get(run.variant, "")), *_NO_MEASURE]


def _finished(study: StudyResults) -> Iterator[list[str]]:
    for report in study.reports:
        yield from _rows(report)


def _rows(report: CellReport) -> Iterator[list[str]]:
    kernels = _kernels(report)
    for run in report.runs:
        about = _about(_place(report), run, kernels.get(run.variant, ""))
        for name, figure in run.measures.items():
            info = report.measure(name)
            value = str(figure) if figure is not None and isfinite(figure) else ""
            yield [*about, info.name, value, info.unit, info.direction, info.kind]


def _kernels(report: CellReport) -> Mapping[str, str]:
    return {variant.name: variant.kernel for variant in report.variants}


def _place(report: CellReport) -> list[str]:
    return [report.study, report.topology.name, report.workload.label, report.mode.name]


def _about(place: Sequence[str], run: Run, kernel: str) -> list[str]:
    return [*place, run.variant, kernel, str(run.seed), run.id, run.ending]
