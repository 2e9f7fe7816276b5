"""A guest that fills the host, and guests that have fewer host CPUs than vCPUs."""

from testbed.bed import Bed
from testbed.lying import Qemu, nodes, pages_of_nodes, policies, run_beside, vcpus
from testbed.test_guests import SMALL, write

WIDE = SMALL.replace("cpus = 2", "cpus = 4")  # one more than a node of the host has


def node_ids(qemu: Qemu) -> list[int]:
    """Return the host node of each vCPU."""
    return [cpu // 3 for cpu in vcpus(qemu)]


def test_a_ring_of_four_lies_on_a_ring_of_four(bed: Bed) -> None:
    ((qemu, result),) = run_beside(bed, ("ring-4", "--pages", "2M", "--", "sleep", "40"))
    assert sorted(nodes(qemu)) == [0, 1, 2, 3]
    assert len(set(vcpus(qemu))) == 8
    assert node_ids(qemu) == [node for node in nodes(qemu) for _ in range(2)]
    assert policies(qemu) == [f"bind:{node}" for node in nodes(qemu)]
    assert [memory["page_kib"] for memory in qemu["memory"]] == [2048] * 4
    # What are two hops in the guest are two hops on the host.
    assert abs(nodes(qemu)[0] - nodes(qemu)[2]) == 2
    assert result["timing"]["means"] and result["proof"]["differs"] == []
    assert pages_of_nodes(bed) == {}


def test_vcpus_that_share_cpus_are_no_measurement_and_memory_is_preferred(bed: Bed) -> None:
    by_hand, too_wide = run_beside(
        bed,
        (write(bed, "small", SMALL), "--pin", "1,1,4,4", "--", "sleep", "61"),
        (write(bed, "wide", WIDE), "--nodes", "2,3", "--", "sleep", "62"),
    )
    assert vcpus(by_hand[0]) == [1, 1, 4, 4]
    assert node_ids(too_wide[0]) == [2] * 4 + [3] * 4
    assert len(set(vcpus(too_wide[0]))) == 6
    for (qemu, result), wanted in ((by_hand, [0, 1]), (too_wide, [2, 3])):
        assert policies(qemu) == [f"prefer:{node}" for node in wanted]
        assert nodes(qemu) == wanted
        assert qemu["locked_kib"] == 0
        assert result["timing"] == {"means": False, "against": ["plan"], "disturbs": []}
        assert result["proof"]["differs"] == []
