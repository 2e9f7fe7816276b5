"""Mode timed with CPUs that contend for lines: what they cost is what the machine file says."""

from pathlib import Path

import pytest

from numalab.api import HostError, LabMachine, machine
from numalab.process import run
from numalab.topology.memory.timing import memory_model

ROOT = Path(__file__).parents[2]
PAIRS = ((0, 1), (0, 2), (0, 4))  # CPUs of one node, one hop and two hops apart
INSTRUCTIONS_NS = 45  # of a loop of lock.c, besides its line


@pytest.fixture(scope="module")
def ring() -> LabMachine:
    try:
        return machine("ring-4", mode="timed")
    except HostError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def lock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("lock") / "lock"
    warnings = "-Wall -Wextra -Wconversion -Wshadow -Werror"
    source = ROOT / "docs" / "examples" / "lock.c"
    run(["gcc", "-O2", *warnings.split(), "-o", program, source, "-pthread"])
    return program


def rates(printed: str) -> dict[str, dict[int, float]]:
    """Operations in a microsecond by kind and number of threads."""
    head, *rows = (line.split() for line in printed.splitlines())
    return {
        kind: {int(row[0]): float(row[place]) for row in rows}
        for place, kind in enumerate(head[1:], start=1)
    }


def test_contended_lines_cost_the_latencies_of_the_file(ring: LabMachine, lock: Path) -> None:
    latency = memory_model(ring.topology).latency_ns
    for near, far in PAIRS:
        pair = f"{near},{far}"
        result = ring.run(["taskset", "-c", pair, "./lock", "share", "pass"], add=[str(lock)])
        measured = rates(result.check().stdout)
        expected = latency[near // 2][far // 2]
        # One transfer for each store to the shared line, whoever makes it.
        assert 1000 / measured["share"][2] == pytest.approx(expected, rel=0.1)
        passed = 1000 / measured["pass"][2]
        assert expected <= passed <= 1.1 * expected + INSTRUCTIONS_NS


def test_locks_scale_as_published(ring: LabMachine, lock: Path) -> None:
    """More CPUs get less, and a queue of waiters loses least."""
    result = ring.run([lock, "add", "spin", "ticket", "mcs"]).check()
    measured = rates(result.stdout)
    alone = measured["add"][1]
    assert alone > 25
    assert measured["add"][2] == pytest.approx(1000 / 90, rel=0.1)
    assert max(measured["add"][4], measured["add"][8]) < 0.8 * measured["add"][2]
    for kind in ("spin", "ticket", "mcs"):
        assert measured[kind][8] < measured[kind][2] < measured[kind][1]
    lost = {kind: measured[kind][2] / measured[kind][8] for kind in ("spin", "ticket", "mcs")}
    assert lost["spin"] > lost["ticket"] > lost["mcs"]
    again = ring.run([lock, "add", "spin", "ticket", "mcs"])
    assert (again.stdout, again.seconds) == (result.stdout, result.seconds)
