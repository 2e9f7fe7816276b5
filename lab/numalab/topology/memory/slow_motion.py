"""A machine whose caches, memory and interrupts take longer, all in the same proportion.

Time dilation (Gupta et al., "To Infinity and Beyond: Time-Warped Network Emulation", NSDI 2006)
the other way round: a guest that is emulated has no hurry, its kernel's timers have.
"""

from dataclasses import replace

from numalab.topology.limits import MAX_LATENCY_NS, RuleBroken
from numalab.topology.memory.timing import INTERRUPT_NS, memory_model
from numalab.topology.topology import Topology


def in_slow_motion(topology: Topology, times: int) -> Topology:
    """Return the machine with `[memory]` so many times slower: latencies and bandwidths.

    Raises RuleBroken where a number would leave the range that the table allows.
    """
    if times == 1:
        return topology
    keys, model = topology.memory, memory_model(topology)
    latency = tuple(tuple(ns * times for ns in row) for row in model.latency_ns)
    if max(map(max, latency)) > MAX_LATENCY_NS:
        raise RuleBroken(
            "memory.latency_ns", f"{times} times slower it is more than {MAX_LATENCY_NS} ns"
        )
    bandwidth = keys.bandwidth_mb_s
    return replace(
        topology,
        memory=keys.model_copy(
            update={
                "latency_ns": latency,
                "l2_ns": model.l2.hit_ns * times,
                "llc_ns": model.llc.hit_ns * times,
                "interrupt_ns": (keys.interrupt_ns or INTERRUPT_NS) * times,
                "bandwidth_mb_s": tuple(
                    _part("memory.bandwidth_mb_s", speed, times) for speed in bandwidth
                )
                if isinstance(bandwidth, tuple)
                else _part("memory.bandwidth_mb_s", bandwidth, times),
                "link_bandwidth_mb_s": _part(
                    "memory.link_bandwidth_mb_s", keys.link_bandwidth_mb_s, times
                ),
            }
        ),
    )


def _part(key: str, mb_s: int | None, times: int) -> int | None:
    """Return a bandwidth that is given, divided; what is not given follows from the latencies."""
    if mb_s is None:
        return None
    if mb_s < times:
        raise RuleBroken(key, f"{mb_s} MB/s, {times} times slower, are less than 1 MB/s")
    return round(mb_s / times)
