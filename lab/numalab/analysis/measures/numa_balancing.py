"""What NUMA balancing decided, and how well it came out."""

from collections import Counter
from collections.abc import Iterator

from numalab.analysis.measures.family import (
    HIGHER,
    LOWER,
    NONE,
    WINDOW,
    MeasureFamily,
    guest,
    register_measures,
    trace,
)
from numalab.measure import Direction, Measure
from numalab.recording.numa_decisions import (
    FAILED,
    KINDS,
    NO_DESTINATION,
    NOT_ALLOWED,
    success_percent,
)
from numalab.recording.recording import NUMA_EVENTS, Recording

_MOVED = trace("sched_move_numa", "sched_swap_numa")
_STUCK = (trace("sched_stick_numa"),)
EVENTS = {
    event: MeasureFamily(event, "events", NONE, f"{text} in {WINDOW}.", (trace(event),))
    for event, text in (
        (
            "sched_move_numa",
            "How often NUMA balancing chose to move a task to a CPU of another node",
        ),
        ("sched_swap_numa", "How often NUMA balancing chose to swap two tasks"),
        (
            "sched_stick_numa",
            "How often NUMA balancing wanted to move or swap a task and could not",
        ),
    )
}
SUCCESS = MeasureFamily(
    "numa_move_success",
    "%",
    HIGHER,
    f"Of the attempts of NUMA balancing in {WINDOW}, those that moved or swapped a task. An "
    "attempt is a move, a swap, or a stick that does not answer one of these.",
    (trace("sched_move_numa", "sched_swap_numa", "sched_stick_numa"),),
    may_be_never=True,
)
STICKS_NO_DESTINATION = MeasureFamily(
    "numa_sticks_no_destination",
    "events",
    NONE,
    f"How often NUMA balancing found no CPU that is better in {WINDOW}.",
    _STUCK,
)
STICKS_FAILED = MeasureFamily(
    "numa_sticks_failed",
    "events",
    LOWER,
    "How often a move or swap that it announced failed, or the task might not run there, in "
    f"{WINDOW}.",
    _STUCK,
)
HOPS = MeasureFamily(
    "numa_moves_hops",
    "hops",
    NONE,
    "The mean hops that NUMA balancing moved a task by. Nodes are one hop apart more for each "
    "smaller distance between any two nodes that there is.",
    (_MOVED,),
    needs_nodes=True,
    may_be_never=True,
)


def _to_preferred(name: str, direction: Direction, how: str) -> MeasureFamily:
    return MeasureFamily(
        f"numa_moves_{name}",
        "moves",
        direction,
        f"How many tasks NUMA balancing moved {how} their preferred node in {WINDOW}.",
        (_MOVED, guest("/proc/PID/sched")),
        needs_nodes=True,
    )


NEARER = _to_preferred("nearer", HIGHER, "nearer to")
AS_NEAR = _to_preferred("as_near", NONE, "without a change in distance to")
FARTHER = _to_preferred("farther", LOWER, "farther from")


def _compute(run: Recording) -> Iterator[Measure]:
    kinds = Counter(run.decisions["kind"].to_list())
    reasons = Counter(run.decisions["reason"].to_list())
    stuck = run.has("sched_stick_numa")
    all_three = run.has(*NUMA_EVENTS)
    for event, family in EVENTS.items():
        yield family.of(kinds[KINDS[event]] if run.has(event) else None)
    yield SUCCESS.of(success_percent(run.decisions) if all_three else None)
    yield STICKS_NO_DESTINATION.of(reasons[NO_DESTINATION] if stuck else None)
    yield STICKS_FAILED.of(reasons[FAILED] + reasons[NOT_ALLOWED] if stuck else None)
    pairs = run.numa_moves.select("from_node", "to_node").iter_rows()
    hops = [run.machine.hops[pair] for pair in pairs if pair in run.machine.hops]
    yield HOPS.of(sum(hops) / len(hops) if hops and all_three else None)
    if run.samples is None:
        return
    change = run.numa_moves["nearer"].drop_nulls()
    for family, those in ((NEARER, change > 0), (AS_NEAR, change == 0), (FARTHER, change < 0)):
        yield family.of(int(those.sum()) if all_three else None)


GROUP = register_measures(
    "NUMA balancing",
    (
        *EVENTS.values(),
        *(SUCCESS, STICKS_NO_DESTINATION, STICKS_FAILED, HOPS, NEARER, AS_NEAR, FARTHER),
    ),
    _compute,
)
