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

from numalab.topology.distances import diameter
from numalab.topology.predict.prediction import predict
from numalab.topology.shapes.shape import SHAPES, Shape
from numalab.topology.topology import CpuShape, Node, Topology

NODES, CPUS_OF_NODE = 64, 4
LIMIT_SECONDS, LIMIT_MIB = 2.0, 300
KEYS: dict[str, dict[str, object]] = {
    "ring": {},
    "line": {},
    "torus": {"rows": 8, "columns": 8},
    "mesh": {"rows": 8, "columns": 8},
    "hypercube": {},
    "full": {},
}


@dataclass(frozen=True)
class Predicted:
    """One prediction: CPU seconds, and the largest memory the process had."""

    shape: str
    seconds: float
    mib: int


def largest(shape: str) -> Topology:
    """Make a machine of 64 nodes and 256 CPUs."""
    width = diameter(_shape(shape, [10]).hops(NODES))
    by_hop = list(accumulate(repeat(3, width), initial=10))
    nodes = tuple(
        Node(node, tuple(range(node * CPUS_OF_NODE, (node + 1) * CPUS_OF_NODE)), 256)
        for node in range(NODES)
    )
    table = _shape(shape, by_hop).matrix(NODES)
    return Topology(shape, shape, "", nodes, table, CpuShape(NODES, 1, CPUS_OF_NODE, 1))


def _shape(kind: str, distances: list[int]) -> Shape:
    table = {"kind": kind, "distances": distances, **KEYS[kind]}
    return SHAPES.find(kind).model_validate_json(json.dumps(table))


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
    predicted = []
    for shape in KEYS:
        argv = [sys.executable, __file__, shape]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        predicted.append(Predicted(**json.loads(done.stdout)))
    return predicted


def main() -> int:
    """Print the measurements; 1 when one is above the limits."""
    if len(sys.argv) > 1:
        print(json.dumps(asdict(measure(sys.argv[1]))))
        return 0
    sizes = measure_all()
    for size in sizes:
        print(f"{size.shape:10} {size.seconds:6.2f} s {size.mib:4} MiB")
    return int(any(size.seconds > LIMIT_SECONDS or size.mib > LIMIT_MIB for size in sizes))


if __name__ == "__main__":
    sys.exit(main())
