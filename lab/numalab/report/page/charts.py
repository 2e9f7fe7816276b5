"""Vega-Lite specifications of the timelines: who ran on each CPU, and where each task was.

Colours are signals (`params`), so the page can change them for a dark screen or for paper without
building the chart again. The palette is Okabe and Ito's, made for every kind of colour vision.
"""

import re
from collections.abc import Sequence
from typing import Any

from numalab.analysis.findings import Decision
from numalab.recording.timeline import Mark
from numalab.report.figures import printable
from numalab.report.timeline import Span, Timeline
from numalab.topology.model import Topology

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
VEGA_LITE = "6.1"
STEP, NARROWEST, TALLEST = 17, 6, 680  # pixels: a row, a row of many, a chart of many rows
MOST_TASKS = 48

# Orange, sky blue, green, purple, vermilion, blue, yellow; and a violet for eight nodes.
PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#0072B2", "#F0E442", "#6F4E9B")
VARIANTS = 6  # that have a colour of their own; the seventh has the first one's again (style.css)
LIGHT = {
    "fg": "#1b2733",
    "muted": "#55636f",
    "grid": "#dde2e8",
    "other": "#a3abb4",
    "bg": "#ffffff",
    "v0": "#a85400",
    "v1": "#0072b2",
    "v2": "#00775a",
    "v3": "#a6467f",
    "v4": "#6f4e9b",
    "v5": "#6b6100",
}
DARK = {
    "fg": "#e6edf3",
    "muted": "#9fb0c0",
    "grid": "#2a3846",
    "other": "#5f6d7b",
    "bg": "#0f1720",
    "v0": "#e69f00",
    "v1": "#56b4e9",
    "v2": "#2bbf94",
    "v3": "#dd95bd",
    "v4": "#b39ddb",
    "v5": "#d6c84a",
}

# All charts give their labels the same room, so that their time axes lie below each other.
LABEL_ROOM = {"minExtent": 104, "maxExtent": 104, "labelLimit": 98, "labelOverlap": True}

Spec = dict[str, Any]

DIGITS = re.compile(r"(\d+)")
OTHERS_GREY: Spec = {"test": "!datum.own", "value": {"expr": "other"}}


def cpu_label(cpu: int, node: int | None) -> str:
    """Name a CPU's row: its node first, because the rows are read in blocks of nodes."""
    return f"N{node} CPU {cpu}"


def cpu_labels(topology: Topology) -> list[str]:
    """Return the rows of the CPU chart, all CPUs by node, those that never ran included."""
    return [cpu_label(cpu, node.id) for node in topology.nodes for cpu in node.cpus]


def own_tasks(timeline: Timeline) -> list[str]:
    """Return the names of the tasks of interest of a timeline; none if they are too many.

    Sorted as people count: hog-9 before hog-10.
    """
    found = {span.task for span in timeline.spans if span.of_interest}
    if len(found) > MOST_TASKS:
        return []
    return sorted((printable(name) for name in found), key=_natural)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (0, part) for part in DIGITS.split(name)]


def node_color(topology: Topology, node: int) -> str:
    """Return the colour of a node in all charts; the palette starts again after eight nodes."""
    places = {each.id: place for place, each in enumerate(topology.nodes)}
    return PALETTE[places.get(node, 0) % len(PALETTE)]


def longest_ms(timelines: Sequence[Timeline]) -> float:
    """Return where the time axis of all charts ends."""
    return max((timeline.length_ms for timeline in timelines), default=0.0)


def inner_marks(timeline: Timeline) -> tuple[Mark, ...]:
    """Return the marks inside the window; those at its very ends would only repeat what it is."""
    return tuple(mark for mark in timeline.marks if 0 < mark.at_ms < timeline.length_ms)


def rows(spans: Sequence[Span]) -> list[Spec]:
    """Return spans as the records that the charts draw."""
    return [
        {
            "row": cpu_label(span.cpu, span.node),
            "cpu": span.cpu,
            "node": span.node,
            "start": span.start_ms,
            "end": span.end_ms,
            "task": printable(span.task),
            "own": int(span.of_interest),
        }
        for span in spans
    ]


def cpu_chart(timeline: Timeline, topology: Topology, until_ms: float) -> Spec:
    """Draw who ran on each CPU: tasks of interest in the node's colour, others grey, idle blank.

    The time axis ends at `until_ms`, the longest timeline's length, so that charts compare. The
    spans are the data set `spans`, which whoever embeds the chart fills (see `rows`).
    """
    hovered = {"param": "hover", "empty": False, "value": {"expr": "fg"}}
    color = _node_scale(topology) | {"condition": [hovered, OTHERS_GREY]}
    return _chart(timeline, until_ms, cpu_labels(topology), "row", color, params=[zoom(), _hover()])


def still_cpu_chart(
    timeline: Timeline, topology: Topology, until_ms: float, spans: Sequence[Span]
) -> Spec:
    """Draw the CPU chart for a picture: with its spans, without what needs a pointer."""
    color = _node_scale(topology) | {"condition": [OTHERS_GREY]}
    chart = _chart(timeline, until_ms, cpu_labels(topology), "row", color, params=[])
    chart["layer"][0]["data"] = {"values": rows(spans)}
    return chart


def task_chart(
    timeline: Timeline, topology: Topology, until_ms: float, decisions: Sequence[Decision] = ()
) -> Spec:
    """Draw the stays (`timeline.stays`) of the tasks of interest on nodes, coloured by node.

    Decisions of NUMA balancing about them are marks: a move points up, a swap is a diamond, a stick
    a cross.
    """
    tasks = own_tasks(timeline)
    chart = _chart(timeline, until_ms, tasks, "task", _node_scale(topology), params=[zoom()])
    marks = [mark for each in decisions if (mark := decision_mark(each))["task"] in tasks]
    if marks:
        chart["layer"].append(_decisions(marks))
    return chart


def decision_mark(decision: Decision) -> Spec:
    """Return a decision as the record that the chart draws, with all that it says as one text."""
    route = f"CPU {decision.from_cpu} (node {decision.from_node})"
    if decision.to_cpu is not None:
        route += f" to CPU {decision.to_cpu} (node {decision.to_node})"
    elif decision.to_node is not None:
        route += f" to node {decision.to_node}"
    parts = [f"{decision.kind}: {route}"]
    if decision.kind == "swap" and decision.other_pid is not None:
        parts.append(f"with {decision.other_task}/{decision.other_pid}")
    parts += [text for text in (decision.reason, decision.undone) if text]
    if decision.nearer is not None:
        nearer = f"{abs(decision.nearer)} {'nearer to' if decision.nearer > 0 else 'farther from'}"
        parts.append(f"{nearer if decision.nearer else 'as far from'} its preferred node")
    return {
        "task": printable(f"{decision.task}/{decision.pid}"),
        "kind": decision.kind,
        "start": round(decision.at_ms, 3),
        "what": printable(", ".join(parts)),
    }


def _decisions(marks: list[Spec]) -> Spec:
    shapes = {"domain": ["move", "swap", "stick"], "range": ["triangle-up", "diamond", "cross"]}
    return {
        "data": {"values": marks},
        "mark": {"type": "point", "filled": True, "size": 90, "clip": True, "opacity": 1},
        "encoding": {
            "x": {"field": "start", "type": "quantitative"},
            "y": {"field": "task", "type": "nominal"},
            "shape": {"field": "kind", "type": "nominal", "scale": shapes, "legend": None},
            "fill": {"value": {"expr": "fg"}},
            "stroke": {"value": {"expr": "bg"}},
            "strokeWidth": {"value": 0.7},
            "tooltip": [
                {"field": "what", "type": "nominal", "title": "decision"},
                {"field": "task", "type": "nominal", "title": "task"},
                {"field": "start", "type": "quantitative", "title": "at [ms]", "format": ",.3f"},
            ],
        },
    }


def framed(chart: Spec) -> Spec:
    """Add what all charts share: the schema, the signals of colours, and the axes' style."""
    return {
        "$schema": SCHEMA,
        "padding": {"left": 0, "right": 12, "top": 2, "bottom": 2},
        "params": [{"name": name, "value": value} for name, value in LIGHT.items()],
        "config": _config(),
        **chart,
    }


def _node_scale(topology: Topology) -> Spec:
    nodes = [node.id for node in topology.nodes]
    colors = [node_color(topology, node) for node in nodes]
    scale = {"domain": nodes, "range": colors}
    return {"field": "node", "type": "nominal", "scale": scale, "legend": None}


def _chart(
    timeline: Timeline,
    until_ms: float,
    labels: list[str],
    field: str,
    color: Spec,
    *,
    params: list[Spec],
) -> Spec:
    spans: Spec = {
        "data": {"name": "spans"},
        "params": params,
        "mark": {"type": "rect", "clip": True},
        "encoding": {
            "x": time_axis(until_ms),
            "x2": {"field": "end"},
            "y": _row_axis(field, labels),
            "fill": color,
            # Slices that touch would show a pale seam between them; half a pixel closes it.
            "stroke": color,
            "strokeWidth": {"value": 0.5},
            "tooltip": _tooltip(),
        },
    }
    return framed(
        {
            "width": "container",
            "height": max(NARROWEST, min(STEP, TALLEST // max(1, len(labels)))) * len(labels),
            "autosize": {"type": "fit-x", "contains": "padding"},
            "layer": [spans, *_marks(timeline)],
        }
    )


def time_axis(until_ms: float) -> Spec:
    """Return the time axis that all charts over time share."""
    return {
        "field": "start",
        "type": "quantitative",
        "scale": {"domain": [0, until_ms], "nice": False},
        "axis": {"title": "ms after the window's begin", "format": ",~f", "tickCount": 8},
    }


def _row_axis(field: str, labels: list[str]) -> Spec:
    return {
        "field": field,
        "type": "nominal",
        "sort": labels,
        "scale": {"domain": labels, "paddingInner": 0.18, "paddingOuter": 0.1},
        "axis": {"title": None, "grid": True, "tickBand": "extent", **LABEL_ROOM},
    }


def _tooltip() -> list[Spec]:
    return [
        {"field": "task", "type": "nominal", "title": "task"},
        {"field": "cpu", "type": "nominal", "title": "CPU"},
        {"field": "node", "type": "nominal", "title": "node"},
        {"field": "start", "type": "quantitative", "title": "from [ms]", "format": ",.3f"},
        {"field": "end", "type": "quantitative", "title": "to [ms]", "format": ",.3f"},
    ]


def _hover() -> Spec:
    """Picking a task under the pointer shows everywhere it ran."""
    return {
        "name": "hover",
        "select": {"type": "point", "fields": ["task"], "on": "pointerover", "clear": "pointerout"},
    }


def zoom() -> Spec:
    """Zoom needs the shift key, so that a wheel over a chart still moves the page."""
    return {
        "name": "zoom",
        "select": {"type": "interval", "encodings": ["x"], "zoom": "wheel![event.shiftKey]"},
        "bind": "scales",
    }


def _marks(timeline: Timeline) -> list[Spec]:
    marks = inner_marks(timeline)
    if not marks:
        return []
    values = [{"at": mark.at_ms, "text": printable(mark.text)} for mark in marks]
    return [
        {
            "data": {"values": values},
            "mark": {"type": "rule", "color": {"expr": "fg"}, "strokeDash": [3, 3], "clip": True},
            "encoding": {
                "x": {"field": "at", "type": "quantitative"},
                "tooltip": [
                    {"field": "text", "type": "nominal", "title": "mark"},
                    {"field": "at", "type": "quantitative", "title": "at [ms]", "format": ",.3f"},
                ],
            },
        }
    ]


def _config() -> Spec:
    muted = {"expr": "muted"}
    return {
        "background": None,
        "font": "system-ui, sans-serif",
        "view": {"stroke": None},
        "axis": {
            "labelColor": muted,
            "titleColor": muted,
            "domainColor": {"expr": "grid"},
            "tickColor": {"expr": "grid"},
            "gridColor": {"expr": "grid"},
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
        },
    }
