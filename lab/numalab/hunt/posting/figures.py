"""What a reproducer measures: for each property a figure from /proc, without tracing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from numalab.hunt.loads.load import Load


@dataclass(frozen=True)
class Figure:
    """A figure that shows a violation.

    `meaning` is its name for people. A reproducer reads /proc by `table`: of each task its CPU
    time and changes of CPU; of each CPU its idle time, and for how long and how often tasks waited
    for it; samples of the CPU of each task; or how many tasks the CPUs have (`crowds`). `by_row`
    are C statements for row `i` of the table, which may use the sums `sum`, `all` and `least`;
    `code` sets `figure` from these sums. Above `most` a kernel without a baseline shows the
    violation in loads of `limit_alone`; None where what is usual depends on the load.
    """

    meaning: str
    table: Literal["tasks", "cpus", "samples", "crowds"]
    by_row: tuple[str, ...]
    code: str
    most: float | None


_MOVES = Figure(
    "changes of CPU a second and task",
    "tasks",
    ("sum += tasks[i].moves;",),
    "figure = sum / count / (MS / 1e3);",
    6.0,
)
# The smaller of the two sums is the most that tasks can have waited while a CPU was idle.
_LOST = Figure(
    "ms a second that tasks waited while a CPU was idle",
    "cpus",
    ("sum += idle[i];", "all += waited[i];"),
    "figure = (sum < all ? sum : all) / (MS / 1e3);",
    500.0,
)
_UNFAIR = Figure(
    "times less than an equal share for one task",
    "tasks",
    ("sum += tasks[i].ms;", "least = !i || tasks[i].ms < least ? tasks[i].ms : least;"),
    "figure = sum / count / (least + 1e-3);",
    1.5,
)
_DELAY = Figure(
    "ms of waiting for each turn on a CPU",
    "cpus",
    ("sum += turns[i];", "all += waited[i];"),
    "figure = all / (sum + 1e-3);",
    None,
)
_OUTSIDE = Figure(
    "samples of tasks on CPUs outside their masks", "samples", (), "figure = outside;", 0.0
)
_UNEVEN = Figure(
    "more tasks on the fullest CPU than on the emptiest, in the mean",
    "crowds",
    (),
    "figure = uneven / (MS / 20);",
    6.0,
)

FIGURES: Mapping[str, Figure] = {
    "affinity": _OUTSIDE,
    "fairness": _UNFAIR,
    "idle-neighbours": _LOST,
    "lag": _DELAY,
    "lost-time": _LOST,
    "ping-pong": _MOVES,
    "proportion": _UNFAIR,
    "reachability": _LOST,
    "response": _DELAY,
    "spread": _UNEVEN,
    "wake-up-latency": _DELAY,
    "wandering": replace(_MOVES, most=1000.0),
    "work-conservation": _LOST,
}


_MS_OF_TASK = 100  # on one CPU, so that a turn of 10 ms more or less counts little
_MS_TO_SETTLE = 200  # for each further CPU: half of it, in which tasks wait beside it, is allowed
_TASKS_OF_CPU = 8  # of which the kernel allows a quarter more on each level of domains


def limit_alone(prop: str, load: Load) -> float | None:
    """Return the limit of a property's figure where no kernel is compared; None for no limit.

    A limit holds only in a load in which a correct kernel cannot be above it. The figures are sums
    over the load: tasks that sleep move, wait and get less CPU time in turns, an idle CPU may be
    none that a waiting task may use, and a task that sleeps was last on a CPU of its earlier mask.
    """
    figure = FIGURES[prop]
    parts, cpus = load.parts, len(load.parts[0].cpus)
    tasks = sum(part.count for part in parts)
    busy = all(part.kind == "hog" for part in parts)
    starts = any(part.start for part in parts)
    fixed = not load.hotplug and not any(part.later for part in parts)
    settles = not starts or load.ms >= _MS_TO_SETTLE * (cpus - 1)
    kinds = {(part.cpus, part.nice, part.policy) for part in parts}
    alike = busy and fixed and settles and len(kinds) == 1 and parts[0].policy in ("fair", "batch")
    holds = {
        "affinity": (fixed and not starts) or (busy and not load.hotplug),
        "ping-pong": alike and tasks <= cpus,
        "fairness": alike and cpus == 1 and load.ms >= _MS_OF_TASK * tasks,
        "proportion": alike and cpus == 1 and load.ms >= _MS_OF_TASK * tasks,
        "spread": alike and tasks <= _TASKS_OF_CPU * cpus,
    }
    return figure.most if holds.get(prop, alike) else None
