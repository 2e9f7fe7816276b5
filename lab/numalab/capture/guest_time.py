"""Joins the memory model's tables to the trace, task by task, by the guest's time.

The model's time is QEMU's virtual time, which begins with the machine; the trace's clock begins
with the kernel, and runs by how fast the kernel found its TSC to be. Both have the moments at which
CPUs changed tasks: the model by the instruction that loads the next task's stack pointer, the trace
by `sched_switch`, a microsecond or so before. The line through these pairs turns one into the
other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from numalab.capture.memory_places import PlacesTable, parse_places
from numalab.capture.memory_tables import MAX_BYTES, MemoryTables, parse_memory_tables
from numalab.files import replacing, utf8_path
from numalab.parquet import read_parquet
from numalab.run_dir import RunDir
from numalab.topology.topology import Topology

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_PAIRS = 2_000_000  # differences that the first guess looks at
_PPM = 1e-6
_MOST_DRIFT_PPM = 200  # a kernel that measures its TSC by the PIT is off by fewer
# Rounds that each look closer: by steps of the rate, bins of the difference, and how many bins in a
# row one peak may fill.
_ROUNDS = ((20, 100_000, 2), (2, 10_000, 2))
_BENDS_NS = 200_000  # 50 ppm, as the first of two measurements of the TSC may be off, in 4 s
_BEND_BINS = (5_000, 4)
_MOST_BENDS, _FEWEST_IN_BEND, _LONG_NS = 64, 48, 5e8
NEAR_NS = 25_000  # a switch and what the trace says of it: tracing lies between them
_FEWEST = 8
_SHARE = 0.5  # of the model's switches within the recording that must have their pair


@dataclass(frozen=True)
class GuestTime:
    """Virtual time is `trace_ns * rate + offset_ns` and a correction. `bends` are trace times and
    their corrections: a kernel measures its TSC again a few seconds after boot.
    """

    rate: float
    offset_ns: float
    bends: tuple[tuple[float, float], ...] = ((0.0, 0.0),)

    def of_trace(self, trace_ns: _Ints) -> _Ints:
        """Convert times of the trace to virtual times."""
        more = np.interp(trace_ns, *self._bends())
        virtual: _Ints = np.rint(trace_ns * self.rate + self.offset_ns + more).astype(np.int64)
        return virtual

    def _bends(self) -> tuple[list[float], list[float]]:
        return [time for time, _ in self.bends], [more for _, more in self.bends]

    def of_model(self, virtual_ns: _Ints) -> _Ints:
        """Convert virtual times to times of the trace."""
        about = (virtual_ns - self.offset_ns) / self.rate
        more = np.interp(about, *self._bends())
        traced: _Ints = np.rint(about - more).astype(np.int64)
        return traced


@dataclass(frozen=True)
class _Switches:
    """The switches of one CPU in the trace: time and next task."""

    time_ns: _Ints
    pid: _Ints


@dataclass(frozen=True)
class JoinedTables:
    """The tables on the trace's clock: `start_ns` and `end_ns` of each slice, null where the clocks
    could not be joined. `counts` has `pid` and `comm` of each task, null where it is not known.
    `places` (`PlacesTable`; None: not counted) has `time_ns` of `since_ns`, and `pid`."""

    counts: pl.DataFrame
    traffic: pl.DataFrame
    places: pl.DataFrame | None = None


def join_tables(
    tables: MemoryTables, events: pl.DataFrame, places: PlacesTable | None = None
) -> JoinedTables:
    """Add times of the trace's clock, pids and names to the model's tables.

    `events` has at least time_ns, cpu and event, and of sched_switch prev_pid, prev_comm, next_pid
    and next_comm.
    """
    traced = _switches(events)
    since = _since(tables.counts)
    clock = find_guest_time(since, {cpu: table.time_ns for cpu, table in traced.items()})
    counts, traffic = (
        _timed(table, clock, tables.length_ns) for table in (tables.counts, tables.traffic)
    )
    if clock is None:
        return JoinedTables(
            counts.with_columns(pid=pl.lit(None, pl.Int32), comm=pl.lit(None, pl.String)), traffic
        )
    named = _with_names(_with_tasks(counts, traced, clock), events)
    placed = None if places is None else _placed(places.rows, named, clock)
    return JoinedTables(named, traffic, placed)


def _placed(rows: pl.DataFrame, counts: pl.DataFrame, clock: GuestTime) -> pl.DataFrame:
    """Add the trace's time of each row, and the pid of its task: the most frequent one between two
    moments, else of the whole run."""
    moments = rows.select("since_ns").unique().sort("since_ns").with_columns(moment="since_ns")
    named_rows = counts.filter(pl.col("pid").is_not_null()).select(
        "task", "pid", since_ns="slice_ns"
    )
    at_moment = named_rows.sort("since_ns").join_asof(moments, on="since_ns")
    pids = _most(at_moment, "task", "moment").rename({"moment": "since_ns"})
    usual = _most(named_rows, "task").rename({"pid": "usual_pid"})
    times = clock.of_model(rows["since_ns"].to_numpy())
    return (
        rows.with_columns(time_ns=pl.Series(times, dtype=pl.Int64))
        .join(pids, on=["task", "since_ns"], how="left", maintain_order="left")
        .join(usual, on="task", how="left", maintain_order="left")
        .with_columns(pid=pl.coalesce("pid", "usual_pid"))
        .drop("usual_pid")
    )


def _most(table: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Return the most frequent pid for each key."""
    counted = table.group_by(*keys, "pid").agg(pl.len()).sort("len", "pid")
    return counted.group_by(keys, maintain_order=True).agg(pl.col("pid").last())


def find_guest_time(since: dict[int, _Ints], traced: dict[int, _Ints]) -> GuestTime | None:
    """Find the line from one clock to the other; None if less than half of the model's switches
    during the recording have a switch in the trace.

    `since` and `traced` are the times of each CPU's switches, ascending. Of all lines through a
    pair of switches, the one with most pairs on it is fitted to these (Hough 1962).
    """
    cpus = [cpu for cpu in since if len(traced.get(cpu, ()))]
    if sum(len(since[cpu]) for cpu in cpus) < _FEWEST:
        return None
    x, y = _candidates(since, traced, cpus)
    rate, offset, reach = 0.0, 0.0, _MOST_DRIFT_PPM  # of y - x over x
    for step, width, bins in _ROUNDS:
        rates = [rate + ppm * _PPM for ppm in range(-reach, reach + 1, step)]
        rate, offset = _peak(x, y - x, rates, width, bins)
        reach, near = step, np.abs(y - x - rate * x - offset) <= 2 * width
        x, y = x[near], y[near]
    clock = _fitted(x, y, GuestTime(1.0 + rate, offset))
    clock = _bent(*_candidates(since, traced, cpus), clock)
    # A task without counts is in no row of the model: not every switch of the trace has its pair.
    first = min(int(traced[cpu][0]) for cpu in cpus)
    last = max(int(traced[cpu][-1]) for cpu in cpus)
    begin, end = clock.of_trace(np.array([first, last]))
    inside = {cpu: since[cpu][(since[cpu] > begin) & (since[cpu] < end)] for cpu in cpus}
    met = sum(_met(inside[cpu], traced[cpu], clock) for cpu in cpus)
    switches = sum(map(len, inside.values()))
    return clock if switches >= _FEWEST and met >= _SHARE * switches else None


def _candidates(
    since: dict[int, _Ints], traced: dict[int, _Ints], cpus: list[int]
) -> tuple[_Floats, _Floats]:
    """Return pairs of switches of one CPU, the trace's and the model's time: all pairs, or a
    sample of them."""
    xs, ys = [], []
    for cpu in cpus:
        times = traced[cpu]
        room = max(1, _PAIRS // len(cpus) // len(times))
        some = since[cpu][:: max(1, -(-len(since[cpu]) // room))]
        xs.append(np.tile(times, len(some)))
        ys.append(np.repeat(some, len(times)))
    return np.concatenate(xs).astype(np.float64), np.concatenate(ys).astype(np.float64)


def _peak(
    x: _Floats, late: _Floats, rates: Sequence[float], width: int, bins: int
) -> tuple[float, float]:
    """Return the rate and offset of the line with most pairs, within `bins` bins of `width` ns.

    In a short recording many rates have as many: the clocks then run alike, as far as one can tell.
    """
    best = (-1, 0.0, 0.0, 0.0)
    for rate in rates:
        places, counts = np.unique(np.floor((late - rate * x) / width), return_counts=True)
        in_row = counts.copy()
        for further in range(1, bins):
            follows = np.searchsorted(places, places + further)
            nearest = np.minimum(follows, len(places) - 1)
            in_row += np.where(places[nearest] == places + further, counts[nearest], 0)
        most = int(np.argmax(in_row))
        offset = float((places[most] + bins / 2) * width)
        best = max(best, (int(in_row[most]), -abs(rate), rate, offset))
    return best[2], best[3]


def _met(since: _Ints, traced: _Ints, clock: GuestTime) -> int:
    """Count the model's switches that have a switch of the trace near."""
    times = clock.of_trace(traced)
    first, end = (np.searchsorted(times, since + side) for side in (-NEAR_NS, NEAR_NS))
    return int((first < end).sum())


def _fitted(x: _Floats, y: _Floats, clock: GuestTime) -> GuestTime:
    """Fit a line by least squares to the pairs near a clock, if they span enough time."""
    late = y - x * clock.rate - clock.offset_ns
    near = np.abs(late) <= NEAR_NS
    x, late = x[near], late[near]
    if len(x) < _FEWEST or np.ptp(x) < _LONG_NS:
        return clock
    middle = float(x.mean())
    slope, rest = (float(term) for term in np.polyfit(x - middle, late, 1))
    return GuestTime(clock.rate + slope, clock.offset_ns + rest - slope * middle)


def _bent(x: _Floats, y: _Floats, clock: GuestTime) -> GuestTime:
    """Bend a line to most pairs in each part of the time; a part is half a second or longer."""
    late = y - x * clock.rate - clock.offset_ns
    near = np.abs(late) <= _BENDS_NS
    x, late = x[near], late[near]
    parts = min(_MOST_BENDS, len(x) // _FEWEST_IN_BEND, int(np.ptp(x) / _LONG_NS)) if len(x) else 0
    if parts < 2:
        return clock
    ends = np.linspace(x.min(), x.max(), parts + 1)
    bends = []
    for begin, end in pairwise(ends.tolist()):
        here = (x >= begin) & (x <= end)
        if here.sum() >= _FEWEST_IN_BEND:
            _, middle = _peak(x[here], late[here], [0.0], *_BEND_BINS)
            close = np.abs(late[here] - middle) <= NEAR_NS
            bends.append((float(np.median(x[here])), float(np.median(late[here][close]))))
    return GuestTime(clock.rate, clock.offset_ns, tuple(bends)) if bends else clock


def _since(counts: pl.DataFrame) -> dict[int, _Ints]:
    switches = counts.filter(pl.col("since_ns") > 0).select("cpu", "since_ns").unique()
    return {
        int(cpu): np.sort(rows["since_ns"].to_numpy())
        for (cpu,), rows in switches.group_by("cpu")
        if isinstance(cpu, int)
    }


def _switches(events: pl.DataFrame) -> dict[int, _Switches]:
    if not {"prev_pid", "prev_comm", "next_pid", "next_comm"} <= set(events.columns):
        return {}
    rows = events.filter(pl.col("event") == "sched_switch").sort(
        "cpu", "time_ns", maintain_order=True
    )
    return {
        int(cpu): _Switches(part["time_ns"].to_numpy(), part["next_pid"].cast(pl.Int64).to_numpy())
        for (cpu,), part in rows.group_by("cpu", maintain_order=True)
        if isinstance(cpu, int)
    }


def _timed(table: pl.DataFrame, clock: GuestTime | None, length_ns: int) -> pl.DataFrame:
    if clock is None:
        never = pl.lit(None, pl.Int64)
        return table.with_columns(start_ns=never, end_ns=never)
    begin = table["slice_ns"].to_numpy()
    # A mark ends a slice early.
    starts = np.append(np.unique(begin), np.iinfo(np.int64).max)
    end = np.minimum(begin + length_ns, starts[np.searchsorted(starts, begin, side="right")])
    return table.with_columns(
        start_ns=pl.Series(clock.of_model(begin), dtype=pl.Int64),
        end_ns=pl.Series(clock.of_model(end), dtype=pl.Int64),
    )


def _with_tasks(
    counts: pl.DataFrame, traced: dict[int, _Switches], clock: GuestTime
) -> pl.DataFrame:
    """Add the `pid` of each row by the switch to its task.

    Of several switches nearby, or without one, the usual task of the row's task_struct counts.
    """
    rows = counts.select("cpu", "task", "since_ns").unique().sort("cpu", "since_ns", "task")
    usual = _most(_by_switch(rows, traced, clock, {}).drop_nulls("pid"), "task")
    tasks = _by_switch(rows, traced, clock, dict(usual.iter_rows()))
    joined = counts.join(tasks, on=["cpu", "task", "since_ns"], how="left", maintain_order="left")
    return (
        joined.join(
            usual.rename({"pid": "usual_pid"}), on="task", how="left", maintain_order="left"
        )
        .with_columns(pid=pl.coalesce("pid", "usual_pid"))
        .drop("usual_pid")
    )


def _by_switch(
    rows: pl.DataFrame, traced: dict[int, _Switches], clock: GuestTime, mostly: dict[int, int]
) -> pl.DataFrame:
    """Add the `pid` of the switch of each row: of those near, one to its task_struct's usual task,
    else the nearest; null for none."""
    pids: list[int | None] = []
    for (cpu,), part in rows.group_by("cpu", maintain_order=True):
        switches = traced.get(cpu) if isinstance(cpu, int) else None
        times = None if switches is None else clock.of_trace(switches.time_ns)
        for task, since in part.select("task", "since_ns").iter_rows():
            place = None
            if switches is not None and times is not None:
                first, end = np.searchsorted(times, [since - NEAR_NS, since + NEAR_NS])
                near = sorted(range(first, end), key=lambda at: abs(int(times[at]) - since))
                same = [at for at in near if int(switches.pid[at]) == mostly.get(task)]
                place = next(iter(same or near), None)
            pids.append(None if switches is None or place is None else int(switches.pid[place]))
    return rows.with_columns(pid=pl.Series(pids, dtype=pl.Int32))


def _with_names(counts: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Add the name `comm` that the task of each row had at the end of its slice.

    A task that executes another program has another name from then on. The trace says it where the
    task next leaves or gets a CPU, or for its last slice, where it last did.
    """
    switched = events.filter(pl.col("event") == "sched_switch")
    names = pl.concat(
        switched.select(
            pl.col("time_ns").cast(pl.Int64), pid=pl.col(f"{side}_pid").cast(pl.Int32),
            comm=pl.col(f"{side}_comm").cast(pl.String),
        )
        for side in ("prev", "next")
    ).sort("time_ns")  # fmt: skip
    rows = counts.with_row_index("_row").sort("end_ns")
    later, earlier = (
        rows.join_asof(
            names, left_on="end_ns", right_on="time_ns", by="pid", strategy=strategy,
            check_sortedness=False,
        )["comm"]
        for strategy in ("forward", "backward")
    )  # fmt: skip
    idle = pl.format("swapper/{}", "cpu")  # process 0 on every CPU
    return (
        rows.with_columns(comm=later.fill_null(earlier))
        .with_columns(comm=pl.when(pl.col("pid") == 0).then(idle).otherwise("comm"))
        .sort("_row")
        .drop("_row")
    )


def keep_memory_tables(
    directory: RunDir, topology: Topology, events: pl.DataFrame
) -> tuple[str, ...]:
    """Join the model's tables to the decoded events, write them, and remove the model's files.

    Returns notes for the reader. Raises HostError for damaged tables.
    """
    tables = parse_memory_tables(directory.memory_counts, directory.memory_traffic, topology)
    places = None
    if directory.memory_places.exists():
        places = parse_places(directory.memory_places, len(topology.nodes))
    joined = join_tables(tables, events, places)
    for table, path in (
        (joined.counts, directory.memory_counts_table),
        (joined.traffic, directory.memory_traffic_table),
        (joined.places, directory.memory_places_table),
    ):
        if table is not None:
            with replacing(path) as new:
                table.write_parquet(utf8_path(new), compression="zstd")
    for path in (directory.memory_counts, directory.memory_traffic, directory.memory_places):
        path.unlink(missing_ok=True)
    notes = []
    if places is not None and places.left_out:
        notes.append(f"the table of pages had no room for {places.left_out} rows")
    if tables.counts.height and joined.counts["start_ns"].null_count():
        notes.append(
            "the memory model's counts could not be joined to the trace: too few of its task "
            "switches are in the recording (sched_switch)"
        )
    if tables.left_out:
        notes.append(f"the memory model's tables had no room for {tables.left_out} rows")
    return tuple(notes)


def read_memory_tables(directory: RunDir) -> JoinedTables | None:
    """Read the tables of `keep_memory_tables`; None for a run in another mode."""
    if not directory.memory_counts_table.exists():
        return None
    places = directory.memory_places_table
    return JoinedTables(
        read_parquet(directory.memory_counts_table, MAX_BYTES),
        read_parquet(directory.memory_traffic_table, MAX_BYTES),
        read_parquet(places, MAX_BYTES) if places.exists() else None,
    )
