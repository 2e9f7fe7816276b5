"""A host that is set up for measuring: isolated CPUs without a tick, and pages of 1 GiB."""

from collections.abc import Callable

import pytest

from testbed.bed import Bed
from testbed.lying import nodes, pages_of_nodes, policies, run_beside, vcpus

# Two CPUs of each node for vCPUs, two for everything else; a page of 1 GiB on each node, from boot.
TUNED = ("isolcpus=2-3,6-7", "nohz_full=2-3,6-7", "hugepagesz=1G", "hugepages=0:1,1:1")
LARGE = """
summary = "Two nodes of 1 GiB"
nodes = 2
cpus = 2
memory_mib = 1024

[shape]
kind = "ring"
distances = [10, 20]
"""


@pytest.fixture(scope="module")
def tuned(boot_host: Callable[..., Bed]) -> Bed:
    return boot_host("tuned-2x4", *TUNED)


def test_it_is_shown_as_it_is(tuned: Bed) -> None:
    shown = tuned.run("numalab", "host", "show", "--json").json()
    assert (shown["isolated"], shown["nohz_full"]) == ("2-3,6-7", "2-3,6-7")


def test_vcpus_are_on_isolated_cpus_and_memory_on_pages_of_a_gib(tuned: Bed) -> None:
    tuned.run("sh", "-c", "cat >/tmp/large.toml", stdin=LARGE)
    before = pages_of_nodes(tuned, "1048576kB")
    assert before == {0: 1, 1: 1}
    words = ("/tmp/large.toml", "--pages", "1G", "--", "sleep", "40")
    ((qemu, result),) = run_beside(tuned, words)
    assert sorted(vcpus(qemu)) == [2, 3, 6, 7]
    for thread in qemu["threads"]:
        assert thread["name"].startswith("CPU ") or set(thread["allowed"]) <= {0, 1, 4, 5}
    assert [memory["page_kib"] for memory in qemu["memory"]] == [1 << 20] * 2
    assert [memory["pages"] for memory in qemu["memory"]] == [{str(n): 1} for n in nodes(qemu)]
    assert policies(qemu) == [f"bind:{n}" for n in nodes(qemu)]
    assert result["proof"]["differs"] == [] and result["timing"]["means"]
    assert pages_of_nodes(tuned, "1048576kB") == before
