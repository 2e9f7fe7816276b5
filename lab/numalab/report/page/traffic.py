"""What went from node to node: matrices of the runs of each variant, drawn and as heat maps."""

from collections.abc import Sequence
from dataclasses import dataclass

from numalab.analysis.findings import Matrix, Weight
from numalab.report import figures
from numalab.report.document import CellReport
from numalab.report.page.charts import Spec, heat_map
from numalab.topology.model import Topology
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
        """The mean of each pair of different nodes, with where it left and where it went."""
        return [
            (value, here, there)
            for here, row in enumerate(self.means)
            for there, value in enumerate(row)
            if here != there
        ]

    @property
    def total(self) -> float:
        """What went to another node, in a run."""
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
    found: dict[str, dict[str, list[Matrix]]] = {}
    for run in report.findings:
        for matrix in run.findings.matrices:
            if len(matrix.cells) == len(report.topology.nodes):
                found.setdefault(matrix.name, {}).setdefault(run.variant, []).append(matrix)
    names = [variant.name for variant in report.variants]
    return [
        Traffic(
            name,
            first.title,
            first.unit,
            tuple(_side(name, variant, found) for variant in names),
        )
        for name, variants in found.items()
        for first in [next(iter(variants.values()))[0]]
        if not first.weighted and set(variants) >= set(names)
    ]


def _side(name: str, variant: str, found: dict[str, dict[str, list[Matrix]]]) -> Side:
    runs = tuple(matrix.cells for matrix in found[name][variant])
    weighted = []
    for weight in Weight:
        others = found.get(weight.of(name), {}).get(variant, [])
        if others:
            total = sum(sum(map(sum, matrix.cells)) for matrix in others) / len(others)
            weighted.append((others[0].unit, total))
    return Side(variant, _mean(runs), runs, tuple(weighted))


def _mean(runs: Sequence[Means]) -> Means:
    size = range(len(runs[0]))
    return tuple(
        tuple(sum(run[here][there] for run in runs) / len(runs) for there in size) for here in size
    )


def draw_flows(topology: Topology, found: Traffic, side: Side) -> str:
    """Draw the machine with the largest flows of one variant; arrows of all variants compare."""
    flows = [
        Flow(here, there, short_text(value), value / found.most_between)
        for value, here, there in sorted(side.between, reverse=True)[:MOST_FLOWS]
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
    size, unit = next(each for each in _LARGE if value >= 0.9995 * each[0])
    return f"{value / size:.0f}{unit}" if value >= 9.95 * size else f"{value / size:.1f}{unit}"


def heat_maps(topology: Topology, found: Traffic) -> list[Spec]:
    """Return a heat map for each variant, all on one scale."""
    return [heat_map(_rows(topology, side), len(side.means), found.most) for side in found.sides]


def _rows(topology: Topology, side: Side) -> list[Spec]:
    size = range(len(side.means))
    return [
        {
            "from": topology.nodes[here].id,
            "to": topology.nodes[there].id,
            "mean": side.means[here][there],
            "text": short_text(side.means[here][there]) if side.means[here][there] else "·",
            "runs": ", ".join(count_text(run[here][there]) for run in side.runs),
            "distance": topology.distances[here][there],
        }
        for here in size
        for there in size
    ]


def as_text(topology: Topology, found: Traffic) -> str:
    """Write the matrices of all variants as aligned text for a mail: from a row to a column."""
    heads = [f"to {node.id}" for node in topology.nodes]
    lines = [figures.plain_ascii(f"{found.title} [{found.unit}], mean of a run")]
    for side in found.sides:
        rows = [[count_text(value) for value in row] for row in side.means]
        size = max(len(text) for text in [*heads, *(t for row in rows for t in row)])
        lines.append("")
        lines.append(
            f"{figures.cut(side.variant, 12):12}" + "".join(f"  {h:>{size}}" for h in heads)
        )
        for node, row in zip(topology.nodes, rows, strict=True):
            lines.append(f"from {node.id:<7}" + "".join(f"  {t:>{size}}" for t in row))
    return "".join(f"{line}\n" for line in lines)
