"""The report as CSV: one row for each run and measure."""

import csv
import io
from collections.abc import Iterator, Sequence
from math import isfinite

from numalab.report import figures
from numalab.report.model import StudyReport

COLUMNS = (
    *("study", "topology", "workload", "mode", "variant", "kernel", "seed", "run", "status"),
    *("measure", "value", "unit", "direction", "kind"),
)


def render_csv(reports: Sequence[StudyReport]) -> str:
    """Render every measure of every run as CSV (RFC 4180, but lines end with a line feed).

    A value that the guest could not measure is empty, never 0. Runs that failed are listed as well;
    `status` tells.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for report in reports:
        for cells in _rows(report):
            writer.writerow(map(figures.printable, cells))
    return text.getvalue()


def _rows(report: StudyReport) -> Iterator[list[str]]:
    kernels = {variant.name: variant.kernel for variant in report.variants}
    place = [report.study, report.topology.name, report.workload_label, report.mode]
    for run in report.runs:
        about = [
            *place,
            run.variant,
            kernels.get(run.variant, ""),
            str(run.seed),
            run.id,
            run.ending,
        ]
        for reading in run.readings:
            info = report.measure(reading.measure)
            known = reading.value is not None and isfinite(reading.value)
            value = str(reading.value) if known else ""
            yield [*about, info.name, value, info.unit, info.direction, info.kind]
