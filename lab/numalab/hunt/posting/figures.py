"""What a reproducer measures: for each property a figure from /proc, without tracing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from numalab.hunt.load import Load


@dataclass(frozen=True)
class Figure:
    """A figure that shows a violation.

    `meaning` is its name for people. A reproducer reads /proc by `table`: of each task its CPU
    time and changes of CPU; of each CPU its idle time, and for how long and how often tasks waited
    for it; samples of the CPU of each task; or how many tasks the CPUs have (`crowds`). `by_row`
    are C statements for row `i` of the table, which may use the sums `sum`, `all` and `least`;
    `code` sets `figure` from these sums. Above `most` a kernel without a baseline shows the
    violation; None where what is usual depends on the load.
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
    1.0,
)
# The smaller of the two sums is the most that tasks can have waited while a CPU was idle.
_LOST = Figure(
    "ms a second that tasks waited while a CPU was idle",
    "cpus",
    ("sum += idle[i];", "all += waited[i];"),
    "figure = (sum < all ? sum : all) / (MS / 1e3);",
    300.0,
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
    "wandering": _MOVES,
    "work-conservation": _LOST,
}


def limit_alone(prop: str, load: Load) -> float | None:
    """Return the limit of a property's figure where no kernel is compared; None for no limit.

    Tasks of other weights, policies or CPUs have no equal shares.
    """
    figure = FIGURES[prop]
    kinds = {(part.nice, part.policy, part.cpus) for part in load.parts}
    return None if figure is _UNFAIR and len(kinds) > 1 else figure.most
