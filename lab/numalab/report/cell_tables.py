"""Several cells in one table: the labels of the cells, and the measures in the table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from numalab.measure import MeasureInfo, SourceKind
from numalab.report.comparisons import MeasureComparison
from numalab.report.document import CellReport
from numalab.units import counted


@dataclass(frozen=True)
class CellAxis:
    """The labels that distinguish the cells of a study, and the title of their column.

    `shared` names what all cells share, such as `, on ring-4`; it is empty where nothing is.
    """

    title: str
    labels: tuple[str, ...]
    shared: str = ""


def axis(reports: Sequence[CellReport]) -> CellAxis:
    """Return the labels of the cells of a study.

    Cells of one workload on one machine that differ in one parameter have its values as labels,
    such as `Threads 1 8 32 48` in the mail of 2017. Other cells have the label of the workload, the
    name of the machine, or both.
    """
    machines = {report.topology.name for report in reports}
    where = f", on {reports[0].topology.name}"
    if len(machines) == 1 and (parameter := _parameter(reports)) is not None:
        return replace(parameter, shared=f", {reports[0].workload.name}{where}")
    if len(machines) == 1:
        labels = tuple(report.workload.label or report.study for report in reports)
        return CellAxis("Workload", labels, where)
    if len({report.workload.label for report in reports}) == 1:
        names = tuple(report.topology.name for report in reports)
        return CellAxis("Machine", names, f", {reports[0].workload.label}")
    return CellAxis("Cell", tuple(report.cell for report in reports))


def alike(reports: Sequence[CellReport]) -> list[list[CellReport]]:
    """Group the cells that compare the same variants; only these fit into one table.

    A study's `exclude` may take a variant out of one cell and not of another.
    """
    groups: dict[tuple[str, ...], list[CellReport]] = {}
    for report in reports:
        groups.setdefault(tuple(variant.name for variant in report.variants), []).append(report)
    return list(groups.values())


def _parameter(reports: Sequence[CellReport]) -> CellAxis | None:
    if len({report.workload.name for report in reports}) != 1 or len(reports) < 2:
        return None
    names = dict.fromkeys(name for report in reports for name in report.workload.parameters)
    differing = [
        name
        for name in names
        if len({str(report.workload.parameters.get(name)) for report in reports}) == len(reports)
    ]
    varying = [
        name
        for name in names
        if name not in differing
        and len({str(report.workload.parameters.get(name)) for report in reports}) > 1
    ]
    if len(differing) != 1 or varying:
        return None
    labels = tuple(str(report.workload.parameters[differing[0]]) for report in reports)
    return CellAxis(differing[0].replace("_", " ").capitalize(), labels)


def is_event_count(info: MeasureInfo) -> bool:
    """Return whether a measure is the count of one trace event."""
    return info.unit in {"events", "count"} and info.comes_from(SourceKind.TRACE)


def is_perf_count(info: MeasureInfo) -> bool:
    """Return whether a measure is the count of one event by `perf stat`."""
    return info.comes_from(SourceKind.PERF)


def perf_event(info: MeasureInfo) -> str:
    """Return the event behind a measure of perf."""
    return info.sources[0].what or info.name.removeprefix("perf_")


def is_vm_counter(info: MeasureInfo) -> bool:
    """Return whether a measure is a counter of /proc/vmstat."""
    return info.unit == "count" and info.comes_from(SourceKind.VMSTAT)


def is_metric(info: MeasureInfo) -> bool:
    """Return whether a measure is a number that the workload printed."""
    return info.comes_from(SourceKind.WORKLOAD)


# The times of the workload's command, in the order and by the names of the 2018 mail.
TIMES = {"elapsed_time": "Real", "system_time": "Sys", "user_time": "User"}


@dataclass(frozen=True)
class Section:
    """Comparisons of one cell that a table lists below one heading."""

    heading: str
    rows: tuple[MeasureComparison, ...]


def sections(report: CellReport, variant: str | None = None) -> tuple[Section, ...]:
    """Return what a table of one cell lists: key measures, what differs, then metrics.

    What differs is in the order of `StudyResults.differences`; with `variant`, in this one. Of a
    single variant all measures are listed but the counters of /proc/vmstat.
    """
    rows = {row.measure: row for row in report.comparisons}
    metrics = [
        name
        for name in rows
        if is_metric(report.measure(name)) and report.measure(name).direction != "none"
    ]
    differing = dict.fromkeys(
        item.measure for item in report.compared if item.shown and variant in {None, item.variant}
    )
    named: dict[str, Sequence[str]] = {
        "key measures": [name for name in rows if name in report.key_measures],
        "differences": [name for name in differing if name in rows],
        "metrics of the workload": metrics,
    }
    if len(report.variants) == 1:
        named["other measures"] = [name for name in rows if not is_vm_counter(report.measure(name))]
    listed: set[str] = set()
    parts = []
    for heading, names in named.items():
        own = [name for name in names if name not in listed]
        listed.update(own)
        if own:
            parts.append(Section(heading, tuple(rows[name] for name in own)))
    return tuple(parts)


def listed_comparisons(report: CellReport, variant: str | None = None) -> list[MeasureComparison]:
    """Return the comparisons of one cell that a table lists, in the order of `sections`."""
    return [row for section in sections(report, variant) for row in section.rows]


def nothing_shown(rows: Sequence[MeasureComparison]) -> str:
    """Count the comparisons of a cell that show nothing, by their outcomes.

    Every form counts all measures of the cell, whichever it lists.
    """
    outcomes = [
        {versus.outcome for versus in row.versus if versus is not None} or {"not comparable"}
        for row in rows
    ]
    alone = sum(item == {"not comparable"} for item in outcomes)
    same = sum(item <= {"no difference shown", "not comparable"} for item in outcomes) - alone
    if not same:
        return f"{counted(alone, 'measure')}, not compared"
    more = f"; {alone} not comparable" * (alone > 0)
    return f"{same} of {counted(len(rows), 'measure')}: no difference shown{more}"


def headlines(report: CellReport) -> list[MeasureComparison]:
    """Return the comparisons for a table of several cells: those listed that have no other table.

    Times, counts and counters have tables of their own.
    """
    return [
        row for row in listed_comparisons(report) if not has_a_table(report.measure(row.measure))
    ]


def has_a_table(info: MeasureInfo) -> bool:
    """Return whether a measure is shown among times, counts or counters, not among means."""
    return info.name in TIMES or is_event_count(info) or is_perf_count(info) or is_vm_counter(info)
