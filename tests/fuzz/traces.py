"""Damaged recordings, decoded and analysed: refused with a reason, or read as far as they go."""

import lzma
import random
from functools import cache
from pathlib import Path

import polars as pl

from numalab.analysis.analyse import analyse
from numalab.capture.decode import decode_trace
from numalab.errors import LabError
from numalab.recording.recording import Recording
from numalab.topology.load import load_topology

CASES, FEW = 5000, 10
EVENTS, PAGES = 3408, 1601536  # of the recording, as trace-cmd reports it; where its pages begin
SOURCE = Path(__file__).parents[1] / "data" / "capture" / "ring-4-numa.dat.xz"


@cache
def _source() -> bytes:
    return lzma.decompress(SOURCE.read_bytes())


def case(seed: int, scratch: Path) -> str:
    """Damage a real recording in a few places, and read what is left of it."""
    chance = random.Random(seed)
    data = bytearray(_source())
    if chance.random() < 0.15:
        del data[chance.randrange(1, len(data)) :]
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        # Half of it in the pages, which come last and are a tenth of the file.
        first = chance.choice((0, PAGES))
        at = chance.randrange(first, max(first + 1, len(data)))
        size = chance.choice((1, 4, 8, 64, 4096))
        match chance.choice((0, 0, 0, 1, 1, 1, 2, 3)):
            case 0:
                data[at : at + size] = chance.randbytes(size)
            case 1:
                data[at : at + size] = bytes(size)
            case 2:
                del data[at : at + size]
            case _:
                data[at:at] = data[at : at + size]
    path, events = scratch / "trace.dat", scratch / "events.parquet"
    path.write_bytes(data)
    ring = load_topology("ring-4")
    try:
        decoded = decode_trace(path, ring, events)
    except LabError as error:
        assert str(path) in str(error)
        return "refused"
    assert decoded.events == EVENTS or not decoded.whole
    table = pl.read_parquet(events)
    lost = table.filter(pl.col("event") == "lost_events").height
    assert table["time_ns"].is_sorted()
    assert table.height == decoded.events + lost
    assert len(analyse(Recording(table, ring, tasks=())).measures) > 20
    return "whole" if decoded.whole else "damage told"
