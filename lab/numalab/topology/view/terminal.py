"""Shows a topology in a terminal: a drawing, the nodes, and the distances."""

from collections.abc import Sequence
from itertools import permutations, product

from numalab.cpulist import format_cpulist
from numalab.topology.export import render_numactl
from numalab.topology.limits import UNREACHABLE
from numalab.topology.memory.timing import memory_model
from numalab.topology.topology import (
    Topology,
    describe_bandwidth,
    describe_figures,
    describe_node,
    describe_shape,
)
from numalab.topology.view.drawing import bowed_links, clusters, layout
from numalab.units import counted

COLUMN = 13.0  # pixels of the layout in one character
LINE = 34.0
MAX_COLUMNS = 110
STEPS = 240


def render_terminal(topology: Topology) -> str:
    """Render a topology as text: summary, drawing, nodes, distances and costs of memory."""
    lines = [f"{topology.name}: {topology.summary}"]
    if topology.source:
        lines.append(f"source: {topology.source}")
    figures = describe_figures(topology)
    if topology.published is not None:
        figures += f"; measured by {topology.published.measured_by}, {topology.published.date}"
    lines.append(f"figures: {figures}")
    lines += ["", *_drawing(topology), *_between_clusters(topology), ""]
    lines.append(
        f"{counted(topology.cpu_count, 'CPU')}: {describe_shape(topology.packaging)}, "
        f"last-level cache: {topology.llc}"
    )
    lines.append(f"{topology.memory_mib} MiB in {counted(len(topology.nodes), 'node')}")
    for node in topology.nodes:
        lines.append(f"  node {node.id}: {', '.join(describe_node(node))}")
    lines += ["", *render_numactl(topology).split("node distances:\n")[1].splitlines()]
    if topology.interconnects:
        lines += ["", "latency and bandwidth (HMAT):"]
    for access in topology.interconnects:
        latency = "" if access.latency_ns is None else f", {access.latency_ns} ns"
        speed = access.bandwidth_kib_s
        bandwidth = "" if speed is None else f", {describe_bandwidth(speed)}"
        lines.append(f"  node {access.initiator} to node {access.target}{latency}{bandwidth}")
    lines += ["", *_modelled(topology)]
    return "\n".join(line.rstrip() for line in lines)


def _modelled(topology: Topology) -> list[str]:
    """Write the costs of memory in `timed` mode, from each node with CPUs to each memory."""
    model = memory_model(topology)
    near = [node.id for node in topology.nodes if node.cpus]
    nodes = range(len(topology.nodes))
    latency = [[f"{model.latency_ns[a][b]}" for b in nodes] for a in near]
    bandwidth = [[f"{model.bandwidth_mb_s(a, b):.0f}" for b in nodes] for a in near]
    return [
        "in timed mode (modelled):",
        f"  {private_caches(model.l1.kib, model.l2.kib, model.l2.hit_ns)}; "
        f"{counted(len(set(model.groups)), 'last-level cache')} of "
        f"{model.llc.kib} KiB in {model.llc.hit_ns} ns",
        *(f"  {line}" for line in matrix_lines("latency, ns", near, latency)),
        *(f"  {line}" for line in matrix_lines("bandwidth, MB/s", near, bandwidth)),
    ]


def private_caches(l1_kib: int, l2_kib: int, l2_ns: int) -> str:
    """Describe the caches of a CPU; a second level of 0 KiB is none."""
    second = f"{l2_kib} KiB second level in {l2_ns} ns" if l2_kib else "no second level"
    return f"each CPU: {l1_kib} KiB first level, {second}"


def matrix_lines(
    title: str, rows: Sequence[int], cells: Sequence[Sequence[str]], *, at_once: int | None = None
) -> list[str]:
    """Lay out texts from the nodes of `rows` to all nodes, below a title.

    `at_once` columns are beside each other, the next ones below them; by default all.
    """
    width = max(len(cell) for row in cells for cell in row) + 1
    columns = range(len(cells[0]))
    step = at_once or len(columns)
    lines = [title]
    for part in (columns[first : first + step] for first in columns[::step]):
        lines.append("  node" + "".join(f"{node:>{width}}" for node in part))
        lines += (
            f"  {node:>3}:" + "".join(f"{row[column]:>{width}}" for column in part)
            for node, row in zip(rows, cells, strict=True)
        )
    return lines


def _drawing(topology: Topology) -> list[str]:
    """Draw nodes as `[0]` and links as lines of characters; a note where that is too wide."""
    points = layout(topology)
    curves = bowed_links(topology)
    marks: dict[tuple[int, int], str] = {}
    for curve in curves.values():
        before = curve.at(0.0)
        for step in range(1, STEPS + 1):
            here = curve.at(step / STEPS)
            place = (round(here[1] / LINE), round(here[0] / COLUMN))
            sign = _stroke((here[0] - before[0]) / COLUMN, (here[1] - before[1]) / LINE)
            marks[place] = sign if marks.get(place, sign) == sign else "┼"
            before = here
    for node, (x, y) in points.items():
        label = f"[{node}]"
        start = round(x / COLUMN) - len(label) // 2
        for offset, sign in enumerate(label):
            marks[round(y / LINE), start + offset] = sign
    left = min(column for _, column in marks)
    width = max(column for _, column in marks) - left + 1
    if width > MAX_COLUMNS:
        return [f"(a drawing would be {width} columns wide; --format svg has one)"]
    rows = range(min(row for row, _ in marks), max(row for row, _ in marks) + 1)
    return [
        "  " + "".join(marks.get((row, left + column), " ") for column in range(width)).rstrip()
        for row in rows
    ]


def _between_clusters(topology: Topology) -> list[str]:
    """Write how far the clusters are apart: links between them are not drawn."""
    groups = clusters(topology)
    values = {
        topology.distances[a][b] for pair in permutations(groups, 2) for a, b in product(*pair)
    }
    if not values:
        return []
    far = sorted(values - {UNREACHABLE})
    texts = ["no path"] if UNREACHABLE in values else []
    if far:
        texts.insert(0, f"{' to '.join(map(str, dict.fromkeys((far[0], far[-1]))))} apart")
    names = " ".join(f"[{format_cpulist(group)}]" for group in groups)
    return ["", f"  clusters {names}: {' or '.join(texts)}"]


def _stroke(dx: float, dy: float) -> str:
    if abs(dy) < 0.35 * abs(dx):
        return "─"
    if abs(dx) < 0.35 * abs(dy):
        return "│"
    return "╲" if dx * dy > 0 else "╱"
