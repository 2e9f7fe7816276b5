"""`changelog.txt`: the before/after tables that kernel changelogs use, ready for a mail.

Plain ASCII, at most 75 columns; the shapes are those of `numalab.report.tables`. Several cells
share one header, one table of times and one of means, and each has its own blocks of counts.
"""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from numalab.measure import MeasureKind
from numalab.report import cell_tables, formatting
from numalab.report.cell_tables import TIMES, is_event_count, is_perf_count, is_vm_counter
from numalab.report.comparisons import MeasureComparison
from numalab.report.document import CellReport, StudyResults, VariantInfo
from numalab.report.formats.format import register_format
from numalab.report.modes import MODELLED_NOTE
from numalab.report.tables import (
    ELAPSED,
    WIDTH,
    table_of_counts,
    table_of_means,
    table_of_sums,
    table_of_times,
)
from numalab.report.unfinished import finished_of_cell, plain_block

INDENT = " " * 10

_STARS = {MeasureKind.TIMING: "*", MeasureKind.MODELLED: "+"}


@register_format("changelog")
def render_changelog(study: StudyResults) -> str:
    """Render a study as text for a changelog or a mail, in lines without trailing blanks.

    With more than two variants there is one table for each against the first. Cells of different
    variants have a text each. Runs without a result come first.
    """
    texts = "\n\n".join(map(_text, cell_tables.alike(study.reports)))
    return "\n".join(filter(None, [*plain_block(study), texts]))


def _text(reports: Sequence[CellReport]) -> str:
    blocks = [_header(reports), _claims(reports)]
    for index in range(1, len(reports[0].variants)):
        blocks.extend(_pair(reports, index))
    blocks.append(_footer(reports))
    text = "\n\n".join("\n".join(block) for block in blocks if block)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _header(reports: Sequence[CellReport]) -> list[str]:
    first = reports[0]
    lines = [*wrap(formatting.plain_ascii(first.question), WIDTH), ""]
    for report in reports:
        cell = f"{report.cell}: " if len(reports) > 1 else ""
        lines += _field("Verdict", f"{cell}{report.verdict}")
    lines.append("")
    lines += _fields(
        "Machine", (f"{formatting.machine_line(report)} (virtual)" for report in reports)
    )
    lines += _field("Mode", first.mode.title)
    for variant in first.variants:
        lines += _field(variant.name.capitalize(), _kernel(variant))
    lines += _fields("Workload", (report.workload.command for report in reports))
    return [*lines, *_fields("Runs", map(_runs_line, reports))]


def _runs_line(report: CellReport) -> str:
    seeds = formatting.seeds_line(report)
    return f"{finished_of_cell(report)}; {seeds}" if report.unfinished else seeds


def _fields(name: str, texts: Iterable[str]) -> list[str]:
    """Write a field for each different text."""
    return [line for text in dict.fromkeys(texts) for line in _field(name, text)]


def _kernel(variant: VariantInfo) -> str:
    source = "" if variant.source_version in variant.release else f" ({variant.source_version})"
    return " + ".join([f"{variant.release}{source}", *variant.series])


def _field(name: str, text: str) -> list[str]:
    title = f"{formatting.plain_ascii(name)}:"
    first = f"{title:{len(INDENT) - 1}} "
    return wrap(
        formatting.plain_ascii(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=INDENT,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def _claims(reports: Sequence[CellReport]) -> list[str]:
    """Write the claims that compare variants, the published figures and the verdicts."""
    lines = []
    for report in reports:
        for claim in report.claims:
            if not claim.verdict:
                continue
            cell = f"{report.cell}: " if len(reports) > 1 else ""
            published = f" (published: {claim.published})" if claim.published else ""
            words = f"{formatting.verdict_words(claim)}; measured {claim.measured}"
            lines += _field("Claim", f"{cell}{claim.text}{published}: {words}")
    return lines


def _pair(reports: Sequence[CellReport], index: int) -> Iterator[list[str]]:
    first = reports[0]
    names = (
        formatting.cut(first.variants[0].name, 15),
        formatting.cut(first.variants[index].name, 15),
    )
    yield from _times(reports, index)
    rows = _mean_rows(reports)
    if rows:
        yield table_of_means(("Measure (unit)", *names), rows, index)
    labels = cell_tables.axis(reports).labels
    for report, label in zip(reports, labels, strict=True):
        yield from _counts(report, index, names, label if len(reports) > 1 else "")


def _times(reports: Sequence[CellReport], index: int) -> Iterator[list[str]]:
    rows = []
    for report, label in zip(reports, cell_tables.axis(reports).labels, strict=True):
        summaries = {row.measure: row.summaries for row in report.comparisons}
        rows += [
            (label, which, summaries[name][0], summaries[name][index])
            for name, which in TIMES.items()
            if name in summaries
        ]
    if not any(before or after for _, _, before, after in rows):
        return
    base, other = (reports[0].variants[place].name for place in (0, index))
    if index == 1:
        yield table_of_times(f"{base} [s]*", [(*row[:3], None) for row in rows])
    yield table_of_times(f"{other} [s]*", [(case, which, b, a) for case, which, a, b in rows])


def _mean_rows(reports: Sequence[CellReport]) -> list[tuple[str, MeasureComparison]]:
    """Return the rows of the table of means: the listed measures of one cell, or headlines."""
    if len(reports) == 1:
        return [
            (_title(reports[0], row), row)
            for row in cell_tables.listed_comparisons(reports[0])
            if not cell_tables.has_a_table(reports[0].measure(row.measure))
        ]
    labels = cell_tables.axis(reports).labels
    rows = [
        (row.measure, f"{label}: {_title(report, row)}", row)
        for report, label in zip(reports, labels, strict=True)
        for row in cell_tables.headlines(report)
    ]
    order = list(dict.fromkeys(name for name, _, _ in rows))
    rows.sort(key=lambda row: order.index(row[0]))
    return [(title, row) for _, title, row in rows]


def _title(report: CellReport, row: MeasureComparison) -> str:
    info = report.measure(row.measure)
    return f"{info.name} ({info.unit}){_STARS.get(info.kind, '')}"


def _counts(
    report: CellReport, index: int, names: tuple[str, str], label: str
) -> Iterator[list[str]]:
    perf, counts, sums, elapsed = [], [], [], []
    for row in report.comparisons:
        info = report.measure(row.measure)
        pair = (row.summaries[0], row.summaries[index])
        if is_vm_counter(info):
            sums.append((info.name.removeprefix("vmstat_"), *pair))
        elif is_perf_count(info):
            perf.append((cell_tables.perf_event(info), *pair))
        elif is_event_count(info):
            counts.append((info.name, *pair))
        elif info.name == "elapsed_time":
            elapsed = [(ELAPSED, *pair)]
    runs = _runs(report, index)
    of = f": {formatting.plain_ascii(label)}" if label else ""
    if perf:
        title = f"Performance counter stats for 'system wide' ({runs} runs){of}"
        # Below it as perf prints it, with columns of its own: it has nine decimals.
        seconds = table_of_counts(names, elapsed)[1:] if elapsed else []
        yield [*wrap(title, WIDTH), *table_of_counts(names, perf), *seconds]
    if counts:
        yield [
            *wrap(f"Trace events, mean of {runs} runs{of}", WIDTH),
            *table_of_counts(names, counts),
        ]
    if sums:
        yield [*wrap(f"vmstat, sum of {runs} runs{of}", WIDTH), *table_of_sums(names, sums)]


def _runs(report: CellReport, index: int) -> str:
    """Write how many runs there are of both variants: `5`, or `4 and 5`."""
    names = (report.variants[0].name, report.variants[index].name)
    counts = [sum(run.variant == name and run.ok for run in report.runs) for name in names]
    return " and ".join(map(str, sorted(set(counts))))


def _hidden(report: CellReport) -> int:
    """Count the measures of a cell that are in no table here."""
    shown = {row.measure for row in cell_tables.listed_comparisons(report)}
    return sum(
        row.measure not in shown and not cell_tables.has_a_table(report.measure(row.measure))
        for row in report.comparisons
    )


def _footer(reports: Sequence[CellReport]) -> list[str]:
    every = [(report, row) for report in reports for row in report.comparisons]
    remarks = dict.fromkeys(remark for report in reports for remark in report.remarks)
    notes = [f"{remark[:1].upper()}{remark[1:]}." for remark in remarks]
    if any(report.measure(row.measure).kind == "timing" for report, row in every):
        notes.append(f"* {reports[0].mode.timing}.")
    if any(report.measure(row.measure).kind == "modelled" for report, row in every):
        notes.append(f"+ {MODELLED_NOTE}.")
    if any(row.measure in TIMES for _, row in every):
        notes.append("StdDev of the times divides by n, as in the mail of 2018; stddev by n - 1.")
    if any(None in row.summaries for _, row in every):
        notes.append(f"{formatting.NOT_SUPPORTED}: not supported by the guest (not 0).")
    if len(reports) == 1 and (hidden := _hidden(reports[0])):
        notes.append(f"{hidden} more measures, no difference shown, are in report.json.")
    runs = [run for report in reports for run in report.runs]
    if lost := sum(run.provenance.lost_events for run in runs):
        notes.append(f"{lost} trace events were lost; figures from the trace may be too low.")
    if unfinished := sum(not run.ok for run in runs):
        notes.append(f"{unfinished} of {len(runs)} runs gave no result; no figure has them.")
    return [line for note in notes for line in wrap(note, WIDTH, subsequent_indent="  ")]
