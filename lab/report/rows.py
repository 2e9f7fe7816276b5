"""The report as CSV: one row for each run and measure."""

import csv
import io
from math import isfinite

from lab.report import figures
from lab.report.model import StudyReport

COLUMNS = (
    *("study", "topology", "mode", "variant", "kernel", "seed", "run", "status"),
    *("measure", "value", "unit", "direction", "kind"),
)


def render_csv(report: StudyReport) -> str:
    """Render every measure of every run as CSV (RFC 4180, but lines end with a line feed).

    A value that the guest could not measure is empty, never 0. Runs that failed are listed as well;
    `status` tells.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    kernels = {variant.name: variant.kernel for variant in report.variants}
    for run in report.runs:
        about = [report.study, report.topology.name, report.mode, run.variant]
        about += [kernels[run.variant], str(run.seed), run.id, run.status]
        for reading in run.readings:
            info = report.measure(reading.measure)
            known = reading.value is not None and isfinite(reading.value)
            value = str(reading.value) if known else ""
            cells = [*about, info.name, value, info.unit, info.direction, info.kind]
            writer.writerow(map(figures.printable, cells))
    return text.getvalue()
