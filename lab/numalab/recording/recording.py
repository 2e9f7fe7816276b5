"""One recorded run: its events, and every table that measures, findings and hunts read."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import polars as pl

from numalab.capture.counters import CpuSchedstat, Times
from numalab.capture.joined_tables import JoinedTables
from numalab.capture.samples import SCHEMAS, Samples
from numalab.files import bound_json, read_regular
from numalab.measure import Number
from numalab.progress import Progress, no_progress
from numalab.recording.chunks import ROWS, event_chunks
from numalab.recording.events import COLUMNS, lacking_fields, of_interest, typed, with_states
from numalab.recording.masks import Masks, masks_by_time
from numalab.recording.migrations import (
    CARRIED_OUT_NS,
    Storm,
    find_storms,
    migrations,
    name_numa_moves,
    with_returns,
)
from numalab.recording.numa_decisions import done_moves, nearer, numa_decisions, with_outcomes
from numalab.recording.residence import Level, Ranges, Resident, residents
from numalab.recording.spans import spans
from numalab.recording.stays import queue_lengths, stays
from numalab.recording.sums import RunSums, Scope, add_up
from numalab.recording.window import Slices, Window, cut, find_window, offline, with_parked_stoppers
from numalab.recording.work_conservation import bound_by_name
from numalab.run_dir import RunDir
from numalab.topology.sched_domains import CpuDomains, SchedLog, parse_domains, parse_sched_verbose
from numalab.topology.topology import Topology
from numalab.workload.metric_parsers import Metric

NUMA_EVENTS = ("sched_move_numa", "sched_swap_numa", "sched_stick_numa")
WAITING_EVENTS = ("sched_switch", "sched_wakeup", "sched_wakeup_new", "sched_migrate_task")
# Tasks come first: a recording always has some. A process or group needs its members known.
LEVELS: tuple[Level, ...] = ("task", "process", "group")
NodeCounters = Mapping[int, Mapping[str, int]]
_DOMAINS_BYTES, _DOMAINS_VALUES = 32 << 20, 1_000_000
_LOG_BYTES = 16 << 20
_NAMES = ("comm", "prev_comm", "next_comm", "event_comm")  # columns with names of tasks


@dataclass(frozen=True)
class CommandData:
    """What the workload's command printed and took, what perf counted, and counters before and
    after it. `numastat` is None where the study did not ask for it. `memory_mib` is about what the
    command allocates, 0 where its file does not say. `scheduler` are statistics that a scheduler
    (sched_ext) printed, by name. `notes` say what of it could not be read."""

    workload: str
    metrics: tuple[Metric, ...] = ()
    times: Times | None = None
    perf: Mapping[str, Number] | None = None
    schedstat: tuple[Sequence[CpuSchedstat], Sequence[CpuSchedstat]] = ((), ())
    numastat: tuple[NodeCounters, NodeCounters] | None = None
    memory_mib: float = 0.0
    scheduler: Mapping[str, Number] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


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
            topology.nodes_of_cpus,
            distance,
            {pair: levels.index(value) for pair, value in distance.items()},
        )


@dataclass(frozen=True, eq=False)
class Recording:
    """One run: its events, and all tables made of them, each computed on its first use.

    `table` is the table that `decode_trace` writes, or a scan of it. Without a `topology` the CPUs
    are those with events, and nothing is known by node.
    `tasks` are the names of the tasks of interest, none meaning every task but the idle ones.
    `allowed_cpus` are the CPUs that they may use, None meaning all. `recorded` are the
    `system:event` (or `system`) names of the recorded events, None where they are not known.
    Of `filtered` events the kernel recorded only some. `cache_of` names the last-level cache of
    each CPU, None where caches are not known.

    The rest is what the run left beside its trace, None where it left nothing: `vmstat`, the growth
    of each counter of /proc/vmstat; `samples` on the trace's clock; what the `command` printed and
    took; the counts of the `memory` model of mode timed; the `directory` of the run's files.

    `part` is the window, None for the one between the run's markers. `rows` events are held in
    memory at a time, except for `spans`, `stays` and `queue`, which are whole tables.
    `on_progress` hears of the events that were added up.
    """

    table: pl.DataFrame | pl.LazyFrame
    topology: Topology | None = None
    tasks: Sequence[str] = ()
    allowed_cpus: Collection[int] | None = None
    recorded: Collection[str] | None = None
    filtered: Collection[str] = ()
    vmstat: Mapping[str, int] | None = None
    samples: Samples | None = None
    command: CommandData | None = None
    memory: JoinedTables | None = None
    directory: RunDir | None = None
    cache_of: Mapping[int, int] | None = None
    part: Window | None = None
    rows: int = ROWS
    on_progress: Progress | None = None

    def events(self, *names: str) -> pl.DataFrame:
        """Return the events of these names in the window, with every recorded column.

        A name is `sched_switch` or `sched:sched_switch`; no name means all events. `SCHEMA` has the
        types of the columns that all recordings share. Other columns, and those of `AS_RECORDED`,
        have the type of their field, null in events that lack it. An event that was not recorded
        has no row; see `has`.
        """
        window = self.window
        inside = pl.col("time_ns").is_between(window.start_ns, window.end_ns)
        if names:
            inside &= pl.col("event").is_in([name.rpartition(":")[2] for name in names])
        return typed(self.table).filter(inside).collect()

    def has(self, *events: str) -> bool:
        """Return whether all these events were recorded whole, and can be read (`lacking`)."""
        if {event.rpartition(":")[2] for event in events} & {*self.lacking, *self.filtered}:
            return False
        names = self._recorded_names
        return names is None or all(
            event.rpartition(":")[2] in names or event.partition(":")[0] in (self.recorded or ())
            for event in events
        )

    @cached_property
    def lacking(self) -> Mapping[str, tuple[str, ...]]:
        """The needed fields that recorded events lack, by event."""
        return lacking_fields(self._typed)

    @cached_property
    def task_names(self) -> tuple[str, ...]:
        """The names of all tasks in events, in order."""
        columns = [pl.col(name).unique().implode() for name in _NAMES]
        row = self._typed.select(columns).collect(engine="streaming").row(0)
        return tuple(sorted({name for names in row for name in names if name is not None}))

    @property
    def absent_tasks(self) -> tuple[str, ...]:
        """Those names of `tasks` that no recorded task has."""
        rows = pl.DataFrame({"comm": self.task_names}, {"comm": pl.String})
        return tuple(name for name in self.tasks if rows.filter(of_interest([name])).is_empty())

    @cached_property
    def machine(self) -> "RecordedMachine":
        """The nodes and CPUs of the machine."""
        return RecordedMachine.of(self.topology)

    @cached_property
    def window(self) -> Window:
        """The part of the recording that counts."""
        return find_window(self._typed) if self.part is None else self.part

    @cached_property
    def slices(self) -> Slices:
        """The window cut into slices."""
        return cut(self.window)

    @cached_property
    def cpus(self) -> tuple[int, ...]:
        """The machine's CPUs; without a topology those with events."""
        active = self._typed.select("cpu").unique()
        return self.machine.cpus or tuple(active.collect()["cpu"].sort().to_list())

    @cached_property
    def allowed(self) -> tuple[int, ...]:
        """The CPUs that the tasks of interest may use, ascending."""
        return tuple(sorted(self.cpus if self.allowed_cpus is None else self.allowed_cpus))

    @property
    def of_interest(self) -> pl.Expr:
        """The filter for tasks of interest in a table with `pid` and `comm`."""
        return of_interest(self.tasks)

    @cached_property
    def spans(self) -> pl.DataFrame:
        """Which task ran on each CPU and when: cpu, node, start_ns, end_ns, pid, comm, known."""
        return spans(self._all_events, self.window, self.cpus)

    @cached_property
    def stays(self) -> pl.DataFrame:
        """Where each task was: pid, comm, cpu, start_ns, end_ns, runnable."""
        return stays(self._all_events, self.window)

    @cached_property
    def queue(self) -> pl.DataFrame:
        """How many tasks were runnable on each CPU and when: cpu, start_ns, end_ns, runnable."""
        return queue_lengths(self.stays, self.window, sorted(self.cpus))

    @cached_property
    def offline(self) -> pl.DataFrame:
        """When CPUs were off line: cpu, start_ns, end_ns.

        Also node, and pid, comm and last `row` of the stopper. Not cut to the window: a CPU that
        stays away ends at the largest number.
        """
        return offline(self._typed)

    @cached_property
    def domains(self) -> tuple[CpuDomains, ...]:
        """The sched domains of each CPU, as the kernel printed them; none without the run's files.

        Raises ValueError for a damaged file, and OSError.
        """
        return () if self.directory is None else read_domains(self.directory).cpus

    @cached_property
    def masks(self) -> Masks:
        """The CPUs of tasks by time, as sampled or by their names."""
        inside = pl.col("time_ns").is_between(self.window.start_ns, self.window.end_ns)
        sampled = self.samples.masks if self.samples else pl.DataFrame(schema=SCHEMAS["masks"])
        return masks_by_time(sampled.filter(inside), bound_by_name(self.machine.cpus_of))

    @cached_property
    def sums(self) -> RunSums:
        """Sums over the window."""
        away, node_of = self.offline, self.machine.node_of
        scope = Scope(tuple(self.tasks), self.allowed, node_of, self.slices, self.masks, away)
        on_progress = self.on_progress or no_progress
        table, cpus = self._typed, self.allowed
        chunks = event_chunks(table, self.window, cpus, self.rows, on_progress, away=away)
        return add_up(chunks, scope)

    @cached_property
    def decisions(self) -> pl.DataFrame:
        """The decisions of NUMA balancing and how they ended."""
        return with_outcomes(pl.concat(self.sums.decided))

    @cached_property
    def numa_moves(self) -> pl.DataFrame:
        """The moves of tasks by NUMA balancing; `nearer` is None where nothing was sampled."""
        moves = done_moves(self.decisions)
        if self.samples is None:
            return moves.with_columns(nearer=pl.lit(None, pl.Int32))
        return nearer(moves, self.samples.tasks, self.machine.distance)

    @cached_property
    def migrations(self) -> pl.DataFrame:
        """All migrations, with who moved the task."""
        window, node_of = self.window, self.machine.node_of
        since = window.start_ns - CARRIED_OUT_NS  # what was announced may happen in the window
        near = pl.col("time_ns").is_between(since, window.start_ns, closed="left")
        names = ["sched_migrate_task", *NUMA_EVENTS]
        early = self._typed.filter(near & pl.col("event").is_in(names)).collect()
        first = migrations(early, stays(early.clear(), window), node_of)
        decided = numa_decisions(early, replace(window, start_ns=since), node_of)
        done = done_moves(with_outcomes(pl.concat([decided, *self.sums.decided])))
        moved = name_numa_moves(pl.concat([first, *self.sums.moved]), done)[first.height :]
        self.sums.moved[:] = [moved]  # the same rows: a long recording has millions
        return moved

    @cached_property
    def node_migrations(self) -> pl.DataFrame:
        """The migrations between nodes, with who took them back."""
        return with_returns(self.migrations, pl.concat(self.sums.born))

    @cached_property
    def storms(self) -> tuple[Storm, ...]:
        """Many migrations to one CPU or node within a short time."""
        return find_storms(self.migrations, self.machine.cpu_counts, self.window.start_ns)

    @cached_property
    def residents(self) -> Mapping[Level, tuple[Resident, ...]]:
        """The CPU time of tasks, and of processes and NUMA groups as far as members are known.

        sched_switch names no process. The decisions of NUMA balancing and the samples of tasks do;
        the last mention of a task's group counts.
        """
        process: dict[int, int] = {}
        group: dict[int, int] = {}
        columns = ("time_ns", "pid", "tgid", "ngid")
        tables = [self.decisions.select(columns)]
        if self.samples is not None:
            tables.append(self.samples.tasks.select(columns))
        mentions = pl.concat(tables).sort("time_ns", maintain_order=True)
        for _, pid, tgid, ngid in mentions.iter_rows():
            if tgid is not None and tgid > 0:
                process[pid] = tgid
            if ngid is not None and ngid > 0:
                group[pid] = ngid
        members = {"task": None, "process": process, "group": group}
        ranges, names = Ranges(self.machine.nodes, self.slices), self.sums.names
        return {
            level: residents(
                self.sums.time,
                level,
                ranges,
                names=names if level != "group" else {},
                member_of=members[level],
            )
            for level in LEVELS
        }

    @property
    def movers_known(self) -> bool:
        """Whether the recording shows who moved a task to another node."""
        moves = ("sched_move_numa", "sched_swap_numa")
        return bool(self.machine.nodes) and self.has(*WAITING_EVENTS, *moves)

    def if_nodes(self, value: float | None) -> float | None:
        """Return a value that needs the nodes, None where they are not known."""
        return value if self.machine.nodes else None

    @cached_property
    def _typed(self) -> pl.LazyFrame:
        return with_states(typed(self.table).select(COLUMNS))

    @property
    def _all_events(self) -> pl.DataFrame:
        """The events, and the switches of stoppers that went off line with their CPU."""
        return with_parked_stoppers(self._typed.collect(), self.offline)

    @cached_property
    def _recorded_names(self) -> frozenset[str] | None:
        """The recorded events, None for all.

        A recording of unknown origin without any sched_switch is one in which it was not recorded.
        """
        if self.recorded is None:
            column = self._typed.select(pl.col("event").unique()).collect()["event"]
            names = frozenset(column.to_list())
            return None if "sched_switch" in names else names | {*NUMA_EVENTS}
        return recorded_events(self.recorded)


def recorded_events(recorded: Collection[str]) -> frozenset[str]:
    """Return the names of recorded `system:event`.

    `sched` alone stands for all events of that system that are read here.
    """
    names = frozenset(name.partition(":")[2] for name in recorded)
    return names | {*NUMA_EVENTS, *WAITING_EVENTS} if "sched" in recorded else names


def read_domains(directory: RunDir) -> SchedLog:
    """Read the sched domains of a run, from its kernel log where they are not stored.

    Raises ValueError for a damaged file, and OSError.
    """
    if directory.domains.exists():
        stored = read_regular(directory.domains, _DOMAINS_BYTES, follow=False)
        return parse_domains(bound_json(stored, _DOMAINS_VALUES))
    log = read_regular(directory.dmesg, _LOG_BYTES, follow=False)
    return parse_sched_verbose(log.decode("utf-8", "replace"))
