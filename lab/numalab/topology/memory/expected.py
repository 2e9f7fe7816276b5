"""What the memory model says that a copy gets, worked out by hand: in closed form, without a guest.

A CPU waits for each line before it asks for the next one. So CPUs that copy are a closed queueing
network, and the model's queues (`emulator-configs/memory/traffic.c`) come to rest where CPUs that
wait so long ask just often enough for queues of that length.
"""

from numalab.topology.memory.timing import PS_OF_NS, MemoryModel

# A copy of a line: 64 bytes read and 64 written, in two waits and so many instructions
# (workloads/distances/distances.c: eight loads, eight stores and the loop, for each line). The
# written line goes home later; nobody waits for that, but the memory is busy with it.
COPIED_BYTES = 128
_WAITS, _WRITTEN_BACK, _INSTRUCTIONS = 2, 1, 18
_STEPS = 60  # of the bisection: from a second down to less than a picosecond


def expected_copy_mb_s(
    model: MemoryModel, cpu_node: int, node: int, threads: int, instruction_ns: float
) -> float:
    """Return what `threads` CPUs of one node get together that copy within another's memory.

    In 10^6 bytes a second, read and written, as STREAM counts (its copy; www.cs.virginia.edu).
    """
    alone_ps = (
        _WAITS * model.latency_ns[cpu_node][node] + _INSTRUCTIONS * instruction_ns
    ) * PS_OF_NS
    least, most = alone_ps, alone_ps + 1e12
    for _ in range(_STEPS):
        middle = (least + most) / 2
        if alone_ps + _waits_ps(model, cpu_node, node, threads, middle) > middle:
            least = middle
        else:
            most = middle
    return threads * COPIED_BYTES * 1e6 / most


def _waits_ps(model: MemoryModel, cpu_node: int, node: int, threads: int, line_ps: float) -> float:
    """Return how long a CPU waits in queues for a line of the copy, if one takes it `line_ps`.

    At a server that is busy for a share u of the time: `s u^knee / (2 (1 - u))` (Sakasegawa 1977,
    halved for constant service), less the n-th part of it, which would be waiting for itself
    (Bard and Schweitzer's approximation of the closed network).
    """
    wait_ps = 0.0
    lines_at = [(node, _WAITS + _WRITTEN_BACK)]
    lines_at += [(link, _WAITS) for link in model.routes[node, cpu_node]]
    for place, lines in lines_at:
        server = model.servers[place]
        busy = threads * lines * server.line_ps / line_ps
        if busy >= 1:
            return float("inf")
        wait_ps += server.line_ps * busy**server.knee / (2 * (1 - busy)) * (threads - 1) / threads
    return _WAITS * wait_ps
