"""The recording of a load: spans and stays of its tasks, and idle times of CPUs."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import polars as pl

from numalab.hunt.loads.driver_output import Printed, parse_output, part_of_task
from numalab.hunt.loads.load import Cpus, Load
from numalab.recording.events import STOPPED_BIT, typed, with_states
from numalab.recording.intervals import NOTHING, Spans, between, covered, joined, met, without
from numalab.recording.recording import Recording
from numalab.recording.spans import spans
from numalab.recording.stays import stays
from numalab.recording.window import Window, clip, gaps, marks
from numalab.run_dir import RunDir
from numalab.topology.predict.firmware import as_guest_numbers
from numalab.topology.topology import Topology

MS = 1_000_000
# What the kernel may take to follow a change of CPUs or masks.
GRACE_MS = 150
# How long tasks that all start in one place may take to spread, until their state is steady.
SETTLED = 0.5  # of the load's time
LOAD_MARK = re.compile(r"hunt: load (\d{1,3}) (begin|half|end|stopped|over|event)")


@dataclass(frozen=True)
class LoadTask:
    """A task of a load: process id, kind (a part's, or `wakee`, `child`, `thread`), and part."""

    pid: int
    kind: str
    part: int
    number: int


@dataclass(frozen=True)
class Crew:
    """Tasks of a part that have one mask (`cpus`, before any change), and what they are called."""

    pids: frozenset[int]
    cpus: Cpus
    wakees: bool
    name: str


@dataclass(frozen=True, eq=False, kw_only=True)
class LoadRecording(Recording):
    """The recording of one load, between its marks; all times in ns of the trace clock.

    `table` reaches beyond the window on both sides, from before the forks of its tasks on. `done`
    are the times at which the driver had made each change, and was at half of the time, in order:
    on a busy machine it may be late. It had stopped all tasks at `stopped_ns`. With `far_costs` far
    memory takes longer than near memory.
    """

    topology: Topology
    number: int
    load: Load
    printed: Printed = field(default_factory=Printed)
    stopped_ns: int = 0
    done: tuple[int, ...] = ()
    far_costs: bool = False

    @cached_property
    def load_tasks(self) -> Mapping[int, LoadTask]:
        """The tasks of the load, by process id."""
        named = pl.concat([self.spans.select("pid", "comm"), self.stays.select("pid", "comm")])
        tasks: dict[int, LoadTask] = {}
        parents: dict[tuple[int, int], int] = {}
        for pid, comm in named.unique().sort("pid", "comm").iter_rows():
            named_task = part_of_task(comm or "") if pid else None
            if named_task is None or named_task[1] >= len(self.load.parts):
                continue
            kind, part, number = named_task
            # A child has its parent's name until it runs and gets its own; the parent is older.
            if kind == "forker" and parents.setdefault((part, number), pid) != pid:
                kind = "child"
            if pid not in tasks or kind == "child":
                tasks[pid] = LoadTask(pid, kind, part, number)
        return tasks

    @cached_property
    def born(self) -> Mapping[int, int]:
        """When each task is first seen, in ns; the start of the window if it was there before."""
        return dict(self.load_stays.group_by("pid").agg(pl.col("start_ns").min()).iter_rows())

    @cached_property
    def load_spans(self) -> pl.DataFrame:
        """The spans of the load's tasks."""
        return self.spans.filter(pl.col("pid").is_in(list(self.load_tasks)))

    @cached_property
    def load_spans_on(self) -> Mapping[int, pl.DataFrame]:
        """The spans of the load's tasks, by CPU."""
        parts = self.load_spans.partition_by("cpu", as_dict=True)
        return {int(cpu): rows for (cpu,), rows in parts.items()}

    @cached_property
    def load_stays(self) -> pl.DataFrame:
        """The stays of the load's tasks."""
        return self.stays.filter(pl.col("pid").is_in(list(self.load_tasks)))

    def places(self, *, nodes: bool) -> Mapping[int, int]:
        """Return the node of each CPU, or each CPU itself: between these, tasks move."""
        node_of = self.topology.nodes_of_cpus
        return node_of if nodes else {cpu: cpu for cpu in node_of}

    @property
    def memory_users(self) -> int:
        """How many of its tasks use memory."""
        return sum(part.count for part in self.load.parts if part.kind == "memory")

    @property
    def settled(self) -> Window:
        """The later part of the time, in which the load has had time to settle.

        It begins at half of the time, or some time after the last change if that is later.
        """
        start = self.window.start_ns + int(self.window.length_ns * SETTLED)
        if changes := self.load.changes_ms():
            start = max(start, self._done(changes[-1]) + 2 * GRACE_MS * MS)
        return Window(min(start, self.window.end_ns), self.window.end_ns)

    @property
    def judged(self) -> Window:
        """The whole time of a load that is steady, else its settled time."""
        return self.window if self.load.is_steady else self.settled

    def last_masks(self, place: int, *, wakees: bool = False) -> frozenset[int]:
        """Return the CPUs on which the tasks of a part are allowed in the settled time."""
        return self.load.masks(place, self.load.ms, wakees=wakees)

    @cached_property
    def idle(self) -> Mapping[int, Spans]:
        """When each CPU was on line and had no runnable task."""
        idle = {}
        for cpu in sorted(cpu for node in self.topology.nodes for cpu in node.cpus):
            rows = self.queue.filter((pl.col("cpu") == cpu) & (pl.col("runnable") <= 0))
            away = covered(self.offline.filter(pl.col("cpu") == cpu))
            free = without(covered(rows), away, self.window.start_ns, self.window.end_ns)
            for change in self.load.hotplug:
                if change.cpu != cpu:
                    continue
                off = self._at(change.off_ms - 50), self._done(change.on_ms) + GRACE_MS * MS
                hole = (np.array(off[:1], np.int64), np.array(off[1:], np.int64))
                free = without(free, hole, self.window.start_ns, self.window.end_ns)
            idle[cpu] = free
        return idle

    @cached_property
    def until_stopped(self) -> pl.DataFrame:
        """The events until the driver had stopped all tasks, with every column of `typed`."""
        return self._typed.filter(pl.col("time_ns") <= self.stopped_ns).collect()

    @cached_property
    def has_gaps(self) -> bool:
        """Whether events were lost."""
        return not gaps(self._typed.collect()).is_empty()

    @cached_property
    def stopped_threads(self) -> frozenset[int]:
        """The threads that the trace shows from their fork until they had stopped.

        None of a recording that has lost events.
        """
        if self.has_gaps:
            return frozenset()
        rows = self.until_stopped
        left = rows.filter(pl.col("event") == "sched_switch")
        woken = rows.filter(pl.col("event").is_in(["sched_wakeup", "sched_wakeup_new"]))
        steps = [
            left.select("time_ns", pid="prev_pid", state="prev_state"),
            woken.select("time_ns", pid="event_pid", state=pl.lit(0, pl.Int64)),
        ]
        last = pl.concat(steps).sort("time_ns", maintain_order=True).group_by("pid").last()
        stopped = last.filter((pl.col("state") & STOPPED_BIT) != 0)["pid"]
        born = rows.filter(pl.col("event") == "sched_wakeup_new")["event_pid"]
        return frozenset(stopped) & frozenset(born)

    @cached_property
    def ran_until_stopped(self) -> Mapping[int, Spans]:
        """When each task ran in the last 0.4 s, and until the driver had stopped it."""
        window = Window(self.window.end_ns - 400 * MS, self.stopped_ns)
        late = spans(self._typed.collect(), window)
        ran = self._by_task(late.filter(pl.col("pid").is_in(list(self.load_tasks))))
        return {pid: ran.get(pid, NOTHING) for pid in self.load_tasks}

    @cached_property
    def ready_until_stopped(self) -> Mapping[int, Spans]:
        """When each task was runnable, running or not, in the time of `ran_until_stopped`."""
        window = Window(self.window.end_ns - 400 * MS, self.stopped_ns)
        late = stays(self._typed.collect(), window).filter("runnable")
        ready = self._by_task(late.filter(pl.col("pid").is_in(list(self.load_tasks))))
        return {pid: ready.get(pid, NOTHING) for pid in self.load_tasks}

    @cached_property
    def runnable(self) -> Mapping[int, Spans]:
        """When each task was runnable, running or not."""
        runnable = self._by_task(self.load_stays.filter("runnable"))
        return {pid: runnable.get(pid, NOTHING) for pid in self.load_tasks}

    @cached_property
    def waits(self) -> Mapping[int, Spans]:
        """When each task was runnable and did not run."""
        waits = {}
        ran, ready = self._by_task(self.load_spans), self.runnable
        for pid in self.load_tasks:
            low, high = self.window.start_ns, self.window.end_ns
            waits[pid] = without(ready[pid], ran.get(pid, NOTHING), low, high)
        return waits

    @cached_property
    def waits_behind(self) -> Mapping[tuple[int, int], Spans]:
        """When each task waited on each node on a CPU that had another task: by task and node.

        A task alone on a CPU waits for the CPU to come out of idle, which in icount mode is until
        the emulator turns to it.
        """
        full: dict[int, Spans] = {}
        for (cpu,), rows in self.queue.filter(pl.col("runnable") >= 2).partition_by(
            "cpu", as_dict=True
        ).items():  # fmt: skip
            full[int(cpu)] = covered(rows)
        waited_behind: defaultdict[tuple[int, int], list[Spans]] = defaultdict(list)
        for (cpu,), rows in (
            self.load_stays.filter("runnable").partition_by("cpu", as_dict=True).items()
        ):
            node = self.topology.node_of_cpu(int(cpu))
            for pid, here in self._by_task(rows).items():
                waited = met(here, self.waits[pid])
                waited_behind[pid, node].append(met(waited, full.get(int(cpu), NOTHING)))
        return {key: joined(pieces) for key, pieces in waited_behind.items()}

    def free_on(self, cpus: Collection[int]) -> Mapping[int, Spans]:
        """Return for each node when one of some CPUs of it was idle."""
        return {
            node.id: joined(self.idle[cpu] for cpu in node.cpus if cpu in cpus)
            for node in self.topology.nodes
        }

    @cached_property
    def settled_ns(self) -> Mapping[int, int]:
        """How long each task ran in the settled time, in ns, by process id; 0 for none."""
        length = pl.col("end_ns") - pl.col("start_ns")
        ran = clip(self.load_spans, self.settled).group_by("pid").agg(ns=length.sum())
        return {**dict.fromkeys(self.load_tasks, 0), **dict(ran.iter_rows())}

    def _by_task(self, rows: pl.DataFrame) -> dict[int, Spans]:
        return {
            int(pid[0]): covered(part)
            for pid, part in rows.partition_by("pid", as_dict=True).items()
        }

    def _at(self, ms: float) -> int:
        return self.window.start_ns + int(ms * MS)

    def _done(self, ms: float) -> int:
        """Return when the driver had made the changes up to a time in ms after the start."""
        planned = sorted([*self.load.changes_ms(but_later=True), self.load.ms // 2])
        place = bisect_right(planned, ms) - 1
        late = self.done[place] if 0 <= place < len(self.done) else 0
        return max(self._at(ms), late)

    def phases(self, grace_ms: float = GRACE_MS) -> list[tuple[Window, float]]:
        """Return the times between which no mask changes, with a time in ms within each.

        What lies within the grace after a change is left out.
        """
        edges = [0.0, *self.load.changes_ms(), float("inf")]
        phases = []
        for number, (low, high) in enumerate(pairwise(edges)):
            start = self._done(low) + int(grace_ms * MS) if number else self.window.start_ns
            end = self.window.end_ns if high == float("inf") else self._at(high)
            if end > start:
                phases.append((Window(start, min(end, self.window.end_ns)), low + 1))
        return phases

    def crews(self, part: int) -> tuple[Crew, ...]:
        """Return the tasks of a part by their mask: wakees may have one of their own.

        Without children from before the begin that have the mask with which their parent started.
        """
        own = self.load.parts[part]
        begin = self.window.start_ns if own.start not in ((), own.cpus) else -1
        mine = {
            pid: task for pid, task in self.load_tasks.items()
            if task.part == part and not (task.kind == "child" and self.born.get(pid, 0) <= begin)
        }  # fmt: skip
        woken = frozenset(pid for pid, task in mine.items() if own.wakee and task.kind == "wakee")
        crews = (
            Crew(frozenset(mine) - woken, own.cpus, False, own.kind),
            Crew(woken, own.wakee, True, "wakee"),
        )
        return tuple(crew for crew in crews if crew.pids)

    def avoidable(self, part: int, inside: Window | None = None) -> dict[int, Spans]:
        """Return for each CPU when it was idle and a task waited that may run there.

        The tasks are those of one part.
        """
        pieces_of_cpu: dict[int, list[Spans]] = {}
        for crew in self.crews(part):
            waited = joined(self.waits[pid] for pid in crew.pids)
            for window, at_ms in self.phases():
                low, high = window.start_ns, window.end_ns
                if inside is not None:
                    low, high = max(low, inside.start_ns), min(high, inside.end_ns)
                if high <= low:
                    continue
                here = between(waited, low, high)
                for cpu in self.load.masks(part, at_ms, wakees=crew.wakees):
                    if cpu in self.idle:
                        pieces_of_cpu.setdefault(cpu, []).append(met(self.idle[cpu], here))
        return {cpu: joined(pieces) for cpu, pieces in pieces_of_cpu.items()}

    def time_on(
        self, part: int, window: Window, pids: Collection[int] | None = None
    ) -> pl.DataFrame:
        """Return how long each task of a part ran on each CPU in a time: pid, cpu, ns.

        Only `pids`, if given.
        """
        mine = [pid for pid, task in self.load_tasks.items() if task.part == part]
        wanted = mine if pids is None else [pid for pid in mine if pid in pids]
        inside = clip(self.load_spans.filter(pl.col("pid").is_in(wanted)), window)
        length = pl.col("end_ns") - pl.col("start_ns")
        return inside.group_by("pid", "cpu").agg(ns=length.sum()).sort("pid", "cpu")


def read_loads(
    events: pl.DataFrame,
    stdout: str,
    machine: Topology,
    loads: tuple[Load, ...],
    *,
    far_costs: bool = False,
    directory: RunDir | None = None,
) -> tuple[LoadRecording, ...]:
    """Cut a recording into its loads.

    `events` is the table that `decode_trace` wrote, `stdout` the output of the driver. A load that
    lacks a mark, or during which events were lost, is left out.
    """
    table = with_states(typed(events)).collect()
    printed = parse_output(stdout)
    times: dict[tuple[int, str], int] = {}
    done: defaultdict[int, list[int]] = defaultdict(list)
    for time_ns, text in marks(table).iter_rows():
        if mark := LOAD_MARK.fullmatch(text or ""):
            times.setdefault((int(mark[1]), mark[2]), int(time_ns))
            if mark[2] in ("event", "half"):
                done[int(mark[1])].append(int(time_ns))
    lost = gaps(table)
    topology = as_guest_numbers(machine)
    complete, since = [], 0
    for number, load in enumerate(loads):
        begin, end = times.get((number, "begin")), times.get((number, "end"))
        if begin is None or end is None or end <= begin:
            since = times.get((number, "over"), since)  # its tasks did not start
            continue
        window = Window(begin, end)
        # From when the load before had been cleaned up: what began since then is known.
        stopped = times.get((number, "stopped"), window.end_ns)
        until = max(window.end_ns + 20 * MS, stopped)
        near = table.filter(pl.col("time_ns").is_between(since, until))
        since = times.get((number, "over"), window.end_ns)
        if not clip(lost, window).is_empty():
            continue
        complete.append(
            LoadRecording(
                table=near,
                part=window,
                topology=topology,
                number=number,
                load=load,
                printed=printed.get(number, Printed()),
                stopped_ns=stopped,
                done=tuple(done[number]),
                far_costs=far_costs,
                directory=directory,
            )
        )
    return tuple(complete)
