"""What the pieces of a recording add up to; `run.py` makes measures and findings of it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import polars as pl

from lab.analysis.balance import VIOLATION, joined, longest, violations
from lab.analysis.decisions import SCHEMA as DECISIONS
from lab.analysis.decisions import numa_decisions
from lab.analysis.findings import MAX_LISTED
from lab.analysis.moves import SCHEMA as MOVES
from lab.analysis.moves import migrations
from lab.analysis.pieces import Piece
from lab.analysis.placement import busy_ns, idle_while_overloaded, node_changes, of_interest
from lab.analysis.runqueue import queue_lengths
from lab.analysis.slices import Slices, by_slice

_TIME = {"pid": pl.Int32, "node": pl.Int16, "slice": pl.Int64, "ns": pl.Int64}
_NODE = {"node": pl.Int16, "slice": pl.Int64, "ns": pl.Int64}
_LAST = {"pid": pl.Int32, "node": pl.Int16}
_FINAL = {"pid": pl.Int32, "comm": pl.String, "cpu": pl.Int16}
_CUT = {name: VIOLATION[name] for name in ("cpu", "start_ns", "end_ns")}


@dataclass(frozen=True)
class Wanted:
    """What is added up: the names of the tasks of interest, the CPUs that they were allowed on, the
    node of every CPU, and the slices of the window."""

    tasks: tuple[str, ...]
    allowed: tuple[int, ...]
    node_of: Mapping[int, int]
    slices: Slices


@dataclass
class Totals:
    """Sums over the pieces so far.

    `time` is CPU time of the tasks of interest (pid, node, slice, ns), `busy` that of any task by
    node and slice, `queued` the time that runnable tasks were on a node. `final` says on which CPU
    every task was last. `names` are the last ones known.
    """

    time: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_TIME))
    busy: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_NODE))
    queued: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_NODE))
    busy_cpu: Counter[int] = field(default_factory=Counter)
    idle_ns: int = 0
    lost_ns: int = 0
    changes: int = 0
    last_node: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_LAST))
    final: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_FINAL))
    moved: list[pl.DataFrame] = field(default_factory=lambda: [pl.DataFrame(schema=MOVES)])
    decided: list[pl.DataFrame] = field(default_factory=lambda: [pl.DataFrame(schema=DECISIONS)])
    violations: int = 0
    longest: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=VIOLATION))
    names: dict[int, str] = field(default_factory=dict)


def add_up(pieces: Iterable[Piece], wanted: Wanted) -> Totals:
    """Add up all pieces."""
    totals = Totals()
    for piece in pieces:
        _running(totals, piece, wanted)
        _waiting(totals, piece, wanted)
        inside = pl.col("time_ns").is_between(piece.window.start_ns, piece.window.end_ns)
        moved = migrations(piece.events.filter(inside), piece.stays, wanted.node_of)
        totals.moved.append(moved)
        totals.decided.append(numa_decisions(piece.events, piece.window, wanted.node_of))
    return totals


def _running(totals: Totals, piece: Piece, wanted: Wanted) -> None:
    mine = piece.spans.filter(of_interest(wanted.tasks) & pl.col("pid").is_not_null())
    totals.time = _sum(totals.time, by_slice(mine, wanted.slices, "pid", "node"))
    some = piece.spans.filter(pl.col("pid") > 0)
    totals.busy = _sum(totals.busy, by_slice(some, wanted.slices, "node"))
    totals.busy_cpu.update(busy_ns(piece.spans, wanted.tasks))
    changes, totals.last_node = node_changes(mine, totals.last_node)
    totals.changes += changes
    named = mine.group_by("pid").agg(pl.col("comm").drop_nulls().last())
    totals.names.update((pid, comm) for pid, comm in named.iter_rows() if comm is not None)


def _waiting(totals: Totals, piece: Piece, wanted: Wanted) -> None:
    lengths = queue_lengths(piece.stays, piece.window, list(wanted.allowed))
    idle, lost = idle_while_overloaded(lengths, piece.lost, piece.window, wanted.allowed)
    totals.idle_ns += idle
    totals.lost_ns += lost
    cut = violations(lengths, piece.lost)
    known = totals.longest.filter(pl.col("end_ns") == piece.window.start_ns)
    kept = longest(cut, lengths, piece.stays, MAX_LISTED, piece.window)
    met = cut.filter(pl.col("start_ns") == piece.window.start_ns)["cpu"]
    totals.violations += cut.height - known.filter(pl.col("cpu").is_in(met.to_list())).height
    totals.longest = _longest(joined(pl.concat([totals.longest, kept])), piece.window.end_ns)
    node = (
        pl.col("cpu")
        .cast(pl.Int32)
        .replace_strict(dict(wanted.node_of) or {-1: -1}, default=None, return_dtype=pl.Int16)
    )
    waiting = lengths.filter(pl.col("runnable") > 0).with_columns(node=node)
    per_slice = by_slice(waiting, wanted.slices, "node", weight="runnable")
    totals.queued = _sum(totals.queued, per_slice)
    last = piece.stays.group_by("pid").agg(pl.col("comm", "cpu").last())
    totals.final = pl.concat([last, totals.final.join(last, on="pid", how="anti")])


def _longest(found: pl.DataFrame, border_ns: int) -> pl.DataFrame:
    """Keep the longest, and all that the next piece may go on with."""
    ordered = found.sort(pl.col("start_ns") - pl.col("end_ns"), "start_ns", "cpu")
    open_ended = ordered.slice(MAX_LISTED).filter(pl.col("end_ns") == border_ns)
    return pl.concat([ordered.head(MAX_LISTED), open_ended])


def _sum(known: pl.DataFrame, more: pl.DataFrame) -> pl.DataFrame:
    keys = [name for name in known.columns if name != "ns"]
    same = [pl.col(name).cast(kind) for name, kind in known.schema.items()]
    both = pl.concat([known, more.select(same)])
    return both.group_by(keys).agg(pl.col("ns").sum())
