"""What the memory model's links and memories carried over time, drawn on the machine.

A few drawings side by side, each the mean of one part of the window: they say at a glance what
becomes local, they print, and the curves below them have every step.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from numalab.analysis.findings import TaskMemory, TimeSeries
from numalab.report.document import CellReport, RunFindings
from numalab.report.page.page import data_uri
from numalab.topology.model import Topology
from numalab.topology.view.drawing import Flow, render_svg

PARTS = 4
MOST_ARROWS = 12  # in a drawing; more hide each other
LEAST = 0.02  # of the most that anything carried; below, there is no arrow
SERIES = ("memory_link", "memory_node")
Ends = tuple[int, int]


@dataclass(frozen=True)
class PartShown:
    """One part of the window of one variant: when, its drawing, and the same in words."""

    title: str
    image: str
    text: str


def link_traffic(report: CellReport) -> list[tuple[str, list[PartShown]]]:
    """Return the drawings of each variant, all on one scale; none without a memory model."""
    length = max((run.findings.length_ms for run in report.findings), default=0.0)
    rates = {
        variant.name: [
            _rates([r for r in report.findings if r.variant == variant.name], length, part)
            for part in range(PARTS)
        ]
        for variant in report.variants
    }
    most = max(
        (max(part.values(), default=0.0) for all_ in rates.values() for part in all_), default=0.0
    )
    if not most:
        return []
    step = length / PARTS
    return [
        (name, [_shown(report.topology, part, most, place * step, (place + 1) * step)
                for place, part in enumerate(parts)])
        for name, parts in rates.items()
    ]  # fmt: skip


def _rates(runs: Sequence[RunFindings], length: float, part: int) -> dict[Ends, float]:
    """Return the mean rate of each memory (its node twice) and link in one part of the window."""
    rates: dict[Ends, float] = {}
    for run in runs:
        for series in run.findings.series:
            if series.name in SERIES:
                node = series.node
                ends = series.link if node is None else (node, node)
                if ends is not None:
                    mean = _mean(series, part * length / PARTS, (part + 1) * length / PARTS)
                    rates[ends] = rates.get(ends, 0.0) + mean / len(runs)
    return rates


def _mean(series: TimeSeries, begin: float, end: float) -> float:
    """Return the mean of a curve of steps from `begin` to `end`."""
    return sum(value * length for value, length in _steps(series, begin, end)) / (end - begin)


def _steps(series: TimeSeries, begin: float, end: float) -> Iterator[tuple[float, float]]:
    before = 0.0
    for at, value in zip(series.at_ms, series.values, strict=True):
        overlap = min(at, end) - max(before, begin)
        if overlap > 0 and value is not None:
            yield value, overlap
        before = at


def _shown(
    topology: Topology, rates: dict[Ends, float], most: float, begin: float, end: float
) -> PartShown:
    nodes = range(len(topology.nodes))
    carried = [(ends, rate) for ends, rate in rates.items() if set(ends) <= set(nodes)]
    memories = [flow for flow in carried if flow[0][0] == flow[0][1]]
    links = sorted((flow for flow in carried if flow[0][0] != flow[0][1]), key=lambda e: -e[1])
    drawn = [flow for flow in links[:MOST_ARROWS] if flow[1] >= LEAST * most]
    flows = [Flow(*ends, f"{rate:,.0f}", rate / most) for ends, rate in drawn]
    flows += [Flow(*ends, f"{rate:,.0f} MB/s") for ends, rate in memories]
    words = [f"memory of node {a} {rate:,.0f} MB/s" for (a, _), rate in memories]
    words += [f"link {a}-{b} {rate:,.0f} MB/s" for (a, b), rate in links if rate > 0]
    hidden = sum(rate >= LEAST * most for _, rate in links[MOST_ARROWS:])
    more = f"; {hidden} more links are not drawn" if hidden else ""
    title = f"{begin:,.0f} to {end:,.0f} ms{more}"
    return PartShown(title, data_uri(render_svg(topology, flows=flows)), ", ".join(words))


@dataclass(frozen=True)
class StalledRow:
    """A task of the first run of a variant, and what it waited for."""

    place: int
    variant: str
    task: TaskMemory

    @property
    def stall_percent(self) -> float:
        """The share of its CPU time in which it waited for a cache or a memory."""
        return 100 * self.task.stalled_ms / self.task.cpu_ms if self.task.cpu_ms else 0.0

    @property
    def local_percent(self) -> float | None:
        """The share of its lines that came from its CPU's own node."""
        lines = sum(self.task.lines)
        return 100 * self.task.local / lines if lines else None


def stalled_rows(report: CellReport) -> list[StalledRow]:
    """Return the tasks of the first run of each variant, the longest wait first."""
    return [
        StalledRow(place, first.variant, task)
        for place, first in report.first_findings()
        for task in first.findings.memory
    ]
