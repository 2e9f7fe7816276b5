"""The report as CSV: one row for each run and measure."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from math import isfinite

from numalab.report import formatting
from numalab.report.document import CellReport, Run, StudyResults, UnreportedCell
from numalab.report.formats.format import register_format

COLUMNS = (
    *("study", "topology", "workload", "mode", "variant", "kernel", "seed", "run", "status"),
    *("measure", "value", "unit", "direction", "kind"),
)
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")


@register_format("csv")
def render_csv(study: StudyResults) -> str:
    """Render every measure of every run as CSV (RFC 4180, but lines end with a line feed).

    A value that the guest could not measure is empty, never 0. Planned runs without a result come
    first, one row each without a measure; `status` has the reason.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for cells in _rows(study):
        writer.writerow(map(csv_text, cells))
    return text.getvalue()


def csv_text(text: str) -> str:
    """Return a printable text that no spreadsheet takes for a formula (OWASP, "CSV Injection").

    A number stays as it is, also a negative one.
    """
    quoted = text.startswith(("=", "+", "-", "@")) and not _NUMBER.fullmatch(text)
    return formatting.printable(f"'{text}" if quoted else text)


def _rows(study: StudyResults) -> Iterator[list[str]]:
    cells: list[tuple[list[str], CellReport | UnreportedCell]] = [
        ([cell.cell.topology, cell.cell.label, ""], cell) for cell in study.unreported
    ]
    cells += [
        ([report.topology.name, report.workload.label, report.mode.name], report)
        for report in study.reports
    ]
    for unfinished in (True, False):
        for place, cell in cells:
            variants = cell.variants if isinstance(cell, CellReport) else ()
            kernels = {variant.name: variant.kernel for variant in variants}
            for run in cell.runs:
                about = [run.variant, kernels.get(run.variant, ""), str(run.seed), run.id]
                for figure in _no_figure(run) if unfinished else _figures(run, cell):
                    yield [study.study, *place, *about, run.ending, *figure]


def _no_figure(run: Run) -> list[Sequence[str]]:
    return [] if run.ok else [("",) * 5]


def _figures(run: Run, cell: CellReport | UnreportedCell) -> Iterator[Sequence[str]]:
    if isinstance(cell, UnreportedCell):
        return
    for name, figure in run.measures.items():
        info = cell.measure(name)
        value = str(figure) if figure is not None and isfinite(figure) else ""
        yield (info.name, value, info.unit, info.direction, info.kind)
