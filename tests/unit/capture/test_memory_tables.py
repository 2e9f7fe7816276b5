"""What the memory model counted: read as it is, refused when it is not whole, joined to a trace."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from numalab.capture.guest_time import find_guest_time
from numalab.capture.joined_tables import join_tables
from numalab.capture.memory_tables import (
    FIXED,
    VERSION,
    MemoryTables,
    node_columns,
    parse_memory_tables,
)
from numalab.errors import HostError
from numalab.topology.load import load_topology
from numalab.topology.topology import Topology

MAGIC = 0x656C6361726F
SLICE_NS = 10_000_000
COLUMNS = len(FIXED) + 12  # ring-4


@pytest.fixture(scope="module")
def ring() -> Topology:
    return load_topology("ring-4")


def write(
    path: Path, rows: list[list[int]], columns: int, *, header: dict[int, int] | None = None
) -> Path:
    words = [MAGIC, VERSION, columns, 4, SLICE_NS, len(rows), 0, 0]
    for place, value in (header or {}).items():
        words[place] = value
    path.write_bytes(
        np.array([*words, *(word for row in rows for word in row)], dtype="<u8").tobytes()
    )
    return path


def count(slice_: int, cpu: int, task: int, since: int, *lines: int) -> list[int]:
    """A row: lines from the memories of nodes 0 to 3."""
    fixed = [slice_ * SLICE_NS, cpu, task, since, 5, 6, 7, 90_000, 1_000, sum(lines), lines[1]]
    return [*fixed, *lines, 0, 0, 0, 0, *(line // 2 for line in lines)]


def test_tables_are_read_with_their_nodes_and_links(tmp_path: Path, ring: Topology) -> None:
    counts = write(tmp_path / "c", [count(3, 5, 1 << 63, 17, 1, 2, 3, 4)], COLUMNS)
    traffic = write(tmp_path / "t", [[0, 2, 10, 500], [0, 4, 7, 0]], 4)
    tables = parse_memory_tables(counts, traffic, ring)
    (row,) = tables.counts.to_dicts()
    assert (row["slice_ns"], row["cpu"], row["node"]) == (3 * SLICE_NS, 5, 2)
    assert row["task"] == 1 << 63
    assert [row[name] for name in node_columns(4)] == [1, 2, 3, 4, 0, 0, 0, 0, 0, 1, 1, 2]
    memory, link = tables.traffic.to_dicts()
    assert (memory["from_node"], memory["to_node"], memory["lines"]) == (2, 2, 10)
    assert link["from_node"] != link["to_node"]
    assert link["line_ps"] > memory["line_ps"]


def test_a_table_that_was_not_finished_has_the_rows_that_are_there(
    tmp_path: Path, ring: Topology
) -> None:
    rows = [count(n, 0, 1, 1, 1, 0, 0, 0) for n in range(3)]
    counts = write(tmp_path / "c", rows, COLUMNS, header={5: 0})
    traffic = write(tmp_path / "t", [], 4)
    assert parse_memory_tables(counts, traffic, ring).counts.height == 3


@pytest.mark.parametrize(
    ("header", "cut", "message"),
    [
        ({}, 8, "it is cut short: 1.95652 rows of 2"),
        ({}, 8 * COLUMNS, "it is cut short: 1 rows of 2"),
        ({5: 0}, 8, "it is cut short: 1.95652 rows of whole ones"),
        ({5: 1 << 60}, 0, "it is cut short"),
        ({0: 7}, 0, "it does not begin as such a table does"),
        ({}, 10_000, "it does not begin as such a table does"),
        ({1: 1}, 0, "version 1 with 23 columns and 4 nodes, not version 4"),
        ({2: 0}, 0, "0 columns"),
        ({3: 8}, 0, "8 nodes"),
        ({4: 0}, 0, "slices of 0 ns"),
        ({4: 1 << 62}, 0, "slices of"),
    ],
)
def test_what_is_no_whole_table_is_one_clear_message(
    tmp_path: Path, ring: Topology, header: dict[int, int], cut: int, message: str
) -> None:
    rows = [count(n, 0, 1, 1, 1, 0, 0, 0) for n in range(2)]
    counts = write(tmp_path / "c", rows, COLUMNS, header=header)
    data = counts.read_bytes()
    counts.write_bytes(data[: max(0, len(data) - cut)])
    traffic = write(tmp_path / "t", [], 4)
    with pytest.raises(HostError, match=message) as raised:
        parse_memory_tables(counts, traffic, ring)
    assert str(counts) in str(raised.value)


def test_values_out_of_bounds_and_missing_files_are_refused(tmp_path: Path, ring: Topology) -> None:
    good, none = write(tmp_path / "t", [], 4), tmp_path / "none"
    for rows, message in (
        ([count(0, 8, 1, 1, 1, 0, 0, 0)], "cpu 8 is out of bounds"),
        ([count(0, 0, 1, 1 << 63, 1, 0, 0, 0)], "since_ns 9223372036854775808 is out of bounds"),
    ):
        with pytest.raises(HostError, match=message):
            parse_memory_tables(write(tmp_path / "c", rows, COLUMNS), good, ring)
    counts = write(tmp_path / "c", [], COLUMNS)
    with pytest.raises(HostError, match="server 99 is out of bounds"):
        parse_memory_tables(counts, write(tmp_path / "u", [[0, 99, 1, 1]], 4), ring)
    with pytest.raises(HostError, match="No such file"):
        parse_memory_tables(none, good, ring)
    with pytest.raises(HostError, match="slices of 5 ns, not of"):
        parse_memory_tables(counts, write(tmp_path / "u", [], 4, header={4: 5}), ring)


@pytest.fixture
def recording() -> Callable[..., tuple[pl.DataFrame, MemoryTables]]:
    """Two CPUs that change tasks at odd times; the model sees each change 900 ns later, on a clock
    that began `offset` earlier and runs faster by `drift`."""

    def make(offset: int, drift: float) -> tuple[pl.DataFrame, MemoryTables]:
        chance = np.random.default_rng(7)
        events, rows = [], []
        for cpu in range(2):
            times = np.cumsum(chance.integers(30_000, 9_000_000, 400)) + 1_000_000_000
            pids = [10 + int(p) for p in chance.integers(0, 5, len(times))]
            for place, (time, pid) in enumerate(zip(times.tolist(), pids, strict=True)):
                before = pids[place - 1] if place else 99
                events.append(
                    {"time_ns": time, "cpu": cpu, "event": "sched_switch", "prev_pid": before,
                     "prev_comm": f"t{before}", "next_pid": pid, "next_comm": f"t{pid}"}
                )  # fmt: skip
                virtual = round(time * (1 + drift)) + offset + 900
                slice_ns = virtual // SLICE_NS * SLICE_NS
                rows.append((slice_ns, cpu, 0xFF00 + pid, virtual))
        table = pl.DataFrame(
            {name: [row[place] for row in rows] for place, name in enumerate(FIXED[:4])}
        )
        traffic = pl.DataFrame({"slice_ns": [offset + 10**9], "lines": [1]})
        return pl.DataFrame(events).sort("time_ns"), MemoryTables(table, traffic, SLICE_NS)

    return make


@pytest.mark.parametrize(
    ("offset", "drift"), [(0, 0.0), (1_234_567_890, 0.0), (350_000_049, 2e-5), (-70_000, -5e-5)]
)
def test_counts_get_the_trace_s_clock_and_the_names_of_their_tasks(
    recording: Callable[..., tuple[pl.DataFrame, MemoryTables]], offset: int, drift: float
) -> None:
    events, tables = recording(offset, drift)
    joined = join_tables(tables, events)
    for row in joined.counts.iter_rows(named=True):
        assert row["pid"] == row["task"] - 0xFF00
        assert row["comm"] == f"t{row['pid']}"
        expected = (row["slice_ns"] - offset) / (1 + drift)
        assert abs(row["start_ns"] - expected) < 10_000
        assert abs(row["end_ns"] - row["start_ns"] - SLICE_NS) < 1_000
    assert abs(joined.traffic["start_ns"].item() - 10**9 / (1 + drift)) < 10_000


def test_a_task_that_executes_another_program_has_its_name_from_then_on(
    recording: Callable[..., tuple[pl.DataFrame, MemoryTables]],
) -> None:
    """The model sees one long stretch, since the switches within it are short: the trace has the
    name of its end where the task leaves the CPU."""
    events, tables = recording(0, 0.0)
    last = int(events["time_ns"][-1])
    switches = [
        (last + 20_000_000, "t10", 10, "numactl", 50),
        (last + 33_000_000, "numactl", 50, "ksoftirqd", 20),
        (last + 33_030_000, "ksoftirqd", 20, "numactl", 50),
        (last + 80_000_000, "fill", 50, "swapper/0", 0),
        (last + 95_000_000, "swapper/0", 0, "t10", 10),
    ]
    names = ("time_ns", "prev_comm", "prev_pid", "next_comm", "next_pid")
    more = pl.DataFrame(switches, schema=names, orient="row").with_columns(
        cpu=pl.lit(0, pl.Int64), event=pl.lit("sched_switch")
    )
    since = last + 20_000_900
    first = since // SLICE_NS * SLICE_NS
    rows = pl.DataFrame(
        {"slice_ns": [first + n * SLICE_NS for n in range(7)], "cpu": 0, "task": 0xFF32,
         "since_ns": since}
    ).cast(tables.counts.schema)  # fmt: skip
    counts = join_tables(
        MemoryTables(pl.concat([tables.counts, rows]), tables.traffic, SLICE_NS),
        pl.concat([events, more.select(events.columns)]),
    ).counts.filter(pl.col("task") == 0xFF32)
    named = counts.select("end_ns", "pid", "comm").rows()
    assert [pid for _, pid, _ in named] == [50] * 7
    left = last + 33_000_000
    assert [name for end, _, name in named] == [
        "numactl" if end <= left else "fill" for end, _, _ in named
    ]
    assert {name for _, _, name in named} == {"numactl", "fill"}


def test_a_task_that_ran_before_the_recording_is_known_by_its_later_rows(
    recording: Callable[..., tuple[pl.DataFrame, MemoryTables]],
) -> None:
    events, tables = recording(500_000_000, 0.0)
    late = events.filter(pl.col("time_ns") > 1_300_000_000)
    joined = join_tables(tables, late)
    assert joined.counts.filter(pl.col("pid") != pl.col("task") - 0xFF00).is_empty()
    assert joined.counts["pid"].null_count() == 0


def test_tables_of_another_recording_are_joined_to_no_time(
    recording: Callable[..., tuple[pl.DataFrame, MemoryTables]],
) -> None:
    events, tables = recording(0, 0.0)
    chance = np.random.default_rng(11)
    other = events.with_columns(time_ns=pl.Series(np.sort(chance.integers(10**9, 3 * 10**9, 800))))
    joined = join_tables(tables, other)
    assert joined.counts["start_ns"].null_count() == joined.counts.height
    assert joined.counts["pid"].null_count() == joined.counts.height
    without = join_tables(tables, events.select("time_ns", "cpu", "event"))
    assert without.traffic["start_ns"].null_count() == 1
    assert joined.reason.startswith("no difference between the two clocks fits")
    assert without.reason.startswith("it saw only 0 task switches")


def test_the_clocks_of_a_short_recording_run_alike() -> None:
    times = 2_000_000_000 + np.sort(np.random.default_rng(3).integers(0, 150_000_000, 20))
    late = np.random.default_rng(4).integers(1_000, 8_000, 20)
    clock = find_guest_time({0: times + 174_000_000 + late}, {0: times})
    assert not isinstance(clock, str)
    assert np.abs(clock.of_trace(times) - times - 174_000_000 - late).max() < 20_000
    assert abs(clock.rate - 1) <= 40e-6


@pytest.mark.parametrize("late_ns", [1_000, 4_000, 8_000, 12_000])
def test_in_a_short_recording_a_thread_that_runs_shortly_is_not_taken_for_the_idle_task(
    late_ns: int,
) -> None:
    """It runs 14 us at a time; the model sees each change of tasks equally late."""
    came = 2_000_000_000 + np.sort(np.random.default_rng(5).integers(0, 150_000_000, 40))
    times = np.sort(np.concatenate([came, came + 14_000]))
    pids = np.tile([7, 0], len(came))
    events = pl.DataFrame(
        {"time_ns": times, "cpu": 0, "event": "sched_switch", "prev_pid": pids[::-1],
         "prev_comm": "t", "next_pid": pids, "next_comm": "t"}
    )  # fmt: skip
    since = times + 174_000_000 + late_ns
    counts = pl.DataFrame(
        {"slice_ns": since // SLICE_NS * SLICE_NS, "cpu": 0, "task": 0xFF00 + pids,
         "since_ns": since}
    )  # fmt: skip
    traffic = pl.DataFrame({"slice_ns": [2_000_000_000], "lines": [1]})
    joined = join_tables(MemoryTables(counts, traffic, SLICE_NS), events)
    assert joined.counts["pid"].to_list() == pids.tolist()
