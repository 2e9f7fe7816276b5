"""A measure: a number computed from a run, and what it means.

Every measure that the project can give is defined here once, so that it can be listed and a
stored value can be explained. `docs/measures.md` says more about each.
"""

import re
from dataclasses import dataclass
from typing import Literal

from lab.errors import UserError

Direction = Literal["lower", "higher", "none"]
Kind = Literal["placement", "timing"]
Number = float | int | None


@dataclass(frozen=True)
class Definition:
    """What a family of measures means. `name` may hold places such as `{node}`."""

    name: str
    unit: str
    direction: Direction
    kind: Kind
    definition: str
    source: str

    def pattern(self) -> "re.Pattern[str]":
        """Return the pattern that the names of this family match."""
        parts = re.split(r"\{(\w+)\}", self.name)
        text = [
            re.escape(part) if i % 2 == 0 else f"(?P<{part}>\\w+)" for i, part in enumerate(parts)
        ]
        return re.compile("".join(text))


@dataclass(frozen=True)
class Measure:
    """One number of one run. `value` is None when the run could not give it, which is not 0."""

    name: str
    value: Number
    unit: str
    direction: Direction
    kind: Kind
    definition: str
    source: str


def _of(name: str, unit: str, direction: Direction, source: str, definition: str) -> Definition:
    return Definition(name, unit, direction, "placement", definition, source)


_WINDOW = "the window (from `numalab: begin` to `numalab: end`)"


def _timing(name: str, unit: str, source: str, definition: str) -> Definition:
    return Definition(name, unit, "lower", "timing", definition, source)


_COMMAND = "of the workload's command, by the guest's own clock"
# Counts of the CPU itself, which an emulated one does not have and which depend on real time.
_HARDWARE = (
    *("cache_misses", "cache_references", "cycles", "cpu_cycles", "instructions"),
    *("branch_misses", "branches", "node_loads", "node_load_misses", "LLC_loads"),
    *("LLC_load_misses", "stalled_cycles_frontend", "stalled_cycles_backend"),
)

DEFINITIONS: tuple[Definition, ...] = (
    _of(
        "task_time_share_node{node}",
        "%",
        "none",
        "trace: sched_switch",
        f"Of the CPU time that the tasks of interest had in {_WINDOW}, the share on node {{node}}.",
    ),
    _of(
        "task_busy_share_cpu{cpu}",
        "%",
        "none",
        "trace: sched_switch",
        f"The share of {_WINDOW} in which a task of interest ran on CPU {{cpu}}.",
    ),
    _of(
        "task_busy_share_min",
        "%",
        "higher",
        "trace: sched_switch",
        "The smallest task_busy_share_cpu of the allowed CPUs.",
    ),
    _of(
        "idle_while_overloaded",
        "%",
        "lower",
        "trace: sched_switch, sched_wakeup, sched_wakeup_new, sched_migrate_task",
        f"The share of {_WINDOW} in which an allowed CPU had no runnable task while another "
        "allowed CPU had two or more. A task being migrated counts on its destination from "
        "the moment of sched_migrate_task.",
    ),
    _of(
        "unknown_time",
        "%",
        "lower",
        "trace: lost events",
        f"The share of {_WINDOW} in which events of an allowed CPU were lost; it is left out of "
        "idle_while_overloaded.",
    ),
    _of(
        "tasks_final_node{node}",
        "tasks",
        "none",
        "trace: sched_switch, sched_wakeup, sched_migrate_task",
        f"How many tasks of interest were last on node {{node}} at the end of {_WINDOW}.",
    ),
    _of(
        "task_migrations",
        "migrations",
        "none",
        "trace: sched_migrate_task",
        f"How often a task of interest was moved to another CPU in {_WINDOW}.",
    ),
    _of(
        "task_node_migrations",
        "migrations",
        "none",
        "trace: sched_migrate_task",
        f"How often a task of interest was moved to a CPU of another node in {_WINDOW}.",
    ),
    _of(
        "task_migrations_node{a}_node{b}",
        "migrations",
        "none",
        "trace: sched_migrate_task",
        f"How often a task of interest was moved between nodes {{a}} and {{b}}, either way, in "
        f"{_WINDOW}.",
    ),
    _of(
        "task_node_changes",
        "changes",
        "none",
        "trace: sched_switch",
        f"How often a task of interest ran on another node than the time before in {_WINDOW}: "
        "migrations as they took effect. Two moves without running in between are one change.",
    ),
    _of(
        "sched_move_numa",
        "events",
        "none",
        "trace: sched_move_numa",
        f"How often NUMA balancing chose to move a task to a CPU of another node in {_WINDOW}.",
    ),
    _of(
        "sched_swap_numa",
        "events",
        "none",
        "trace: sched_swap_numa",
        f"How often NUMA balancing chose to swap two tasks in {_WINDOW}.",
    ),
    _of(
        "sched_stick_numa",
        "events",
        "none",
        "trace: sched_stick_numa",
        f"How often NUMA balancing wanted to move or swap a task and could not in {_WINDOW}.",
    ),
    _of(
        "vmstat_{counter}",
        "count",
        "none",
        "/proc/vmstat",
        "How much the counter {counter} grew from before the capture to after the command.",
    ),
    _timing("elapsed_time", "s", "guest: clock", f"Elapsed time {_COMMAND} (CLOCK_MONOTONIC)."),
    _timing(
        "user_time",
        "s",
        "guest: getrusage",
        f"CPU time in user mode {_COMMAND}, and of its descendants that were waited for.",
    ),
    _timing(
        "system_time",
        "s",
        "guest: getrusage",
        f"CPU time in the kernel {_COMMAND}, and of its descendants that were waited for.",
    ),
    *(
        _timing(
            f"perf_{event}",
            "events",
            "perf stat",
            f"How often perf counted {event} on all CPUs while the command ran.",
        )
        for event in _HARDWARE
    ),
    _of(
        "perf_{event}",
        "events",
        "none",
        "perf stat",
        "How often perf counted {event} on all CPUs while the command ran.",
    ),
)


_BY_NAME = {definition.name: definition for definition in DEFINITIONS}


def measure(family: str, value: Number, **places: int | str) -> Measure:
    """Make a measure of the family `family`, its places filled in: `measure("x{node}", 1, node=3)`.

    Raises KeyError for a family that is not defined.
    """
    found = _BY_NAME[family]
    return _filled(found, found.name.format(**places), value, places)


def explain(name: str) -> Definition:
    """Return the definition of a measure by its full name, its places filled in.

    Raises UserError with the names there are for a name that no definition gives.
    """
    for definition in DEFINITIONS:
        if match := definition.pattern().fullmatch(name):
            made = _filled(definition, name, None, match.groupdict())
            return Definition(
                name, made.unit, made.direction, made.kind, made.definition, made.source
            )
    names = [definition.name for definition in DEFINITIONS]
    raise UserError(f"no measure is called {name!r}", choices=names)


def _filled(
    found: Definition, name: str, value: Number, places: dict[str, int | str] | dict[str, str]
) -> Measure:
    text = found.definition.format(**places)
    return Measure(name, value, found.unit, found.direction, found.kind, text, found.source)
