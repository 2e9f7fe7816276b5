"""What must hold in any recording, on a real one of NUMA balancing in a ring-4 guest."""

import lzma
from pathlib import Path

import polars as pl
import pytest

from numalab.analysis.analyse import analyse
from numalab.capture.decode import decode_trace
from numalab.recording.recording import Recording
from numalab.recording.spans import spans
from numalab.recording.stays import queue_lengths, stays
from numalab.recording.window import Window, find_window
from numalab.topology.topology import Node, Topology

DATA = Path(__file__).parents[2] / "data" / "capture" / "ring-4-numa.dat.xz"
CPUS = list(range(8))
RING_4 = Topology(
    name="ring-4",
    summary="",
    source="",
    nodes=tuple(Node(n, (2 * n, 2 * n + 1), 512) for n in range(4)),
    distances=((10, 20, 30, 20), (20, 10, 20, 30), (30, 20, 10, 20), (20, 30, 20, 10)),
    cpu_shape=None,
    llc="none",
)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    folder = tmp_path_factory.mktemp("real")
    (folder / "trace.dat").write_bytes(lzma.decompress(DATA.read_bytes()))
    decode_trace(folder / "trace.dat", RING_4, folder / "events.parquet")
    return pl.read_parquet(folder / "events.parquet")


@pytest.fixture(scope="module")
def window(events: pl.DataFrame) -> Window:
    whole = find_window(events)
    assert (whole.begun, whole.ended) == (True, True)
    return whole


def test_the_spans_of_a_cpu_cover_the_window_without_hole_or_overlap(
    events: pl.DataFrame, window: Window
) -> None:
    ran = spans(events, window, CPUS)
    for (_,), mine in ran.group_by("cpu"):
        assert mine["start_ns"][0] == window.start_ns
        assert mine["end_ns"][-1] == window.end_ns
        assert mine["start_ns"][1:].to_list() == mine["end_ns"][:-1].to_list()
    assert ran["cpu"].unique().sort().to_list() == CPUS
    assert ran["known"].all()


def test_a_task_runs_on_one_cpu_at_a_time(events: pl.DataFrame, window: Window) -> None:
    ran = spans(events, window, CPUS).filter(pl.col("pid") != 0).sort("pid", "start_ns")
    before = pl.col("end_ns").shift(1).over("pid")
    assert ran.filter(pl.col("start_ns") < before).is_empty()


def test_a_cpu_that_runs_a_task_has_a_runnable_one(events: pl.DataFrame, window: Window) -> None:
    lengths = queue_lengths(stays(events, window), window, CPUS)
    assert lengths["runnable"].min() == 0
    ran = spans(events, window, CPUS).filter(pl.col("pid") != 0)
    both = ran.join(lengths, on="cpu", suffix="_q").filter(
        pl.max_horizontal("start_ns", "start_ns_q") < pl.min_horizontal("end_ns", "end_ns_q")
    )
    assert both["runnable"].min() == 1
    total = lengths.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
    assert total == len(CPUS) * window.length_ns


def test_every_change_of_node_has_a_migration(events: pl.DataFrame) -> None:
    result = {
        item.name: item.value
        for item in analyse(Recording(events, RING_4, tasks=["thread */*"])).measures
    }
    assert result["task_node_changes"] == 39
    assert result["task_node_migrations"] == 41  # two of them were moved on before they ran
    assert result["task_migrations"] == 101


def test_shares_add_up(events: pl.DataFrame) -> None:
    measures = analyse(Recording(events, RING_4, tasks=["thread */*"])).measures
    values = {measure.name: measure.value for measure in measures}
    shares = [values[f"task_time_share_node{node}"] or 0 for node in range(4)]
    assert sum(shares) == pytest.approx(100)
    assert sum(values[f"tasks_final_node{node}"] or 0 for node in range(4)) == 10
    assert [values[f"sched_{what}_numa"] for what in ("move", "swap", "stick")] == [6, 5, 10]
