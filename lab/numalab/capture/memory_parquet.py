"""Keeps what the memory model counted beside a run's decoded events, as Parquet."""

import polars as pl

from numalab.capture.guest_time import JoinedTables, join_tables
from numalab.capture.memory_tables import MAX_BYTES, parse_memory_tables
from numalab.files import replacing, utf8_path
from numalab.parquet import read_parquet
from numalab.run_dir import RunDir
from numalab.topology.topology import Topology


def keep_memory_tables(
    directory: RunDir, topology: Topology, events: pl.DataFrame
) -> tuple[str, ...]:
    """Join the model's tables to the decoded events and write them; the model's own files go.

    Returns what a reader should know of them. Raises HostError for damaged ones.
    """
    tables = parse_memory_tables(directory.memory_counts, directory.memory_traffic, topology)
    joined = join_tables(tables, events)
    for table, path in (
        (joined.counts, directory.memory_counts_table),
        (joined.traffic, directory.memory_traffic_table),
    ):
        with replacing(path) as new:
            table.write_parquet(utf8_path(new), compression="zstd")
    for path in (directory.memory_counts, directory.memory_traffic):
        path.unlink()
    notes = []
    if tables.counts.height and joined.counts["start_ns"].null_count():
        notes.append(
            "the memory model's counts could not be joined to the trace: too few of its task "
            "switches are in the recording (sched_switch)"
        )
    if tables.left_out:
        notes.append(f"the memory model's tables had no room for {tables.left_out} rows")
    return tuple(notes)


def read_memory_tables(directory: RunDir) -> JoinedTables | None:
    """Read what `keep_memory_tables` wrote; None of a run in another mode."""
    if not directory.memory_counts_table.exists():
        return None
    return JoinedTables(
        read_parquet(directory.memory_counts_table, MAX_BYTES),
        read_parquet(directory.memory_traffic_table, MAX_BYTES),
    )
