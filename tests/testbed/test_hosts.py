"""Hosts of other shapes: what `host show` and `place` say of each, against its own sysfs.

A guest is booted on the strangest two. Each host is up for its own test only.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from numalab.topology.load import load_topology
from testbed.bed import Bed, Parts, render_argv, running
from testbed.conftest import HOSTS
from testbed.disks import PROJECT
from testbed.lying import Qemu, nodes, policies, run_beside, vcpus

FACTS = "/disk/project/tests/testbed/facts.py"


@dataclass(frozen=True)
class Planned:
    """A guest, and whether its distances keep their order on the host."""

    guest: str
    kept: bool


@dataclass(frozen=True)
class Case:
    """A host: its topology, words for its kernel, guests that are planned on it, and one of them
    that is booted there."""

    host: str
    words: tuple[str, ...]
    guests: tuple[Planned, ...]
    boots: str = ""


CASES = (
    Case("mesh-8", (), (Planned("mesh-4", kept=True), Planned("line-4", kept=False))),
    Case("backplane-8", (), (Planned("pairs-4", kept=True), Planned("ring-4", kept=False))),
    # Unevenly linked, and tuned for measuring.
    Case(
        "opteron-8",
        ("isolcpus=4-7", "nohz_full=4-7"),
        (Planned("ring-4", kept=True), Planned("line-4", kept=False)),
        boots="ring-4",
    ),
    Case("memoryless-4", (), (Planned("ring-2", kept=True),), boots="ring-2"),
)


@contextmanager
def booted(parts: Parts, case: Case) -> Iterator[Bed]:
    own = HOSTS / f"{case.host}.toml"
    topology = load_topology(own if own.exists() else case.host)
    if case.boots:  # room for a guest beside the host itself
        doubled = (replace(node, memory_mib=2 * node.memory_mib) for node in topology.nodes)
        topology = replace(topology, nodes=tuple(doubled))
    with tempfile.TemporaryDirectory(prefix="bed-") as folder:
        argv = render_argv(topology, parts, Path(folder), case.words)
        with running(argv, Path(folder)) as bed:
            yield bed


@pytest.mark.parametrize("case", CASES, ids=[case.host for case in CASES])
def test_a_host_is_seen_as_it_is_and_planned_upon(parts: Parts, case: Case) -> None:
    with booted(parts, case) as bed:
        asked = bed.begin("python3", FACTS), bed.begin("numalab", "host", "show", "--json")
        begun = {
            wanted.guest: bed.begin("numalab", "place", small(bed, wanted.guest), "--json")
            for wanted in case.guests
        }
        facts, shown = (wanted.result().json() for wanted in asked)
        plans = {guest: wanted.result().json() for guest, wanted in begun.items()}
        if case.boots:
            words = (f"/tmp/{case.boots}.toml", "--", "sleep", "60")
            ((qemu, result),) = run_beside(bed, words)
            lies_as_planned(qemu, result, plans[case.boots])
    own = facts["nodes"]
    table = [node["distances"] for node in own]
    assert [row["id"] for row in shown["nodes"]] == [node["id"] for node in own]
    assert shown["distances"] == table
    assert [row["memory_mib"] for row in shown["nodes"]] == [node["memory_mib"] for node in own]
    assert [expanded(row["cpus"]) for row in shown["nodes"]] == [node["cpus"] for node in own]
    assert expanded(shown["isolated"]) == facts["isolated"]
    node_of = {cpu: node["id"] for node in own for cpu in node["cpus"]}
    for wanted in case.guests:
        plan, guest = plans[wanted.guest], load_topology(wanted.guest)
        assert len(set(plan["host_nodes"])) == len(guest.nodes)
        for node, host_node in zip(guest.nodes, plan["host_nodes"], strict=True):
            assert {node_of[plan["vcpus"][cpu]] for cpu in node.cpus} == {host_node}
        rows = [[table[a][b] for b in plan["host_nodes"]] for a in plan["host_nodes"]]
        assert keeps_order([list(row) for row in guest.distances], rows) is wanted.kept
        assert plan["timing"] is wanted.kept
        assert bool(plan["distorts"]) is not wanted.kept


def lies_as_planned(qemu: Qemu, result: dict[str, Any], plan: dict[str, Any]) -> None:
    """Compare how a guest lay by /proc, and what numalab said of it, with the plan."""
    assert vcpus(qemu) == plan["vcpus"]
    for thread in qemu["threads"]:
        assert thread["name"].startswith("CPU ") or set(thread["allowed"]) <= {*plan["emulator"]}
    assert nodes(qemu) == plan["host_nodes"]
    assert policies(qemu) == [f"bind:{node}" for node in plan["host_nodes"]]
    assert [sum(node["pages"].values()) for node in qemu["memory"]] == [192 << 8] * len(nodes(qemu))
    assert result["proof"]["differs"] == [] and result["timing"]["means"]


def small(bed: Bed, name: str) -> str:
    """Write a guest's topology file in the bed, with memory that its small nodes have."""
    text = (PROJECT / f"topologies/{name}.toml").read_text()
    path = f"/tmp/{name}.toml"
    less = re.sub(r"^memory_mib = \d+$", "memory_mib = 192", text, flags=re.MULTILINE)
    assert less != text
    assert bed.run("sh", "-c", f"cat >{path}", stdin=less).status == 0
    return path


def keeps_order(guest: list[list[int]], host: list[list[int]]) -> bool:
    """Tell whether what is nearer in the guest is nearer on the host, for all pairs of nodes."""
    pairs = list(combinations(range(len(guest)), 2))
    return all(
        host[a][b] < host[c][d] for a, b in pairs for c, d in pairs if guest[a][b] < guest[c][d]
    )


def expanded(text: str) -> list[int]:
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers
