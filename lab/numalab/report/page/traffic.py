"""Traffic from node to node: matrices of each variant, drawn on the machine and as heat maps."""

from collections.abc import Sequence
from dataclasses import dataclass

from numalab.analysis.findings import Matrix, Weight
from numalab.report import formatting
from numalab.report.document import CellReport
from numalab.report.page.charts import Spec, heat_map
from numalab.report.tables import right
from numalab.topology.topology import Topology
from numalab.topology.view.drawing import Flow, render_svg

MOST_FLOWS = 10  # arrows in a drawing; more hide each other

Means = tuple[tuple[float, ...], ...]
_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Side:
    """A matrix of the runs of one variant: the mean of each pair of nodes, and every run's value.

    `weighted` are the totals of the same matrix weighted by hops and by distance, by unit.
    """

    variant: str
    means: Means
    runs: tuple[Means, ...]
    weighted: tuple[tuple[str, float], ...]

    @property
    def between(self) -> list[tuple[float, int, int]]:
        """The mean of each pair of different nodes, with its source and target."""
        return [
            (value, near, far)
            for near, row in enumerate(self.means)
            for far, value in enumerate(row)
            if near != far
        ]

    @property
    def total(self) -> float:
        """The traffic between different nodes, mean of a run."""
        return sum(value for value, _, _ in self.between)


@dataclass(frozen=True)
class Traffic:
    """One kind of traffic between nodes, as every variant's runs had it."""

    name: str
    title: str
    unit: str
    sides: tuple[Side, ...]

    @property
    def most(self) -> float:
        """The largest mean of any pair of nodes, for a scale that all variants share."""
        return max((max(map(max, side.means), default=0.0) for side in self.sides), default=0.0)

    @property
    def most_between(self) -> float:
        """The largest mean of two different nodes."""
        return max((value for side in self.sides for value, _, _ in side.between), default=0.0)


def traffic(report: CellReport) -> list[Traffic]:
    """Return each kind of traffic that all variants have a matrix of, the plain ones."""
    kinds: dict[str, dict[str, list[Matrix]]] = {}
    for run in report.findings:
        for matrix in run.findings.matrices:
            if len(matrix.cells) == len(report.topology.nodes):
                kinds.setdefault(matrix.name, {}).setdefault(run.variant, []).append(matrix)
    names = [variant.name for variant in report.variants]
    return [
        Traffic(
            name,
            first.title,
            first.unit,
            tuple(_side(name, variant, kinds) for variant in names),
        )
        for name, variants in kinds.items()
        for first in [next(iter(variants.values()))[0]]
        if not first.weighted and set(variants) >= set(names)
    ]


def _side(name: str, variant: str, kinds: dict[str, dict[str, list[Matrix]]]) -> Side:
    runs = tuple(matrix.cells for matrix in kinds[name][variant])
    weighted = []
    for weight in Weight:
        weights = kinds.get(weight.of(name), {}).get(variant, [])
        if weights:
            total = sum(sum(map(sum, matrix.cells)) for matrix in weights) / len(weights)
            weighted.append((weights[0].unit, total))
    return Side(variant, _mean(runs), runs, tuple(weighted))


def _mean(runs: Sequence[Means]) -> Means:
    size = range(len(runs[0]))
    return tuple(
        tuple(sum(run[near][far] for run in runs) / len(runs) for far in size) for near in size
    )


def draw_flows(topology: Topology, kind: Traffic, side: Side) -> str:
    """Draw the machine with the largest flows of one variant; arrows of all variants compare."""
    flows = [
        Flow(near, far, short_text(value), value / kind.most_between)
        for value, near, far in sorted(side.between, reverse=True)[:MOST_FLOWS]
        if value > 0
    ]
    return render_svg(topology, flows=flows)


def count_text(value: float) -> str:
    """Write a mean of counts: whole where it is large or whole, else with one decimal."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def short_text(value: float) -> str:
    """Write a mean of counts in five characters, for a cell: `731`, `9,214`, `14k`, `3.2M`."""
    if value < 9999.5:
        return count_text(value)
    size, unit = next(scale for scale in _LARGE if value >= 0.9995 * scale[0])
    return f"{value / size:.0f}{unit}" if value >= 9.95 * size else f"{value / size:.1f}{unit}"


def heat_maps(topology: Topology, kind: Traffic) -> list[Spec]:
    """Return a heat map for each variant, all on one scale."""
    return [heat_map(_rows(topology, side), len(side.means), kind.most) for side in kind.sides]


def _rows(topology: Topology, side: Side) -> list[Spec]:
    size = range(len(side.means))
    return [
        {
            "from": topology.nodes[near].id,
            "to": topology.nodes[far].id,
            "mean": side.means[near][far],
            "text": short_text(side.means[near][far]) if side.means[near][far] else "·",
            "runs": ", ".join(count_text(run[near][far]) for run in side.runs),
            "distance": topology.distances[near][far],
        }
        for near in size
        for far in size
    ]


def as_text(topology: Topology, kind: Traffic) -> str:
    """Write the matrices of all variants as aligned text for a mail: from a row to a column."""
    heads = [f"to {node.id}" for node in topology.nodes]
    mean = ", mean of a run" if any(len(side.runs) > 1 for side in kind.sides) else ""
    lines = [formatting.plain_ascii(f"{kind.title} [{kind.unit}]{mean}")]
    for side in kind.sides:
        rows = [[count_text(value) for value in row] for row in side.means]
        sizes = [max(len(text) for texts in [heads, *rows] for text in texts)] * len(heads)
        lines += ["", f"{formatting.cut(side.variant, 12):12}  {right(heads, sizes)}"]
        for node, row in zip(topology.nodes, rows, strict=True):
            lines.append(f"from {node.id:<7}  {right(row, sizes)}")
    return "".join(f"{line}\n" for line in lines)
