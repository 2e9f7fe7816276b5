"""What memory costs: the table `[memory]`, its defaults, and the model's parameter file."""

from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.topology.load import list_topologies, load_topology, load_topology_file
from numalab.topology.memory.model import memory_model
from numalab.topology.memory.parameters import render_parameters
from numalab.topology.write_file import render_topology_file
from support.memory_core import MemoryCore, build_core

RING = Path(__file__).parents[3] / "topologies" / "ring-4.toml"


def ring(folder: Path, memory: str) -> Path:
    path = folder / "ring.toml"
    path.write_text(RING.read_text() + f"\n[memory]\n{memory}\n")
    return path


def test_latency_follows_distance() -> None:
    latency = memory_model(load_topology("ring-4")).latency_ns
    assert latency[0] == (90, 180, 270, 180)
    assert latency[1] == (180, 90, 180, 270)


def test_the_hmats_numbers_come_before_distances() -> None:
    model = memory_model(load_topology("slow-memory-3"))
    assert model.latency_ns[0] == (90, 140, 350)
    assert model.latency_ns[1] == (140, 90, 420)
    # 20 GiB/s beside 100 GiB/s: a fifth.
    assert model.servers[2].mb_s == pytest.approx(model.servers[0].mb_s / 5, rel=0.001)


def test_an_asymmetric_table_is_taken_as_it_stands(tmp_path: Path) -> None:
    rows = "[[80,150,300,200],[160,80,170,310],[320,180,80,190],[210,330,200,80]]"
    topology = load_topology_file(ring(tmp_path, f"latency_ns = {rows}"))
    model = memory_model(topology)
    assert (model.latency_ns[0][2], model.latency_ns[2][0]) == (300, 320)
    again = tmp_path / "again.toml"
    again.write_text(render_topology_file(topology))
    assert load_topology_file(again).memory == topology.memory


def test_data_takes_the_shortest_way() -> None:
    model = memory_model(load_topology("ring-4"))
    names = {
        pair: [model.servers[server].name for server in servers]
        for pair, servers in model.routes.items()
    }
    assert names[0, 0] == []
    assert names[0, 1] == ["link0-1"]
    assert names[2, 0] == ["link2-1", "link1-0"]


def test_caches_keep_their_proportion_to_memory() -> None:
    model = memory_model(load_topology("ring-4"))
    assert (model.l1.kib, model.l2.kib, model.llc.kib) == (32, 96, 768)
    assert model.llc.sets & (model.llc.sets - 1) == 0


@pytest.mark.parametrize(
    ("memory", "key", "text"),
    [
        ("bandwidth_mb_s = 0", "memory.bandwidth_mb_s", "from 1 to"),
        ("link_bandwidth_mb_s = 0", "memory.link_bandwidth_mb_s", "0"),
        ("bandwidth_mb_s = [1, 2]", "memory.bandwidth_mb_s", "one for each of the 4 nodes"),
        ("latency_ns = 0", "memory.latency_ns", "from 1 to"),
        ("latency_ns = [[1, 2], [2, 1]]", "memory.latency_ns", "4 rows of 4"),
        (
            "latency_ns = [[90,80,99,99],[99,90,99,99],[99,99,90,99],[99,99,99,90]]",
            "memory.latency_ns",
            "node 0 reaches node 1 in 80 ns and its own memory in 90 ns",
        ),
        ("llc_kib = 1048576", "memory.llc_kib", "more than the memory of 3072 MiB"),
        ("llc_kib = 700", "memory.llc_kib", "the next sizes are 640 and 704 KiB"),
        ("l2_kib = 1024", "memory.l2_kib", "larger than the last-level cache"),
        ("l1_kib = 33", "memory.l1_kib", "33"),
        ("speed = 3", "memory.speed", "speed"),
    ],
)
def test_a_memory_that_makes_no_sense_is_refused(
    tmp_path: Path, memory: str, key: str, text: str
) -> None:
    with pytest.raises(UserError) as refused:
        load_topology_file(ring(tmp_path, memory))
    assert refused.value.key == key
    assert text in str(refused.value)


def test_far_may_be_nearer_when_the_file_says_so(tmp_path: Path) -> None:
    rows = "[[90,80,99,99],[99,90,99,99],[99,99,90,99],[99,99,99,90]]"
    path = ring(tmp_path, f"latency_ns = {rows}\nfar_may_be_nearer = true")
    assert memory_model(load_topology_file(path)).latency_ns[0][1] == 80


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_core(tmp_path_factory.mktemp("core"))


@pytest.mark.parametrize("name", list_topologies())
def test_the_core_takes_every_topology_and_costs_what_it_says(library: Path, name: str) -> None:
    topology = load_topology(name)
    model = memory_model(topology)
    text = render_parameters(topology, model, window_ns=10_000, slice_ns=10_000_000)
    lines = 1 << 10
    core = MemoryCore(library, text, nodes=len(topology.nodes), lines_of_node=lines)
    for cpu in range(topology.cpu_count):
        for node in range(len(topology.nodes)):
            expected = model.latency_ns[topology.node_of_cpu(cpu)][node] * 1000
            assert core.load(cpu, node * lines + cpu) == expected
