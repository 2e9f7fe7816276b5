"""The memory model's core: what accesses cost, checked against what the parameter file says."""

import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numalab.topology.load import load_topology
from numalab.topology.memory.costs import expected_copy_mb_s, render_parameters
from numalab.topology.memory.timing import memory_model
from support.memory_core import NS, MemoryCore, build_core

DATA = Path(__file__).parents[2] / "data"
NODES, CPUS, LINES = 4, 8, 1 << 16
SECOND_NS, LAST_NS = 4, 15
FIRST_LINES, SECOND_LINES, LAST_LINES = 64, 32 * 4, 64 * 8
LATENCY_NS = [
    [90 if a == b else 270 if (a - b) % 4 == 2 else 180 for b in range(4)] for a in range(4)
]
NODE_SERVER_PS, LINK_PS = 10 * NS, 20 * NS


def parameters(*, llc: bool = True, extra: str = "") -> str:
    """A ring of four nodes of two CPUs; server k is node k's memory, 4 + k the link from k to k+1,
    8 + k the one from k + 1 to k.
    """
    groups = [cpu // 2 if llc else cpu for cpu in range(CPUS)]
    lines = ["numalab-memory 1", f"machine {CPUS} {NODES} {max(groups) + 1} 12", "first 64 1 0"]
    lines += [f"cpu {cpu} {cpu // 2} {group}" for cpu, group in enumerate(groups)]
    lines += [f"second 32 4 {SECOND_NS * NS}", f"last 64 8 {LAST_NS * NS}"]
    for node, row in enumerate(LATENCY_NS):
        lines.append(f"latency {node} " + " ".join(str(ns * NS) for ns in row))
        lines += [f"server {node} {NODE_SERVER_PS} 1 node{node}", f"memory {node} {node}"]
        lines += [
            f"server {4 + node} {LINK_PS} 1 up{node}",
            f"server {8 + node} {LINK_PS} 1 down{node}",
        ]
        lines.append(f"route {node} {(node + 1) % 4} {4 + node}")
        lines.append(f"route {(node + 1) % 4} {node} {8 + node}")
        lines.append(f"route {node} {(node + 2) % 4} {4 + node} {4 + (node + 1) % 4}")
    lines += [
        "block 1 ram-node1  # a comment",
        "",
        "window 10000000",
        "slice 1000000000 1000",
        extra,
    ]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_core(tmp_path_factory.mktemp("core"))


@pytest.fixture
def machine(library: Path) -> Callable[..., MemoryCore]:
    def make(text: str = parameters(), tables: tuple[Path, Path] | None = None) -> MemoryCore:
        return MemoryCore(library, text, nodes=NODES, lines_of_node=LINES, tables=tables)

    return make


def chase(core: MemoryCore, cpu: int, node: int, lines: int, *, rounds: int = 3) -> float:
    """Mean cost in ns of a step in the last round of a pointer chase through a buffer on a node."""
    order = list(range(node * LINES, node * LINES + lines))
    random.Random(7).shuffle(order)
    cost = 0
    for _ in range(rounds):
        cost = sum(core.load(cpu, line) for line in order)
    return cost / lines / NS


@pytest.mark.parametrize("cpu", range(CPUS))
@pytest.mark.parametrize("node", range(NODES))
def test_far_larger_than_the_caches_a_chase_costs_what_the_file_says(
    machine: Callable[..., MemoryCore], cpu: int, node: int
) -> None:
    assert chase(machine(), cpu, node, 16 * LAST_LINES) == pytest.approx(
        LATENCY_NS[cpu // 2][node], rel=0.001
    )


@pytest.mark.parametrize(
    ("lines", "ns"),
    [
        (FIRST_LINES, 0),
        (SECOND_LINES, SECOND_NS),
        (LAST_LINES, LAST_NS),
        (LAST_LINES * 4, LATENCY_NS[0][2]),
    ],
)
def test_plateaus_lie_at_the_caches_sizes(
    machine: Callable[..., MemoryCore], lines: int, ns: int
) -> None:
    # A larger level still holds a part of what fits into the next one by chance.
    assert chase(machine(), 0, 2, lines) == pytest.approx(ns, rel=0.1)


def test_two_lines_of_one_filter_slot_are_both_in_the_first_level(
    machine: Callable[..., MemoryCore],
) -> None:
    core = machine(parameters().replace("first 64 1 0", "first 64 2 0"))
    for _ in range(3):
        costs = [core.load(0, line, vaddr=1 << 20) for line in (0, 64)]
    assert costs == [0, 0]


def test_a_line_written_elsewhere_comes_from_its_owner(machine: Callable[..., MemoryCore]) -> None:
    core = machine()
    line = 5  # at home on node 0
    assert core.store(4, line) == LATENCY_NS[2][0] * NS
    assert core.store(4, line) == 0
    # Node 1 is one hop from the owner, and one from the home.
    assert core.load(2, line) == LATENCY_NS[1][2] * NS
    assert core.load(2, line) == 0
    # Now both hold it, and it is clean: a third one gets it from home.
    assert core.load(6, line) == LATENCY_NS[3][0] * NS
    # Who writes tells all; the farthest holder decides.
    assert core.store(2, line) == LATENCY_NS[1][3] * NS
    assert core.load(6, line) == LATENCY_NS[3][1] * NS
    assert core.load(4, line) == LATENCY_NS[2][0] * NS


@pytest.mark.parametrize(("other", "ns"), [(1, 90), (2, 180), (4, 270), (6, 180)])
def test_ping_pong_costs_the_way_to_the_other_cpu(
    machine: Callable[..., MemoryCore], other: int, ns: int
) -> None:
    core = machine()
    core.store(0, 0)
    core.store(other, 0)
    for _ in range(10):
        assert core.store(0, 0) == ns * NS
        assert core.store(other, 0) == ns * NS


@pytest.mark.parametrize(("other", "ns"), [(1, 90), (2, 180), (4, 270)])
def test_a_read_modify_write_and_a_flag_that_is_passed_on_are_one_transfer(
    machine: Callable[..., MemoryCore], other: int, ns: int
) -> None:
    core = machine()
    core.store(0, 0)
    for cpu in (other, 0) * 5:
        assert core.load(cpu, 0) == ns * NS
        assert core.store(cpu, 0) == 0


def test_a_store_to_a_line_that_others_read_waits_for_the_farthest(
    machine: Callable[..., MemoryCore],
) -> None:
    core = machine()
    core.store(0, 0)
    core.load(2, 0)
    core.load(4, 0)
    core.now_ps += 1000 * NS  # the transfer is long over
    assert core.store(2, 0) == 180 * NS


def test_cpus_meet_when_a_line_has_moved_twice_in_short_succession(
    machine: Callable[..., MemoryCore],
) -> None:
    core = machine()
    for cpu, met in ((0, ()), (4, ()), (0, ()), (4, (0, 4)), (0, (4, 0))):
        core.store(cpu, 0)
        assert core.met == met
    core.now_ps += 1_000_000 * NS
    core.store(4, 0)
    assert core.met == ()
    core.store(4, 1)  # another line
    core.store(0, 1)
    assert core.met == ()


def test_reading_alone_makes_nobody_meet(machine: Callable[..., MemoryCore]) -> None:
    core = machine()
    core.store(0, 0)
    for _ in range(10):
        for cpu in range(CPUS):
            core.load(cpu, 0)
            assert core.met == ()


def test_a_line_moves_once_at_a_time(machine: Callable[..., MemoryCore]) -> None:
    core = machine()
    for cpu in (0, 4, 0, 4, 0, 4):
        core.store(cpu, 0)
    began = core.now_ps
    waited = []
    for cpu in (0, 4, 0, 4):  # each asks when the first one asks
        core.now_ps = began
        waited.append(core.store(cpu, 0) - 270 * NS)
    assert waited == [0, 270 * NS, 540 * NS, 810 * NS]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_a_contended_line_gives_one_transfer_at_a_time_in_total(library: Path, seed: int) -> None:
    """CPUs that execute as the emulator lets them: always the one whose clock is behind."""
    core = MemoryCore(library, parameters(), nodes=NODES, lines_of_node=LINES)
    clocks = {cpu: random.Random(seed + cpu).randrange(100 * NS) for cpu in (0, 2, 4, 6)}
    done, began = 0, 0
    for turn in range(1000):
        if turn == 100:
            began, done = min(clocks.values()), 0
        cpu = min(clocks, key=lambda cpu: clocks[cpu])
        core.now_ps = clocks[cpu]
        clocks[cpu] += 4 * NS + core.load(cpu, 0) + core.store(cpu, 0)
        done += 1
    transfer_ns = (min(clocks.values()) - began) / done / NS
    assert 180 <= transfer_ns <= 270


def test_a_cpu_alone_never_waits(machine: Callable[..., MemoryCore]) -> None:
    core = machine()
    now = 0
    for line in range(4000):
        now += core.load(0, line)
        core.advance(now)
    assert now == 4000 * LATENCY_NS[0][0] * NS


def run_readers(core: MemoryCore, cpus: list[int], node: int, think_ns: int, windows: int) -> float:
    """Let CPUs fetch line after line of a node; return the later half's lines a microsecond."""
    quantum = 10_000 * NS
    ready = dict.fromkeys(cpus, 0)
    taken = dict.fromkeys(cpus, 0)
    late = 0
    for window in range(windows):
        end = (window + 1) * quantum
        for cpu in cpus:
            while ready[cpu] < end:
                line = node * LINES + cpu * 4096 + taken[cpu] % 4096
                ready[cpu] += core.load(cpu, line) + think_ns * NS
                taken[cpu] += 1
                late += 2 * window >= windows
        core.advance(end)
    return late / (windows - windows // 2) / 10


@pytest.mark.parametrize("think_ns", [0, 100])
def test_a_node_gives_no_more_than_its_bandwidth(
    machine: Callable[..., MemoryCore], think_ns: int
) -> None:
    text = parameters().replace(f"server 0 {NODE_SERVER_PS}", "server 0 40000")
    limit = 1000 / 40
    rates = [
        run_readers(machine(text), list(range(cpus)), 0, think_ns, 200) for cpus in (1, 2, 4, 8)
    ]
    assert rates[0] == pytest.approx(1000 / (90 + think_ns), rel=0.02)
    assert rates == sorted(rates)
    # What a window asked for decides the wait in the next one, so that it is not exact.
    assert all(rate <= 1.005 * limit for rate in rates)
    asked = sum(1000 / (LATENCY_NS[0][cpu // 2] + think_ns) for cpu in range(8))
    assert rates[-1] >= (0.98 if asked > 2 * limit else 0.9) * limit


def test_loaded_latency_rises_slowly_and_then_steeply(machine: Callable[..., MemoryCore]) -> None:
    text = parameters().replace(f"server 0 {NODE_SERVER_PS} 1", "server 0 20000 3")
    latency = []
    for think_ns in (2000, 500, 250, 100, 0):
        core = machine(text)
        run_readers(core, [1, 2, 3, 4, 5, 6, 7], 0, think_ns, 100)
        latency.append(core.load(0, 60_000) / NS)
    assert latency[0] == pytest.approx(90, abs=1)
    assert latency == sorted(latency)
    assert latency[1] - latency[0] < 10
    assert latency[-1] > 95


def test_a_link_is_shared_by_all_that_pass_it(machine: Callable[..., MemoryCore]) -> None:
    text = parameters().replace(f"server 8 {LINK_PS}", "server 8 100000")
    # Only reads of node 1 by node 0 come over the link from 1 to 0.
    rate = run_readers(machine(text), [0, 1], 1, 0, 200)
    other = run_readers(machine(text), [4, 5], 1, 0, 200)
    assert 0.7 * 10 < rate <= 10
    assert other == pytest.approx(2 * 1000 / 180, rel=0.05)


def test_lines_in_a_row_come_early_and_chases_do_not(machine: Callable[..., MemoryCore]) -> None:
    text = parameters(extra="outstanding 8")
    far, page = LATENCY_NS[0][2] * NS, 64
    core = machine(text)
    rows = [[core.load(0, 2 * LINES + page * at + line) for line in range(page)] for at in range(4)]
    assert rows == 4 * [[far, far, *(page - 2) * [far // 8]]]  # a prefetcher ends with its page
    core = machine(text)  # a copy: two rows at once, of which one is written
    for line in range(page):
        costs = core.load(0, 2 * LINES + line), core.store(0, 2 * LINES + 4096 + line)
        assert costs == 2 * ((far if line < 2 else far // 8),)
    assert chase(machine(text), 0, 2, 16 * LAST_LINES) == pytest.approx(far / NS, rel=0.01)
    without = machine()
    assert {without.load(0, 2 * LINES + line) for line in range(page)} == {far}


accesses = st.lists(
    st.tuples(st.integers(0, CPUS - 1), st.integers(0, 700), st.booleans()), max_size=400
)


@given(stream=accesses, llc=st.booleans())
@settings(max_examples=60)
def test_after_a_store_nobody_else_has_the_line_for_nothing(
    library: Path, stream: list[tuple[int, int, bool]], llc: bool
) -> None:
    groups = "8" if not llc else "4"
    text = parameters(llc=llc)
    assert f"machine 8 4 {groups}" in text
    core = MemoryCore(library, text, nodes=NODES, lines_of_node=LINES)
    writer: dict[int, int | None] = {}
    readers: dict[int, set[int]] = {}
    for cpu, line, store in stream:
        cost = core.store(cpu, line) if store else core.load(cpu, line)
        if cpu not in readers.get(line, set()):
            assert cost > 0
        if store and writer.get(line) != cpu and readers.get(line, set()) - {cpu}:
            assert cost > 0
        if store:
            writer[line], readers[line] = cpu, {cpu}
        else:
            readers.setdefault(line, set()).add(cpu)
            if writer.get(line) != cpu:
                writer[line] = None


def read_table(path: Path) -> tuple[np.ndarray, np.ndarray]:
    words = np.fromfile(path, dtype="<u8")
    return words[:8], words[8:].reshape(-1, int(words[2]))


def test_the_oracle_counts_by_task_cpu_and_node(
    machine: Callable[..., MemoryCore], tmp_path: Path
) -> None:
    files = tmp_path / "counts", tmp_path / "traffic"
    core = machine(tables=files)
    core.switch(0, 0xAA, 0)
    for line in range(10):
        core.load(0, LINES + line)
    core.switch(0, 0xBB, 5 * NS)
    core.store(0, 0)
    core.load(2, 0)
    core.advance(1_000_000 * NS)
    core.load(0, 1)
    core.finish()
    header, rows = read_table(files[0])
    assert header[1:6].tolist() == [4, 11 + 3 * NODES, NODES, 1_000_000, 4]
    by_key = {(row[0], row[1], row[2]): row for row in rows.tolist()}
    first = by_key[0, 0, 0xAA]
    assert first[9:15] == [10, 10, 0, 10, 0, 0]
    assert first[7] == 10 * LATENCY_NS[0][1] * NS
    assert by_key[0, 0, 0xBB][9:15] == [0, 0, 1, 0, 0, 0]
    assert by_key[0, 0, 0xBB][3] == 5
    assert by_key[0, 2, 0][15:19] == [1, 0, 0, 0]
    assert by_key[1_000_000, 0, 0xBB][9:15] == [1, 0, 1, 0, 0, 0]
    # A page counts once in a slice, for the task that came first, wherever the line came from.
    pages = {key: row[19:] for key, row in by_key.items()}
    assert pages[0, 0, 0xAA] == [0, 1, 0, 0]
    assert pages[0, 0, 0xBB] == [1, 0, 0, 0]
    assert pages[0, 2, 0] == [0, 0, 0, 0]
    assert pages[1_000_000, 0, 0xBB] == [1, 0, 0, 0]
    traffic = read_table(files[1])[1].tolist()
    # Node 1's memory and the link from 1 to 0 carried ten lines; the dirty line went home as well.
    assert [row[:3] for row in traffic if row[0] == 0] == [
        [0, 0, 2],
        [0, 1, 10],
        [0, 4, 1],
        [0, 8, 10],
    ]


@pytest.mark.parametrize("has_it", [False, True])
def test_each_store_to_a_line_that_others_hold_tells_them(
    machine: Callable[..., MemoryCore], tmp_path: Path, has_it: bool
) -> None:
    core = machine(tables=(tmp_path / "counts", tmp_path / "traffic"))
    for line in range(10):
        for cpu in (0, 2, 4) if has_it else (0, 2):
            core.load(cpu, line)
    for line in range(20):  # nobody has the second half
        core.store(4, line)
        core.store(4, line)
    core.finish()
    invalidations = {row[1]: row[6] for row in read_table(tmp_path / "counts")[1].tolist()}
    assert invalidations == {0: 0, 2: 0, 4: 10}


@pytest.mark.parametrize("instruction_ns", [2, 16, 182])
def test_what_passes_within_the_instruction_is_no_wait(
    machine: Callable[..., MemoryCore], tmp_path: Path, instruction_ns: int
) -> None:
    core = machine(tables=(tmp_path / "counts", tmp_path / "traffic"))
    core.set_instruction(instruction_ns * NS)
    far, hit = (max(0, ns - instruction_ns) for ns in (LATENCY_NS[0][1], LAST_NS))
    lines = range(LINES, LINES + LAST_LINES)
    assert {core.load(0, line) for line in lines} == {far * NS}
    for line in lines:
        core.now_ps = 0  # all at once
        core.load(2 + line % 6, line)
    core.switch(0, 0xAA, 0)
    core.advance(10_000 * NS)
    costs = [core.load(0, LINES + LAST_LINES + line) for line in range(FIRST_LINES)]
    assert min(costs) > far * NS, costs
    core.switch(0, 0xBB, 0)
    costs = [core.load(0, line) for line in lines[-SECOND_LINES * 2 : -SECOND_LINES]]
    assert set(costs) == {hit * NS}
    core.finish()
    rows = {tuple(row[1:3]): row for row in read_table(tmp_path / "counts")[1].tolist()}
    stalled = {key: tuple(row[7:9]) for key, row in rows.items()}
    assert stalled[0, 0] == (far * NS * LAST_LINES, 0)
    assert 0 < stalled[0, 0xAA][1] <= stalled[0, 0xAA][0]
    assert stalled[0, 0xBB] == (sum(costs), 0)


def test_tables_are_bounded_and_say_what_they_left_out(
    machine: Callable[..., MemoryCore], tmp_path: Path
) -> None:
    core = machine(
        parameters().replace("slice 1000000000 1000", "slice 1000 5"),
        (tmp_path / "a", tmp_path / "b"),
    )
    for place in range(10):
        core.load(0, place)
        core.advance((place + 1) * NS)
    core.finish()
    header, rows = read_table(tmp_path / "a")
    assert (header[5], header[6], len(rows)) == (5, 5, 5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("numalab-memory 1", "numalab-memory 2", "line 1: this is no parameter file of version 1"),
        ("machine 8 4 4 12", "machine 8 4 4", "line 2: a number is missing"),
        ("second 32 4", "second 33 4", "line 12: the number of sets is not a power of two"),
        ("latency 3 180000", "latency 4 180000", "a number is out of range"),
        ("route 0 1 4", "route 0 1 12", "a number is out of range"),
        ("first 64 1 0", "first 64 1 0 7", "line 3: too many words"),
        ("window 10000000", "", "window or slice is missing"),
        ("window", "windows", "unknown statement"),
        ("server 3 10000 1 node3", "", "a server is missing"),
        ("ram-node1", "ram-" + "n" * 40, "a word is too long"),
    ],
)
def test_a_wrong_parameter_file_is_refused(
    machine: Callable[..., MemoryCore], old: str, new: str, message: str
) -> None:
    text = parameters()
    assert old in text
    with pytest.raises(ValueError, match=message):
        machine(text.replace(old, new, 1))


@given(st.text(alphabet=st.sampled_from("machinecpu first01 \n#9"), max_size=200))
@settings(max_examples=200)
def test_no_text_crashes_the_parser(library: Path, text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        MemoryCore(library, "numalab-memory 1\n" + text, nodes=1)


def copied_mb_s(core: MemoryCore, threads: int, node: int, lines: int) -> float:
    """What STREAM's copy gets on CPUs 0, ...: two arrays each, the second pass, turns of 10 us.

    For each line 18 instructions of 2 ns, of which a load and a store miss.
    """
    quantum, instruction, per_line = 10_000 * NS, 2 * NS, 18
    clocks, begun, now = [0] * threads, [0] * threads, 0
    at = [0] * threads
    while min(at) < 2 * lines:
        now += quantum
        for cpu in range(threads):
            source = node * CORE_LINES + 2 * cpu * lines
            while clocks[cpu] < now and at[cpu] < 2 * lines:
                line = source + at[cpu] % lines
                waits = core.load(cpu, line), core.store(cpu, line + lines)
                clocks[cpu] += per_line * instruction
                clocks[cpu] += sum(max(0, wait - instruction) for wait in waits)
                at[cpu] += 1
                if at[cpu] == lines:
                    begun[cpu] = clocks[cpu]
        core.advance(now)
    spent = (clock - begin for clock, begin in zip(clocks, begun, strict=True))
    return sum(2 * lines * 64 / 1e6 / (ps / 1e12) for ps in spent)


CORE_LINES = 1 << 18


@pytest.fixture(scope="session")
def core_of(library: Path) -> Callable[[str], MemoryCore]:
    """The core of a shipped topology, with waits that follow the traffic each 10 us."""

    def make(name: str) -> MemoryCore:
        topology = load_topology(name)
        model = memory_model(topology)
        text = render_parameters(topology, model, window_ns=10_000, slice_ns=10_000_000)
        nodes = len(topology.nodes)
        return MemoryCore(library, text, nodes=nodes, lines_of_node=CORE_LINES)

    return make


@pytest.mark.parametrize(
    ("name", "cpus", "file"),
    [("ring-4", 2, "workload/distances.txt"), ("full-2", 8, "timed/distances-full-2.txt")],
)
def test_what_guests_copied_is_what_the_core_says(
    core_of: Callable[[str], MemoryCore], name: str, cpus: int, file: str
) -> None:
    """`distances` in mode timed: one thread and all of node 0, to each node's memory."""
    printed = (DATA / file).read_text()
    values = re.findall(r"^copy 0-(\d) threads (1|all) (\d+\.\d+) MB/s$", printed, re.MULTILINE)
    assert len(values) == 2 * len(load_topology(name).nodes)
    for node, threads, mb_s in values:
        count = 1 if threads == "1" else cpus
        expected = copied_mb_s(core_of(name), count, int(node), lines=1 << 13)
        assert float(mb_s) == pytest.approx(expected, rel=0.05), (node, threads)


@pytest.mark.parametrize("node", [0, 2])
@pytest.mark.parametrize("threads", [1, 2])
def test_copies_with_lines_under_way_have_the_expected_rate(
    library: Path, threads: int, node: int
) -> None:
    usual = memory_model(load_topology("ring-4"))
    servers = tuple(replace(server, line_ps=server.line_ps // 8) for server in usual.servers)
    model = replace(usual, outstanding=8, servers=servers)
    text = render_parameters(load_topology("ring-4"), model, window_ns=10_000, slice_ns=10**7)
    core = MemoryCore(library, text, nodes=4, lines_of_node=CORE_LINES)
    expected = expected_copy_mb_s(model, 0, node, threads, 2)
    copied = copied_mb_s(core, threads, node, lines=1 << 13)
    assert copied == pytest.approx(expected, rel=0.08)  # the wait hides an instruction of each
    assert expected > 3 * expected_copy_mb_s(usual, 0, node, threads, 2)


def loaded(core: MemoryCore, readers: int, rounds: int, steps: int) -> tuple[float, float]:
    """What `loaded-latency` measures on CPU 0: MB/s of all, and ns of its step.

    The reader of a line does 14 instructions of 2 ns and two for each round.
    """
    quantum, instruction, lines = 10_000 * NS, 2 * NS, 1 << 15
    order = random.Random(1).sample(range(lines), lines)
    clocks, taken, now = [0] * (readers + 1), [0] * (readers + 1), 0
    begun = (0, 0)
    while taken[0] < 2 * steps:
        now += quantum
        for cpu in range(readers + 1):
            work = (14 + 2 * rounds if cpu else 1) * instruction
            while clocks[cpu] < now and taken[0] < 2 * steps:
                at = taken[cpu] % lines
                wait = core.load(cpu, cpu * lines + (at if cpu else order[at]))
                clocks[cpu] += work + max(0, wait - instruction)
                taken[cpu] += 1
                if cpu == 0 and taken[0] == steps:
                    begun = clocks[0], sum(taken)
        core.advance(now)
    spent_ps = clocks[0] - begun[0]
    return (sum(taken) - begun[1]) * 64 * 1e6 / spent_ps, spent_ps / NS / steps


def test_loaded_latency_in_guests_is_what_the_core_says(
    core_of: Callable[[str], MemoryCore],
) -> None:
    """`loaded-latency` on full-2: seven CPUs of a node load its memory, and the eighth waits."""
    printed = (DATA / "workload/loaded-latency.txt").read_text()
    values = re.findall(r"^rounds (\d+) (\d+\.\d+) MB/s (\d+\.\d+) ns$", printed, re.MULTILINE)
    assert len(values) == 13
    for rounds, mb_s, ns in values:
        expected = loaded(core_of("full-2"), 7, int(rounds), steps=1 << 11)
        assert (float(mb_s), float(ns)) == pytest.approx(expected, rel=0.05), rounds
