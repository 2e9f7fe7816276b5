"""The tables that mmtests' `compare-kernels.sh` prints: `value ( pct%)`, better is positive.

The shapes are those of "sched/fair: Allow a small load imbalance between low utilisation SD_NUMA
domains" (2020): means first, then how they spread, then an `Ops` block of figures that are neither
better nor worse. A star stands where the difference from the first variant is shown, after
correction for the number of measures (`numalab.statistics`); mmtests itself does
not correct.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap

from numalab.analysis.measures.numa_balancing import (
    Counters,
    autonuma_cost,
    local_percent,
)
from numalab.measure import Direction, MeasureInfo
from numalab.report import cell_tables, formatting
from numalab.report.cell_tables import TIMES, is_vm_counter
from numalab.report.comparisons import MeasureComparison
from numalab.report.document import CellReport, StudyResults
from numalab.report.formats.format import register_format
from numalab.report.tables import WIDTH, gain_percent, right
from numalab.report.unfinished import plain_block, wrapped_block

VALUE, OPS_VALUE = 12, 15  # mmtests' column widths
DURATIONS = {"user_time": "User", "system_time": "System", "elapsed_time": "Elapsed"}
# A metric such as latency_p99_5, or latency_p99_5_16 of 16 workers.
PERCENTILE = re.compile(
    r"(?P<metric>\w+?)_p(?P<percent>99[._](?:5|9|95|99)|\d{1,2})(?:_(?P<label>\w+))?", re.ASCII
)
_PAGES_OF_A_PMD = 512  # base pages of a huge page on x86-64
LONGEST_MEASURE, LONGEST_VARIANT = 48, 20  # longer names are cut


@dataclass(frozen=True)
class MmtestsRow:
    """One line: a statistic of one operation, a value for each variant, the first is the base.

    `starred` says for each variant whether its difference from the first is significant.
    """

    statistic: str
    operation: str
    values: tuple[float | None, ...]
    direction: Direction
    starred: tuple[bool, ...]


@register_format("mmtests")
def render_mmtests(study: StudyResults) -> str:
    """Render a study as mmtests' tables, plain ASCII; runs without a result and what differs come
    first.

    Of several cells, their headline measures are the operations, as
    message sizes or numbers of workers are in mmtests. Measures that have no better direction come
    as `Ops` lines of one cell: the mean of all runs of a variant, without a percentage. So do the
    counters of /proc/vmstat, added up over the cells, as mmtests counts over a whole benchmark.
    Cells of different variants have tables of their own.
    """
    first = [*plain_block(study), *wrapped_block(formatting.difference_lines(study))]
    return "\n".join([*first, *map(_text, cell_tables.alike(study.reports))])


def _text(reports: Sequence[CellReport]) -> str:
    variants = [variant.name for variant in reports[0].variants]
    names = formatting.short_names(variants, LONGEST_VARIANT)
    uses = dict.fromkeys(report.workload.command for report in reports)
    what = next(iter(uses)) if len(uses) == 1 else f"{len(reports)} cells"
    alone = _only_headline(reports)
    of = f": {formatting.label(alone)}" if alone else ""
    machines = dict.fromkeys(report.topology.name for report in reports)
    where = f" on {next(iter(machines))}" if len(machines) == 1 else ""
    head = formatting.plain_ascii(f"{reports[0].study}{where} -- {what}{of}")
    blocks = [wrap(head, WIDTH, subsequent_indent="  ")]
    if rows := mmtests_rows(reports):
        blocks.append(table_of_values(names, rows))
    if durations := _durations(reports):
        blocks.append(table_of_operations(names, durations, "Duration"))
    operations, counters = _operations(reports), _counter_lines(reports)
    blocks.extend(table_of_operations(names, lines) for lines in (operations, counters) if lines)
    blocks.append(_notes(reports))
    text = "\n\n".join("\n".join(block) for block in blocks)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def table_of_values(names: Sequence[str], rows: Sequence[MmtestsRow]) -> list[str]:
    """Lay out ` Hmean     64         568.73 (   0.00%)      577.56 *   1.55%*`, below the names."""
    cells = [[_cell(row, index) for index in range(len(names))] for row in rows]
    title = max(len(row.statistic) for row in rows)
    labels = [f"{row.statistic:{title}} {row.operation}" for row in rows]
    return _below_names(names, labels, cells, VALUE + 11)


def _below_names(
    names: Sequence[str], labels: Sequence[str], cells: Sequence[Sequence[str]], least: int
) -> list[str]:
    """Lay out labelled values; the names end where the values do, as mmtests puts them."""
    sizes = [
        max(least, len(name) + 2, *(len(line[index].lstrip()) + 2 for line in cells))
        for index, name in enumerate(names)
    ]
    width = max(map(len, labels))
    lines = [("", names), *zip(labels, cells, strict=True)]
    return [f" {label:{width}}{right(line, sizes, '')}" for label, line in lines]


def table_of_operations(
    names: Sequence[str],
    lines: Sequence[tuple[str, Sequence[float | None]]],
    title: str = "Ops",
) -> list[str]:
    """Lay out ` Ops NUMA hint faults   16113.00   143.00` below the names."""
    texts = [
        [formatting.NOT_SUPPORTED if v is None else f"{v:.2f}" for v in values]
        for _, values in lines
    ]
    return _below_names(names, [f"{title} {label}" for label, _ in lines], texts, OPS_VALUE)


def _cell(row: MmtestsRow, index: int) -> str:
    value = row.values[index]
    if value is None:
        return f"{formatting.NOT_SUPPORTED:>{VALUE}}{'':11}"
    gain = gain_percent(row.values[0], value, row.direction)
    left, right = "**" if row.starred[index] else "()"
    why = "no base" if row.values[0] is None else formatting.FROM_ZERO
    text = f"{gain:7.2f}%" if gain is not None else f"{why:>8}"
    return f"{value:{VALUE}.2f} {left}{text}{right}"


def mmtests_rows(reports: Sequence[CellReport]) -> list[MmtestsRow]:
    """Make the rows, one statistic after the other as mmtests does, and cells within it.

    The times of the command are `Time` rows and percentiles of a latency `Lat` rows, as in the
    changelogs of 2015 and 2020, with the metric where there are several; all else has its mean,
    extremes and spread over the runs.
    """
    names = {row.measure for report in reports for row in report.comparisons}
    metrics = {match["metric"] for name in names if (match := PERCENTILE.fullmatch(name))}
    labels = cell_tables.axis(reports).labels if len(reports) > 1 else ("",)
    alone = _only_headline(reports)
    groups: dict[tuple[str, str], list[MmtestsRow]] = {}
    for report, label in zip(reports, labels, strict=True):
        shown = report.comparisons if len(reports) == 1 else _of_many(report)
        for comparison in shown:
            info = report.measure(comparison.measure)
            if info.direction != "none":
                name = _operation(info, label, alone=alone is not None, several=len(metrics) > 1)
                for row in _rows_of(report, comparison, name):
                    # Cells are together in a statistic, but all percentiles of one load.
                    group = info.name
                    if match := PERCENTILE.fullmatch(info.name):
                        group = f"{label} {match['metric']} {match['label']}"
                    groups.setdefault((row.statistic, group), []).append(row)
    order = ("Min", "Hmean", "Amean", "Stddev", "CoeffVar", "Max", "Time", "Lat")
    keys = sorted(groups, key=lambda key: order.index(key[0]))
    return [row for key in keys for row in groups[key]]


def _only_headline(reports: Sequence[CellReport]) -> MeasureInfo | None:
    """Return the measure of a table over several cells where there is but one, which names it."""
    infos = {
        info.name: info
        for report in reports
        for row in cell_tables.headlines(report)
        if not PERCENTILE.fullmatch((info := report.measure(row.measure)).name)
    }
    return next(iter(infos.values())) if len(reports) > 1 and len(infos) == 1 else None


def _of_many(report: CellReport) -> list[MeasureComparison]:
    times = [row for row in report.comparisons if row.measure in TIMES and any(row.summaries)]
    return [*cell_tables.headlines(report), *times]


def _operation(info: MeasureInfo, label: str, *, alone: bool, several: bool) -> str:
    """Name an operation: the measure of one cell, the cell of one measure, or both.

    Percentiles of `several` metrics have the name of theirs.
    """
    if info.name in TIMES:
        name = DURATIONS[info.name]
    elif match := PERCENTILE.fullmatch(info.name):
        name = f"{float(match['percent'].replace('_', '.')):.2f}th-qrtle"
        name = "-".join(filter(None, (match["metric"] if several else "", name, match["label"])))
    else:
        name = "" if alone else formatting.label(info)
    return formatting.cut("-".join(filter(None, (name, label))), LONGEST_MEASURE)


def _rows_of(report: CellReport, row: MeasureComparison, name: str) -> list[MmtestsRow]:
    info = report.measure(row.measure)
    way = info.direction
    plain = (False,) * len(row.summaries)
    starred = tuple(row.differs(index) for index in range(len(row.summaries)))
    means = _of(row, "mean")
    if info.name in TIMES or PERCENTILE.fullmatch(info.name):
        return [MmtestsRow("Time" if info.name in TIMES else "Lat", name, means, way, starred)]
    # Of rates (higher is better) that are all above 0, mmtests takes the harmonic mean.
    harmonic = _of(row, "harmonic_mean")
    rates = way == "higher" and all(
        value is not None for value, mean in zip(harmonic, means, strict=True) if mean is not None
    )
    return [
        MmtestsRow("Min", name, _of(row, "minimum"), way, plain),
        MmtestsRow("Hmean" if rates else "Amean", name, harmonic if rates else means, way, starred),
        MmtestsRow("Stddev", name, _of(row, "stddev"), Direction.LOWER, plain),
        MmtestsRow("CoeffVar", name, _variations(row), Direction.LOWER, plain),
        MmtestsRow("Max", name, _of(row, "maximum"), way, plain),
    ]


def _of(comparison: MeasureComparison, what: str) -> tuple[float | None, ...]:
    return tuple(getattr(summary, what) if summary else None for summary in comparison.summaries)


def _variations(comparison: MeasureComparison) -> tuple[float | None, ...]:
    """Return the coefficients of variation; of a mean of 0 it is 0, as in mmtests' Stat.pm."""
    return tuple(
        0.0 if summary and summary.mean == 0 and summary.stddev is not None else variation
        for summary, variation in zip(
            comparison.summaries, _of(comparison, "variation"), strict=True
        )
    )


def _operations(reports: Sequence[CellReport]) -> list[tuple[str, tuple[float | None, ...]]]:
    """Make the `Ops` lines of one cell; of several there is no room for them."""
    if len(reports) > 1:
        return []
    infos = [(reports[0].measure(row.measure), row) for row in reports[0].comparisons]
    return [
        (formatting.cut(formatting.label(info), LONGEST_MEASURE), _of(row, "mean"))
        for info, row in infos
        if info.direction == "none" and not is_vm_counter(info)
    ]


def _durations(reports: Sequence[CellReport]) -> list[tuple[str, tuple[float | None, ...]]]:
    """Add up the times of all cells, as mmtests does for a benchmark."""
    sums = _sums(reports, lambda info: info.name in TIMES)
    return [
        (word, sums[name]) for name, word in DURATIONS.items() if _any_number(sums.get(name, ()))
    ]


def _counter_lines(reports: Sequence[CellReport]) -> list[tuple[str, tuple[float | None, ...]]]:
    """Make the fault and `NUMA` lines of the mean of all runs, without those no variant has."""
    counters = {
        name.removeprefix("vmstat_"): means for name, means in _sums(reports, is_vm_counter).items()
    }
    sides = [
        numa_lines({name: means[index] for name, means in counters.items()})
        for index in range(len(reports[0].variants))
    ]
    lines = [(line[0][0], tuple(value for _, value in line)) for line in zip(*sides, strict=True)]
    return [(label, values) for label, values in lines if _any_number(values)]


def _any_number(values: Iterable[float | None]) -> bool:
    return any(value is not None for value in values)


def _sums(
    reports: Sequence[CellReport], wanted: Callable[[MeasureInfo], bool]
) -> dict[str, tuple[float | None, ...]]:
    """Add up the means of some measures over all cells; None where a cell could not measure it."""
    means: dict[str, list[tuple[float | None, ...]]] = {}
    for report in reports:
        for row in report.comparisons:
            if wanted(report.measure(row.measure)):
                means.setdefault(row.measure, []).append(_of(row, "mean"))
    return {
        name: tuple(
            None if None in side else sum(filter(None, side)) for side in zip(*rows, strict=True)
        )
        for name, rows in means.items()
    }


def _notes(reports: Sequence[CellReport]) -> list[str]:
    every = [(report, row) for report in reports for row in report.comparisons]
    kinds = {report.measure(row.measure).kind for report, row in every}
    notes = ["positive percentages are better; * the difference from the first is shown"]
    if len(reports) > 1:
        notes.append(f"Duration, fault and NUMA lines: the sum of all {len(reports)} cells")
    notes += [reports[0].mode.note(kind) for kind in sorted(kinds)]
    missing = any(None in row.summaries for _, row in every)
    alone = any(side and side.n == 1 for _, row in every for side in row.summaries)
    if missing or alone:
        why = ["no run measured it"] * missing + ["one run has no spread"] * alone
        why += ["a sum lacks a cell"] * (missing and len(reports) > 1)
        notes.append(f"{formatting.NOT_SUPPORTED}: {', or '.join(why)}; it is not 0")
    return [line for note in notes for line in wrap(note, WIDTH, subsequent_indent="  ")]


def numa_lines(counters: Counters) -> tuple[tuple[str, float | None], ...]:
    """Return label and value of the faults and of every `NUMA ...` line, in mmtests' order.

    The formulas are those of mmtests' vmstat report (`AutoNUMA cost model`), which the changelogs
    of "mm: numa: group related processes based on VMA flags" (2015) and "sched/fair: Allow a small
    load imbalance" (2020) print.

    `counters` are those of /proc/vmstat by name; one that is missing or None makes what rests on it
    None. Without any hinting fault the local percent is None (mmtests prints 100).
    """
    get = counters.get
    return (
        ("Minor Faults", _minor_faults(get("pgfault"), get("pgmajfault"))),
        ("Major Faults", get("pgmajfault")),
        ("NUMA alloc hit", get("numa_hit")),
        ("NUMA alloc miss", get("numa_miss")),
        ("NUMA interleave hit", get("numa_interleave")),
        ("NUMA alloc local", get("numa_local")),
        ("NUMA base-page range updates", page_range_updates(counters)),
        ("NUMA PTE updates", get("numa_pte_updates")),
        ("NUMA PMD updates", get("numa_huge_pte_updates")),
        ("NUMA hint faults", get("numa_hint_faults")),
        # mmtests' own label: it is a count.
        ("NUMA hint local faults %", get("numa_hint_faults_local")),
        ("NUMA hint local percent", local_percent(counters)),
        ("NUMA pages migrated", get("numa_pages_migrated")),
        ("AutoNUMA cost", autonuma_cost(counters)),
    )


def page_range_updates(counters: Counters) -> float | None:
    """Return what mmtests prints: numa_pte_updates, and 512 more for each huge page.

    numa_pte_updates contains those 512 already: change_pmd_range() in mm/mprotect.c (3.13 to 6.12).
    """
    base, huge = counters.get("numa_pte_updates"), counters.get("numa_huge_pte_updates")
    return None if base is None else base + _PAGES_OF_A_PMD * (huge or 0)


def _minor_faults(faults: float | None, major: float | None) -> float | None:
    """/proc/vmstat counts all faults, and the major ones among them."""
    return None if faults is None or major is None else faults - major
