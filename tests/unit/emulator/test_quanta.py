"""Conclusions that guests in mode timed gave with quanta of 5 and 20 us are those of 10 us."""

import re
from pathlib import Path

import pytest

from numalab.topology.load import load_topology
from numalab.topology.memory.timing import memory_model

GUESTS = Path(__file__).parents[2] / "data" / "timed"


def throughput(variant: str, quantum: int) -> float:
    text = (GUESTS / f"bound-hogs-{variant}-{quantum}us.txt").read_text()
    (match,) = re.findall(r"^total loops \d+ per_second (\d+\.\d+)$", text, re.MULTILINE)
    return float(match)


@pytest.mark.parametrize("quantum", [5, 20])
def test_hogs_do_more_work_on_four_cpus_than_on_two(quantum: int) -> None:
    """group-construction-counted, seed 1; with 10 us its three seeds gave 1.90 to 1.93."""
    gained = throughput("after", quantum) / throughput("before", quantum)
    assert 1.7 < gained < 1.95


@pytest.mark.parametrize("quantum", [5, 20])
def test_a_chase_takes_what_the_topology_says(quantum: int) -> None:
    """what-distance-costs, seed 1, within 3 %."""
    text = (GUESTS / f"distances-ring-4-{quantum}us.txt").read_text()
    latency = memory_model(load_topology("ring-4")).latency_ns
    match = re.findall(r"^chase (\d)-(\d) (\d+\.\d+) ns$", text, re.MULTILINE)
    assert len(match) == 16
    for start, end, ns in match:
        assert float(ns) == pytest.approx(latency[int(start)][int(end)], rel=0.03)
