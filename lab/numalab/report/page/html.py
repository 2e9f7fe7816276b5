"""`index.html`: the report of a cell as one file that makes no network request."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from numalab.cpulist import format_cpulist
from numalab.report import figures
from numalab.report.document import CellReport, StudyResults
from numalab.report.formats.changelog import render_changelog
from numalab.report.page import charts
from numalab.report.page.curves import curves
from numalab.report.page.groups import all_domain_rows, domain_text, last_domain_rows
from numalab.report.page.link_traffic import link_traffic, stalled_rows
from numalab.report.page.measures import measure_row
from numalab.report.page.page import (
    data_uri,
    embedded_json,
    own,
    render_template,
    unfinished_facts,
)
from numalab.report.page.residence import balance, residence_rows
from numalab.report.page.runs import placement_facts, run_values, shared_facts
from numalab.report.page.timeline import Drawn, of_tasks, on_cpus, packed
from numalab.report.page.traffic import (
    MOST_FLOWS,
    Side,
    Traffic,
    as_text,
    count_text,
    draw_flows,
    heat_maps,
    traffic,
)
from numalab.topology.view.drawing import is_wide, render_svg

MOST_BYTES = 3 << 20
Json = dict[str, Any]


def render_html(report: CellReport) -> str:
    """Render a cell as one self-contained page of at most `MOST_BYTES` for a usual study.

    A report of one variant, as a recording from anywhere is, has no comparisons.
    """
    study = StudyResults.of(report)
    lines = [on_cpus(timeline) for timeline in report.timelines]
    by_measure = {comparison.measure: comparison for comparison in report.comparisons}
    keys = [by_measure[name] for name in report.key_measures if name in by_measure]
    booted = [run for run in report.runs if run.provenance.image]
    kinds, series = traffic(report), curves(report)
    scripts = (charts.chart_library(), own("table.js"), own("charts.js"))
    values = {
        "report": report,
        "unfinished": unfinished_facts(study),
        "drawings": _drawings(report, kinds),
        "wide": is_wide(report.topology),
        "keys": [measure_row(report, row) for row in keys],
        "rows": [measure_row(report, row) for row in report.comparisons],
        "last_domains": last_domain_rows(report),
        "all_domains": all_domain_rows(report),
        "node_ids": [node.id for node in report.topology.nodes],
        "charts": _chart_notes(report, lines),
        "traffic": [(row, Markup.escape(as_text(report.topology, row))) for row in kinds],
        "curves": series,
        "links": link_traffic(report),
        "stalled": stalled_rows(report),
        "residence": residence_rows(report),
        "found_nodes": report.findings[0].findings.nodes if report.findings else (),
        "settled": f"{report.findings[0].findings.convergence_percent:g}"
        if report.findings
        else "",
        "decided": any(run.findings.decisions for run in report.findings),
        "claims": [(report.cell, claim) for claim in report.claims],
        "balance": balance(report),
        "chart_data": embedded_json(_chart_data(report, lines, kinds, series)),
        "node_colors": {
            node.id: charts.node_color(report.topology, node.id) for node in report.topology.nodes
        },
        "changelog": Markup.escape(render_changelog(study)),
        "shared": shared_facts(booted),
        "values": run_values(report),
        "placement": placement_facts(booted),
        "cpulist": format_cpulist,
        "domain_text": domain_text,
    }
    return render_template("index.html", scripts, values)


def _drawings(report: CellReport, kinds: Sequence[Traffic]) -> list[Json]:
    """Return the drawings of the machine: with each variant's flows, by kind, or bare."""
    shown = [kind for kind in kinds if kind.most_between]
    if not shown:
        return [
            {"title": "", "name": "", "sides": [("", data_uri(render_svg(report.topology)), "")]}
        ]
    return [
        {
            "title": kind.title,
            "name": kind.name,
            "sides": [
                (
                    side.variant,
                    data_uri(draw_flows(report.topology, kind, side)),
                    _flow_text(kind, side),
                )
                for side in kind.sides
            ],
        }
        for kind in shown
    ]


def _flow_text(kind: Traffic, side: Side) -> str:
    """Write the total between nodes in a run, and the totals weighted by distance."""
    words = [
        f"{count_text(side.total)} {kind.unit}",
        *(f"{count_text(total)} {unit}" for unit, total in side.weighted),
    ]
    hidden = sum(value > 0 for value, _, _ in side.between) - MOST_FLOWS
    more = f"; {hidden} smaller flows are not drawn" if hidden > 0 else ""
    return f"mean of a run: {', '.join(words)}{more}"


def _chart_notes(report: CellReport, lines: Sequence[Drawn]) -> list[Json]:
    """Return the captions of each chart."""
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


def _chart_data(
    report: CellReport,
    lines: Sequence[Drawn],
    kinds: Sequence[Traffic],
    series: Sequence[Json],
) -> Json:
    """Return every chart of the page by the name of the element that it is drawn in."""
    until = charts.longest_ms(report.timelines)
    drawn: dict[str, Json] = {}
    for place, (timeline, line) in enumerate(zip(report.timelines, lines, strict=True)):
        spec = charts.cpu_chart(timeline, report.topology, until)
        drawn[f"cpu-{place}"] = {"spec": spec, "spans": packed(line.spans), "zooms": True}
        if charts.own_tasks(timeline):
            decisions = [curve for run in report.findings if run.run == timeline.run
                     for curve in run.findings.decisions]  # fmt: skip
            spec = charts.task_chart(timeline, report.topology, until, decisions)
            stays = packed(of_tasks(timeline).spans)
            drawn[f"task-{place}"] = {"spec": spec, "spans": stays, "zooms": True}
    for kind in kinds:
        for place, spec in enumerate(heat_maps(report.topology, kind)):
            drawn[f"heat-{kind.name}-{place}"] = {"spec": spec}
    until = until or max((run.findings.length_ms for run in report.findings), default=0.0)
    for curve in series:
        for place, diagram in enumerate(curve["diagrams"]):
            spec = charts.curve_chart(curve["unit"], until, curve["most"])
            lines_of = diagram["lines"]
            drawn[f"curve-{curve['name']}-{place}"] = {
                "spec": spec,
                "lines": lines_of,
                "zooms": True,
            }
    return {"light": charts.LIGHT, "dark": charts.DARK, "until": until, "charts": drawn}
