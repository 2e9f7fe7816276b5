"""All properties by name, in the order in which they are reported."""

from collections.abc import Callable, Collection, Iterator, Mapping

from numalab.hunt.finding import Finding
from numalab.hunt.properties import balance, cores, moving, numa, sharing, waking
from numalab.hunt.properties.tolerances import TOLERANCES, Tolerances
from numalab.hunt.recording import LoadRecording

OfLoad = Callable[[LoadRecording, Tolerances], Iterator[Finding]]

# Of the whole boot: what numalab.hunt.examine finds without a load.
LOST, SPLAT, DOMAINS = "guest-lost", "kernel-log", "domains"
OF_BOOT: Mapping[str, str] = {
    LOST: "the guest comes to its end: no panic, no hang",
    SPLAT: "the kernel warns of nothing",
    DOMAINS: "sched domains and groups are as predicted, also after loads",
}
OF_LOAD: Mapping[str, OfLoad] = {
    balance.AFFINITY: balance.affinity,
    balance.REACHABILITY: balance.reachability,
    balance.WORK_CONSERVATION: balance.work_conservation,
    balance.NEIGHBOURS: balance.neighbours,
    balance.LOST_TIME: balance.lost_time,
    sharing.FAIRNESS: sharing.fairness,
    sharing.PROPORTION: sharing.proportion,
    moving.PING_PONG: moving.ping_pong,
    moving.WANDERING: moving.wandering,
    cores.CORES: cores.cores,
    cores.CHOICE: cores.choice,
    waking.LATENCY: waking.latency,
    waking.RESPONSE: waking.response,
    numa.CONVERGENCE: numa.convergence,
    numa.STORMS: numa.storms,
    numa.PAGE_MOVES: numa.page_moves,
    numa.SWAPS: numa.moves,
    numa.STICKS: numa.sticks,
    numa.THROUGHPUT: numa.throughput,
}
NAMES = (*OF_BOOT, *OF_LOAD)


def judge(run: LoadRecording, wanted: Collection[str] = NAMES) -> tuple[Finding, ...]:
    """Return what each property says of a load; of several parts, the one that came closest."""
    found = []
    for name, look in OF_LOAD.items():
        if name in wanted:
            each = list(look(run, TOLERANCES))
            if each:
                found.append(max(each, key=lambda finding: finding.closeness))
    return tuple(found)


def meaning(name: str) -> str:
    """Return what a property says, in one line."""
    if name in OF_BOOT:
        return OF_BOOT[name]
    return (OF_LOAD[name].__doc__ or "").splitlines()[0]
