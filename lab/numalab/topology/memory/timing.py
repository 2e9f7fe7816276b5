"""Works out latencies, caches and bandwidths of a machine in `timed` mode.

What a file leaves out comes from published measurements. A guest's CPU waits for each line before
it reads the next, and its memory is small. So bandwidths are scaled to the demand of the CPUs, and
caches to the memory; both keep their proportions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import sqrt
from typing import TypeAlias, TypeVar

from numalab.topology.distances import Link, Matrix, routes_over
from numalab.topology.limits import LOCAL_DISTANCE, MAX_LATENCY_NS, RuleBroken, refuse
from numalab.topology.memory.costs import LINE_BYTES, Cache, MemoryModel, Server
from numalab.topology.memory.hmat import access_speeds, hmat_latencies, memory_shares
from numalab.topology.topology import Topology

T = TypeVar("T")
Speeds: TypeAlias = int | tuple[int, ...] | tuple[tuple[int, ...], ...] | None
SLOWEST_MB_S = 0.064  # a line in a millisecond; no guest boots with less
LINES_OF_PAGE = 64

# Two sockets of Xeon Silver 4110 (Skylake-SP), idle, by Intel MLC 3.5: 82 ns
# (community.intel.com, "Intel Memory Latency Checker v3.5 test", 2018); with the mesh of larger
# processors about 90 ns.
LOCAL_LATENCY_NS = 90
# Skylake-SP: 14 cycles at 3 GHz, and 50 to 70 cycles (Intel 64 and IA-32 Optimization Reference
# Manual, 2.6 "Skylake Server": cache parameters).
L2_NS, LLC_NS = 5, 20
L1_KIB = 32  # the same table; not scaled, because code and stacks do not shrink
# A Xeon E5-2699 v4 has 22 cores with 256 KiB of second-level cache and 2.5 MiB of inclusive
# last-level cache each (ark.intel.com). A socket that holds 64 GiB: about a thousandth of it.
LLC_OF_MEMORY = 1024
L2_OF_LLC = 8
# In the measurement above all 16 cores together get 135.7 GB/s, at 130 ns a line. Without waits
# their demand would be 130 / 82 of that, 215 GB/s. Bandwidth lies between the two.
MEMORY_OF_DEMAND = 0.8  # of the demand of a node's CPUs without waits
# Three UPI links of 20.8 GB/s join two sockets of 128 GB/s (Xeon Platinum 8180): half.
LINK_OF_MEMORY = 2
CHANNELS = 8  # of current servers: Xeon of the third generation on, every EPYC
INTERRUPT_NS = 1000


@lru_cache(maxsize=16)  # a run needs it to boot, to describe itself and to read its counts
def memory_model(topology: Topology) -> MemoryModel:
    """Work out the memory of a machine, in its slow motion. Raises the first RuleBroken."""
    table = topology.memory
    latency = _latency(topology)
    llc = _llc(topology)
    servers, routes = _servers(topology, latency)
    interrupt = INTERRUPT_NS if table.interrupt_ns is None else table.interrupt_ns
    model = MemoryModel(
        latency_ns=latency,
        interrupt_ns=tuple(
            tuple(interrupt + max(0, far - row[node]) for far in row)
            for node, row in enumerate(latency)
        ),
        # A set for each line of a page, as in hardware. A hit is part of the instruction.
        l1=Cache(LINES_OF_PAGE, (table.l1_kib or L1_KIB) * 1024 // LINE_BYTES // LINES_OF_PAGE, 0),
        l2=_l2(topology, llc),
        llc=llc,
        groups=_groups(topology),
        servers=servers,
        routes=routes,
        outstanding=table.outstanding_lines or 1,
    )
    return model if topology.slow_motion == 1 else _slower(model, topology.slow_motion)


def check_memory(topology: Topology, *, known_distances: bool = True) -> None:
    """Check the table `[memory]` of a machine. Raises RuleBroken, with all broken rules.

    Without known distances and HMAT, the rules that follow from them are left out.
    """
    refuse(_broken_memory(topology, known_distances=known_distances))


def _broken_memory(topology: Topology, *, known_distances: bool) -> Iterator[RuleBroken]:
    keys = topology.memory
    latency = None
    if known_distances or isinstance(keys.latency_ns, tuple):
        latency, broken = _tried(lambda: _latency(topology))
        yield from broken
    llc, broken = _tried(lambda: _llc(topology))
    yield from broken
    # The rules that follow look at the next smaller cache that there can be.
    last = llc or _cache("", _llc_kib(topology), keys.llc_ns or LLC_NS, exact=False)
    l2, broken = _tried(lambda: _l2(topology, last))
    yield from broken
    second = l2 or _cache("", keys.l2_kib or 0, keys.l2_ns or L2_NS, exact=False)
    yield from _broken_levels(topology, latency, second, last)
    if latency is not None and known_distances:
        table = latency
        yield from _tried(lambda: _servers(topology, table))[1]
    elif isinstance(keys.bandwidth_mb_s, tuple):
        yield from _tried(lambda: _memory_speeds(topology, ()))[1]


def _tried(part: Callable[[], T]) -> tuple[T | None, tuple[RuleBroken, ...]]:
    """Return the value of a part, or None and the rules that it breaks."""
    try:
        return part(), ()
    except RuleBroken as broken:
        return None, (broken, *broken.more)


def _latency(topology: Topology) -> Matrix:
    """Return the table of the file, else the HMAT's latencies, else local latency by distance."""
    keys, count = topology.memory, len(topology.nodes)
    if isinstance(keys.latency_ns, tuple):
        table = keys.latency_ns
        if len(table) != count or any(len(row) != count for row in table):
            raise RuleBroken("memory.latency_ns", f"a table has {count} rows of {count} numbers")
    else:
        local = keys.latency_ns or LOCAL_LATENCY_NS
        measured = {} if keys.latency_ns else hmat_latencies(topology)
        table = tuple(
            tuple(
                measured.get((a, b), measured.get((a, a), local) * distance // LOCAL_DISTANCE)
                for b, distance in enumerate(row)
            )
            for a, row in enumerate(topology.distances)
        )
    refuse(
        RuleBroken(
            "memory.latency_ns" if keys.latency_ns else "interconnects",
            f"node {node.id} reaches node {far} in {latency} ns and its own memory in "
            f"{table[node.id][node.id]} ns; if that is meant, write far_may_be_nearer = true in "
            "[memory]",
        )
        for node in topology.nodes
        for far, latency in enumerate(table[node.id])
        if node.cpus and latency < table[node.id][node.id] and not keys.far_may_be_nearer
    )
    return table


def _broken_levels(
    topology: Topology, latency: Matrix | None, l2: Cache, llc: Cache
) -> Iterator[RuleBroken]:
    """Check that each cache level is larger and slower than the level before it."""
    keys = topology.memory
    l1_kib, l2_kib, llc_kib = keys.l1_kib or L1_KIB, keys.l2_kib or l2.kib, keys.llc_kib or llc.kib
    if l1_kib > llc_kib:
        yield RuleBroken(
            "memory.l1_kib",
            f"a first-level cache of {l1_kib} KiB is larger than the last-level cache of "
            f"{llc_kib} KiB, which includes it",
        )
    if 0 < l2_kib < l1_kib:
        yield RuleBroken(
            "memory.l2_kib",
            f"a second-level cache of {l2_kib} KiB is smaller than the first level of "
            f"{l1_kib} KiB; 0 is none",
        )
    if l2.sets and l2.hit_ns > llc.hit_ns:
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


def _llc_kib(topology: Topology) -> int:
    groups, memory_kib = len(set(_groups(topology))), topology.memory_mib * 1024
    return topology.memory.llc_kib or max(memory_kib // groups // LLC_OF_MEMORY, 2 * L1_KIB)


def _llc(topology: Topology) -> Cache:
    keys, kib = topology.memory, _llc_kib(topology)
    groups = len(set(_groups(topology)))
    if kib * groups > topology.memory_mib * 1024:
        raise RuleBroken(
            "memory.llc_kib",
            f"{groups} last-level caches of {kib} KiB are more than the memory of "
            f"{topology.memory_mib} MiB",
        )
    return _cache("memory.llc_kib", kib, keys.llc_ns or LLC_NS, exact=keys.llc_kib is not None)


def _l2(topology: Topology, llc: Cache) -> Cache:
    keys = topology.memory
    hit_ns = keys.l2_ns or L2_NS
    if keys.l2_kib == 0:
        return Cache(0, 0, hit_ns)
    kib = keys.l2_kib or min(max(llc.kib // L2_OF_LLC, 2 * (keys.l1_kib or L1_KIB)), llc.kib)
    if kib > llc.kib:
        raise RuleBroken(
            "memory.l2_kib",
            f"a second-level cache of {kib} KiB is larger than the last-level cache of "
            f"{llc.kib} KiB, which includes it",
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


def _servers(
    topology: Topology, latency: Matrix
) -> tuple[tuple[Server, ...], dict[Link, tuple[int, ...]]]:
    """Return the servers, and those of links and paths on each route, by their numbers."""
    keys = topology.memory
    # Sakasegawa 1977: the queue's exponent for c channels is sqrt(2 (c + 1)) - 1.
    knee = max(1, round(sqrt(2 * ((keys.channels or CHANNELS) + 1)) - 1))
    speeds = _memory_speeds(topology, latency)
    servers = [
        Server(f"node{node}", (node, node), _line_ps(mb_s), knee)
        for node, mb_s in enumerate(speeds)
    ]
    ways = routes_over(len(topology.nodes), topology.links)
    fastest: dict[Link, int] = {}
    carried: dict[Link, float] = {}  # the HMAT's largest bandwidth over a link
    published, measured = _link_speeds(topology), access_speeds(topology, speeds)
    for (memory, cpu_node), links in ways.items():
        access, mb_s = latency[cpu_node][memory], measured.get((memory, cpu_node), 0)
        fastest |= {link: min(access, fastest.get(link, access)) for link in links}
        carried |= {link: max(mb_s, carried.get(link, 0)) for link in links}
    numbers: dict[Link, int] = {}
    for a, b in fastest:
        mb_s = published.get((a, b)) or measured.get((a, b), 0)
        if not published and not 0 < mb_s < speeds[a]:  # the memory limits the access
            usual = max(speeds) / LINK_OF_MEMORY
            mb_s = max(carried[a, b], usual, _enough_for_one(fastest[a, b]))
        numbers[a, b] = len(servers)
        servers.append(Server(f"link{a}-{b}", (a, b), _line_ps(mb_s), 1))
    routes = {pair: tuple(numbers[link] for link in links) for pair, links in ways.items()}
    for (a, b), passed in routes.items():
        least = min((servers[place].mb_s for place in passed), default=0)
        if not published:
            least = min(least, speeds[a])
        limit = (published or measured).get((a, b), least)
        if len(passed) > 1 and limit < least:
            routes[a, b] = (*passed, len(servers))
            servers.append(Server(f"path{a}-{b}", (a, b), _line_ps(limit), 1, path=True))
    _refuse_slow(servers, topology)
    return tuple(servers), routes


def _refuse_slow(servers: Sequence[Server], topology: Topology) -> None:
    slow = next((server for server in servers if server.mb_s < SLOWEST_MB_S), None)
    if slow is not None:
        near = slow.ends[0] == slow.ends[1] and topology.memory.bandwidth_mb_s is None
        raise RuleBroken(
            "memory.bandwidth_mb_s" if near else "memory.link_bandwidth_mb_s",
            f"latencies and interconnects leave {slow.name} {slow.mb_s:.2g} MB/s, too little to "
            f"boot with ({SLOWEST_MB_S} MB/s); give a number here",
        )


def _link_speeds(topology: Topology) -> dict[Link, int]:
    """Return the file's bandwidths of links in MB/s, by the nodes the data goes from and to."""
    keys, nodes = topology.memory.link_bandwidth_mb_s, range(len(topology.nodes))
    if keys is None:
        return {}
    if not isinstance(keys, tuple):
        return {(a, b): keys for a in nodes for b in nodes}
    if len(keys) != len(nodes) or any(len(row) != len(nodes) for row in keys):
        count = len(nodes)
        raise RuleBroken(
            "memory.link_bandwidth_mb_s", f"a table has {count} rows of {count} numbers"
        )
    return {(memory, reader): keys[reader][memory] for memory in nodes for reader in nodes}


def unmodelled_bandwidths(topology: Topology) -> tuple[str, ...]:
    """Return the bandwidths of interconnects that the model does not have, as sentences.

    These are of nodes that several links join, of which one is slower.
    """
    model = memory_model(topology)
    speeds = [model.servers[node.id].mb_s for node in topology.nodes]
    return tuple(
        f"node {reader} to node {memory}: {mb_s:.0f} MB/s by the interconnects, "
        f"{model.bandwidth_mb_s(reader, memory):.0f} over the links between"
        for (memory, reader), mb_s in access_speeds(topology, speeds).items()
        if model.bandwidth_mb_s(reader, memory) < 0.99 * mb_s
    )


def _demand(latency_ns: int) -> float:
    """Return the demand in MB/s of a CPU that waits this long for each line."""
    return LINE_BYTES * 1000 / latency_ns


def _enough_for_one(latency_ns: int) -> float:
    """Return the bandwidth in MB/s below which a CPU alone would wait for itself.

    No default is smaller, so that a CPU alone has the latency of the file.
    """
    return _demand(latency_ns) / MEMORY_OF_DEMAND


def _memory_speeds(topology: Topology, latency: Matrix) -> tuple[float, ...]:
    """Return the bandwidth of each memory in MB/s: the file's, else the demand of its CPUs.

    The HMAT's bandwidths are those of hardware: only their proportions are used, scaled so that
    each access is fast enough for a CPU alone.
    """
    nodes, speeds = topology.nodes, topology.memory.bandwidth_mb_s
    if isinstance(speeds, tuple):
        if len(speeds) != len(nodes):
            raise RuleBroken(
                "memory.bandwidth_mb_s",
                f"give one number, or one for each of the {len(nodes)} nodes",
            )
        return tuple(map(float, speeds))
    if speeds is not None:
        return (float(speeds),) * len(nodes)
    with_cpus = [node.id for node in nodes if node.cpus]
    local = max(
        len(nodes[node].cpus)
        * (topology.memory.outstanding_lines or 1)
        * MEMORY_OF_DEMAND
        * _demand(latency[node][node])
        for node in with_cpus
    )
    shares = memory_shares(topology)
    least = [_enough_for_one(min(latency[near][node.id] for near in with_cpus)) for node in nodes]
    local = max(local, *(mb_s / share for mb_s, share in zip(least, shares, strict=True)))
    for (memory, reader), part in access_speeds(topology, shares).items():
        local = max(local, _enough_for_one(latency[reader][memory]) / part)
    return tuple(local * share for share in shares)


def in_slow_motion(topology: Topology, times: int) -> Topology:
    """Return the machine with memory, caches and interrupts that are `times` times slower.

    This is time dilation (Gupta et al., "To Infinity and Beyond: Time-Warped Network Emulation",
    NSDI 2006) of the hardware, not of the guest. Raises RuleBroken for a number out of range.
    """
    if times == 1:
        return topology
    slow = replace(topology, slow_motion=times)
    model = memory_model(slow)
    if max(map(max, model.latency_ns)) > MAX_LATENCY_NS:
        raise RuleBroken(
            "memory.latency_ns", f"{times} times slower it is more than {MAX_LATENCY_NS} ns"
        )
    for key in ("bandwidth_mb_s", "link_bandwidth_mb_s"):
        _refuse_slow_motion(f"memory.{key}", getattr(topology.memory, key), times)
    _refuse_slow(model.servers, topology)
    return slow


def _refuse_slow_motion(key: str, mb_s: Speeds, times: int) -> None:
    if isinstance(mb_s, tuple):
        for part in mb_s:
            _refuse_slow_motion(key, part, times)
    elif mb_s is not None and mb_s < times:
        raise RuleBroken(key, f"{mb_s} MB/s, {times} times slower, are less than 1 MB/s")


def _slower(model: MemoryModel, times: int) -> MemoryModel:
    def longer(table: Matrix) -> Matrix:
        return tuple(tuple(times * ns for ns in row) for row in table)

    return replace(
        model,
        latency_ns=longer(model.latency_ns),
        interrupt_ns=longer(model.interrupt_ns),
        l2=replace(model.l2, hit_ns=times * model.l2.hit_ns),
        llc=replace(model.llc, hit_ns=times * model.llc.hit_ns),
        servers=tuple(replace(server, line_ps=times * server.line_ps) for server in model.servers),
    )
