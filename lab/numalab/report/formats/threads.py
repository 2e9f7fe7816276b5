"""The table of "sched/topology: fix sched groups on NUMA machines with mesh topology" (2017).

Mean and standard deviation before and after, and by how much the mean changed.
"""

from collections.abc import Iterator, Sequence

from numalab.report import cell_tables, formatting
from numalab.report.cell_tables import is_vm_counter
from numalab.report.comparisons import MeasureComparison
from numalab.report.document import CellReport, StudyResults
from numalab.report.formats.format import register_format
from numalab.report.tables import table_of_means
from numalab.report.unfinished import plain_block, wrapped_block

Rows = list[tuple[str, MeasureComparison]]
MOST_TABLES = 20


@register_format("threads")
def render_threads(study: StudyResults) -> str:
    """Render a study as `mean stddev  mean stddev  +x%`, plain ASCII.

    One cell has a line for each measure that is told of it but counters of /proc/vmstat: its key
    measures, what the workload printed, and what differs. Several have a table for
    each of the measures that they share, with a line for each cell: in the mail the cells are
    numbers of threads. With more than two variants there is one table for each against the first.
    The percentage is plain: of a time, `+` is worse. Cells of different variants have tables of
    their own. Runs without a result and what differs come first; of the measures that differ, the
    first `MOST_TABLES` have a table.
    """
    first = [*plain_block(study), *wrapped_block(formatting.difference_lines(study))]
    return "\n".join([*first, *map(_text, cell_tables.alike(study.reports))])


def _text(reports: Sequence[CellReport]) -> str:
    names = formatting.short_names([variant.name for variant in reports[0].variants], 15)
    tables = [
        [title, *table] if title else table
        for index in range(1, len(names))
        for title, head, rows in _tables(reports, index)
        for table in [table_of_means((head, names[0], names[index]), rows, index).lines]
    ]
    if len(names) == 1:
        tables = [[f"{names[0]} is the only variant: this form compares variants"]]
    return "\n".join("".join(f"{line}\n" for line in table) for table in tables)


def _tables(reports: Sequence[CellReport], index: int) -> Iterator[tuple[str, str, Rows]]:
    if len(reports) == 1:
        (report,) = reports
        listed = cell_tables.listed_comparisons(report, report.variants[index].name)
        infos = [(report.measure(row.measure), row) for row in listed]
        rows = [(formatting.label(info), row) for info, row in infos if not is_vm_counter(info)]
        if rows:
            yield "", "Measure", rows
        return
    axis = cell_tables.axis(reports)
    tables: dict[str, Rows] = {}
    for report, label in zip(reports, axis.labels, strict=True):
        for row in cell_tables.headlines(report):
            title = formatting.plain_ascii(formatting.label(report.measure(row.measure)))
            tables.setdefault(title, []).append((label, row))
    for title, rows in list(tables.items())[:MOST_TABLES]:
        yield f"{title}{axis.shared}", axis.title, rows
