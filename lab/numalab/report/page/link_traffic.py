"""The simulated traffic on links and memories over time, drawn on the machine.

Each drawing is the mean of one part of the window. The curves on the page have finer steps.
"""

from collections.abc import Sequence
from typing import Any

from numalab.analysis.findings import TimeSeries
from numalab.report.document import CellReport, RunFindings
from numalab.report.page.page import data_uri
from numalab.topology.topology import Topology
from numalab.topology.view.drawing import Flow, render_svg

PARTS = 4
MOST_ARROWS = 12  # in a drawing; more hide each other
LEAST = 0.02  # of the largest rate; a smaller rate has no arrow
SERIES = ("memory_link", "memory_node")
Ends = tuple[int, int]
Json = dict[str, Any]


def link_traffic(report: CellReport) -> list[tuple[str, list[Json]]]:
    """Return the drawings of each variant, all on one scale; none without a memory model.

    A variant has none of a part that all its runs ended before.
    """
    length = max((run.findings.length_ms for run in report.findings), default=0.0)
    step = length / PARTS
    windows = [(part * step, (part + 1) * step) for part in range(PARTS)]
    rates = {
        variant.name: [
            _rates([run for run in report.findings if run.variant == variant.name], begin, end)
            for begin, end in windows
        ]
        for variant in report.variants
    }
    ended = {run.variant: 0.0 for run in report.findings}
    for run in report.findings:
        ended[run.variant] = max(ended[run.variant], run.findings.length_ms)
    most = max((rate for parts in rates.values() for part in parts for rate in part.values()),
               default=0.0)  # fmt: skip
    if not most:
        return []
    return [
        (
            name,
            [
                _shown(report.topology, part, most, begin, min(end, ended[name]))
                for part, (begin, end) in zip(parts, windows, strict=True)
                if part
            ],
        )
        for name, parts in rates.items()
    ]


def _rates(runs: Sequence[RunFindings], begin: float, end: float) -> dict[Ends, float]:
    """Return the mean rate of each memory (its node twice) and link in one part of the window.

    The mean is over the time that the runs have in this part; empty if they have none.
    """
    time = sum(max(0.0, min(run.findings.length_ms, end) - begin) for run in runs)
    rates: dict[Ends, float] = {}
    for series in (series for run in runs if time for series in run.findings.series):
        ends = series.link if series.node is None else (series.node, series.node)
        if series.name in SERIES and ends is not None:
            rates[ends] = rates.get(ends, 0.0) + _integral(series, begin, end) / time
    return rates


def _integral(series: TimeSeries, begin: float, end: float) -> float:
    """Return the sum of a curve of steps from `begin` to `end`, times their lengths in ms."""
    total, before = 0.0, 0.0
    for at, value in zip(series.at_ms, series.values, strict=True):
        overlap = min(at, end) - max(before, begin)
        if overlap > 0 and value is not None:
            total += value * overlap
        before = at
    return total


def _shown(
    topology: Topology, rates: dict[Ends, float], most: float, begin: float, end: float
) -> Json:
    """Return one part of the window of one variant: its time, its drawing, and the rates."""
    nodes = range(len(topology.nodes))
    carried = [(ends, rate) for ends, rate in rates.items() if set(ends) <= set(nodes)]
    memories = [(ends, rate) for ends, rate in carried if ends[0] == ends[1]]
    links = sorted(
        ((ends, rate) for ends, rate in carried if ends[0] != ends[1]), key=lambda flow: -flow[1]
    )
    drawn = [(ends, rate) for ends, rate in links[:MOST_ARROWS] if rate >= LEAST * most]
    flows = [Flow(*ends, f"{rate:,.0f}", rate / most) for ends, rate in drawn]
    flows += [Flow(*ends, f"{rate:,.0f} MB/s") for ends, rate in memories]
    words = [f"memory of node {a} {rate:,.0f} MB/s" for (a, _), rate in memories]
    words += [f"link {a}-{b} {rate:,.0f} MB/s" for (a, b), rate in links if rate > 0]
    hidden = sum(rate >= LEAST * most for _, rate in links[MOST_ARROWS:])
    more = f"; {hidden} more links are not drawn" if hidden else ""
    title = f"{begin:,.0f} to {end:,.0f} ms{more}"
    image = data_uri(render_svg(topology, flows=flows))
    return {"title": title, "image": image, "text": ", ".join(words)}


def stalled_rows(report: CellReport) -> list[Json]:
    """Return the tasks of the first run of each variant, the longest wait for memory first.

    `stall_percent` is the share of CPU time in which a task waited for a cache or a memory,
    `local_percent` the share of its cache lines that came from its CPU's own node, and `shares`
    (%) the part of them from each node.
    """
    return [
        {
            "place": place,
            "variant": first.variant,
            "task": task,
            "stall_percent": 100 * task.stalled_ms / task.cpu_ms if task.cpu_ms else 0.0,
            "local_percent": 100 * task.local / lines if (lines := sum(task.lines)) else None,
            "shares": [100 * count / lines if lines else 0.0 for count in task.lines],
        }
        for place, first in report.first_findings()
        for task in first.findings.memory
    ]
