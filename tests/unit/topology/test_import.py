"""Machines described by numactl, sysfs and hwloc become topologies."""

from pathlib import Path

import pytest

from lab.errors import UserError
from lab.topology.load import load_topology
from lab.topology.model import CpuShape
from lab.topology.read_any import read_machine
from lab.topology.read_numactl import parse_numactl

DATA = Path(__file__).parents[2] / "data" / "topology"
RING = ((10, 20, 30, 20), (20, 10, 20, 30), (30, 20, 10, 20), (20, 30, 20, 10))


def test_the_four_node_machine_of_2018() -> None:
    imported = read_machine(str(DATA / "numactl-4.txt"), None, name="pairs-4")
    found = imported.topology
    assert imported.notes == ()
    assert found.distances == load_topology("pairs-4").distances
    assert [len(node.cpus) for node in found.nodes] == [24] * 4
    assert [node.memory_mib for node in found.nodes] == [32431, 31961, 30425, 32200]
    assert found.cpu_shape == CpuShape(4, 1, 24, 1)


def test_sparse_numbers_ranges_and_empty_nodes() -> None:
    imported = read_machine(str(DATA / "import" / "numactl-sparse.txt"), None, name="x")
    found = imported.topology
    assert found.distances == ((10, 40, 80), (40, 10, 80), (80, 80, 10))
    assert [node.cpus for node in found.nodes] == [(0, 1, 2, 3), (4, 5, 6, 7), ()]
    assert [node.memory_mib for node in found.nodes] == [1024, 0, 2048]
    assert imported.notes == (
        "numbered nodes anew: 0 is now 0, 8 is now 1, 252 is now 2",
        "numbered CPUs anew, without the gaps",
    )


def test_one_node() -> None:
    found = read_machine(str(DATA / "import" / "numactl-single.txt"), None, name="x").topology
    assert found.distances == ((10,),)
    assert found.nodes[0].cpus == (0, 1)


@pytest.mark.parametrize("version", [1, 2])
def test_hwloc(version: int) -> None:
    found = read_machine(str(DATA / "import" / f"hwloc{version}.xml"), None, name="x").topology
    assert found.distances == RING
    assert [node.cpus for node in found.nodes] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert {node.memory_mib for node in found.nodes} == {1024}


@pytest.mark.parametrize("folder", ["import/sysfs", "import/sysfs/node"])
def test_a_sysfs_tree(folder: str) -> None:
    found = read_machine(str(DATA / folder), None, name="x").topology
    assert found.distances == RING
    assert [node.cpus for node in found.nodes] == [
        tuple(range(first, first + 4)) for first in range(0, 16, 4)
    ]
    assert found.nodes[1].memory_mib == 503
    if folder.endswith("sysfs"):
        assert found.cpu_shape == CpuShape(4, 1, 2, 2)


GOOD = (DATA / "numactl-4.txt").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no line `node N cpus:`"),
        ("hello", "no line `node N cpus:`"),
        (GOOD.replace("node 2 size: 30425 MB\n", ""), "no line `node 2 size: N MB`"),
        (GOOD.replace("node distances:\nnode 0 1 2 3\n", ""), "no table of node distances"),
        (GOOD.replace("3: 40 40 20 10", ""), "lacks node 3"),
        (GOOD.replace("3: 40 40 20 10", "3: 40 40 20"), "row of node 3: 3 distances for 4 nodes"),
        (GOOD.replace("3: 40 40 20 10", "3: 40 40 20 12"), "12 away from itself"),
        (GOOD.replace("3: 40 40 20 10", "3: 40 40 999 10"), "distance 999 from node 3 to node 2"),
        (GOOD.replace("cpus: 0 1 2", "cpus: 0 1 2-x"), "line 2: not a cpulist"),
        (GOOD.replace("cpus: 0 1 2", "cpus: 24 1 2"), "a CPU is in two nodes"),
        (GOOD.replace("cpus: 0 1 2", "cpus: 96-300"), "at most 256"),
        ("<topology/>", "no NUMA node found"),
        ("<other/>", "the root is <other>"),
        ("<topology>", "not XML"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><topology/>', "entities are not read"),
        (
            '<topology><object type="NUMANode" os_index="x"/></topology>',
            "os_index is not a number: 'x'",
        ),
        (
            '<topology><object type="NUMANode" os_index="0" cpuset="zz"/></topology>',
            "not a CPU set: 'zz'",
        ),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_machine("-", text.encode(), name="x")
    assert message in str(caught.value)


def test_a_folder_without_nodes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="folders here"):
        read_machine(str(tmp_path), None, name="x")
    (tmp_path / "node0").mkdir()
    with pytest.raises(UserError, match="cannot read"):
        read_machine(str(tmp_path), None, name="x")


def test_a_missing_file() -> None:
    with pytest.raises(UserError, match="cannot read"):
        read_machine("nothing.txt", None, name="x")


def test_uneven_cpus_become_sockets_of_their_own() -> None:
    text = GOOD.replace("cpus: 0 1 2 3 ", "cpus: ", 1)
    imported = parse_numactl(text, name="x", source="", file="x")
    assert imported.topology.cpu_shape is None
    assert imported.notes[-1] == "CPUs are not in even blocks: each becomes a socket of its own"
