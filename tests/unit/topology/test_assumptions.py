"""A prediction names what it assumes of the host, and a guest may differ in it."""

from dataclasses import replace

import pytest

from numalab.topology.differences import compare_guest
from numalab.topology.guest_view import GuestView
from numalab.topology.load import load_topology
from numalab.topology.predict.assumptions import assumptions
from numalab.topology.predict.firmware import Vendor
from numalab.topology.predict.prediction import predict
from numalab.topology.sched_domains import SchedLog
from numalab.topology.topology import CpuShape, Node, Topology

FULL = ((10, 20), (20, 10))
NODES = (Node(0, (0, 1), 512), Node(1, (2, 3), 512))
DIES = Topology("dies", "", "", NODES, FULL, CpuShape(2, 2, 1, 1))
SNC = Topology("snc", "", "", NODES, FULL, CpuShape(1, 1, 4, 1))
SIBLINGS = (
    "sched: CPU #2's llc-sibling CPU #0 is not on the same node! [node: 1 != 0]. "
    "Ignoring dependency."
)


def test_most_predictions_assume_nothing() -> None:
    for vendor in ("amd", "zen", "intel"):
        ring = load_topology("ring-4")
        assert assumptions(ring, predict(ring, vendor=vendor)) == ()


@pytest.mark.parametrize(
    ("kernel", "qemu", "assumed"), [("6.1", (), 1), ("6.1", (7, 2), 0), ("6.12", (), 0)]
)
def test_old_kernels_depend_on_qemu_where_a_die_has_one_cpu(
    kernel: str, qemu: tuple[int, ...], assumed: int
) -> None:
    texts = assumptions(DIES, predict(DIES, kernel, qemu=qemu))
    assert len(texts) == assumed
    assert all(text.startswith("predicted for QEMU 8.2 or later; ") for text in texts)


@pytest.mark.parametrize("kernel", ["4.12", "5.10", "6.12"])
def test_some_intel_cpus_warn_of_a_cache_on_two_nodes(kernel: str) -> None:
    """Of the CPU only the vendor is known, so the check accepts both logs."""
    prediction = predict(SNC, kernel, vendor="intel")
    assert prediction.warnings == ()
    (text,) = assumptions(SNC, prediction)
    assert text.endswith(f'the kernel warns "{SIBLINGS}"')
    quiet = GuestView((), SchedLog((), ()), {}, kernel, "intel")
    other = SIBLINGS.replace("#2", "#3")
    for warnings, is_difference in (((), False), ((SIBLINGS,), False), ((other,), True)):
        differences = compare_guest(SNC, prediction, replace(quiet, warnings=warnings))
        assert any(part.subject == "kernel log" for part in differences) == is_difference
    amd = predict(SNC, kernel)
    assert amd.warnings == (SIBLINGS,)
    assert assumptions(SNC, amd) == ()


@pytest.mark.parametrize(
    ("name", "kernel", "vendor", "assumed"),
    [
        ("xeon-6980p-snc3", "6.18", "intel", False),
        ("xeon-6980p-snc3", "6.19", "intel", True),
        ("xeon-6980p-snc3", "7.3", "intel", True),
        ("xeon-6980p-snc3", "7.3", "zen", False),
        ("epyc-nps4", "7.3", "intel", False),  # all nodes of the other package are equally far
        ("xeon-8269cy-snc", "7.3", "intel", False),  # two nodes in a package
    ],
)
def test_granite_rapids_may_average_distances(
    name: str, kernel: str, vendor: Vendor, assumed: bool
) -> None:
    topology = load_topology(name)
    texts = assumptions(topology, predict(topology, kernel, vendor=vendor))
    assert any("Granite Rapids" in text for text in texts) == assumed
