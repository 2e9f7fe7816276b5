"""`index.html`: the report of a cell as one file that makes no network request."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from numalab.cpulist import format_cpulist
from numalab.report import formatting
from numalab.report.cell_tables import Section, sections
from numalab.report.document import CellReport, Run, StudyResults
from numalab.report.formats.changelog import render_changelog
from numalab.report.page import charts
from numalab.report.page.curves import curves
from numalab.report.page.groups import all_domain_rows, domain_text, has_flags, last_domain_rows
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
from numalab.report.run_notes import run_notes
from numalab.topology.view.drawing import is_wide, render_svg

MOST_BYTES = 3 << 20
MOST_ROWS = 12  # of a table at the top
Json = dict[str, Any]


def render_html(report: CellReport) -> str:
    """Render a cell as one self-contained page of at most `MOST_BYTES` for a usual study.

    A report of one variant, as a recording from anywhere is, has no comparisons.
    """
    study = StudyResults.of(report)
    lines = [on_cpus(timeline) for timeline in report.timelines]
    booted = [run for run in report.runs if run.provenance.image]
    kinds, series = traffic(report), curves(report)
    scripts = (charts.chart_library(), own("table.js"), own("charts.js"))
    values = {
        "report": report,
        "unfinished": unfinished_facts(study),
        "run_notes": run_notes([report]),
        "drawings": _drawings(report, kinds),
        "wide": is_wide(report.topology),
        "sections": [_section(report, section) for section in sections(report)],
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
        "has_flags": has_flags(report),
    }
    return render_template("index.html", scripts, values)


def _section(report: CellReport, section: Section) -> Json:
    """Return the first measures of a section, and how many more it has."""
    rows = section.rows if section.heading == "key measures" else section.rows[:MOST_ROWS]
    return {
        "id": "keys" if section.heading == "key measures" else section.heading.replace(" ", "-"),
        "heading": section.heading,
        "rows": [measure_row(report, row) for row in rows],
        "more": len(section.rows) - len(rows),
    }


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
    mean = "mean of a run: " if len(side.runs) > 1 else ""
    words = [
        f"{count_text(side.total)} {kind.unit}",
        *(f"{count_text(total)} {unit}" for unit, total in side.weighted),
    ]
    hidden = sum(value > 0 for value, _, _ in side.between) - MOST_FLOWS
    more = f"; {hidden} smaller flows are not drawn" if hidden > 0 else ""
    return f"{mean}{', '.join(words)}{more}"


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
            else formatting.number(drawn.resolution_ms, formatting.decimals([drawn.resolution_ms])),
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


def run_values(report: CellReport) -> Json:
    """Return every figure of every run: a row for each measure, runs by variant and seed."""
    # A variant of which every run failed is not compared, but its runs are shown.
    order = list(
        dict.fromkeys([*(v.name for v in report.variants), *(r.variant for r in report.runs)])
    )
    runs = sorted(report.runs, key=lambda run: (order.index(run.variant), run.seed, run.id))
    summaries = {row.measure: row.summaries for row in report.comparisons}
    rows = []
    for info in report.measures:
        values = [run.measures.get(info.name) for run in runs]
        places = formatting.decimals(values)
        if places:  # not for counts, whose stddev alone needs decimals
            places = max(places, formatting.row_decimals(summaries.get(info.name, ())))
        cells = [(value, formatting.number(value, places, grouped=True)) for value in values]
        rows.append((info, cells))
    counts = [(variant, sum(run.variant == variant for run in runs)) for variant in order]
    return {"runs": runs, "counts": counts, "rows": rows}


def shared_facts(runs: Sequence[Run]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the programs, host and image by name, with the runs of each value."""
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
        "all runs"
        if len(distinct) == 1
        else ", ".join(run.id for run, own in zip(runs, values, strict=True) if own == value)
        for value in distinct
    ]
    return list(zip(distinct, whose, strict=True))


def placement_facts(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the placement of the runs, and whether each fact is as requested."""
    facts = [(run.id, fact, fact.agrees) for run in runs for fact in run.provenance.proof]
    return {
        "summaries": _by_value(runs, [run.provenance.placement for run in runs]),
        "facts": facts,
        "agreeing": sum(agrees for _, _, agrees in facts),
    }
