"""Joins the memory model's tables to the trace, task by task, by the guest's time."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from numalab.capture.guest_time import NEAR_NS, GuestTime, Times, find_guest_time
from numalab.capture.memory_places import PlacesTable, parse_places
from numalab.capture.memory_tables import MAX_BYTES, MemoryTables, parse_memory_tables
from numalab.files import replacing, utf8_path
from numalab.parquet import read_parquet
from numalab.run_dir import RunDir
from numalab.topology.topology import Topology


@dataclass(frozen=True)
class _Switches:
    """The switches of one CPU in the trace: time and next task."""

    time_ns: Times
    pid: Times


@dataclass(frozen=True)
class JoinedTables:
    """The tables on the trace's clock: `start_ns` and `end_ns` of each slice, null where the clocks
    could not be joined, and `reason` says why. `counts` has `pid` and `comm` of each task, null
    where it is not known. `places` (`PlacesTable`; None: not counted) has `time_ns` of `since_ns`,
    and `pid`."""

    counts: pl.DataFrame
    traffic: pl.DataFrame
    places: pl.DataFrame | None = None
    reason: str = ""


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
    if isinstance(clock, str):
        never = dict.fromkeys(("start_ns", "end_ns"), pl.lit(None, pl.Int64))
        nobody = {"pid": pl.lit(None, pl.Int32), "comm": pl.lit(None, pl.String)}
        counts = tables.counts.with_columns(**never, **nobody)
        return JoinedTables(counts, tables.traffic.with_columns(**never), reason=clock)
    counts, traffic = (
        _timed(table, clock, tables.length_ns) for table in (tables.counts, tables.traffic)
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


def _since(counts: pl.DataFrame) -> dict[int, Times]:
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


def _timed(table: pl.DataFrame, clock: GuestTime, length_ns: int) -> pl.DataFrame:
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
    if tables.counts.height and joined.reason:
        notes.append(f"the memory model could not be joined to the recording: {joined.reason}")
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
