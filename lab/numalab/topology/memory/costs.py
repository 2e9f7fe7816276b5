"""Costs of memory on a machine: values, QEMU's parameter file, and the expected copy rate."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from numalab.topology.topology import Topology

LINE_BYTES = 64
PS_OF_NS = 1000
MAX_ROWS = 2_000_000  # of each table: 300 MB at most for eight nodes


@dataclass(frozen=True)
class Cache:
    """A cache with a power of two of sets, and the cost of a hit."""

    sets: int
    ways: int
    hit_ns: int

    @property
    def kib(self) -> int:
        """The size of the cache."""
        return self.sets * self.ways * LINE_BYTES // 1024


@dataclass(frozen=True)
class Server:
    """A memory, or one direction of a link: it gives a line every `line_ps`.

    `ends` are the nodes a link leads from and to; of a memory, its node twice. A `path` is no link:
    it limits what goes between two nodes over several links to the bandwidth of the file.
    """

    name: str
    ends: tuple[int, int]
    line_ps: int
    knee: int
    path: bool = False

    @property
    def mb_s(self) -> float:
        """The bandwidth in 10^6 bytes a second."""
        return LINE_BYTES * 1e6 / self.line_ps


@dataclass(frozen=True)
class MemoryModel:
    """What memory costs. `latency_ns[from][to]`; `routes[from, to]` are servers, as data goes.

    `outstanding` lines of a sequential access are under way at a time.
    `servers` begins with the memories of all nodes. `groups` says of each CPU which last-level
    cache it shares.
    """

    latency_ns: tuple[tuple[int, ...], ...]
    interrupt_ns: tuple[tuple[int, ...], ...]
    l1: Cache
    l2: Cache
    llc: Cache
    groups: tuple[int, ...]
    servers: tuple[Server, ...]
    routes: dict[tuple[int, int], tuple[int, ...]]
    outstanding: int = 1

    def bandwidth_mb_s(self, cpu_node: int, node: int) -> float:
        """Return the bandwidth from a node's CPUs to a memory: that of the narrowest server."""
        servers = (node, *self.routes[node, cpu_node])
        return min(self.servers[server].mb_s for server in servers)


def render_parameters(
    topology: Topology,
    model: MemoryModel,
    *,
    window_ns: int,
    slice_ns: int,
    qemu_nodes: Sequence[int] = (),
) -> str:
    """Render the parameter file of a machine, which emulator-configs/memory/config.c reads.

    Waits follow the traffic every `window_ns` (a quantum); a time slice of the oracle's tables
    takes `slice_ns`. `qemu_nodes` are QEMU's numbers of the nodes, by default the same.
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
        block = f"ram-node{qemu_nodes[node] if qemu_nodes else node}"
        lines += [f"block {node} {name}{block}" for name in ("/objects/", "")]
    for (start, end), servers in model.routes.items():
        if servers:
            lines.append(f"route {start} {end} {' '.join(map(str, servers))}")
    if model.outstanding > 1:
        lines.append(f"outstanding {model.outstanding}")
    lines += [f"window {window_ns * PS_OF_NS}", f"slice {slice_ns * PS_OF_NS} {MAX_ROWS}"]
    return "\n".join(lines) + "\n"


def _cache(name: str, cache: Cache) -> str:
    return f"{name} {cache.sets} {cache.ways} {cache.hit_ns * PS_OF_NS}"


def _ps(row: Iterable[int]) -> str:
    return " ".join(str(ns * PS_OF_NS) for ns in row)


# A copy of a line: 64 bytes read and 64 written, in two waits and 18 instructions
# (workloads/distances/distances.c: eight loads, eight stores and the loop, for each line). The
# written line is written back later; no CPU waits for that, but the memory is busy with it.
COPIED_BYTES = 128
_WAITS, _WRITTEN_BACK, _INSTRUCTIONS = 2, 1, 18
_STEPS = 60  # of the bisection: from a second down to less than a picosecond


def expected_copy_mb_s(
    model: MemoryModel, cpu_node: int, node: int, threads: int, instruction_ns: float
) -> float:
    """Return the total rate at which `threads` CPUs of a node copy within another's memory.

    In 10^6 bytes a second, read and written, as STREAM counts (its copy; www.cs.virginia.edu). A
    CPU waits for each line before it reads the next, so copying CPUs are a closed queueing network.
    Its queues (`emulator-configs/memory/traffic.c`) are stable where the CPUs' rate and the queues'
    lengths agree. This is a closed form of that model, without a guest.
    """
    latency_ns = float(model.latency_ns[cpu_node][node])
    if model.outstanding > 1:  # of the 64 lines of a page, the first two wait for their own
        latency_ns = latency_ns * (2 + 62 / model.outstanding) / 64
    alone_ps = (_WAITS * latency_ns + _INSTRUCTIONS * instruction_ns) * PS_OF_NS
    least, most = alone_ps, alone_ps + 1e12
    for _ in range(_STEPS):
        middle = (least + most) / 2
        if alone_ps + _waits_ps(model, cpu_node, node, threads, middle) > middle:
            least = middle
        else:
            most = middle
    return threads * COPIED_BYTES * 1e6 / most


def _waits_ps(model: MemoryModel, cpu_node: int, node: int, threads: int, line_ps: float) -> float:
    """Return the wait of a CPU in queues for a line of the copy that takes `line_ps` in all.

    At a server that is busy for a share u of the time: `s u^knee / (2 (1 - u))` (Sakasegawa 1977,
    halved for constant service). A request of one of n CPUs meets (n - 1) / n of u: it never waits
    for itself (arrival theorem, Reiser and Lavenberg 1980; the share is Bard's and Schweitzer's
    approximation).
    """
    wait_ps = 0.0
    lines_at = [(node, _WAITS + _WRITTEN_BACK)]
    lines_at += [(link, _WAITS) for link in model.routes[node, cpu_node]]
    for place, lines in lines_at:
        server = model.servers[place]
        busy = threads * lines * server.line_ps / line_ps
        if busy > 1:
            return float("inf")
        met = busy * (threads - 1) / threads
        wait_ps += server.line_ps * met**server.knee / (2 * (1 - met))
    return _WAITS * wait_ps
