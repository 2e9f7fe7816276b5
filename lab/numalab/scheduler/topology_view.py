"""The machine as the topology code of the scx crates sees it, beside the prediction. Pure.

scx_rusty prints a line for each node and for each domain, which is a last-level cache
(scx_rusty/src/main.rs and scx_utils/src/topology.rs, version 1.1.4).
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from numalab.cpulist import format_cpulist
from numalab.topology.topology import Topology

_LINE = re.compile(r"(NODE|DOM)\[(\d{1,4})\] mask= ?([0-9a-f][0-9a-f,]{0,400})\b")

Cpus = tuple[int, ...]


@dataclass(frozen=True)
class TopologyView:
    """The CPUs of each node and of each last-level cache, sorted; those without CPUs left out."""

    nodes: tuple[Cpus, ...]
    caches: tuple[Cpus, ...]


def parse_view(log: str) -> TopologyView | None:
    """Return the view in the output of a scheduler; None where it prints none."""
    masks: dict[str, set[Cpus]] = {"NODE": set(), "DOM": set()}
    lines = _LINE.findall(log)
    for kind, _, mask in lines:
        masks[kind].add(_cpus(mask))
    if not masks["NODE"] or not masks["DOM"]:
        return None
    return TopologyView(_sorted(masks["NODE"]), _sorted(masks["DOM"]))


def predicted_view(topology: Topology) -> TopologyView:
    """Return the view of a topology: its caches are those of dies, cut at the borders of nodes."""
    caches: dict[tuple[int, int], list[int]] = {}
    for node in topology.nodes:
        for cpu in node.cpus:
            die = cpu if topology.llc == "none" else topology.packaging.die_of(cpu)
            caches.setdefault((node.id, die), []).append(cpu)
    return TopologyView(
        _sorted(node.cpus for node in topology.nodes), _sorted(map(tuple, caches.values()))
    )


def view_differences(predicted: TopologyView, view: TopologyView) -> tuple[str, ...]:
    """Return what differs, a line for nodes and one for caches."""
    pairs = (
        ("nodes", predicted.nodes, view.nodes),
        ("last-level caches", predicted.caches, view.caches),
    )
    return tuple(
        f"{what}: {_shown(actual)}, predicted {_shown(expected)}"
        for what, expected, actual in pairs
        if expected != actual
    )


def _cpus(mask: str) -> Cpus:
    number = int(mask.replace(",", ""), 16)
    return tuple(cpu for cpu in range(number.bit_length()) if number >> cpu & 1)


def _sorted(groups: Iterable[Cpus]) -> tuple[Cpus, ...]:
    return tuple(sorted(cpus for cpus in groups if cpus))


def _shown(groups: Collection[Cpus]) -> str:
    return " ".join(f"[{format_cpulist(cpus)}]" for cpus in groups)
