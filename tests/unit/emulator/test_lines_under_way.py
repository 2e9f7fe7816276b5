"""The stored gain of a TCP stream on one node, with and without lines under way."""

import csv
from pathlib import Path

from numalab.topology.load import load_topology
from numalab.topology.memory.timing import memory_model

GUESTS = Path(__file__).parents[2] / "data" / "timed"
PUBLISHED = 1.209  # b396f52326de, netperf TCP_STREAM at 16384 bytes


def gain(topology: str) -> float:
    """Throughput after the patch over that before it."""
    with (GUESTS / "tcp-stream-outstanding-lines.csv").open(encoding="utf-8") as file:
        rates = {
            row["variant"]: float(row["value"])
            for row in csv.DictReader(file)
            if (row["topology"], row["measure"]) == (topology, "tcp_stream_16384")
        }
    return rates["after"] / rates["before"]


def test_the_gain_is_near_the_published_one_where_ten_lines_are_under_way() -> None:
    machine = load_topology(str(GUESTS / "full-2-lines.toml"))
    assert memory_model(machine).outstanding == 10
    assert abs(gain("full-2-lines") - PUBLISHED) < 0.06
    assert gain("full-2") > 2
