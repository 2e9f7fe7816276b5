"""What was recorded of one run, in the tables that its measures and findings are taken from."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from numalab.capture.samples import Samples
from numalab.recording.chunks import event_chunks
from numalab.recording.events import typed
from numalab.recording.migrations import Storm, find_storms, name_numa_moves, with_returns
from numalab.recording.numa_decisions import done_moves, nearer, with_outcomes
from numalab.recording.residence import Level, Ranges, Resident, residents
from numalab.recording.sums import RunSums, Scope, add_up
from numalab.recording.window import Window, cut, find_window
from numalab.topology.model import Topology

NUMA_EVENTS = ("sched_move_numa", "sched_swap_numa", "sched_stick_numa")
WAITING_EVENTS = ("sched_switch", "sched_wakeup", "sched_wakeup_new", "sched_migrate_task")
# Of tasks first, because of them there are always some; a process or group needs its members known.
LEVELS: tuple[Level, ...] = ("task", "process", "group")


@dataclass(frozen=True)
class RecordedMachine:
    """Nodes, the CPUs of each, and how far apart they are; all empty where nothing is known.

    `hops` of two nodes is how many smaller distances there are in the machine, as the kernel counts
    NUMA levels (sched_init_numa() in kernel/sched/topology.c).
    """

    nodes: tuple[int, ...]
    cpus_of: Mapping[int, tuple[int, ...]]
    node_of: Mapping[int, int]
    distance: Mapping[tuple[int, int], int]
    hops: Mapping[tuple[int, int], int]

    @property
    def cpus(self) -> tuple[int, ...]:
        """All CPUs, by node."""
        return tuple(cpu for node in self.nodes for cpu in self.cpus_of[node])

    @property
    def cpu_counts(self) -> dict[int, int]:
        """How many CPUs each node has."""
        return {node: len(cpus) for node, cpus in self.cpus_of.items()}

    def table(self, of: Mapping[tuple[int, int], int]) -> tuple[tuple[int, ...], ...]:
        """Return `distance` or `hops` as a table in the order of the nodes."""
        return tuple(tuple(of[a, b] for b in self.nodes) for a in self.nodes)

    @classmethod
    def of(cls, topology: Topology | None) -> "RecordedMachine":
        """Look up what a topology says; None gives a machine of which nothing is known."""
        if topology is None:
            return cls((), {}, {}, {}, {})
        levels = sorted({distance for row in topology.distances for distance in row})
        distance = {
            (a.id, b.id): topology.distances[i][j]
            for i, a in enumerate(topology.nodes)
            for j, b in enumerate(topology.nodes)
        }
        return cls(
            tuple(node.id for node in topology.nodes),
            {node.id: node.cpus for node in topology.nodes},
            {cpu: node.id for node in topology.nodes for cpu in node.cpus},
            distance,
            {pair: levels.index(value) for pair, value in distance.items()},
        )


@dataclass(frozen=True)
class RecordedRun:
    """The tables of a run, and what is known about where they are from.

    `decided` are the decisions of NUMA balancing, `done` the moves and swaps of them that took
    place, `moved` all migrations, `returned` those between nodes and who took them back, `storms`
    many at once to one place.
    `asked` are the events that were recorded, None for all that are looked for; `samples` is None
    where nothing was sampled.
    """

    machine: RecordedMachine
    window: Window
    scope: Scope
    sums: RunSums
    decided: pl.DataFrame
    done: pl.DataFrame
    moved: pl.DataFrame
    returned: pl.DataFrame
    storms: tuple[Storm, ...]
    residents: Mapping[Level, tuple[Resident, ...]]
    samples: Samples | None
    asked: frozenset[str] | None

    def has(self, *events: str) -> bool:
        """Return whether all these events were recorded."""
        return self.asked is None or self.asked >= set(events)

    def tells_movers(self) -> bool:
        """Return whether it can be told of each move between nodes who made it."""
        moves = ("sched_move_numa", "sched_swap_numa")
        return bool(self.machine.nodes) and self.has(*WAITING_EVENTS, *moves)

    def if_nodes(self, value: float | None) -> float | None:
        """Return a value that needs the nodes known, None where they are not."""
        return value if self.machine.nodes else None


def read_run(
    events: pl.DataFrame | pl.LazyFrame,
    topology: Topology | None,
    *,
    tasks: Sequence[str],
    allowed_cpus: Sequence[int] | None,
    recorded: Collection[str] | None,
    samples: Samples | None,
    rows: int,
) -> RecordedRun:
    """Add up what was recorded; see `analyse_run` for what comes in."""
    events = typed(events)
    machine = RecordedMachine.of(topology)
    cpus = machine.cpus or tuple(events.select("cpu").unique().collect()["cpu"].to_list())
    allowed = tuple(sorted(cpus if allowed_cpus is None else allowed_cpus))
    window = find_window(events)
    scope = Scope(tuple(tasks), allowed, machine.node_of, cut(window))
    sums = add_up(event_chunks(events, window, allowed, rows), scope)
    decided = with_outcomes(pl.concat(sums.decided))
    done = done_moves(decided)
    moved = name_numa_moves(pl.concat(sums.moved), done)
    if samples is not None:
        done = nearer(done, samples.tasks, machine.distance)
    else:
        done = done.with_columns(nearer=pl.lit(None, pl.Int32))
    return RecordedRun(
        machine,
        window,
        scope,
        sums,
        decided,
        done,
        moved,
        with_returns(moved),
        find_storms(moved, machine.cpu_counts, window.start_ns),
        _residents(sums, scope, machine, samples, decided),
        samples,
        _met(events) if recorded is None else _asked(recorded),
    )


def _met(events: pl.LazyFrame) -> frozenset[str] | None:
    """Return which events a recording of unknown origin was made with; None for all.

    Where there is no sched_switch at all, it is taken not to have been recorded.
    """
    names = frozenset(events.select(pl.col("event").unique()).collect()["event"].to_list())
    return None if "sched_switch" in names else names | {*NUMA_EVENTS}


def _asked(recorded: Collection[str]) -> frozenset[str]:
    """Return the names of the events; all of a system's that are read here for `system` alone."""
    names = {name.partition(":")[2] for name in recorded}
    return frozenset(names | {*NUMA_EVENTS, *WAITING_EVENTS} if "sched" in recorded else names)


def _residents(
    sums: RunSums,
    scope: Scope,
    machine: RecordedMachine,
    samples: Samples | None,
    decided: pl.DataFrame,
) -> dict[Level, tuple[Resident, ...]]:
    """Return the CPU time of tasks, and of processes and NUMA groups as far as members are known.

    sched_switch names no process. The decisions of NUMA balancing and the samples of tasks do; what
    is said last about a task's group counts.
    """
    process: dict[int, int] = {}
    group: dict[int, int] = {}
    tables = [decided.select("pid", "tgid", "ngid")]
    if samples is not None:
        tables.append(samples.tasks.select("pid", "tgid", "ngid"))
    for pid, tgid, ngid in pl.concat(tables).iter_rows():
        if tgid is not None and tgid > 0:
            process[pid] = tgid
        if ngid is not None and ngid > 0:
            group[pid] = ngid
    members: dict[Level, dict[int, int] | None] = {"task": None, "process": process, "group": group}
    names = sums.names
    return {
        level: residents(
            sums.time,
            level,
            Ranges(machine.nodes, scope.slices),
            names=names if level != "group" else {},
            member_of=members[level],
        )
        for level in LEVELS
    }
