"""Hundreds of damaged recordings, decoded and analysed: no crash, no hang, no traceback.

`make fuzz ONLY=traces` does the same to thousands of damaged pages of a real recording.
"""

import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from numalab.analysis.analyse import analyse
from numalab.capture.decode import decode_trace
from numalab.errors import LabError
from numalab.process import find_program, run
from numalab.recording.recording import Recording
from numalab.topology.load import load_topology

BLOCKS, EACH = 8, 50
CONVERSIONS = (
    ("--file-version", "6"),
    ("--file-version", "7", "--compression", "none"),
    ("--file-version", "7", "--compression", "zstd"),
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory, write: Any) -> list[bytes]:
    """One small recording, in every version and packing that trace-cmd writes."""
    switches = [write.item(i, write.switch(i, b"t", i % 2, i + 1, b"u")) for i in range(1, 12)]
    wakes = [write.item(i, write.wakeup(i, b"t", i % 2)) for i in range(1, 12)]
    texts = [write.item(i, write.executed(i, b"/bin/x")) for i in range(1, 8)]
    marks = [write.item(1, write.marker(1, b"numalab: begin"))]
    pages = [
        write.page(10, *marks, *switches, *wakes) + write.page(300, *switches),
        write.page(20, *texts, *wakes, missed=3) + write.page(200, *wakes),
    ]
    folder = tmp_path_factory.mktemp("sources")
    plain = folder / "plain.dat"
    plain.write_bytes(write.trace_dat(pages, "1 a\n"))
    trace_cmd = find_program("trace-cmd", "trace-cmd")
    made = [plain.read_bytes()]
    for number, options in enumerate(CONVERSIONS):
        path = folder / f"{number}.dat"
        run([trace_cmd, "convert", "-i", plain, "-o", path, *options])
        made.append(path.read_bytes())
    return made


def mutated(source: bytes, chance: random.Random) -> bytes:
    """Damage a recording: cut it, or overwrite, take out, double or swap parts of it."""
    data = bytearray(source)
    if chance.random() < 0.15:
        del data[chance.randrange(1, len(data)) :]
    for _ in range(chance.choice((1, 1, 2, 8, 40))):
        # What is dense with numbers comes first and last; the padding between is not worth it.
        at = min(int(chance.betavariate(0.4, 0.4) * len(data)), max(0, len(data) - 1))
        match chance.randrange(6):
            case 0:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                data[at : at + 4] = chance.choice((b"\0" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f"))
            case 2:
                data[at : at + 8] = chance.randbytes(8)
            case 3:
                del data[at : at + chance.choice((1, 4, 4096))]
            case 4:
                data[at:at] = data[at : at + chance.choice((1, 8, 4096))]
            case _:
                other = chance.randrange(max(1, len(data)))
                data[at : at + 16], data[other : other + 16] = (
                    data[other : other + 16],
                    data[at : at + 16],
                )
    return bytes(data)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_damaged_recording_never_crashes(
    tmp_path: Path, sources: list[bytes], block: int
) -> None:
    ring = load_topology("ring-4")
    read = 0
    for seed in range(block * EACH, (block + 1) * EACH):
        path = tmp_path / "trace.dat"
        path.write_bytes(mutated(sources[seed % len(sources)], random.Random(seed)))
        try:
            decoded = decode_trace(path, ring, tmp_path / "events.parquet")
        except LabError as error:
            assert str(path) in str(error), seed
            continue
        table = pl.read_parquet(tmp_path / "events.parquet")
        lost = table.filter(pl.col("event") == "lost_events").height
        assert (table["time_ns"].is_sorted(), table.height) == (True, decoded.events + lost), seed
        assert len(analyse(Recording(table, ring, tasks=())).measures) > 20
        read += decoded.events > 0
    assert read, "no damaged recording was read at all: the damage is too great to test anything"
