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
    before = {measure.name: measure.value for measure in whole.measures}
    after = {measure.name: measure.value for measure in cut.measures}
    assert after == pytest.approx(before, nan_ok=True)
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
