"""CPUs that ask for four times a memory's or link's bandwidth get all of it, and no more."""

from dataclasses import replace
from pathlib import Path

import pytest

from numalab.topology.load import load_topology
from numalab.topology.memory.costs import Cache, MemoryModel, render_parameters
from numalab.topology.memory.timing import memory_model
from support.memory_core import LINE_BYTES, NS, MemoryCore, build_core

LINES, WINDOW_PS, WINDOWS, INSTRUCTION_PS, DEMAND = 1 << 17, 10_000 * NS, 400, 2 * NS, 4
MACHINES = ("full-2", "ring-4", "xeon-8269cy", "epyc-9354p-nps4")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_core(tmp_path_factory.mktemp("core"))


def most_mb_s(model: MemoryModel, node: int, *, copies: bool) -> float:
    """What the servers let pass: a copied line is read, and another one is read and written back.

    A copy counts the bytes that are read and written, as STREAM does.
    """
    lines = {node: 3 if copies else 1}
    for link in model.routes[node, 0]:
        lines[link] = lines.get(link, 0) + (2 if copies else 1)
    for link in model.routes[0, node] if copies else ():
        lines[link] = lines.get(link, 0) + 1
    slowest = min(model.servers[server].mb_s / count for server, count in lines.items())
    return slowest * (2 if copies else 1)


def moved_mb_s(core: MemoryCore, cpus: list[int], node: int, *, copies: bool) -> float:
    """Let CPUs read or copy in arrays of their own; the rate in the second half of the time."""
    length = LINES // len(cpus) // 2
    clocks, done, late = dict.fromkeys(cpus, 0), dict.fromkeys(cpus, 0), 0
    for window in range(WINDOWS):
        for place, cpu in enumerate(cpus):
            while clocks[cpu] < (window + 1) * WINDOW_PS:
                line = node * LINES + 2 * place * length + done[cpu] % length
                waits = [core.load(cpu, line)]
                if copies:
                    waits.append(core.store(cpu, line + length))
                clocks[cpu] += (18 if copies else 4) * INSTRUCTION_PS
                clocks[cpu] += sum(max(0, wait - INSTRUCTION_PS) for wait in waits)
                done[cpu] += 1
                late += 2 * window >= WINDOWS
        core.advance((window + 1) * WINDOW_PS)
    seconds = WINDOWS // 2 * WINDOW_PS / 1e12
    return late * LINE_BYTES * (2 if copies else 1) / 1e6 / seconds


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("name", MACHINES)
def test_all_of_the_bandwidth_is_used_and_no_more(
    library: Path, name: str, far: bool, copies: bool
) -> None:
    topology = load_topology(name)
    model = replace(memory_model(topology), llc=Cache(64, 16, 20))  # is full soon
    cpus = [cpu for cpu in range(topology.cpu_count) if topology.node_of_cpu(cpu) == 0]
    latencies = model.latency_ns[0]
    node = latencies.index(max(latencies)) if far else 0
    alone_ns = (latencies[node] + 16) if copies else (latencies[node] + 6)  # of a line, at most
    asked = len(cpus) * LINE_BYTES * 1e3 / alone_ns
    slower = asked / (DEMAND * most_mb_s(model, node, copies=copies))
    servers = tuple(
        replace(server, line_ps=round(server.line_ps / slower)) for server in model.servers
    )
    model = replace(model, servers=servers)
    text = render_parameters(topology, model, window_ns=10_000, slice_ns=10_000_000)
    core = MemoryCore(library, text, nodes=len(topology.nodes), lines_of_node=LINES)
    rate = moved_mb_s(core, cpus, node, copies=copies)
    assert rate == pytest.approx(most_mb_s(model, node, copies=copies), rel=0.05)
