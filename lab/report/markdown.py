"""The report as Markdown, for an issue or a merge request: verdict, claims, every comparison."""

import re
from collections.abc import Iterable, Sequence

from lab.report import figures
from lab.report.changelog import is_vm_counter
from lab.report.model import Comparison, StudyReport

_MARKUP = re.compile(r"([\\`*_\[\]<>|&~#!$@])")


def render_markdown(report: StudyReport) -> str:
    """Render a study as Markdown (CommonMark with tables). Every text is escaped, whoever wrote it.

    The counters of /proc/vmstat fold away below the rest.
    """
    counters = [c for c in report.comparisons if is_vm_counter(report.measure(c.measure))]
    kept = [each for each in report.comparisons if each not in counters]
    blocks = [
        [f"# {escaped(report.study)}: {escaped(report.question)}"],
        [f"**{escaped(report.verdict)}**"],
        _facts(report),
        _claims(report),
        _table(_heads(report), [_cells(report, each) for each in kept]),
        _folded(report, counters),
        [f"- {escaped(note)}" for note in figures.notes(report)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def escaped(text: str) -> str:
    """Write any text on one line so that no Markdown or HTML in it takes effect."""
    return _MARKUP.sub(r"\\\1", figures.printable(" ".join(text.split())))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lay out a table; a head that ends with `:` is of figures, aligned right."""
    rules = ["---:" if head.endswith(":") else "---" for head in heads]
    titles = [head.removesuffix(":") for head in heads]
    return [f"| {' | '.join(row)} |" for row in (titles, rules, *rows)]


def _facts(report: StudyReport) -> list[str]:
    mode = f"{report.mode}, {figures.MODE_NOTES[report.mode]}"
    rows = [("machine", figures.machine_line(report)), ("mode", mode)]
    for variant in report.variants:
        kernel = " + ".join([variant.release, *variant.series])
        rows.append((variant.name, kernel))
    rows += [("workload", report.workload), ("runs", figures.seeds_line(report))]
    return _table(("", ""), [(escaped(name), escaped(text)) for name, text in rows])


def _claims(report: StudyReport) -> list[str]:
    rows = [
        (escaped(c.text), escaped(c.expected), escaped(c.measured), "yes" if c.holds else "**NO**")
        for c in report.claims
    ]
    return _table(("claim", "expected", "measured", "holds"), rows) if rows else []


def _heads(report: StudyReport) -> list[str]:
    means = [f"{escaped(variant.name)} (mean ± stddev):" for variant in report.variants]
    several = len(report.variants) > 2
    changes = [f"{escaped(v.name)} change:" if several else "change:" for v in report.variants[1:]]
    return ["measure", *means, *changes, "n:", "outcome", "kind"]


def _cells(report: StudyReport, each: Comparison) -> list[str]:
    info = report.measure(each.measure)
    places = figures.row_decimals(each.summaries)
    cells = [escaped(figures.label(info))]
    for summary in each.summaries:
        text = figures.number(summary.mean if summary else None, places, grouped=True)
        if summary is not None and summary.stddev is not None:
            text += f" ± {figures.number(summary.stddev, places, grouped=True)}"
        cells.append(text)
    cells.extend(figures.change(each, index) for index in range(1, len(report.variants)))
    return [*cells, figures.samples(each), each.outcome, info.kind]


def _folded(report: StudyReport, counters: Sequence[Comparison]) -> list[str]:
    if not counters:
        return []
    table = _table(_heads(report), [_cells(report, each) for each in counters])
    title = f"<summary>{len(counters)} counters of /proc/vmstat</summary>"
    return ["<details>", title, "", *table, "", "</details>"]
