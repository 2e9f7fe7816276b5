"""`changelog.txt`: the before/after tables that kernel changelogs use, ready for a mail.

Plain ASCII in at most 75 columns; the shapes are those of `numalab.report.tables`. Several cells
share one header, one table of times and one of means, and each has its own blocks of counts. They
fit `MOST_LINES` lines; a text about one cell has all its tables.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from textwrap import wrap

from numalab.measure import MeasureKind
from numalab.report import cell_tables, formatting
from numalab.report.cell_tables import TIMES, is_event_count, is_perf_count, is_vm_counter
from numalab.report.comparisons import MeasureComparison
from numalab.report.document import CellReport, StudyResults, VariantInfo
from numalab.report.fitting import KEPT, ReportPart, fit
from numalab.report.formats.format import register_format
from numalab.report.modes import MODELLED_NOTE
from numalab.report.run_notes import run_notes
from numalab.report.tables import (
    ELAPSED,
    WIDTH,
    table_of_counts,
    table_of_means,
    table_of_sums,
    table_of_times,
)
from numalab.report.unfinished import finished_of_cell, plain_block, shortened

INDENT = " " * 10
MOST_LINES = 120

_STARS = {MeasureKind.TIMING: "*", MeasureKind.MODELLED: "+"}
# What goes first where the text is too long: the highest.
_BROKEN, _DIFFERENCE, _CLAIM, _FIELD, _NOTE, _SAME = 10, 20, 28, 60, 62, 65
_TIMES, _PERF, _EVENTS, _COUNTERS = 70, 75, 80, 85
_LEAST_DIFFERENCE = 30  # ranks of differences in a cell


@register_format("changelog")
def render_changelog(study: StudyResults) -> str:
    """Render a study as text for a changelog or a mail, in lines without trailing blanks.

    With more than two variants there is one table for each against the first. Cells of different
    variants have a text each, those that differ most first. Runs without a result come first. A
    text about several cells has at most 120 lines: the least important parts are left out, and
    named at the end.
    """
    order = {cell.cell: place for place, cell in enumerate(study.differences)}
    parts = [ReportPart(tuple(block.split("\n"))) for block in plain_block(study)]
    title = formatting.differences_title(study)
    of_all = _of_patch(study.verdict) if study.verdict else f"{title}." if title else ""
    for number, group in enumerate(cell_tables.alike(study.reports)):
        reports = sorted(group, key=lambda report: order[report.cell])
        is_alone = len(reports) == 1 and not study.verdict
        verdict = reports[0].verdict if is_alone else of_all
        if is_alone and study.cells == 1 and title and reports[0].claims:
            verdict += f" {title[:1].upper()}{title[1:]}."  # without claims, it names them
        parts += [ReportPart(("", ""))] * (number > 0) + [*_parts(reports, verdict)]
    if len(study.reports) > 1:
        lines = fit(parts, MOST_LINES, _left_out)
    else:
        lines = [line for part in parts for line in part.lines]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _of_patch(text: str) -> str:
    """Return the verdict on a patch in a sentence, and how the tables differ from it."""
    word = text.partition("\n")[0].removeprefix("verdict").strip()
    return f"{word} (see verdict.txt). The tables test each cell alone, with the runs of all seeds."


def _left_out(text: str) -> list[str]:
    return ["", *wrap(f"Left out here, see report.json or index.html: {text}.", WIDTH)]


def _parts(reports: Sequence[CellReport], verdict: str) -> Iterator[ReportPart]:
    """Yield the parts of a text about cells that compare the same variants."""
    patched = range(1, len(reports[0].variants))
    yield from _header(reports, verdict)
    for index in patched:
        yield from _means(reports, index)
    yield from _claims(reports)
    for index in patched:
        yield from _times(reports, index)
        for report in reports:
            yield from _counts(report, index)
    yield ReportPart(("", *_footer(reports)))
    for note in run_notes(reports):
        yield ReportPart(_wrapped(f"{note}."), _NOTE, "note")


def _header(reports: Sequence[CellReport], verdict: str) -> Iterator[ReportPart]:
    first = reports[0]
    virtual = "" if first.mode.is_recording else " (virtual)"
    yield ReportPart((*wrap(formatting.plain_ascii(first.question), WIDTH), ""))
    if verdict:
        yield ReportPart(tuple(_field("Verdict", verdict)))
    if len(reports) > 1 and (counts := formatting.claim_counts(reports)):
        yield ReportPart(tuple(_field("Claims", f"{counts}.")))
    yield ReportPart(("",))
    yield from _fields(
        "Machine", (f"{formatting.machine_line(report)}{virtual}" for report in reports)
    )
    yield from _fields("Mode", [first.mode.title])
    if not first.mode.is_recording:
        for variant in first.variants:
            yield from _fields(variant.name.capitalize(), [_kernel(variant)])
    settings = [(report.cell, report.settings.line) for report in reports]
    yield from _by_cell("Settings", settings, first=_FIELD)
    yield from _by_cell("Workload", [(report.cell, report.workload.command) for report in reports])
    if not first.mode.is_recording:
        yield from _by_cell("Runs", [(report.cell, _runs_line(report)) for report in reports])


def _runs_line(report: CellReport) -> str:
    seeds = formatting.seeds_line(report)
    return f"{finished_of_cell(report)}; {seeds}" if report.unfinished else seeds


def _by_cell(
    name: str, texts: Iterable[tuple[str, str]], first: int = KEPT
) -> Iterator[ReportPart]:
    """Write a field for each different text, behind the names of its cells; one for all if they
    have the same."""
    cells: dict[str, list[str]] = {}
    for cell, text in texts:
        cells.setdefault(text, []).append(cell)
    alike = len(cells) == 1
    yield from _fields(
        name,
        (text if alike else f"{shortened(own)}: {text}" for text, own in cells.items() if text),
        first,
    )


def _fields(name: str, texts: Iterable[str], first: int = KEPT) -> Iterator[ReportPart]:
    """Write a field for each different text; `first` is how little the first one matters."""
    for place, text in enumerate(dict.fromkeys(texts)):
        yield ReportPart(tuple(_field(name, text)), _FIELD if place else first, f"line `{name}`")


def _kernel(variant: VariantInfo) -> str:
    source = "" if variant.source_version in variant.release else f" ({variant.source_version})"
    return replace(variant, release=f"{variant.release}{source}").build


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


def _means(reports: Sequence[CellReport], index: int) -> Iterator[ReportPart]:
    """Write one table of means; of several cells, the rows of each are below its name."""
    first = reports[0]
    names = _names(first)
    listed = [(report, _mean_rows(report, index)) for report in reports]
    rows = [(_title(report, row), row) for report, own in listed for row in own]
    if not rows:
        return
    table = table_of_means(("Measure (unit)", names[0], names[index]), rows, index)
    yield ReportPart(("", *table.head), _DIFFERENCE)
    lines = iter(table.rows)
    for report, own in listed:
        spares = [_spare(row, index, place) for place, row in enumerate(own)]
        if len(reports) > 1 and own:
            yield ReportPart((f"{formatting.plain_ascii(report.cell)}:",), min(spares))
        for spare in spares:
            yield ReportPart(next(lines), spare, "row of measures")


def _names(report: CellReport) -> list[str]:
    return formatting.short_names([variant.name for variant in report.variants], 15)


def _mean_rows(report: CellReport, index: int) -> list[MeasureComparison]:
    """Return the rows of one cell: what is listed, but counts and times only if they differ."""
    return [
        row
        for row in cell_tables.listed_comparisons(report, report.variants[index].name)
        if row.differs(index) or not cell_tables.has_a_table(report.measure(row.measure))
    ]


def _spare(row: MeasureComparison, index: int, place: int) -> int:
    return _DIFFERENCE + min(place, _LEAST_DIFFERENCE) if row.differs(index) else _SAME


def _title(report: CellReport, row: MeasureComparison) -> str:
    info = report.measure(row.measure)
    return f"{info.name} ({info.unit}){_STARS.get(info.kind, '')}"


def _claims(reports: Sequence[CellReport]) -> Iterator[ReportPart]:
    """Write the claims that compare variants or fail, the published figures and the verdicts."""
    compared = [
        (report, claim)
        for report in reports
        for claim in report.claims
        if claim.verdict or not claim.holds
    ]
    if compared:
        broken = any(not claim.holds for _, claim in compared)
        yield ReportPart(("",), _BROKEN if broken else _CLAIM)
    for report, claim in compared:
        cell = f"{report.cell}: " if len(reports) > 1 else ""
        published = f" (published: {claim.published})" if claim.published else ""
        words = f"{formatting.verdict_words(claim)}; measured {claim.measured}"
        lines = _field("Claim", f"{cell}{claim.text}{published}: {words}")
        yield ReportPart(tuple(lines), _CLAIM if claim.holds else _BROKEN, "claim")


def _times(reports: Sequence[CellReport], index: int) -> Iterator[ReportPart]:
    rows = []
    for report, label in zip(reports, cell_tables.axis(reports).labels, strict=True):
        summaries = {row.measure: row.summaries for row in report.comparisons}
        rows += [
            (label, which, summaries[name][0], summaries[name][index])
            for name, which in TIMES.items()
            if name in summaries and (summaries[name][0] or summaries[name][index])
        ]
    if not rows:
        return
    machines = dict.fromkeys(report.topology.name for report in reports)
    where = f" on {next(iter(machines))}" if len(machines) == 1 else ""
    base, other = (f"{reports[0].variants[place].name} [s]*{where}" for place in (0, index))
    first = table_of_times(base, [(*row[:3], None) for row in rows]) if index == 1 else []
    second = table_of_times(other, [(case, which, b, a) for case, which, a, b in rows])
    yield ReportPart(("", *first, *([""] if first else []), *second), _TIMES, "table of times")
    if index == len(reports[0].variants) - 1:
        note = "StdDev of the times divides by n, as in the mail of 2018; stddev by n - 1."
        yield ReportPart(("", note), _TIMES)


def _counts(report: CellReport, index: int) -> Iterator[ReportPart]:
    """Write the counts of one cell: perf's, those of the trace, and those of /proc/vmstat."""
    names = (_names(report)[0], _names(report)[index])
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
    of = f": {formatting.plain_ascii(report.cell)}" if report.cell else ""
    if perf:
        title = wrap(f"Performance counter stats for 'system wide' ({runs} runs){of}", WIDTH)
        # Below it as perf prints it, with columns of its own: it has nine decimals.
        seconds = table_of_counts(names, elapsed)[1:] if elapsed else []
        lines = ("", *title, *table_of_counts(names, perf), *seconds)
        yield ReportPart(lines, _PERF, "table of perf counters")
    if counts:
        title = wrap(f"Trace events, mean of {runs} runs{of}", WIDTH)
        yield ReportPart(
            ("", *title, *table_of_counts(names, counts)), _EVENTS, "table of trace events"
        )
    if sums:
        # Runs that lack the counters are in no sum.
        means = {str(side.n) for _, *pair in sums for side in pair if side} != {runs}
        title = wrap(f"vmstat, {'mean' if means else 'sum'} of {runs} runs{of}", WIDTH)
        table = table_of_sums(names, sums, means=means)
        yield ReportPart(("", *title, *table), _COUNTERS, "table of vmstat")


def _runs(report: CellReport, index: int) -> str:
    """Write how many runs there are of both variants: `5`, or `5 and 4` as the columns are."""
    names = (report.variants[0].name, report.variants[index].name)
    counts = [sum(run.variant == name and run.ok for run in report.runs) for name in names]
    return " and ".join(map(str, dict.fromkeys(counts)))


def _has_more(report: CellReport) -> bool:
    """Return whether a cell has measures that are in no table here."""
    shown = {row.measure for row in cell_tables.listed_comparisons(report)}
    return any(
        row.measure not in shown and not cell_tables.has_a_table(report.measure(row.measure))
        for row in report.comparisons
    )


def _footer(reports: Sequence[CellReport]) -> list[str]:
    every = [(report, row) for report in reports for row in report.comparisons]
    remarks = dict.fromkeys(remark for report in reports for remark in report.remarks)
    notes = [f"{remark[:1].upper()}{remark[1:]}." for remark in remarks]
    compared = len(reports[0].variants) > 1
    figures = "measures.json" if reports[0].mode.is_recording else "report.json"
    if not compared:
        notes.append(f"One variant: nothing is compared. Its figures are in {figures}.")
    star, plus = ("* ", "+ ") if compared else ("", "")  # marks of tables
    if any(report.measure(row.measure).kind == "timing" for report, row in every):
        notes.append(f"{star}{reports[0].mode.timing}.")
    if any(report.measure(row.measure).kind == "modelled" for report, row in every):
        notes.append(f"{plus}{MODELLED_NOTE}.")
    if compared and any(None in row.summaries for _, row in every):
        notes.append(f"{formatting.NOT_SUPPORTED_NOTE}.")
    if len(reports) == 1 and _has_more(reports[0]):
        notes.append(f"{cell_tables.nothing_shown(reports[0].comparisons)}: see report.json.")
    runs = [run for report in reports for run in report.runs]
    if lost := sum(run.provenance.lost_events for run in runs):
        notes.append(f"{lost} trace events were lost; {formatting.LOST_NOTE}.")
    if unfinished := sum(not run.ok for run in runs):
        notes.append(f"{unfinished} of {len(runs)} runs gave no result; no figure has them.")
    return [line for note in notes for line in _wrapped(note)]


def _wrapped(note: str) -> tuple[str, ...]:
    return tuple(wrap(formatting.plain_ascii(note), WIDTH, subsequent_indent="  "))
