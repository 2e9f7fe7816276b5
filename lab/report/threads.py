"""The table of "sched/topology: fix sched groups on NUMA machines with mesh topology" (2017).

Mean and standard deviation before and after, and by how much the mean changed.
"""

from lab.report import figures
from lab.report.changelog import is_vm_counter, table_of_means
from lab.report.model import StudyReport


def render_threads(report: StudyReport) -> str:
    """Render a study as `mean stddev  mean stddev  +x%`, a line for each measure, plain ASCII.

    With more than two variants there is one table for each against the first. Counters of
    /proc/vmstat are left out. The percentage is plain: of a time, `+` is worse.
    """
    rows = [
        (figures.label(info), each)
        for each in report.comparisons
        if not is_vm_counter(info := report.measure(each.measure))
    ]
    names = [figures.plain_ascii(variant.name)[:15] for variant in report.variants]
    tables = [
        table_of_means(("Measure", names[0], names[index]), rows, index)
        for index in range(1, len(names))
    ]
    return "\n".join("".join(f"{line}\n" for line in table) for table in tables)
