"""What a copy should get by the model's own formulas, beside what guests measured."""

import re
from pathlib import Path

import pytest

from numalab.topology.load import load_topology
from numalab.topology.memory.costs import expected_copy_mb_s
from numalab.topology.memory.timing import memory_model

DATA = Path(__file__).parents[2] / "data"
INSTRUCTION_NS = 2
MEASURED = {
    "ring-4": "workload/distances.txt",
    "full-2": "timed/distances-full-2.txt",
    "xeon-8269cy": "timed/distances-xeon-8269cy.txt",
}


@pytest.mark.parametrize("machine", MEASURED)
def test_guests_measure_what_the_formulas_say(machine: str) -> None:
    topology = load_topology(machine)
    model = memory_model(topology)
    copies = re.findall(
        r"^copy (\d+)-(\d+) threads (1|all) (\d+\.\d+) MB/s$",
        (DATA / MEASURED[machine]).read_text(),
        re.MULTILINE,
    )
    assert len(copies) == 2 * len(topology.nodes) ** 2
    for near, far, threads, mb_s in copies:
        count = 1 if threads == "1" else len(topology.nodes[int(near)].cpus)
        expected = expected_copy_mb_s(model, int(near), int(far), count, INSTRUCTION_NS)
        assert float(mb_s) == pytest.approx(expected, rel=0.05), (near, far, threads)


def test_one_thread_waits_for_nobody() -> None:
    model = memory_model(load_topology("ring-4"))
    # 128 bytes in two waits of 180 ns and 18 instructions.
    assert expected_copy_mb_s(model, 0, 1, 1, 4) == pytest.approx(128e3 / (2 * 180 + 18 * 4))


def test_threads_without_end_fill_the_narrowest_server() -> None:
    model = memory_model(load_topology("ring-4"))
    # Of a memory's three lines for each that is copied two are counted; a link has two of its own.
    memory, link = model.servers[0].mb_s, model.servers[model.routes[1, 0][0]].mb_s
    assert expected_copy_mb_s(model, 0, 0, 4096, 2) == pytest.approx(memory * 2 / 3, rel=0.01)
    assert expected_copy_mb_s(model, 0, 1, 4096, 2) == pytest.approx(link, rel=0.01)
