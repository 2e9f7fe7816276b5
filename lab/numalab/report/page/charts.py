"""Vega-Lite charts of a page: timelines, heat maps between nodes, and curves over time.

The specifications are `templates/*.json`. Colours are signals (`params`), so the page can change
them for a dark screen or for paper. The palette is Okabe and Ito's: it suits every kind of colour
vision.
"""

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup

from numalab.analysis.findings import Decision
from numalab.recording.timeline import Mark
from numalab.report.figures import printable
from numalab.report.page.page import TEMPLATES
from numalab.report.timeline import Span, Timeline
from numalab.topology.topology import Topology

VEGA_LITE = "6.1"
STEP, NARROWEST, TALLEST = 17, 6, 680  # pixels: a row, a row of many, a chart of many rows
MOST_TASKS = 48

# Orange, sky blue, green, purple, vermilion, blue, yellow; and a violet for eight nodes.
PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#0072B2", "#F0E442", "#6F4E9B")
VARIANTS = 6  # with a colour of their own; the seventh has the first one's again (style.css)
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

Spec = dict[str, Any]

DIGITS = re.compile(r"(\d+)")
HOVERED: Spec = {"param": "hover", "empty": False, "value": {"expr": "fg"}}
OTHERS_GREY: Spec = {"test": "!datum.own", "value": {"expr": "other"}}
_SPECS = jinja2.Environment(
    loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined
)


def _spec(name: str, **values: object) -> Spec:
    text = _SPECS.get_template(name).render(colors=LIGHT, **values)
    spec: Spec = json.loads(text)
    return spec


@cache
def chart_library() -> Markup:
    """Return the charting library as one script."""
    import vl_convert  # noqa: PLC0415 - starts a JavaScript engine; text reports need none

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", VEGA_LITE)
    return Markup(bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--"))


def cpu_label(cpu: int, node: int | None) -> str:
    """Name the row of a CPU, its node first: the rows are in blocks of nodes."""
    return f"N{node} CPU {cpu}"


def cpu_labels(topology: Topology) -> list[str]:
    """Return the rows of the CPU chart: all CPUs by node, idle ones included."""
    return [cpu_label(cpu, node.id) for node in topology.nodes for cpu in node.cpus]


def own_tasks(timeline: Timeline) -> list[str]:
    """Return the tasks of interest in natural order (hog-9 before hog-10); none if too many."""
    tasks = {span.task for span in timeline.spans if span.of_interest}
    if len(tasks) > MOST_TASKS:
        return []
    return sorted((printable(name) for name in tasks), key=_natural)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (0, part) for part in DIGITS.split(name)]


def node_color(topology: Topology, node: int) -> str:
    """Return the colour of a node in all charts; the palette repeats after eight nodes."""
    places = {member.id: place for place, member in enumerate(topology.nodes)}
    return PALETTE[places.get(node, 0) % len(PALETTE)]


def longest_ms(timelines: Sequence[Timeline]) -> float:
    """Return the end of the time axis of all charts."""
    return max((timeline.length_ms for timeline in timelines), default=0.0)


def inner_marks(timeline: Timeline) -> tuple[Mark, ...]:
    """Return the marks inside the window; those at its ends only repeat its limits."""
    return tuple(mark for mark in timeline.marks if 0 < mark.at_ms < timeline.length_ms)


def rows(spans: Sequence[Span]) -> list[Spec]:
    """Return spans as the records of a chart."""
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
    """Draw the tasks on each CPU: tasks of interest in the node's colour, others grey, idle blank.

    The time axis ends at `until_ms`, the longest timeline's length. The page fills the data set
    `spans`.
    """
    return _timeline(
        timeline, topology, until_ms, "row", cpu_labels(topology),
        conditions=[HOVERED, OTHERS_GREY], hovers=True,
    )  # fmt: skip


def still_cpu_chart(
    timeline: Timeline, topology: Topology, until_ms: float, spans: Sequence[Span]
) -> Spec:
    """Draw the CPU chart for a picture: with its spans, without pointer interaction."""
    return _timeline(
        timeline, topology, until_ms, "row", cpu_labels(topology),
        conditions=[OTHERS_GREY], spans=rows(spans), zooms=False,
    )  # fmt: skip


def task_chart(
    timeline: Timeline, topology: Topology, until_ms: float, decisions: Sequence[Decision] = ()
) -> Spec:
    """Draw the node of each task of interest over time (`timeline.stays`), coloured by node.

    A triangle marks a move by NUMA balancing, a diamond a swap, a cross a stick.
    """
    tasks = own_tasks(timeline)
    marks = [mark for decision in decisions if (mark := decision_mark(decision))["task"] in tasks]
    return _timeline(timeline, topology, until_ms, "task", tasks, decisions=marks)


def _timeline(
    timeline: Timeline,
    topology: Topology,
    until_ms: float,
    field: str,
    labels: list[str],
    *,
    conditions: Sequence[Spec] = (),
    spans: list[Spec] | None = None,
    zooms: bool = True,
    hovers: bool = False,
    decisions: Sequence[Spec] = (),
) -> Spec:
    nodes = [node.id for node in topology.nodes]
    return _spec(
        "timeline.json",
        until_ms=until_ms,
        field=field,
        labels=labels,
        height=max(NARROWEST, min(STEP, TALLEST // max(1, len(labels)))) * len(labels),
        nodes=nodes,
        node_colors=[node_color(topology, node) for node in nodes],
        marks=[{"at": mark.at_ms, "text": printable(mark.text)} for mark in inner_marks(timeline)],
        conditions=conditions,
        spans=spans,
        zooms=zooms,
        hovers=hovers,
        decisions=decisions,
    )


def decision_mark(decision: Decision) -> Spec:
    """Return a decision of NUMA balancing as a record of a chart, with its details as one text."""
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


def heat_map(cells: list[Spec], nodes: int, most: float) -> Spec:
    """Draw a matrix from node (row) to node (column); `most` is the darkest value.

    The figures stand in the cells while there is room.
    """
    step = 40 if nodes <= 8 else max(14, 320 // nodes)
    return _spec("heat_map.json", rows=cells, step=step, most=most)


def curve_chart(unit: str, until_ms: float, most: float) -> Spec:
    """Draw curves with bands over time. The page fills the data set `points`.

    A point has `start`, `mean`, `low`, `high`, `runs` and `label`, and a colour: the `place` of a
    variant, or a `color` of its own.
    """
    return _spec("curves.json", unit=unit, until_ms=until_ms, most=most, variants=VARIANTS)
