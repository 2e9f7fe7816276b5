"""Works out latencies, caches and bandwidths of a machine in `timed` mode.

What a file leaves out comes from published measurements. A guest's CPU waits for each line before
it reads the next, and its memory is small. So bandwidths are scaled to the demand of the CPUs, and
caches to the memory; both keep their proportions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import TypeVar

from numalab.topology.file_format import MemoryTable
from numalab.topology.limits import LOCAL_DISTANCE, RuleBroken, refuse
from numalab.topology.memory.routes import route_links
from numalab.topology.topology import Topology

T = TypeVar("T")
LINE_BYTES = 64
SLOWEST_MB_S = 0.064  # a line in a millisecond; no guest boots with less
LINES_OF_PAGE = 64
PS_OF_NS = 1000

# Two sockets of Xeon Silver 4110 (Skylake-SP), idle, by Intel MLC 3.5: 82 ns
# (community.intel.com, "Intel Memory Latency Checker v3.5 test", 2018); with the mesh of larger
# ones about 90 ns.
LOCAL_LATENCY_NS = 90
# Skylake-SP: 14 cycles at 3 GHz, and 50 to 70 cycles (Intel 64 and IA-32 Optimization Reference
# Manual, 2.6 "Skylake Server": cache parameters).
L2_NS, LLC_NS = 5, 20
L1_KIB = 32  # the same table; not scaled: what it holds, code and stacks, does not shrink
# A Xeon E5-2699 v4 has 22 cores with 256 KiB of second-level cache and 2.5 MiB of inclusive
# last-level cache each (ark.intel.com). A socket that holds 64 GiB: about a thousandth of it.
LLC_OF_MEMORY = 1024
L2_OF_LLC = 8
# In the measurement above all 16 cores together get 135.7 GB/s, at 130 ns a line; without waits
# they would have asked for 130 / 82 of that, 215 GB/s. Bandwidth lies between the two.
MEMORY_OF_DEMAND = 0.8  # of what a node's CPUs would ask for if they never waited
# Three UPI links of 20.8 GB/s join two sockets of 128 GB/s (Xeon Platinum 8180): half.
LINK_OF_MEMORY = 2
CHANNELS = 8  # of today's servers: Xeon of the third generation on, every EPYC
INTERRUPT_NS = 1000


@dataclass(frozen=True)
class Cache:
    """One cache: a power of two of sets, and what a hit costs."""

    sets: int
    ways: int
    hit_ns: int

    @property
    def kib(self) -> int:
        """Its size."""
        return self.sets * self.ways * LINE_BYTES // 1024


@dataclass(frozen=True)
class Server:
    """A memory, or one direction of a link: it gives a line every `line_ps`.

    `ends` are the nodes a link leads from and to; of a memory, its node twice.
    """

    name: str
    ends: tuple[int, int]
    line_ps: int
    knee: int

    @property
    def mb_s(self) -> float:
        """Its bandwidth in 10^6 bytes a second."""
        return LINE_BYTES * 1e6 / self.line_ps


@dataclass(frozen=True)
class MemoryModel:
    """What memory costs. `latency_ns[from][to]`; `routes[from, to]` are servers, as data goes.

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

    def bandwidth_mb_s(self, cpu_node: int, node: int) -> float:
        """Return what one node's CPUs can get from another's memory: the narrowest server's."""
        servers = (node, *self.routes[node, cpu_node])
        return min(self.servers[server].mb_s for server in servers)


@lru_cache(maxsize=16)  # a run needs it to boot, to describe itself and to read its counts
def memory_model(topology: Topology) -> MemoryModel:
    """Work out a machine's memory. Raises the first RuleBroken."""
    table = topology.memory
    latency = _latency(topology, table)
    llc = _llc(topology, table)
    servers, routes = _servers(topology, table, latency)
    interrupt = INTERRUPT_NS if table.interrupt_ns is None else table.interrupt_ns
    return MemoryModel(
        latency_ns=latency,
        interrupt_ns=tuple(
            tuple(interrupt + max(0, far - row[node]) for far in row)
            for node, row in enumerate(latency)
        ),
        # A set for each line of a page, as real ones have: hits are part of the instruction.
        l1=Cache(LINES_OF_PAGE, (table.l1_kib or L1_KIB) * 1024 // LINE_BYTES // LINES_OF_PAGE, 0),
        l2=_l2(table, llc),
        llc=llc,
        groups=_groups(topology),
        servers=servers,
        routes=routes,
    )


def check_memory(topology: Topology, *, known_distances: bool = True) -> None:
    """Check what a file says of its memory's speed. Raises RuleBroken, with all rules broken.

    Where the distances and the HMAT are not known, the rules that follow from them are left out.
    """
    refuse(_broken_memory(topology, known_distances=known_distances))


def _broken_memory(topology: Topology, *, known_distances: bool) -> Iterator[RuleBroken]:
    keys = topology.memory
    latency = None
    if known_distances or isinstance(keys.latency_ns, tuple):
        latency, broken = _tried(lambda: _latency(topology, keys))
        yield from broken
    llc, broken = _tried(lambda: _llc(topology, keys))
    yield from broken
    if llc is not None:
        l2, broken = _tried(lambda: _l2(keys, llc))
        yield from broken
        yield from _broken_levels(topology, keys, latency, (l2, llc))
    if latency is not None and known_distances:
        table = latency
        yield from _tried(lambda: _servers(topology, keys, table))[1]
    elif isinstance(keys.bandwidth_mb_s, tuple):
        yield from _tried(lambda: _memory_speeds(topology, keys, ()))[1]


def _tried(part: Callable[[], T]) -> tuple[T | None, tuple[RuleBroken, ...]]:
    """Return the value of a part and no rule, or None and the rules that it breaks."""
    try:
        return part(), ()
    except RuleBroken as broken:
        return None, (broken, *broken.more)


def _latency(topology: Topology, keys: MemoryTable) -> tuple[tuple[int, ...], ...]:
    """Return the table that is given, else the HMAT's numbers, else local latency by distance."""
    count = len(topology.nodes)
    if isinstance(keys.latency_ns, tuple):
        table = keys.latency_ns
        if len(table) != count or any(len(row) != count for row in table):
            raise RuleBroken("memory.latency_ns", f"a table has {count} rows of {count} numbers")
    else:
        local = keys.latency_ns or LOCAL_LATENCY_NS
        measured = {} if keys.latency_ns else _hmat_latencies(topology)
        table = tuple(
            tuple(
                measured.get((a, b), measured.get((a, a), local) * distance // LOCAL_DISTANCE)
                for b, distance in enumerate(row)
            )
            for a, row in enumerate(topology.distances)
        )
    _check_far(topology, keys, table)
    return table


def _hmat_latencies(topology: Topology) -> dict[tuple[int, int], int]:
    """Return the latencies of the HMAT; where it tells one direction only, it is both's."""
    latencies = {
        (access.initiator, access.target): access.latency_ns
        for access in topology.interconnects
        if access.latency_ns is not None
    }
    return {(b, a): ns for (a, b), ns in latencies.items()} | latencies


def _check_far(topology: Topology, keys: MemoryTable, table: tuple[tuple[int, ...], ...]) -> None:
    refuse(
        RuleBroken(
            "memory.latency_ns" if keys.latency_ns else "interconnects",
            f"node {node.id} reaches node {far} in {latency} ns and its own memory in "
            f"{table[node.id][node.id]} ns; if that is meant, say far_may_be_nearer = true in "
            "[memory]",
        )
        for node in topology.nodes
        for far, latency in enumerate(table[node.id])
        if node.cpus and latency < table[node.id][node.id] and not keys.far_may_be_nearer
    )


def _broken_levels(
    topology: Topology,
    keys: MemoryTable,
    latency: tuple[tuple[int, ...], ...] | None,
    levels: tuple[Cache | None, Cache],
) -> Iterator[RuleBroken]:
    """Check that each level is larger and slower than the one before it, where these are known."""
    l2, llc = levels
    l1_kib = keys.l1_kib or L1_KIB
    if l1_kib > llc.kib:
        yield RuleBroken(
            "memory.l1_kib",
            f"a first-level cache of {l1_kib} KiB is larger than the last-level cache of "
            f"{llc.kib} KiB, which holds what it holds",
        )
    if l2 is not None and 0 < l2.kib < l1_kib:
        yield RuleBroken(
            "memory.l2_kib",
            f"a second-level cache of {l2.kib} KiB is smaller than the first level of "
            f"{l1_kib} KiB; 0 is none",
        )
    if l2 is not None and l2.sets and l2.hit_ns > llc.hit_ns:
        yield RuleBroken(
            "memory.l2_ns",
            f"a hit in the second level takes {l2.hit_ns} ns, "
            f"one in the last level {llc.hit_ns} ns",
        )
    for node, row in zip(topology.nodes, latency or (), strict=False):
        nearest = min(row)
        if node.cpus and llc.hit_ns > nearest:
            yield RuleBroken(
                "memory.llc_ns",
                f"a hit in the last-level cache takes {llc.hit_ns} ns, and node {node.id} reaches "
                f"a memory in {nearest} ns",
            )


def _groups(topology: Topology) -> tuple[int, ...]:
    cpus = range(topology.cpu_count)
    if topology.llc == "none":
        return tuple(cpus)
    return tuple(topology.packaging.die_of(cpu) for cpu in cpus)


def _llc(topology: Topology, keys: MemoryTable) -> Cache:
    groups = len(set(_groups(topology)))
    memory_kib = topology.memory_mib * 1024
    kib = keys.llc_kib or max(memory_kib // groups // LLC_OF_MEMORY, 2 * L1_KIB)
    if kib * groups > memory_kib:
        raise RuleBroken(
            "memory.llc_kib",
            f"{groups} last-level caches of {kib} KiB are more than the memory of "
            f"{topology.memory_mib} MiB",
        )
    return _cache("memory.llc_kib", kib, keys.llc_ns or LLC_NS, exact=keys.llc_kib is not None)


def _l2(keys: MemoryTable, llc: Cache) -> Cache:
    hit_ns = keys.l2_ns or L2_NS
    if keys.l2_kib == 0:
        return Cache(0, 0, hit_ns)
    kib = keys.l2_kib or min(max(llc.kib // L2_OF_LLC, 2 * (keys.l1_kib or L1_KIB)), llc.kib)
    if kib > llc.kib:
        raise RuleBroken(
            "memory.l2_kib",
            f"a second-level cache of {kib} KiB is larger than the last-level cache of "
            f"{llc.kib} KiB, which holds what it holds",
        )
    return _cache("memory.l2_kib", kib, hit_ns, exact=keys.l2_kib is not None)


def _cache(key: str, kib: int, hit_ns: int, *, exact: bool) -> Cache:
    """Make a cache of 8 to 15 ways and a power of two of sets: of this size, or the next below."""
    lines = kib * 1024 // LINE_BYTES
    sets = 1 << max(0, lines.bit_length() - 4)
    ways = lines // sets
    if exact and sets * ways != lines:
        sizes = [f"{sets * w * LINE_BYTES // 1024}" for w in (ways, ways + 1)]
        raise RuleBroken(
            key,
            f"{kib} KiB do not divide into 8 to 16 ways; the next sizes are {sizes[0]} and "
            f"{sizes[1]} KiB",
        )
    return Cache(sets, ways, hit_ns)


def _line_ps(mb_s: float) -> int:
    return max(1, round(LINE_BYTES * 1e6 / mb_s))


def _knee(channels: int) -> int:
    """Return the queue's exponent for so many channels (Sakasegawa 1977: sqrt(2 (c + 1)) - 1)."""
    return max(1, round(sqrt(2 * (channels + 1)) - 1))


def _servers(
    topology: Topology, keys: MemoryTable, latency: tuple[tuple[int, ...], ...]
) -> tuple[tuple[Server, ...], dict[tuple[int, int], tuple[int, ...]]]:
    knee = _knee(keys.channels or CHANNELS)
    speeds = _memory_speeds(topology, keys, latency)
    servers = [
        Server(f"node{node}", (node, node), _line_ps(mb_s), knee)
        for node, mb_s in enumerate(speeds)
    ]
    routes: dict[tuple[int, int], tuple[int, ...]] = {}
    places: dict[tuple[int, int], int] = {}
    links = route_links(topology)
    fastest: dict[tuple[int, int], int] = {}
    for (memory, cpu_node), hops in links.items():
        for hop in hops:
            access = latency[cpu_node][memory]
            fastest[hop] = min(access, fastest.get(hop, access))
    for pair, hops in links.items():
        for a, b in hops:
            if (a, b) not in places:
                mb_s = keys.link_bandwidth_mb_s or max(
                    max(speeds) / LINK_OF_MEMORY, _enough_for_one(fastest[a, b])
                )
                places[a, b] = len(servers)
                servers.append(Server(f"link{a}-{b}", (a, b), _line_ps(mb_s), 1))
        routes[pair] = tuple(places[hop] for hop in hops)
    _check_speeds(keys, servers)
    return tuple(servers), routes


def _check_speeds(keys: MemoryTable, servers: Sequence[Server]) -> None:
    """Refuse what nothing boots with: a latency or an HMAT that leaves next to no bandwidth."""
    slow = next((server for server in servers if server.mb_s < SLOWEST_MB_S), None)
    if slow is not None:
        near = slow.ends[0] == slow.ends[1] and keys.bandwidth_mb_s is None
        raise RuleBroken(
            "memory.bandwidth_mb_s" if near else "memory.link_bandwidth_mb_s",
            f"latencies and interconnects leave {slow.name} {slow.mb_s:.2g} MB/s, too little to "
            f"boot with ({SLOWEST_MB_S} MB/s); give a number here",
        )


def _demand(latency_ns: int) -> float:
    """Return what one CPU asks for, in MB/s, that waits so long for each line."""
    return LINE_BYTES * 1000 / latency_ns


def _enough_for_one(latency_ns: int) -> float:
    """Return the least bandwidth, in MB/s, with which a CPU alone finds the file's latency.

    Nothing that the file leaves out is less: such a CPU would wait for itself.
    """
    return _demand(latency_ns) / MEMORY_OF_DEMAND


def _memory_speeds(
    topology: Topology, keys: MemoryTable, latency: tuple[tuple[int, ...], ...]
) -> tuple[float, ...]:
    """Return each memory's bandwidth in MB/s: as given, else so that its CPUs just fill it.

    The HMAT's bandwidths are a real machine's: their proportions are taken, not their numbers.
    They are scaled so that each memory is fast enough for one CPU alone.
    """
    nodes = topology.nodes
    if isinstance(keys.bandwidth_mb_s, tuple):
        if len(keys.bandwidth_mb_s) != len(nodes):
            raise RuleBroken(
                "memory.bandwidth_mb_s",
                f"give one number, or one for each of the {len(nodes)} nodes",
            )
        return tuple(map(float, keys.bandwidth_mb_s))
    if keys.bandwidth_mb_s is not None:
        return (float(keys.bandwidth_mb_s),) * len(nodes)
    with_cpus = [node.id for node in nodes if node.cpus]
    local = max(
        len(nodes[node].cpus) * MEMORY_OF_DEMAND * _demand(latency[node][node])
        for node in with_cpus
    )
    bandwidths: dict[int, int] = {}
    for access in topology.interconnects:
        if access.bandwidth_kib_s is not None:
            bandwidths[access.target] = max(
                bandwidths.get(access.target, 0), access.bandwidth_kib_s
            )
    most = max(bandwidths.values(), default=1)
    shares = [bandwidths.get(node.id, most) / most for node in nodes]
    least = [_enough_for_one(min(latency[near][node.id] for near in with_cpus)) for node in nodes]
    local = max(local, *(mb_s / share for mb_s, share in zip(least, shares, strict=True)))
    return tuple(local * share for share in shares)
