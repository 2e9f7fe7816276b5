"""Draws a topology as a standalone SVG for light and dark pages."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise, permutations
from math import hypot
from operator import itemgetter

from numalab.cpulist import format_cpulist
from numalab.topology.limits import LOCAL_DISTANCE, UNREACHABLE
from numalab.topology.topology import Node, Topology, describe_distance
from numalab.topology.view.placement import BOX_HEIGHT, BOX_WIDTH, Point, circle, circles

MARGIN = 26.0
CAPTION = 34.0
MAX_LABELLED = 12  # links; more labels would hide the lines, so the caption has the distances
MAX_LIST = 11  # characters of a CPU list that fit into a node's box
BOWS = (1, -1, 1.5, -1.5, 2, -2, 3, -3, 4, -4, 6, -6, 9, -9, 0.5, -0.5)  # multiples, in this order
SAMPLES = 40  # points of a curve that are tested
DASHES = ("", "7 5", "2 5", "12 4 2 4")  # nearest links first

STYLE = """
.numa{--ink:#1b2733;--soft:#5b6b7a;--paper:#ffffff;--box:#eef4fb;--edge:#3a6ea5;--flow:#c2410c;
font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
@media (prefers-color-scheme:dark){.numa{--ink:#e6edf3;--soft:#9fb0c0;--paper:#0f1720;
--box:#1b2a3a;--edge:#6ea8dc;--flow:#fb923c}}
:root[data-theme="light"] .numa{--ink:#1b2733;--soft:#5b6b7a;--paper:#ffffff;--box:#eef4fb;
--edge:#3a6ea5;--flow:#c2410c}
:root[data-theme="dark"] .numa{--ink:#e6edf3;--soft:#9fb0c0;--paper:#0f1720;--box:#1b2a3a;
--edge:#6ea8dc;--flow:#fb923c}
.numa .page{fill:var(--paper)}
.numa .link{stroke:var(--edge);stroke-width:2;fill:none}
.numa .cluster{fill:none;stroke:var(--soft);stroke-dasharray:3 5}
.numa .bar{stroke:var(--edge);stroke-width:7;stroke-linecap:round}
.numa .node{fill:var(--box);stroke:var(--edge);stroke-width:1.6}
.numa .empty{stroke-dasharray:6 4}
.numa .flow{stroke:var(--flow);fill:none;stroke-linecap:round;opacity:.9}
.numa .head{fill:var(--flow);stroke:none}
.numa text{fill:var(--ink);font-size:13px;text-anchor:middle}
.numa .name{font-weight:600;font-size:14px}
.numa .small{fill:var(--soft);font-size:12px}
.numa .label{font-size:12px;paint-order:stroke;stroke:var(--paper);stroke-width:5px;
stroke-linejoin:round}
.numa .moved{fill:var(--flow);font-weight:600}
"""


# Viewers that know no variables (librsvg) take the light colours before them.
LIGHT = dict(re.findall(r"--(\w+):(#\w+)", STYLE.partition("@media")[0]))
STYLE = re.sub(r"(\w+):var\(--(\w+)\)", lambda rule: f"{rule[1]}:{LIGHT[rule[2]]};{rule[0]}", STYLE)


@dataclass(frozen=True)
class Flow:
    """An arrow from one node to another with a label; `weight` (0 to 1) is its thickness."""

    source: int
    target: int
    label: str
    weight: float = 0.5


@dataclass(frozen=True)
class Curve:
    """A line from `start` to `end`, bent towards `control` (a quadratic Bézier curve)."""

    start: Point
    control: Point
    end: Point

    @property
    def middle(self) -> Point:
        """The point half way, the place of the label."""
        return self.at(0.5)

    def at(self, part: float) -> Point:
        """Return the point at `part` of the way, from 0 (start) to 1 (end)."""
        rest = 1 - part
        weights = (rest * rest, 2 * rest * part, part * part)
        ends = (self.start, self.control, self.end)
        return (
            sum(weight * point[0] for weight, point in zip(weights, ends, strict=True)),
            sum(weight * point[1] for weight, point in zip(weights, ends, strict=True)),
        )

    @property
    def path(self) -> str:
        """The curve in SVG's path language."""
        (a, b), (c, d), (e, f) = self.start, self.control, self.end
        return f"M{a:.1f} {b:.1f}Q{c:.1f} {d:.1f} {e:.1f} {f:.1f}"


def layout(topology: Topology) -> dict[int, Point]:
    """Place every node of a topology: by its shape, else in clusters or a circle."""
    count = len(topology.nodes)
    if topology.shape is not None:
        points = topology.shape.points(count)
    else:
        groups = clusters(topology)
        points = circles(groups) if len(groups) > 1 else circle(count)
    left = min(x for x, _ in points)
    top = min(y for _, y in points)
    return {node: (round(x - left, 1), round(y - top, 1)) for node, (x, y) in enumerate(points)}


def clusters(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """Return the groups of nodes that get a frame: those of the shape, or the nearest nodes.

    Nodes are a group when all pairs of them, in both directions, have the shortest distance of the
    machine. A machine that does not divide into groups of one size is a single group.
    """
    nodes, table = tuple(range(len(topology.nodes))), topology.distances
    if topology.shape is not None:
        return topology.shape.clusters(len(nodes))
    near = min((table[a][b] for a, b in permutations(nodes, 2)), default=0)
    groups = dict.fromkeys(
        tuple(b for b in nodes if a == b or max(table[a][b], table[b][a]) <= near) for a in nodes
    )
    sizes = {len(group) for group in groups}
    if len(sizes) > 1 or sizes == {1} or sum(map(len, groups)) != len(nodes):
        return (nodes,)
    return tuple(groups)


def is_wide(topology: Topology) -> bool:
    """Tell whether the drawing is too wide to stand beside another drawing."""
    points = layout(topology).values()
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return max(xs) - min(xs) > 6 * (max(ys) - min(ys) + BOX_HEIGHT)


def render_svg(topology: Topology, *, flows: Sequence[Flow] = ()) -> str:
    """Draw nodes with their CPUs and memory, links with their distance, and flows between nodes.

    Returns one `<svg>` element with its own style, which follows the page's colour scheme.
    """
    points = layout(topology)
    curves = bowed_links(topology)
    body = [
        *_clusters(topology, points),
        *_links(topology, curves),
        *(_box(node, points[node.id]) for node in topology.nodes),
        *(part for flow in flows for part in _flow(flow, points)),
    ]
    marks = [curve.middle for curve in curves.values()]
    xs = [x + side * BOX_WIDTH / 2 for x, _ in points.values() for side in (-1, 1)]
    ys = [y + side * BOX_HEIGHT / 2 for _, y in points.values() for side in (-1, 1)]
    xs += [x + side * 12 for x, _ in marks for side in (-1, 1)]
    ys += [y + side * 10 for _, y in marks for side in (-1, 1)]
    box = (
        min(xs) - MARGIN,
        min(ys) - MARGIN,
        max(xs) - min(xs) + 2 * MARGIN,
        max(ys) - min(ys) + 2 * MARGIN,
    )
    if len(clusters(topology)) > 1:
        box = (box[0] - 14, box[1] - 14, box[2] + 28, box[3] + 28)
    caption = _caption(topology, curves)
    wide = max(box[2], 7.0 * len(caption) + 20)
    left, height = box[0] - (wide - box[2]) / 2, box[3] + CAPTION
    summary = escape(f"{topology.name}: {topology.summary}")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="numa" role="img" '
            f'viewBox="{left:.0f} {box[1]:.0f} {wide:.0f} {height:.0f}" width="{wide:.0f}" '
            f'height="{height:.0f}" aria-label="{summary}">',
            f"<title>{summary}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="page" x="{left:.0f}" y="{box[1]:.0f}" width="{wide:.0f}" '
            f'height="{height:.0f}" rx="8"/>',
            *body,
            f'<text class="small" x="{left + wide / 2:.1f}" '
            f'y="{box[1] + box[3] + 10:.1f}">{escape(caption)}</text>',
            "</svg>",
            "",
        ]
    )


def bowed_links(topology: Topology) -> dict[tuple[int, int], Curve]:
    """Return the line of each drawn link: straight, or around the nodes in its way.

    Links between clusters are left out; a bar stands for all of them.
    """
    points = layout(topology)
    middle = (
        sum(x for x, _ in points.values()) / len(points),
        sum(y for _, y in points.values()) / len(points),
    )
    groups = clusters(topology)
    return {
        (a, b): _curve(points, a, b, middle)
        for a, b in topology.links
        if len(groups) == 1 or any(a in group and b in group for group in groups)
    }


def _box(node: Node, point: Point) -> str:
    x, y = point
    listed = format_cpulist(node.cpus)
    if len(listed) > MAX_LIST:
        listed = f"{len(node.cpus)} CPUs"
    elif node.cpus:
        listed = f"CPU {listed}" if len(node.cpus) == 1 else f"CPUs {listed}"
    memory = _memory(node.memory_mib) if node.memory_mib else "no memory"
    kind = "node" if node.cpus and node.memory_mib else "node empty"
    return (
        f'<g><rect class="{kind}" x="{x - BOX_WIDTH / 2:.1f}" y="{y - BOX_HEIGHT / 2:.1f}" '
        f'width="{BOX_WIDTH:.0f}" height="{BOX_HEIGHT:.0f}" rx="9"/>'
        f'<text class="name" x="{x:.1f}" y="{y - 13:.1f}">node {node.id}</text>'
        f'<text x="{x:.1f}" y="{y + 6:.1f}">{listed or "no CPUs"}</text>'
        f'<text class="small" x="{x:.1f}" y="{y + 23:.1f}">{memory}</text></g>'
    )


def _memory(mib: int) -> str:
    return f"{mib / 1024:g} GiB" if mib >= 1024 and mib % 256 == 0 else f"{mib} MiB"


def _links(topology: Topology, curves: dict[tuple[int, int], Curve]) -> list[str]:
    """Draw each link, dashed by its distance, and the distance where there is room."""
    lines, labels = [], []
    steps = sorted({_between(topology, link) for link in curves})
    for link, curve in curves.items():
        dashes = DASHES[min(steps.index(_between(topology, link)), len(DASHES) - 1)]
        style = f' style="stroke-dasharray:{dashes}"' if dashes else ""
        lines.append(f'<path class="link"{style} d="{curve.path}"/>')
        if len(curves) <= MAX_LABELLED:
            x, y = curve.middle
            labels.append(_label(x, y, describe_distance(topology, *link)))
    return lines + labels


def _label(x: float, y: float, text: str) -> str:
    return f'<text class="label" x="{x:.1f}" y="{y + 4:.1f}">{escape(text)}</text>'


def _between(topology: Topology, link: tuple[int, int]) -> tuple[int, int]:
    a, b = link
    out, back = topology.distances[a][b], topology.distances[b][a]
    return min(out, back), max(out, back)


def _caption(topology: Topology, curves: dict[tuple[int, int], Curve]) -> str:
    """Write all distances in one line, and those of the links where these have no labels."""
    values = sorted({value for row in topology.distances for value in row})
    suffix = {LOCAL_DISTANCE: " local", UNREACHABLE: " unreachable"}
    texts = [f"{value}{suffix.get(value, '')}" for value in values]
    caption = "distances: " + ", ".join(texts[:12]) + (", ..." if len(texts) > 12 else "")
    if len(curves) > MAX_LABELLED:
        steps = sorted({_between(topology, link) for link in curves})
        shown = ("solid", "dashed", "dotted", "dash-dotted")
        named = [
            f"{low}" + ("" if low == high else f" / {high}") + f" {shown[place]}"
            for place, (low, high) in enumerate(steps[: len(shown)])
        ]
        if len(steps) == 1:
            named = [named[0].removesuffix(" solid")]
        caption += "; links: " + ", ".join(named)
    return caption


def _clusters(topology: Topology, points: dict[int, Point]) -> list[str]:
    """Draw a frame around each group of near nodes, and one line between neighbouring groups."""
    groups = clusters(topology)
    if len(groups) == 1:
        return []
    parts, frames = [], []
    for group in groups:
        xs = [points[node][0] for node in group]
        ys = [points[node][1] for node in group]
        x, y = min(xs) - BOX_WIDTH / 2 - 20, min(ys) - BOX_HEIGHT / 2 - 20
        width = max(xs) - min(xs) + BOX_WIDTH + 40
        height = max(ys) - min(ys) + BOX_HEIGHT + 40
        frames.append((group, x, y, width, height))
        parts.append(
            f'<rect class="cluster" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" rx="16"/>'
        )
    for same, along in ((2, 1), (1, 2)):  # rows, then columns
        for frame, other in pairwise(sorted(frames, key=itemgetter(same, along))):
            if frame[same] == other[same]:
                parts += _joint(topology, frame, other)
    return parts


_Frame = tuple[tuple[int, ...], float, float, float, float]


def _joint(topology: Topology, frame: _Frame, other: _Frame) -> list[str]:
    """Draw the bar between two frames in a row or column, with the distances of its links."""
    values = sorted(
        {topology.distances[a][b] for a in frame[0] for b in other[0]}
        | {topology.distances[b][a] for a in frame[0] for b in other[0]}
    )
    text = str(values[0]) if len(values) == 1 else f"{values[0]}-{values[-1]}"
    if frame[1] == other[1]:
        x, y1, y2 = frame[1] + frame[3] / 2, frame[2] + frame[4], other[2]
        return [
            f'<path class="bar" d="M{x:.1f} {y1:.1f}V{y2:.1f}"/>',
            _label(x + 20, (y1 + y2) / 2, text),
        ]
    x1, x2, y = frame[1] + frame[3], other[1], frame[2] + frame[4] / 2
    return [
        f'<path class="bar" d="M{x1:.1f} {y:.1f}H{x2:.1f}"/>',
        _label((x1 + x2) / 2, y - 16, text),
    ]


def _curve(points: dict[int, Point], a: int, b: int, middle: Point) -> Curve:
    """Join two nodes: straight, or in a bow around the nodes in the way."""
    start, end = points[a], points[b]
    half = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    length = hypot(end[0] - start[0], end[1] - start[1]) or 1.0
    points_beside = [point for node, point in points.items() if node not in (a, b)]
    straight = Curve(start, half, end)
    passed = _crossed(straight, points_beside)
    if not passed:
        return straight
    across = ((start[1] - end[1]) / length, (end[0] - start[0]) / length)
    if across[1] > 0.01 or (abs(across[1]) <= 0.01 and across[0] > 0):
        across = (-across[0], -across[1])  # up, or to the left
    side = (half[0] - middle[0]) * across[0] + (half[1] - middle[1]) * across[1]
    sign = -1.0 if side < -1 else 1.0
    clear = abs(across[1]) * BOX_HEIGHT / 2 + abs(across[0]) * BOX_WIDTH / 2
    bows = [2 * (clear + 4 + 15 * passed) * sign * wider for wider in BOWS]
    curves = [
        Curve(start, (half[0] + across[0] * bow, half[1] + across[1] * bow), end) for bow in bows
    ]
    return min(curves, key=lambda curve: _crossed(curve, points_beside))


def _crossed(curve: Curve, boxes: Sequence[Point]) -> int:
    """Count the boxes of nodes that a curve crosses."""
    way = [curve.at(step / SAMPLES) for step in range(1, SAMPLES)]
    (west, east), (north, south) = ((min(axis), max(axis)) for axis in zip(*way, strict=True))
    return sum(
        west - BOX_WIDTH / 2 < left < east + BOX_WIDTH / 2
        and north - BOX_HEIGHT / 2 < top < south + BOX_HEIGHT / 2
        and any(abs(x - left) < BOX_WIDTH / 2 and abs(y - top) < BOX_HEIGHT / 2 for x, y in way)
        for left, top in boxes
    )


def _flow(flow: Flow, points: dict[int, Point]) -> list[str]:
    """Draw an arrow beside the straight line between two nodes, ending at the target's box."""
    start, end = points[flow.source], points[flow.target]
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = hypot(dx, dy)
    if length == 0:
        return [_label(start[0], start[1] - BOX_HEIGHT / 2 - 8, flow.label)]
    ux, uy = dx / length, dy / length
    bend = 30 + 0.06 * length
    control = ((start[0] + end[0]) / 2 - uy * bend, (start[1] + end[1]) / 2 + ux * bend)
    reach = min(
        BOX_WIDTH / 2 / abs(ux) if ux else length, BOX_HEIGHT / 2 / abs(uy) if uy else length
    )
    tip = (end[0] - ux * (reach + 3) - uy * 9, end[1] - uy * (reach + 3) + ux * 9)
    tail = (start[0] + ux * (reach + 3) - uy * 9, start[1] + uy * (reach + 3) + ux * 9)
    curve = Curve(tail, control, (tip[0] - ux * 8, tip[1] - uy * 8))
    width = 1.5 + 6 * min(max(flow.weight, 0.0), 1.0)
    size = 5 + width
    head = (
        f"M{tip[0]:.1f} {tip[1]:.1f}"
        f"L{tip[0] - ux * size - uy * size * 0.6:.1f} {tip[1] - uy * size + ux * size * 0.6:.1f}"
        f"L{tip[0] - ux * size + uy * size * 0.6:.1f} {tip[1] - uy * size - ux * size * 0.6:.1f}Z"
    )
    x, y = curve.middle
    return [
        f'<path class="flow" style="stroke-width:{width:.1f}" d="{curve.path}"/>',
        f'<path class="head" d="{head}"/>',
        f'<text class="label moved" x="{x - uy * 12:.1f}" y="{y + ux * 12 + 4:.1f}">'
        f"{escape(flow.label)}</text>",
    ]
