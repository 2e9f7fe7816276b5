"""A recording taken in pieces gives what it gives as a whole."""

import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

from numalab.analysis.analyse import Analysis, analyse
from numalab.capture.decode import decode_trace
from numalab.recording.recording import Recording
from numalab.recording.window import Window, clip
from numalab.topology.load import load_topology

DATA = Path(__file__).parents[2] / "data" / "capture" / "ring-4-numa.dat.xz"


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "trace.dat").write_bytes(lzma.decompress(DATA.read_bytes()))
    decode_trace(folder / "trace.dat", load_topology("ring-4"), folder / "events.parquet")
    return folder / "events.parquet"


def analysed(events: pl.DataFrame | pl.LazyFrame, rows: int) -> Analysis:
    ring = load_topology("ring-4")
    return analyse(Recording(events, ring, tasks=["thread *"], rows=rows))


def values(analysis: Analysis) -> dict[str, Any]:
    return {measure.name: measure.value for measure in analysis.measures}


@pytest.mark.parametrize("rows", [97, 500, 2000])
def test_pieces_of_any_size_give_the_same(parquet: Path, rows: int) -> None:
    whole = analysed(pl.read_parquet(parquet), 1_000_000)
    cut = analysed(pl.scan_parquet(parquet), rows)
    assert values(cut) == pytest.approx(values(whole), nan_ok=True)
    assert cut.findings.residence == whole.findings.residence
    assert cut.findings.decisions == whole.findings.decisions
    assert cut.findings.moves == whole.findings.moves
    assert cut.findings.series == whole.findings.series
    longest = [
        (measure.cpu, measure.at_ms, measure.length_ms) for measure in whole.findings.violations
    ]
    assert [
        (measure.cpu, measure.at_ms, measure.length_ms) for measure in cut.findings.violations
    ] == longest


@pytest.mark.parametrize("rows", [13, 100, 10_000])
def test_a_cpu_that_is_off_line_runs_nothing(rows: int) -> None:
    """CPU 3 was off line for 2.4 s, CPU 1 from 15.6 s to the end."""
    table = pl.scan_parquet(DATA.parent / "pairs-4-hotplug.parquet")
    run = Recording(table, load_topology("pairs-4"), rows=rows)
    away = run.offline.select("cpu", "start_ns", "end_ns").rows()
    assert away == [(3, 11208301500, 13583946950), (1, 15600498800, (1 << 63) - 1)]
    for cpu, start, end in away:
        inside = Window(start, min(end, run.window.end_ns))
        for rows_of_cpu in (
            run.spans.filter(pl.col("pid") > 0),
            run.queue.filter(pl.col("runnable") > 0),
        ):
            assert clip(rows_of_cpu.filter(pl.col("cpu") == cpu), inside).is_empty()
    busy = {cpu: run.sums.busy_cpu[cpu] / run.window.length_ns for cpu in (1, 3)}
    assert busy == pytest.approx({1: 0.660, 3: 0.365}, abs=0.001)
    listed = "CPU 1 (23 % of the window), CPU 3 (23 % of the window)"
    note = f"off line, and idle in task_busy_share and queue_imbalance: {listed}"
    assert analyse(run).notes[-1] == note
    assert note not in analyse(replace(run, allowed_cpus=[0])).notes


def of_linux_4_17(state: int) -> int:
    """`1 << task_state_index()`; preempted tasks and those in TASK_IDLE have the same."""
    return 0x100 if state in (0x80, 0x100) else 2 * state or 1


def of_linux_4_4(state: int) -> int:
    """The state itself, and TASK_STATE_MAX of a preempted task."""
    return {0x10: 0x40, 0x20: 0x40, 0x40: 0x200, 0x80: 0x402, 0x100: 0x800}.get(state, state)


@pytest.mark.parametrize("rows", [100, 10_000])
@pytest.mark.parametrize("old", [of_linux_4_17, of_linux_4_4])
def test_the_states_of_older_kernels_give_the_same(
    parquet: Path, old: Callable[[int], int], rows: int
) -> None:
    table = pl.read_parquet(parquet)
    states = pl.col("prev_state").map_elements(old, return_dtype=pl.Int64)
    older = analysed(table.with_columns(states).lazy(), rows)
    assert values(older) == pytest.approx(values(analysed(table, rows)), nan_ok=True)


def with_losses(table: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Lose 5 to 80 events in a row of a CPU, six times."""
    draw, rows = Random(seed), table.with_row_index("row")
    lost: set[int] = set()
    marks = []
    for _ in range(6):
        mine = rows.filter(pl.col("cpu") == draw.choice(table["cpu"].unique().sort().to_list()))
        begin = draw.randrange(len(mine))
        gone = mine["row"].slice(begin, draw.randint(5, 80))
        lost.update(gone[:-1])
        marks.append(gone[-1])
    lost.difference_update(marks)
    place = pl.col("time_ns", "cpu", "node")
    marked = (
        rows.filter(pl.col("row").is_in(marks))
        .select("row", place)
        .with_columns(event=pl.lit("lost_events").cast(table.schema["event"]))
    )
    kept = rows.filter(~pl.col("row").is_in([*lost, *marks]))
    return pl.concat([kept, marked], how="diagonal").sort("row").select(table.columns)


@pytest.mark.parametrize("seed", range(4))
def test_pieces_give_the_same_where_events_were_lost(parquet: Path, seed: int) -> None:
    table = with_losses(pl.read_parquet(parquet), seed)
    whole = analysed(table, 1_000_000)
    assert values(whole)["unknown_time"] > 0
    for rows in (97, 250, 800):
        cut = analysed(table.lazy(), rows)
        # Where no switch lies between two losses, who ran is a guess.
        for name, value in values(whole).items():
            assert values(cut)[name] == (value and pytest.approx(value, rel=1e-4)), name
        assert cut.findings.moves == whole.findings.moves


def test_what_a_real_recording_of_numa_balancing_shows(parquet: Path) -> None:
    findings = analysed(pl.scan_parquet(parquet), 1_000_000).findings
    assert findings.decisions_in_all == len(findings.decisions) == 21
    kinds = [resident.kind for resident in findings.decisions]
    assert (kinds.count("move"), kinds.count("swap"), kinds.count("stick")) == (6, 5, 10)
    failed = [
        (resident.pid, resident.kind)
        for resident in findings.decisions
        if resident.undone == "failed"
    ]
    assert len(failed) == 4
    assert all(kind == "swap" for _, kind in failed)
    assert {resident.reason for resident in findings.decisions if resident.kind == "stick"} == {
        "no destination",
        "failed",
    }
    numa = next(resident for resident in findings.moves if resident.mover == "numa")
    assert numa.between_nodes == 6 + 2  # one swap took both tasks
    moves = next(resident for resident in findings.matrices if resident.name == "moves")
    assert sum(map(sum, moves.cells)) == 6
    assert findings.nodes == (0, 1, 2, 3)
    assert {resident.level for resident in findings.residence} == {"task", "process", "group"}
    for resident in findings.residence:
        assert sum(resident.share) == pytest.approx(100, abs=0.1)
        assert len(resident.slices) == len(findings.slice_ends_ms)
