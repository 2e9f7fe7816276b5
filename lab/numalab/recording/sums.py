"""Sums over the chunks of a recording; measures and findings are made of them."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import polars as pl

from numalab.recording.chunks import EventChunk
from numalab.recording.events import of_interest
from numalab.recording.intervals import Spans, covered, rows_without, total
from numalab.recording.masks import Masks
from numalab.recording.migrations import SCHEMA as MOVES
from numalab.recording.migrations import migrations
from numalab.recording.numa_decisions import SCHEMA as DECISIONS
from numalab.recording.numa_decisions import node_of_cpu, numa_decisions
from numalab.recording.spans import RunTimeline, run_timeline
from numalab.recording.stays import BIRTHS, births, queue_lengths
from numalab.recording.window import OFFLINE, Slices, Window, by_slice
from numalab.recording.work_conservation import VIOLATION, joined, longest, violations

MAX_LISTED = 20
MOST_LOST_PERCENT = 1  # of the window
_TIME = {"pid": pl.Int32, "node": pl.Int16, "slice": pl.Int64, "ns": pl.Int64}
_NODE = {"node": pl.Int16, "slice": pl.Int64, "ns": pl.Int64}
_LAST = {"pid": pl.Int32, "node": pl.Int16}
_FINAL = {"pid": pl.Int32, "comm": pl.String, "cpu": pl.Int16}


@dataclass(frozen=True)
class Scope:
    """What the sums are over: names of the tasks of interest, their CPUs, the node of every CPU,
    slices, the CPUs of single tasks as far as known, and when CPUs were off line.
    """

    tasks: tuple[str, ...]
    allowed: tuple[int, ...]
    node_of: Mapping[int, int]
    slices: Slices
    masks: Masks = field(default_factory=Masks)
    offline: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=OFFLINE))


@dataclass
class RunSums:
    """Sums over the chunks so far.

    `time` is CPU time of the tasks of interest, `busy` of any task by node and slice, `queued` the
    time of runnable tasks by node and slice. `lost` is the time of lost events by CPU, `unknown`
    that on any allowed CPU by slice; `busy`, `queued`, and `time_of_node` of the tasks of interest
    leave it out. `final` is the last CPU of every task, `ran` are those that ran, `names` the last
    names of those that ran as tasks of interest. `born` is when tasks began, `reused` the process
    ids that several tasks of interest had. `timeline` is None for more than one chunk, so that
    memory stays bounded.
    """

    time: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_TIME))
    busy: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_NODE))
    queued: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_NODE))
    busy_cpu: Counter[int] = field(default_factory=Counter)
    time_of_node: Counter[int | None] = field(default_factory=Counter)
    lost: Counter[int] = field(default_factory=Counter)
    unknown: Counter[int] = field(default_factory=Counter)
    idle_ns: int = 0
    changes: int = 0
    reused: set[int] = field(default_factory=set)
    ran: set[int] = field(default_factory=set)
    last_node: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_LAST))
    final: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_FINAL))
    born: list[pl.DataFrame] = field(default_factory=lambda: [pl.DataFrame(schema=BIRTHS)])
    moved: list[pl.DataFrame] = field(default_factory=lambda: [pl.DataFrame(schema=MOVES)])
    decided: list[pl.DataFrame] = field(default_factory=lambda: [pl.DataFrame(schema=DECISIONS)])
    violations: int = 0
    longest: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=VIOLATION))
    names: dict[int, str] = field(default_factory=dict)
    timeline: RunTimeline | None = None

    @property
    def lost_ns(self) -> int:
        """How long events of any allowed CPU were lost."""
        return self.unknown.total()

    def known_ns(self, slices: Slices) -> list[int]:
        """Return how much of each slice no allowed CPU lost events in."""
        return [all_ - self.unknown[number] for number, all_ in enumerate(slices.lengths_ns())]

    def follow_tasks(self, window: Window) -> bool:
        """Return whether so few events were lost that it is known where tasks converged."""
        return 100 * self.lost_ns <= MOST_LOST_PERCENT * window.length_ns


def add_up(chunks: Iterable[EventChunk], scope: Scope) -> RunSums:
    """Add up all chunks."""
    sums = RunSums()
    for number, chunk in enumerate(chunks):
        inside = pl.col("time_ns").is_between(chunk.window.start_ns, chunk.window.end_ns)
        events = chunk.events.filter(inside)
        sums.born.append(births(events))
        unknown = _losing(sums, chunk, scope)
        _running(sums, chunk, scope, unknown)
        _waiting(sums, chunk, scope, unknown)
        moved = migrations(events, chunk.stays, scope.node_of)
        sums.moved.append(moved)
        sums.decided.append(numa_decisions(chunk.events, chunk.window, scope.node_of))
        sums.timeline = (
            None if number else run_timeline(chunk.events, chunk.spans, chunk.window, scope.tasks)
        )
    return sums


def _losing(sums: RunSums, chunk: EventChunk, scope: Scope) -> Spans:
    """Add up the time of lost events; return when events of an allowed CPU were lost."""
    length = pl.col("end_ns") - pl.col("start_ns")
    sums.lost.update(dict(chunk.lost.group_by("cpu").agg(length.sum()).iter_rows()))
    unknown = covered(chunk.lost.filter(pl.col("cpu").is_in(scope.allowed)))
    table = pl.DataFrame({"start_ns": unknown[0], "end_ns": unknown[1]})
    sums.unknown.update(dict(by_slice(table, scope.slices).iter_rows()))
    return unknown


def _running(sums: RunSums, chunk: EventChunk, scope: Scope, unknown: Spans) -> None:
    mine = chunk.spans.filter(of_interest(scope.tasks) & pl.col("pid").is_not_null())
    sums.time = _sum(sums.time, by_slice(mine, scope.slices, "pid", "node"))
    length = pl.col("end_ns") - pl.col("start_ns")
    by_node = rows_without(mine, unknown).group_by("node").agg(length.sum())
    sums.time_of_node.update(dict(by_node.iter_rows()))
    some = rows_without(chunk.spans.filter(pl.col("pid") > 0), unknown)
    sums.busy = _sum(sums.busy, by_slice(some, scope.slices, "node"))
    sums.busy_cpu.update(busy_ns(chunk.spans, scope.tasks))
    _change_nodes(sums, mine)
    sums.ran.update(chunk.spans["pid"].drop_nulls().unique())
    newest = mine.drop_nulls("comm").sort("start_ns")  # the spans are in the order of CPUs
    named = newest.group_by("pid").agg(pl.col("comm").last())
    sums.names.update(named.iter_rows())


def _change_nodes(sums: RunSums, ran: pl.DataFrame) -> None:
    """Count how often tasks ran on another node than before; note their last nodes.

    `ran` are the spans of tasks of interest in the newest chunk. A new task has no node before.
    """
    rows = pl.concat(
        [
            sums.last_node.select("pid", "node", start_ns=pl.lit(-1, pl.Int64)),
            sums.born[-1].select("pid", node=pl.lit(None, pl.Int16), start_ns="time_ns"),
            ran.select("pid", "node", "start_ns"),
        ]
    ).sort("pid", "start_ns", maintain_order=True)
    node, before = rows["node"], rows["node"].shift(1)
    same = rows["pid"].eq(rows["pid"].shift(1)).fill_null(value=False)
    sums.changes += int((node.ne(before) & same).fill_null(value=False).sum())
    sums.reused.update(rows["pid"].filter(node.is_null() & before.is_not_null() & same))
    sums.last_node = rows.group_by("pid", maintain_order=True).agg(pl.col("node").last())


def _waiting(sums: RunSums, chunk: EventChunk, scope: Scope, unknown: Spans) -> None:
    lengths = queue_lengths(chunk.stays, chunk.window, list(scope.allowed))
    cut = violations(
        lengths, chunk.stays, chunk.spans, chunk.lost, masks=scope.masks, offline=scope.offline
    )
    sums.idle_ns += total(covered(cut))
    open_violations = sums.longest.filter(pl.col("end_ns") == chunk.window.start_ns)
    kept = longest(cut, lengths, chunk.stays, MAX_LISTED, masks=scope.masks, window=chunk.window)
    met = cut.filter(pl.col("start_ns") == chunk.window.start_ns)["cpu"]
    sums.violations += (
        cut.height - open_violations.filter(pl.col("cpu").is_in(met.to_list())).height
    )
    sums.longest = _longest(joined(pl.concat([sums.longest, kept])), chunk.window.end_ns)
    node = node_of_cpu("cpu", scope.node_of)
    waiting = lengths.filter(pl.col("runnable") > 0).with_columns(node=node)
    per_slice = by_slice(rows_without(waiting, unknown), scope.slices, "node", weight="runnable")
    sums.queued = _sum(sums.queued, per_slice)
    last = chunk.stays.group_by("pid").agg(pl.col("comm", "cpu").last())
    sums.final = pl.concat([last, sums.final.join(last, on="pid", how="anti")])


def _longest(violations: pl.DataFrame, border_ns: int) -> pl.DataFrame:
    """Keep the longest, and all that the next chunk may go on with."""
    ordered = violations.sort(pl.col("start_ns") - pl.col("end_ns"), "start_ns", "cpu")
    open_ended = ordered.slice(MAX_LISTED).filter(pl.col("end_ns") == border_ns)
    return pl.concat([ordered.head(MAX_LISTED), open_ended])


def _sum(sums: pl.DataFrame, more: pl.DataFrame) -> pl.DataFrame:
    keys = [name for name in sums.columns if name != "ns"]
    same = [pl.col(name).cast(kind) for name, kind in sums.schema.items()]
    both = pl.concat([sums, more.select(same)])
    return both.group_by(keys).agg(pl.col("ns").sum())


def busy_ns(spans: pl.DataFrame, tasks: Collection[str]) -> dict[int, int]:
    """Return for each CPU the nanoseconds in which a task of interest ran on it."""
    length = pl.col("end_ns") - pl.col("start_ns")
    return dict(spans.filter(of_interest(tasks)).group_by("cpu").agg(length.sum()).iter_rows())
