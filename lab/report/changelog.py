"""`changelog.txt`: the before/after tables that kernel changelogs use, ready for a mail.

The shapes are those of two mails to the kernel's list. The table of means (`mean stddev mean
stddev %`) is that of "sched/topology: fix sched groups on NUMA machines with mesh topology"
(2017); the blocks of counts are those of "Fixes for sched/numa_balancing" (2018), where the
first is what `perf stat -r` prints. Plain ASCII, at most 75 columns.
"""

from collections.abc import Iterable, Sequence
from math import sqrt
from textwrap import wrap

from lab.analysis.statistics import Summary
from lab.report import figures
from lab.report.model import Comparison, MeasureInfo, StudyReport, Variant

WIDTH = 75
GAP = "  "
INDENT = " " * 10


def render_changelog(report: StudyReport) -> str:
    """Render a study as text for a changelog or a mail, in lines without trailing blanks.

    With more than two variants there is one table for each against the first.
    """
    blocks = [_header(report)]
    for index, variant in enumerate(report.variants[1:], 1):
        blocks.extend(_pair(report, variant, index))
    blocks.append(_footer(report))
    text = "\n\n".join("\n".join(block) for block in blocks if block)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def is_event_count(info: MeasureInfo) -> bool:
    """Say whether a measure is the count of one trace event, as `perf stat` prints them."""
    return info.unit in {"events", "count"} and info.source.startswith("trace")


def is_vm_counter(info: MeasureInfo) -> bool:
    """Say whether a measure is a counter of /proc/vmstat."""
    return info.source.startswith("/proc/vmstat")


def table_of_means(
    head: tuple[str, str, str], rows: Sequence[tuple[str, Comparison]], index: int = 1
) -> list[str]:
    """Lay out the `mean stddev  mean stddev  %` table: titles, then labelled comparisons.

    `head` names the first column and the two variants. Figures are right-aligned; a label too long
    for its column continues on lines of its own, so no line is wider than 75 columns.
    """
    cells = [_cells(comparison, index) for _, comparison in rows]
    titles = ("mean", "stddev", "mean", "stddev", "%")
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    widths[1] += max(0, len(head[1]) - sum(widths[:2]) - len(GAP))
    widths[3] += max(0, len(head[2]) - sum(widths[2:4]) - len(GAP))
    room = WIDTH - sum(widths) - len(GAP) * len(widths)
    labels = [wrap(figures.plain_ascii(text), room) or [""] for text, _ in rows]
    width = max(len(line) for lines in [[head[0]], *labels] for line in lines)

    spans = [widths[0] + len(GAP) + widths[1], widths[2] + len(GAP) + widths[3], widths[4]]
    first = GAP.join(text.rjust(span) for text, span in zip([*head[1:], "%"], spans, strict=True))
    second = GAP.join(t.rjust(w) for t, w in zip([*titles[:4], ""], widths, strict=True))
    lines = [f"{head[0]:{width}}{GAP}{first}", f"{'':{width}}{GAP}{second}"]
    for label, row in zip(labels, cells, strict=True):
        values = GAP.join(cell.rjust(size) for cell, size in zip(row, widths, strict=True))
        lines.append(f"{label[0]:{width}}{GAP}{values}")
        lines.extend(f"  {line}" for line in label[1:])
    return [line.rstrip() for line in lines]


def relative_error(summary: Summary) -> float | None:
    """Return perf stat's `+- x%`: the standard error of the mean, in percent of the mean.

    `rel_stddev_stats(stddev_stats())` in tools/perf/util/stat.c (6.12), where `stddev_stats()` is
    sqrt(variance / n) with the sample's variance. None for one run or a mean of 0.
    """
    if summary.stddev is None or summary.mean == 0:
        return None
    return 100 * summary.stddev / sqrt(summary.n) / abs(summary.mean)


def table_of_counts(
    head: tuple[str, str], rows: Sequence[tuple[str, Summary | None, Summary | None]]
) -> list[str]:
    """Lay out counts as `perf stat -r` prints them: `name  555 ( +- 25.92% )  8 ( +- 38.45% )`."""
    columns = [[_count(summary) for summary in side] for side in zip(*_sides(rows), strict=True)]
    sizes = [max((len(cell[0]) for cell in column), default=0) for column in columns]
    noises = [max((len(cell[1]) for cell in column), default=0) for column in columns]
    cells = [
        [f"{value:>{size}} {noise:{room}}" if room else value for value, noise in column]
        for column, size, room in zip(columns, sizes, noises, strict=True)
    ]
    return _two_columns(head, [name for name, _, _ in rows], cells)


def table_of_sums(
    head: tuple[str, str], rows: Sequence[tuple[str, Summary | None, Summary | None]]
) -> list[str]:
    """Lay out counters as sums over all runs, the vmstat block of the 2018 mail."""
    cells = [
        [figures.NOT_SUPPORTED if s is None else f"{s.mean * s.n:.0f}" for s in side]
        for side in zip(*_sides(rows), strict=True)
    ]
    return _two_columns(head, [name for name, _, _ in rows], cells)


def _sides(
    rows: Sequence[tuple[str, Summary | None, Summary | None]],
) -> list[tuple[Summary | None, Summary | None]]:
    return [(before, after) for _, before, after in rows]


def _count(summary: Summary | None) -> tuple[str, str]:
    if summary is None:
        return figures.NOT_SUPPORTED, ""
    places = 0 if abs(summary.mean) >= 10 else figures.decimals([summary.mean])
    error = relative_error(summary)
    percent = " >999%" if error and error >= 999.995 else f"{error or 0:6.2f}%"
    noise = f"( +-{percent} )" if error else ""
    return figures.number(summary.mean, min(places, 1), grouped=True), noise


def _two_columns(
    head: tuple[str, str], names: Sequence[str], cells: Sequence[Sequence[str]]
) -> list[str]:
    texts = [figures.plain_ascii(name) for name in names]
    heads = [figures.plain_ascii(text) for text in head]
    sizes = [max(len(text), *map(len, column)) for text, column in zip(heads, cells, strict=True)]
    width = min(max(1, *map(len, texts)), WIDTH - sum(sizes) - 2 * len(GAP))
    lines = [GAP.join([" " * width, *(h.rjust(s) for h, s in zip(heads, sizes, strict=True))])]
    for text, *row in zip(texts, *cells, strict=True):
        first, *rest = wrap(text, width) or [""]
        values = (cell.rjust(size) for cell, size in zip(row, sizes, strict=True))
        lines.append(GAP.join([first.ljust(width), *values]))
        lines.extend(f"  {line}" for line in rest)
    return [line.rstrip() for line in lines]


def _cells(comparison: Comparison, index: int) -> tuple[str, str, str, str, str]:
    pair = (comparison.summaries[0], comparison.summaries[index])
    places = figures.row_decimals(pair)
    texts = []
    for summary in pair:
        mean, stddev = (summary.mean, summary.stddev) if summary else (None, None)
        texts.append(figures.number(mean, places))
        texts.append("" if stddev is None else figures.number(stddev, places))
    return texts[0], texts[1], texts[2], texts[3], figures.change(comparison, index)


def _header(report: StudyReport) -> list[str]:
    lines = wrap(figures.plain_ascii(report.question), WIDTH)
    lines += ["", *_field("Verdict", report.verdict), ""]
    lines += _field("Machine", f"{figures.machine_line(report)} (virtual)")
    lines += _field("Mode", f"{report.mode}, {figures.MODE_NOTES[report.mode]}")
    for variant in report.variants:
        lines += _field(variant.name.capitalize(), _kernel(variant))
    lines += _field("Workload", report.workload)
    return [*lines, *_field("Runs", figures.seeds_line(report))]


def _kernel(variant: Variant) -> str:
    source = "" if variant.source_version in variant.release else f" ({variant.source_version})"
    return " + ".join([f"{variant.release}{source}", *variant.series])


def _field(name: str, text: str) -> list[str]:
    title = f"{figures.plain_ascii(name)}:"
    first = f"{title:{len(INDENT) - 1}} "
    return wrap(
        figures.plain_ascii(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=INDENT,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def _pair(report: StudyReport, variant: Variant, index: int) -> Iterable[list[str]]:
    names = (_short(report.variants[0].name), _short(variant.name))
    means, counts, sums = [], [], []
    for comparison in report.comparisons:
        info = report.measure(comparison.measure)
        pair = (comparison.summaries[0], comparison.summaries[index])
        if is_vm_counter(info):
            sums.append((info.name.removeprefix("vmstat_"), *pair))
        elif is_event_count(info):
            counts.append((info.name, *pair))
        else:
            mark = "*" if info.kind == "timing" else ""
            means.append((f"{info.name} ({info.unit}){mark}", comparison))
    if means:
        yield table_of_means(("Measure (unit)", *names), means, index)
    runs = " and ".join(sorted({str(_runs(report, name)) for name in _names(report, index)}))
    if counts:
        yield [f"Trace events, mean of {runs} runs:", *table_of_counts(names, counts)]
    if sums:
        yield [f"vmstat, sum of {runs} runs:", *table_of_sums(names, sums)]


def _names(report: StudyReport, index: int) -> tuple[str, str]:
    return report.variants[0].name, report.variants[index].name


def _runs(report: StudyReport, variant: str) -> int:
    return sum(run.variant == variant and run.status == "ok" for run in report.runs)


def _short(text: str, size: int = 15) -> str:
    plain = figures.plain_ascii(text)
    return plain if len(plain) <= size else f"{plain[: size - 1]}~"


def _footer(report: StudyReport) -> list[str]:
    kinds = [report.measure(comparison.measure).kind for comparison in report.comparisons]
    notes = []
    if "timing" in kinds:
        notes.append(f"* {figures.kind_note('timing', report.mode)}.")
    if any(None in comparison.summaries for comparison in report.comparisons):
        notes.append(f"{figures.NOT_SUPPORTED}: not supported by the guest (not 0).")
    if lost := sum(run.provenance.lost_events for run in report.runs):
        notes.append(f"{lost} trace events were lost; figures from the trace may be too low.")
    if failed := figures.runs_that_failed(report):
        notes.append(f"{failed} of {len(report.runs)} runs failed and are in no figure.")
    return [line for note in notes for line in wrap(note, WIDTH, subsequent_indent="  ")]
