"""Small traces written by hand, and a machine that they are of."""

import pytest

from numalab.topology.topology import Node, Topology
from support.small_traces import Trace


@pytest.fixture
def trace() -> Trace:
    """Write small traces."""
    return Trace()


@pytest.fixture
def three_nodes() -> Topology:
    """Three nodes of one CPU: CPU n is on node n."""
    return Topology(
        name="three",
        summary="",
        source="",
        nodes=tuple(Node(n, (n,), 512) for n in range(3)),
        distances=((10, 20, 30), (20, 10, 20), (30, 20, 10)),
        cpu_shape=None,
        llc="none",
    )
