"""How long the prediction of the largest machine takes, and how much memory: 64 nodes, 256 CPUs.

`python tests/bench/topology.py` prints one line for each shape, in a process of its own.
"""

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from itertools import accumulate, repeat
from pathlib import Path

from lab.topology import shapes
from lab.topology.model import CpuShape, Node, Topology
from lab.topology.predict.prediction import predict

NODES, CPUS_OF_NODE = 64, 4
LIMIT_SECONDS, LIMIT_MIB = 2.0, 300
SHAPES = {
    "ring": shapes.ring_links(NODES),
    "line": shapes.line_links(NODES),
    "torus": shapes.torus_links(8, 8),
    "mesh": shapes.mesh_links(8, 8),
    "hypercube": shapes.hypercube_links(NODES),
    "full": shapes.full_links(NODES),
}


@dataclass(frozen=True)
class Predicted:
    """One prediction: CPU seconds, and the largest memory the process had."""

    shape: str
    seconds: float
    mib: int


def largest(shape: str) -> Topology:
    """Make a machine of 64 nodes and 256 CPUs."""
    links = SHAPES[shape]
    counts = shapes.hops(NODES, links)
    by_hop = list(accumulate(repeat(3, shapes.diameter(counts)), initial=10))
    nodes = tuple(
        Node(node, tuple(range(node * CPUS_OF_NODE, (node + 1) * CPUS_OF_NODE)), 256)
        for node in range(NODES)
    )
    table = shapes.distances_by_hop(counts, by_hop)
    return Topology(shape, shape, "", nodes, table, CpuShape(NODES, 1, CPUS_OF_NODE, 1))


def measure(shape: str) -> Predicted:
    """Predict one shape in this process."""
    topology = largest(shape)
    began = time.process_time()
    predict(topology)
    seconds = time.process_time() - began
    return Predicted(shape, seconds, _peak_mib())


def _peak_mib() -> int:
    """Return this process's own peak; ru_maxrss would begin with that of its parent."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def measure_all() -> list[Predicted]:
    """Predict every shape, each in a process of its own, so that memory is its own."""
    found = []
    for shape in SHAPES:
        argv = [sys.executable, __file__, shape]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        found.append(Predicted(**json.loads(done.stdout)))
    return found


def main() -> int:
    """Print the measurements; 1 when one is above the limits."""
    if len(sys.argv) > 1:
        print(json.dumps(asdict(measure(sys.argv[1]))))
        return 0
    found = measure_all()
    for each in found:
        print(f"{each.shape:10} {each.seconds:6.2f} s {each.mib:4} MiB")
    return int(any(each.seconds > LIMIT_SECONDS or each.mib > LIMIT_MIB for each in found))


if __name__ == "__main__":
    sys.exit(main())
