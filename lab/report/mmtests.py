"""The tables that mmtests' `compare-kernels.sh` prints: `value ( pct%)`, better is positive.

The shapes are those of "sched/fair: Allow a small load imbalance between low utilisation SD_NUMA
domains" (2020): means first, then how they spread, then an `Ops` block of figures that are neither
better nor worse. A star stands where the difference from the first variant is shown, after
correction for the number of measures (`lab.analysis.statistics`); mmtests itself does not correct.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import harmonic_mean
from textwrap import wrap

from lab.analysis.measure import Direction
from lab.analysis.statistics import Summary, improvement_percent
from lab.report import figures
from lab.report.changelog import WIDTH, is_vm_counter
from lab.report.model import Comparison, StudyReport
from lab.report.numa_counters import numa_lines

VALUE, OPS_VALUE = 12, 15  # mmtests' column widths
SHOWN = {"better", "worse", "different"}
LONGEST_MEASURE, LONGEST_VARIANT = 48, 20  # longer names are cut


@dataclass(frozen=True)
class Row:
    """One line: a statistic of one operation, a value for each variant, the first is the base.

    `starred` says for each variant whether its difference from the first is significant.
    """

    statistic: str
    operation: str
    values: tuple[float | None, ...]
    direction: Direction
    starred: tuple[bool, ...]


def render_mmtests(report: StudyReport) -> str:
    """Render a study as mmtests' tables, plain ASCII; runs that failed are in no figure.

    Measures that have no better direction, and the counters of /proc/vmstat, come as `Ops` lines:
    the mean of all runs of a variant, without a percentage.
    """
    names = [_short(variant.name, LONGEST_VARIANT) for variant in report.variants]
    judged, told = [], []
    for each in report.comparisons:
        info = report.measure(each.measure)
        if info.direction != "none":
            judged.append(each)
        elif not is_vm_counter(info):
            told.append((_short(figures.label(info), LONGEST_MEASURE), _means(each)))
    head = f"{figures.plain_ascii(report.study)} -- {figures.plain_ascii(report.workload)}"
    blocks = [wrap(head, WIDTH, subsequent_indent="  ")]
    if judged:
        blocks.append(table_of_values(names, _rows(report, judged)))
    counters = _counter_lines(report)
    blocks.extend(table_of_operations(names, lines) for lines in (told, counters) if lines)
    blocks.append(_notes(report))
    text = "\n\n".join("\n".join(block) for block in blocks)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def table_of_values(names: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Lay out ` Hmean     64         568.73 (   0.00%)      577.56 *   1.55%*`, below the names."""
    cells = [[_cell(row, index) for index in range(len(names))] for row in rows]
    title = max(len(row.statistic) for row in rows)
    width = max(len(row.operation) for row in rows)
    sizes = [
        max(VALUE + 11, len(name) + 2, *(len(line[index].lstrip()) + 2 for line in cells))
        for index, name in enumerate(names)
    ]
    # Names end where the values do, as mmtests puts them.
    heads = "".join(f"{name:>{size}}" for name, size in zip(names, sizes, strict=True))
    lines = [f" {'':{title}} {'':{width}}{heads}"]
    for row, line in zip(rows, cells, strict=True):
        values = "".join(f"{cell:>{size}}" for cell, size in zip(line, sizes, strict=True))
        lines.append(f" {row.statistic:{title}} {row.operation:{width}}{values}")
    return lines


def table_of_operations(
    names: Sequence[str], lines: Sequence[tuple[str, Sequence[float | None]]]
) -> list[str]:
    """Lay out ` Ops NUMA hint faults   16113.00   143.00` below the names."""
    width = max(len(label) for label, _ in lines)
    texts = [
        [figures.NOT_SUPPORTED if v is None else f"{v:.2f}" for v in values] for _, values in lines
    ]
    sizes = [
        max(OPS_VALUE, len(name) + 2, *(len(line[index]) + 2 for line in texts))
        for index, name in enumerate(names)
    ]
    heads = "".join(f"{name:>{size}}" for name, size in zip(names, sizes, strict=True))
    found = [f" {'':{width + 4}}{heads}"]
    for (label, _), line in zip(lines, texts, strict=True):
        values = "".join(f"{text:>{size}}" for text, size in zip(line, sizes, strict=True))
        found.append(f" Ops {label:{width}}{values}")
    return found


def percent(base: float | None, value: float | None, direction: Direction) -> float | None:
    """Return the gain in percent of the base, positive is better; None where the base is 0.

    The same value is a gain of 0, also of 0.
    """
    if base is None or value is None:
        return None
    return 0.0 if base == value else improvement_percent(base, value, direction)


def _cell(row: Row, index: int) -> str:
    value = row.values[index]
    if value is None:
        return f"{figures.NOT_SUPPORTED:>{VALUE}}{'':11}"
    gain = percent(row.values[0], value, row.direction)
    left, right = "**" if row.starred[index] else "()"
    text = f"{gain:7.2f}%" if gain is not None else f"{_without(row.values[0]):>8}"
    return f"{value:{VALUE}.2f} {left}{text}{right}"


def _without(base: float | None) -> str:
    return "no base" if base is None else figures.FROM_ZERO


def _rows(report: StudyReport, judged: Sequence[Comparison]) -> list[Row]:
    """Make the rows, one statistic after the other as mmtests does."""
    means, spreads, parts, lows, highs = [], [], [], [], []
    for each in judged:
        info = report.measure(each.measure)
        name, way = _short(figures.label(info), LONGEST_MEASURE), info.direction
        plain = (False,) * len(each.summaries)
        means.append(_mean_row(report, each, name, way))
        spreads.append(Row("Stddev", name, _of(each, "stddev"), "lower", plain))
        parts.append(Row("CoeffVar", name, tuple(map(_spread, each.summaries)), "lower", plain))
        lows.append(Row("Min", name, _of(each, "minimum"), way, plain))
        highs.append(Row("Max", name, _of(each, "maximum"), way, plain))
    return [*lows, *means, *spreads, *parts, *highs]


def _mean_row(report: StudyReport, each: Comparison, name: str, way: Direction) -> Row:
    """Take the harmonic mean of rates (higher is better) that are all above 0, as mmtests does."""
    starred = tuple(
        index > 0 and each.outcome_of(index) in SHOWN for index in range(len(each.summaries))
    )
    samples = [report.values(variant.name, each.measure) for variant in report.variants]
    if way == "higher" and all(value > 0 for line in samples for value in line):
        means = tuple(harmonic_mean(line) if line else None for line in samples)
        return Row("Hmean", name, means, way, starred)
    return Row("Amean", name, _means(each), way, starred)


def _means(each: Comparison) -> tuple[float | None, ...]:
    return _of(each, "mean")


def _of(each: Comparison, what: str) -> tuple[float | None, ...]:
    return tuple(getattr(summary, what) if summary else None for summary in each.summaries)


def _spread(summary: Summary | None) -> float | None:
    """Return the coefficient of variation: the standard deviation in percent of the mean."""
    if summary is None or summary.stddev is None or not summary.mean:
        return None
    return 100 * summary.stddev / summary.mean


def _counter_lines(report: StudyReport) -> list[tuple[str, tuple[float | None, ...]]]:
    """Make the `NUMA ...` lines of the mean of all runs; those that no variant has are left out."""
    found = {
        each.measure.removeprefix("vmstat_"): _means(each)
        for each in report.comparisons
        if is_vm_counter(report.measure(each.measure))
    }
    sides = [
        numa_lines({name: means[index] for name, means in found.items()})
        for index in range(len(report.variants))
    ]
    lines = [(line[0][0], tuple(value for _, value in line)) for line in zip(*sides, strict=True)]
    return [(label, values) for label, values in lines if any(v is not None for v in values)]


def _notes(report: StudyReport) -> list[str]:
    kinds = {report.measure(each.measure).kind for each in report.comparisons}
    notes = [
        "positive percentages are better; * the difference from the first is shown",
        *(figures.kind_note(kind, report.mode) for kind in sorted(kinds)),
    ]
    if any(None in each.summaries for each in report.comparisons):
        notes.append(f"{figures.NOT_SUPPORTED}: not supported by the guest (not 0)")
    return [line for note in notes for line in wrap(note, WIDTH, subsequent_indent="  ")]


def _short(text: str, size: int) -> str:
    plain = figures.plain_ascii(text)
    return plain if len(plain) <= size else f"{plain[: size - 1]}~"
