"""The stored output of docs/examples/passes.c and lock.c on five machines, beside their files."""

import re
from pathlib import Path

import pytest

from numalab.topology.load import load_topology
from numalab.topology.memory.timing import memory_model

STORED = Path(__file__).parents[2] / "data" / "timed"
NODES = {  # where the memory lay, seen from node 0, nearest first
    "ring-4": (0, 1, 2),
    "full-2": (0, 1),
    "mesh-8": (0, 1, 7),
    "xeon-8269cy": (0, 1),
    "epyc-9354p-nps4": (0, 1, 2),
}
PLACES = [(name, place) for name, nodes in NODES.items() for place in range(len(nodes))]


def numbers(name: str, pattern: str) -> list[tuple[float, ...]]:
    text = (STORED / f"passes-{name}.txt").read_text()
    return [tuple(map(float, match.groups())) for match in re.finditer(pattern, text)]


def latency_ns(name: str, place: int) -> float:
    return memory_model(load_topology(name)).latency_ns[0][NODES[name][place]]


def is_saturated(name: str, place: int) -> bool:
    """Whether one CPU that reads and writes back uses all the bandwidth: with two CPUs a node."""
    return place == 0 and name in ("ring-4", "mesh-8")


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_one_pass_takes_the_latency_of_the_file(name: str, place: int) -> None:
    passes = numbers(name, r"chase +([\d.]+) ns after writing, +([\d.]+)")[
        3 * place : 3 * place + 3
    ]
    file = latency_ns(name, place)
    after_writing, after_reading = (sorted(row)[1] for row in zip(*passes, strict=True))
    assert after_reading == pytest.approx(file, rel=0.015)
    assert after_writing == pytest.approx(file, rel=0.045 if is_saturated(name, place) else 0.015)


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_a_line_that_two_cpus_write_costs_a_transfer_each_time(name: str, place: int) -> None:
    stores, flags = zip(*numbers(name, r"\n +2 +([\d.]+) +([\d.]+)"), strict=True)
    file = latency_ns(name, place)
    assert 1e3 / stores[place] == pytest.approx(file, rel=0.1)
    assert file < 1e3 / flags[place] < file + 35  # and the instructions of the loop


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_strings_are_charged_by_lines(name: str, place: int) -> None:
    (filled,), (copied,) = (
        numbers(name, rf"{function} +(\d+)")[place] for function in ("memset", "memcpy")
    )
    file = latency_ns(name, place)
    assert 64e3 / filled == pytest.approx(file, rel=0.25 if is_saturated(name, place) else 0.02)
    assert 64e3 / copied == pytest.approx(2 * file, rel=0.05)  # one line read, another written


@pytest.mark.parametrize("name", NODES)
def test_locks_and_additions_slow_down_with_each_contender(name: str) -> None:
    lines = (STORED / f"locks-{name}.txt").read_text().splitlines()
    kinds, rows = lines[0].split()[1:], [list(map(float, line.split()[1:])) for line in lines[1:]]
    assert all(contended < alone / 2 for alone, contended in zip(rows[0], rows[1], strict=True))
    spin = [row[kinds.index("spin")] for row in rows]
    assert spin == sorted(spin, reverse=True)
    add = rows[1][kinds.index("add")]
    assert 1e3 / add == pytest.approx(latency_ns(name, 0), rel=0.05)
