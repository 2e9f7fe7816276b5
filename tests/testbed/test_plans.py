"""What the planner says on the bed's usual host, and what is refused there before it starts."""

import pytest

from testbed.bed import Bed
from testbed.test_pinned_guest import GUEST

BIG = 'summary = "Nodes larger than the host\'s"\nnodes = 2\ncpus = 2\nmemory_mib = 2048\n\n'
BIG += '[shape]\nkind = "ring"\ndistances = [10, 20]\n'


def place(bed: Bed, *words: str) -> dict:  # type: ignore[type-arg]
    plan: dict = bed.run("numalab", "place", *words, "--json").json()  # type: ignore[type-arg]
    return plan


def test_a_ring_on_a_ring_keeps_its_hops(bed: Bed) -> None:
    plan = place(bed, "ring-4")
    nodes = plan["host_nodes"]
    assert sorted(nodes) == [0, 1, 2, 3]
    assert all((a - b) % 4 in (1, 3) for a, b in zip(nodes, nodes[1:] + nodes[:1], strict=True))
    assert [cpu // 3 for cpu in plan["vcpus"]] == [node for node in nodes for _ in range(2)]
    assert not set(plan["emulator"]) & set(plan["vcpus"])
    assert plan["timing"] and plan["distorts"] == []


def test_more_vcpus_than_a_node_has_are_no_measurement(bed: Bed) -> None:
    plan = place(bed, "full-2")  # 2 x 8 vCPUs on nodes of 3 CPUs
    assert not plan["timing"] and plan["most_on_one"] > 1
    assert any("overcommitted" in text for text in plan["distorts"])


@pytest.mark.parametrize(
    ("pin", "nodes"), [("0,3,6,9", "0,2"), ("0,1,2,3", "0,1"), ("0,1,3,4", "2,3")]
)
def test_a_plan_that_is_torn_says_so(bed: Bed, pin: str, nodes: str) -> None:
    plan = place(bed, "ring-2", "--pin", pin, "--nodes", nodes)
    assert plan["vcpus"] == [int(cpu) for cpu in pin.split(",")]
    assert not plan["timing"] and plan["distorts"]


def test_nodes_by_hand_are_kept(bed: Bed) -> None:
    plan = place(bed, "ring-2", "--nodes", "3,1")
    assert plan["host_nodes"] == [3, 1]
    assert [cpu // 3 for cpu in plan["vcpus"]] == [3, 3, 1, 1]
    assert plan["timing"]


def test_strict_memory_that_no_node_has_is_refused_before_the_start(bed: Bed) -> None:
    bed.run("sh", "-c", "cat >/tmp/big.toml", stdin=BIG)
    plan = place(bed, "/tmp/big.toml")
    assert not plan["timing"] and any("MiB" in text or "GiB" in text for text in plan["distorts"])
    refused = bed.run("numalab", "boot", "/tmp/big.toml", *GUEST, "--", "true")
    assert refused.status == 3, refused.output()
    assert "the guest needs 2048 MiB of host node" in refused.stderr
    assert "Traceback" not in refused.stderr
