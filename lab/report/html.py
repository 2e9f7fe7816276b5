"""`index.html`: the report as one file that opens from disk and asks nothing of any network.

The page's own policy (CSP) forbids every request and every script but the two it was made with,
so a hostile name from a guest could not run even if it were not escaped; and it is.
"""

import json
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from lab.analysis.statistics import Summary
from lab.cpulist import format_cpulist
from lab.report import charts, figures
from lab.report.changelog import render_changelog
from lab.report.groups import all_domain_rows, domain_text, last_domain_rows
from lab.report.model import Comparison, Proof, Run, StudyReport
from lab.report.strips import render_strip
from lab.report.timeline import Drawn, of_tasks, on_cpus, packed

TEMPLATES = Path(__file__).parent / "templates"
MOST_BYTES = 3 << 20


def render_html(report: StudyReport) -> str:
    """Render a study as one self-contained page of at most `MOST_BYTES` for a usual study."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    library, own = _library(), Markup((TEMPLATES / "page.js").read_text(encoding="utf-8"))
    lines = [on_cpus(timeline) for timeline in report.timelines]
    by_measure = {comparison.measure: comparison for comparison in report.comparisons}
    keys = [by_measure[name] for name in report.key_measures if name in by_measure]
    return environment.get_template("index.html").render(
        report=report,
        style=Markup((TEMPLATES / "style.css").read_text(encoding="utf-8")),
        scripts=(library, own),
        policy=_policy(library, own),
        drawing=_data_uri(report.topology_svg),
        keys=[_measure_row(report, each) for each in keys],
        rows=[_measure_row(report, each) for each in report.comparisons],
        last_domains=last_domain_rows(report),
        all_domains=all_domain_rows(report),
        node_ids=[node.id for node in report.topology.nodes],
        charts=_chart_notes(report, lines),
        chart_data=embedded_json(_chart_data(report, lines)),
        node_colors={n.id: charts.node_color(report.topology, n.id) for n in report.topology.nodes},
        changelog=Markup.escape(render_changelog([report])),
        shared=_shared(report.runs),
        values=_run_values(report),
        placement=_placement(report.runs),
        figures=figures,
        cpulist=format_cpulist,
        domain_text=domain_text,
    )


def embedded_json(value: object) -> Markup:
    """Write JSON that no text in it can end the `<script>` element around."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _finalize(value: Any) -> Any:
    """Show what is invisible or would reorder a line; what is markup already passes as it is."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return figures.printable(value)
    return value


@cache
def _library() -> Markup:
    import vl_convert  # noqa: PLC0415 - starts a JavaScript engine; text reports need none

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", charts.VEGA_LITE)
    return Markup(bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--"))


def _policy(*scripts: Markup) -> str:
    # Vega makes functions of its own expressions, hence 'unsafe-eval'; vega-embed adds a style.
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'unsafe-eval' {hashes}; base-uri 'none'; form-action 'none'"
    )


def _digest(script: Markup) -> str:
    return b64encode(sha256(str(script).encode()).digest()).decode()


def _data_uri(svg: str) -> str:
    """Make a drawing an image: it can then neither run a script nor restyle the page."""
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"


def _measure_row(report: StudyReport, comparison: Comparison) -> dict[str, Any]:
    info = report.measure(comparison.measure)
    places = figures.row_decimals(comparison.summaries)
    return {
        "info": info,
        "worth": figures.kind_note(info.kind, report.mode),
        "cells": [_summary(summary, places) for summary in comparison.summaries],
        "changes": [
            {"text": figures.change(comparison, index), "value": comparison.changes[index]}
            for index in range(1, len(report.variants))
        ],
        "n": figures.samples(comparison),
        "outcome": comparison.outcome,
        "verdict": comparison.verdict,
        "strip": render_strip(report, comparison),
    }


def _summary(summary: Summary | None, places: int) -> dict[str, Any]:
    if summary is None:
        return {"mean": figures.NOT_SUPPORTED, "stddev": "", "range": "", "value": None, "sd": None}
    return {
        "mean": figures.number(summary.mean, places, grouped=True),
        "stddev": ""
        if summary.stddev is None
        else figures.number(summary.stddev, places, grouped=True),
        "range": f"{figures.number(summary.minimum, places, grouped=True)} to "
        f"{figures.number(summary.maximum, places, grouped=True)}",
        "value": summary.mean,
        "sd": summary.stddev,
    }


def _chart_notes(report: StudyReport, lines: Sequence[Drawn]) -> list[dict[str, Any]]:
    """Return what the page says around each chart; the drawing itself comes from the data."""
    return [
        {
            "timeline": timeline,
            "count": len(timeline.spans),
            "tasks": charts.own_tasks(timeline),
            "marks": charts.inner_marks(timeline),
            "resolution": None
            if drawn.resolution_ms is None
            else figures.number(drawn.resolution_ms, figures.decimals([drawn.resolution_ms])),
        }
        for timeline, drawn in zip(report.timelines, lines, strict=True)
    ]


def _chart_data(report: StudyReport, lines: Sequence[Drawn]) -> dict[str, Any]:
    until = charts.longest_ms(report.timelines)
    data = []
    for timeline, drawn in zip(report.timelines, lines, strict=True):
        specs = {"cpu": charts.cpu_chart(timeline, report.topology, until)}
        spans = {"cpu": packed(drawn.spans)}
        if charts.own_tasks(timeline):
            specs["task"] = charts.task_chart(timeline, report.topology, until)
            spans["task"] = packed(of_tasks(timeline).spans)
        data.append({"specs": specs, "spans": spans})
    return {"light": charts.LIGHT, "dark": charts.DARK, "until": until, "lines": data}


def _run_values(report: StudyReport) -> dict[str, Any]:
    """Return every figure of every run: a row for each measure, runs by variant and seed."""
    order = [variant.name for variant in report.variants]
    runs = sorted(report.runs, key=lambda run: (order.index(run.variant), run.seed, run.id))
    found = [{reading.measure: reading.value for reading in run.readings} for run in runs]
    rows = []
    summaries = {each.measure: each.summaries for each in report.comparisons}
    for info in report.measures:
        values = [values.get(info.name) for values in found]
        places = figures.decimals(values)
        if places:  # not for counts, whose stddev alone needs decimals
            places = max(places, figures.row_decimals(summaries.get(info.name, ())))
        cells = [(value, figures.number(value, places, grouped=True)) for value in values]
        rows.append((info, cells))
    counts = [(variant, sum(run.variant == variant for run in runs)) for variant in order]
    return {"runs": runs, "counts": counts, "rows": rows}


def _shared(runs: Sequence[Run]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each fact about the runs with its values, and which runs have each value."""
    facts = [
        ("QEMU", [run.provenance.qemu for run in runs]),
        ("libvirt", [run.provenance.libvirt for run in runs]),
        ("host", [run.provenance.host for run in runs]),
        ("image", [f"{r.provenance.image} {r.provenance.image_digest}".strip() for r in runs]),
    ]
    return [(name, _by_value(runs, values)) for name, values in facts]


def _by_value(runs: Sequence[Run], values: Sequence[str]) -> list[tuple[str, str]]:
    """Return each distinct value with the runs that have it, or `all runs`."""
    distinct = list(dict.fromkeys(values))
    whose = [
        "all runs" if len(distinct) == 1 else ", ".join(_ids_with(runs, values, value))
        for value in distinct
    ]
    return list(zip(distinct, whose, strict=True))


def _ids_with(runs: Sequence[Run], values: Sequence[str], wanted: str) -> list[str]:
    return [run.id for run, value in zip(runs, values, strict=True) if value == wanted]


def _placement(runs: Sequence[Run]) -> dict[str, Any]:
    """Return how the runs were placed, and every fact with its run and whether it agrees."""
    facts = [(run.id, fact, _agrees(fact)) for run in runs for fact in run.provenance.proof]
    return {
        "summaries": _by_value(runs, [run.provenance.placement for run in runs]),
        "facts": facts,
        "agreeing": sum(agrees for _, _, agrees in facts),
    }


def _agrees(fact: Proof) -> bool:
    return fact.asked == fact.found or fact.asked.split()[:1] == ["any"]
