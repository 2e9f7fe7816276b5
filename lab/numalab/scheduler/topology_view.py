"""The machine as the topology code of the scx crates sees it, beside the prediction. Pure.

scx_rusty prints a line for each node and for each domain, which is a last-level cache
(scx_rusty/src/main.rs and scx_utils/src/topology.rs, version 1.1.4).
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from numalab.cpulist import format_cpulist
from numalab.topology.predict.firmware import Vendor, guest_machine
from numalab.topology.predict.prediction import DEFAULT_KERNEL
from numalab.topology.predict.rules import rules_for
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


def predicted_view(
    topology: Topology, version: str = DEFAULT_KERNEL, vendor: Vendor = "amd"
) -> TopologyView:
    """Return the view that follows from a topology for a kernel and the vendor of guest CPUs."""
    machine = guest_machine(topology, vendor, rules_for(version))
    return TopologyView(
        _sorted(map(_of_mask, machine.nodes)), _sorted(set(map(_of_mask, machine.llc)))
    )


def without_cpus(view: TopologyView, offline: Collection[int]) -> TopologyView:
    """Return a view without CPUs that are offline, and without what then has no CPU."""

    def online(groups: Iterable[Cpus]) -> tuple[Cpus, ...]:
        return _sorted(tuple(cpu for cpu in cpus if cpu not in offline) for cpus in groups)

    return TopologyView(online(view.nodes), online(view.caches))


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
    return _of_mask(int(mask.replace(",", ""), 16))


def _of_mask(mask: int) -> Cpus:
    return tuple(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)


def _sorted(groups: Iterable[Cpus]) -> tuple[Cpus, ...]:
    return tuple(sorted(cpus for cpus in groups if cpus))


def _shown(groups: Collection[Cpus]) -> str:
    return " ".join(f"[{format_cpulist(cpus)}]" for cpus in groups)
