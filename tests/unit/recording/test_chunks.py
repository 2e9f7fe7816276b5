"""A recording taken in pieces gives what it gives as a whole."""

import lzma
from pathlib import Path

import polars as pl
import pytest

from numalab.analysis.analyse import Analysis, analyse
from numalab.capture.decode import decode_trace
from numalab.recording.recording import Recording
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


@pytest.mark.parametrize("rows", [97, 500, 2000])
def test_pieces_of_any_size_give_the_same(parquet: Path, rows: int) -> None:
    whole = analysed(pl.read_parquet(parquet), 1_000_000)
    cut = analysed(pl.scan_parquet(parquet), rows)
    before = {each.name: each.value for each in whole.measures}
    after = {each.name: each.value for each in cut.measures}
    assert after == pytest.approx(before, nan_ok=True)
    assert cut.findings.residence == whole.findings.residence
    assert cut.findings.decisions == whole.findings.decisions
    assert cut.findings.moves == whole.findings.moves
    assert cut.findings.series == whole.findings.series
    longest = [(each.cpu, each.at_ms, each.length_ms) for each in whole.findings.violations]
    assert [(each.cpu, each.at_ms, each.length_ms) for each in cut.findings.violations] == longest


def test_what_a_real_recording_of_numa_balancing_shows(parquet: Path) -> None:
    found = analysed(pl.scan_parquet(parquet), 1_000_000).findings
    assert found.decisions_in_all == len(found.decisions) == 21
    kinds = [each.kind for each in found.decisions]
    assert (kinds.count("move"), kinds.count("swap"), kinds.count("stick")) == (6, 5, 10)
    failed = [(each.pid, each.kind) for each in found.decisions if each.undone == "failed"]
    assert len(failed) == 4
    assert all(kind == "swap" for _, kind in failed)
    assert {each.reason for each in found.decisions if each.kind == "stick"} == {
        "no destination",
        "failed",
    }
    numa = next(each for each in found.moves if each.mover == "numa")
    assert numa.between_nodes == 6 + 2  # one swap took both tasks
    moves = next(each for each in found.matrices if each.name == "moves")
    assert sum(map(sum, moves.cells)) == 6
    assert found.nodes == (0, 1, 2, 3)
    assert {each.level for each in found.residence} == {"task", "process", "group"}
    for each in found.residence:
        assert sum(each.share) == pytest.approx(100, abs=0.1)
        assert len(each.slices) == len(found.slice_ends_ms)
