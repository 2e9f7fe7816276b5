"""Writes the memory model's parameter file: `emulator-configs/memory/config.c` reads it."""

from collections.abc import Iterable

from numalab.topology.memory.timing import PS_OF_NS, Cache, MemoryModel
from numalab.topology.topology import Topology

MAX_ROWS = 2_000_000  # of each table: 300 MB at most for eight nodes


def render_parameters(
    topology: Topology, model: MemoryModel, *, window_ns: int, slice_ns: int
) -> str:
    """Render what the memory model needs to know of a machine.

    `window_ns` is how often waits follow the traffic (a quantum), `slice_ns` how long a time slice
    of the oracle's tables is.
    """
    nodes = range(len(topology.nodes))
    lines = [
        "numalab-memory 1",
        f"machine {topology.cpu_count} {len(nodes)} {len(set(model.groups))} {len(model.servers)}",
    ]
    numbers = {group: place for place, group in enumerate(sorted(set(model.groups)))}
    for cpu, group in enumerate(model.groups):
        lines.append(f"cpu {cpu} {topology.node_of_cpu(cpu)} {numbers[group]}")
    lines += [_cache("first", model.l1), _cache("second", model.l2), _cache("last", model.llc)]
    for node in nodes:
        lines.append(f"latency {node} {_ps(model.latency_ns[node])}")
        lines.append(f"interrupt {node} {_ps(model.interrupt_ns[node])}")
    for number, server in enumerate(model.servers):
        lines.append(f"server {number} {server.line_ps} {server.knee} {server.name}")
    for node in nodes:
        lines.append(f"memory {node} {node}")
        # The names of QEMU's blocks, with the machine types of today and of before 4.0.
        lines += [f"block {node} {name}ram-node{node}" for name in ("/objects/", "")]
    for (start, end), servers in model.routes.items():
        if servers:
            lines.append(f"route {start} {end} {' '.join(map(str, servers))}")
    lines += [f"window {window_ns * PS_OF_NS}", f"slice {slice_ns * PS_OF_NS} {MAX_ROWS}"]
    return "\n".join(lines) + "\n"


def _cache(name: str, cache: Cache) -> str:
    return f"{name} {cache.sets} {cache.ways} {cache.hit_ns * PS_OF_NS}"


def _ps(row: Iterable[int]) -> str:
    return " ".join(str(ns * PS_OF_NS) for ns in row)
