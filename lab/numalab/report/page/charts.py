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
from numalab.recording.marks import Mark
from numalab.report.formatting import printable
from numalab.report.page.page import TEMPLATES
from numalab.report.timeline import Span, Timeline
from numalab.topology.topology import Topology

VEGA_LITE = "6.1"
STEP, NARROWEST, TALLEST = 17, 6, 680  # pixels: a row, a row of many, a chart of many rows
MOST_TASKS = 48

# Orange, sky blue, green, purple, vermilion, blue, yellow; and a violet for eight nodes.
PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#0072B2", "#F0E442", "#6F4E9B")
VARIANTS = 6  # with a colour of their own; the seventh has the first one's again (style.css)
_COLORS = json.loads((TEMPLATES / "colors.json").read_text(encoding="utf-8"))
LIGHT, DARK = _COLORS["light"], _COLORS["dark"]

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


def cpu_chart(
    timeline: Timeline, topology: Topology, until_ms: float, spans: Sequence[Span] | None = None
) -> Spec:
    """Draw the tasks on each CPU: tasks of interest in the node's colour, others grey, idle blank.

    The time axis ends at `until_ms`. The page fills the data set `spans`; with `spans` they are
    embedded, and the chart is a picture that does not react to a pointer.
    """
    still = spans is not None
    return _timeline(
        timeline,
        topology,
        until_ms,
        "row",
        [cpu_label(cpu, node.id) for node in topology.nodes for cpu in node.cpus],
        conditions=[OTHERS_GREY] if still else [HOVERED, OTHERS_GREY],
        spans=None if spans is None else rows(spans),
        zooms=not still,
        hovers=not still,
    )


def task_chart(
    timeline: Timeline, topology: Topology, until_ms: float, decisions: Sequence[Decision] = ()
) -> Spec:
    """Draw the node of each task of interest over time (`timeline.stays`), coloured by node.

    A triangle marks a move by NUMA balancing, a diamond a swap, a cross a stick.
    """
    tasks = own_tasks(timeline)
    marks = [mark for decision in decisions if (mark := decision_mark(decision))["task"] in tasks]
    return _timeline(
        timeline, topology, until_ms, "task", tasks,
        conditions=[], spans=None, zooms=True, hovers=False, decisions=marks,
    )  # fmt: skip


def _timeline(
    timeline: Timeline,
    topology: Topology,
    until_ms: float,
    field: str,
    labels: list[str],
    *,
    decisions: Sequence[Spec] = (),
    **options: object,
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
        decisions=decisions,
        **options,
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
