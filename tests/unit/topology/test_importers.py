"""Machines described by numactl, sysfs and hwloc become topologies."""

import os
from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.topology.importers.any_format import read_machine
from numalab.topology.importers.numactl import parse_numactl
from numalab.topology.load import load_topology
from numalab.topology.predict.prediction import predict
from numalab.topology.topology import CpuShape

DATA = Path(__file__).parents[2] / "data" / "topology"
NO_PACKAGING = (
    "no sockets, cores, threads and caches in the source: each node becomes a socket, each CPU a "
    "core; import the sysfs tree for them"
)
RING = ((10, 20, 30, 20), (20, 10, 20, 30), (30, 20, 10, 20), (20, 30, 20, 10))


def test_the_four_node_machine_of_2018() -> None:
    imported = read_machine(str(DATA / "numactl-4.txt"), None, name="pairs-4")
    topology = imported.topology
    assert imported.notes == (NO_PACKAGING,)
    assert topology.distances == load_topology("pairs-4").distances
    assert [len(node.cpus) for node in topology.nodes] == [24] * 4
    assert [node.memory_mib for node in topology.nodes] == [32431, 31961, 30425, 32200]
    assert topology.cpu_shape == CpuShape(4, 1, 24, 1)


def test_sparse_numbers_ranges_and_empty_nodes() -> None:
    imported = read_machine(str(DATA / "import" / "numactl-sparse.txt"), None, name="x")
    topology = imported.topology
    assert topology.distances == ((10, 40, 80), (40, 10, 80), (80, 80, 10))
    assert [node.cpus for node in topology.nodes] == [(0, 1, 2, 3), (4, 5, 6, 7), ()]
    assert [node.memory_mib for node in topology.nodes] == [1024, 0, 2048]
    assert imported.notes == (
        "numbered nodes anew: 0 is now 0, 8 is now 1, 252 is now 2",
        NO_PACKAGING,
        "numbered CPUs anew, without the gaps: CPUs 0-7 were 0,8,16,24,32-33,40,48",
    )


def test_one_node() -> None:
    topology = read_machine(str(DATA / "import" / "numactl-single.txt"), None, name="x").topology
    assert topology.distances == ((10,),)
    assert topology.nodes[0].cpus == (0, 1)


@pytest.mark.parametrize("version", [1, 2])
def test_hwloc(version: int) -> None:
    topology = read_machine(str(DATA / "import" / f"hwloc{version}.xml"), None, name="x").topology
    assert topology.distances == RING
    assert [node.cpus for node in topology.nodes] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert {node.memory_mib for node in topology.nodes} == {1024}


@pytest.mark.parametrize("version", [1, 2])
def test_of_several_tables_of_hwloc_the_firmwares_is_taken(tmp_path: Path, version: int) -> None:
    text = (DATA / "import" / f"hwloc{version}.xml").read_text()
    before, tag, table = text.partition("<distances" if version == 1 else "  <distances2")
    end = "</distances>" if version == 1 else "</distances2>"
    table, _, after = table.partition(end)
    measured = table.replace('"10.0', '"1.0').replace("10 20", "1 2")
    assert measured != table
    file = tmp_path / "two.xml"
    file.write_text(f"{before}{tag}{measured}{end}{tag}{table}{end}{after}")
    topology = read_machine(str(file), None, name="x").topology
    assert topology.distances == RING


def test_a_pipe_in_a_sysfs_tree_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "node/node0").mkdir(parents=True)
    os.mkfifo(tmp_path / "node/node0/cpulist")
    with pytest.raises(UserError, match="cpulist: is not a file"):
        read_machine(str(tmp_path), None, name="x")


@pytest.mark.parametrize("folder", ["import/sysfs", "import/sysfs/node"])
def test_a_sysfs_tree(folder: str) -> None:
    topology = read_machine(str(DATA / folder), None, name="x").topology
    assert topology.distances == RING
    assert [node.cpus for node in topology.nodes] == [
        tuple(range(first, first + 4)) for first in range(0, 16, 4)
    ]
    assert topology.nodes[1].memory_mib == 503
    if folder.endswith("sysfs"):
        assert topology.cpu_shape == CpuShape(4, 1, 2, 2)


GOOD = (DATA / "numactl-4.txt").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no line `node N cpus:` (valid: numactl -H, lstopo --of xml, a sysfs tree)"),
        (
            "# The following is the parsable format",  # of lscpu --parse
            "line 1: numactl -H prints no such line: '# The following is the parsable format' "
            "(valid: numactl -H, lstopo --of xml, a sysfs tree)",
        ),
        (GOOD.replace("node 2 size: 30425 MB\n", ""), "line 8: no line `node 2 size: N MB`"),
        (GOOD.replace("node distances:\nnode 0 1 2 3\n", ""), "line 14: a row of the table"),
        (GOOD.partition("node distances")[0], "line 13: there is no table of node distances"),
        (
            GOOD.replace("3: 40 40 20 10", ""),
            "line 15: the table of node distances lacks the row of node 3",
        ),
        (
            GOOD.replace("3: 40 40 20 10", "3: 40 40 20"),
            "line 19: row of node 3: 3 distances for 4",
        ),
        (
            GOOD.replace("3: 40 40 20 10", "3: 40 40 20 12"),
            "line 19: node 3 is 12 away from itself",
        ),
        (GOOD.replace("3: 40 40 20 10", "3: 40 40 999 10"), "line 19: distance 999 from node 3 to"),
        (GOOD.replace("cpus: 0 1 2", "cpus: 0 1 2-x"), "line 2: not a cpulist"),
        (
            GOOD.replace(" 22 23", " 22 24"),
            "line 5: CPU 24 of node 1 is in two nodes: node 0 has it",
        ),
        (
            GOOD.replace("node 3 cpus: 72", "node 3 cpus: 72-300 301"),
            "line 11: CPU 73 is listed twice",
        ),
        ("<topology/>", "no NUMA node found"),
        ("<other/>", "the root is <other>"),
        ("<topology>", "not XML"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><topology/>', "entities are not read"),
        (
            '<topology><object type="NUMANode" os_index="x" cpuset="0x1"/></topology>',
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
    assert imported.notes[0] == (
        "no sockets, cores, threads and caches in the source; import the sysfs tree for them"
    )
    assert imported.notes[-1] == (
        "the nodes are not of one size: each CPU becomes a socket of its own, with a cache of its"
        " own"
    )


WRAPPED = """available: 2 nodes (0-1)
node 0 cpus: 0 1 2 3
4 5 6 7
node 0 size: 1000 MB
node 1 cpus: 8 9 10 11 12 13
14 15
node 1 size: 1000 MB
node distances:
node   0
  1
  0:  10
 20
  1:  20  10
"""


def test_wrapped_lines_lose_nothing() -> None:
    topology = parse_numactl(WRAPPED, name="x", source="", file="x").topology
    assert [node.cpus for node in topology.nodes] == [tuple(range(8)), tuple(range(8, 16))]
    assert topology.distances == ((10, 20), (20, 10))


def tree(root: Path, nodes: dict[int, str], cpus: dict[int, tuple[int, str, str]]) -> Path:
    """Write a sysfs tree: CPUs of each node; package, threads and cache of each CPU."""
    for node, listed in nodes.items():
        folder = root / "node" / f"node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(listed)
        row = " ".join("10" if other == node else "21" for other in nodes)
        (folder / "distance").write_text(row + "\n")
        (folder / "meminfo").write_text(f"Node {node} MemTotal:  1048576 kB\n")
    for cpu, (package, threads, cache) in cpus.items():
        folder = root / "cpu" / f"cpu{cpu}"
        (folder / "topology").mkdir(parents=True)
        (folder / "topology" / "physical_package_id").write_text(f"{package}\n")
        (folder / "topology" / "thread_siblings_list").write_text(threads + "\n")
        (folder / "cache" / "index3").mkdir(parents=True)
        (folder / "cache" / "index3" / "level").write_text("3\n")
        (folder / "cache" / "index3" / "type").write_text("Unified\n")
        (folder / "cache" / "index3" / "shared_cpu_list").write_text(cache + "\n")
    return root


def test_threads_numbered_in_blocks_stay_threads(tmp_path: Path) -> None:
    """As most machines number them: first threads of all cores, then the second ones."""
    cpus = {cpu: (cpu % 4 // 2, f"{cpu % 4},{cpu % 4 + 4}", "") for cpu in range(8)}
    caches = {0: "0-1,4-5", 1: "2-3,6-7"}
    cpus = {cpu: (package, threads, caches[package]) for cpu, (package, threads, _) in cpus.items()}
    imported = read_machine(str(tree(tmp_path, {0: "0-1,4-5", 1: "2-3,6-7"}, cpus)), None, name="x")
    assert imported.old_cpus == (0, 4, 1, 5, 2, 6, 3, 7)
    assert imported.topology.cpu_shape == CpuShape(2, 1, 2, 2)
    assert [node.cpus for node in imported.topology.nodes] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    names = [domain.name for domain in predict(imported.topology, vendor="intel").cpus[0].domains]
    assert names == ["SMT", "MC", "NUMA"]


def test_interleaved_sockets_keep_their_caches(tmp_path: Path) -> None:
    """CPUs 0, 2, 4 and 6 in one socket, with two caches."""
    cpus = {
        cpu: (cpu % 2, str(cpu), f"{cpu % 2 + cpu // 4 * 4},{cpu % 2 + cpu // 4 * 4 + 2}")
        for cpu in range(8)
    }
    imported = read_machine(str(tree(tmp_path, {0: "0,2,4,6", 1: "1,3,5,7"}, cpus)), None, name="x")
    assert imported.old_cpus == (0, 2, 4, 6, 1, 3, 5, 7)
    assert imported.topology.cpu_shape == CpuShape(2, 2, 2, 1)
    domains = predict(imported.topology, vendor="intel").cpus[0].domains
    assert [(domain.name, domain.span) for domain in domains[:1]] == [("MC", (0, 1))]


def test_clusters_are_left_out_with_a_note(tmp_path: Path) -> None:
    cpus = {cpu: (0, str(cpu), "0-3") for cpu in range(4)}
    root = tree(tmp_path, {0: "0-3"}, cpus)
    for cpu in range(4):
        path = root / "cpu" / f"cpu{cpu}" / "topology" / "cluster_cpus_list"
        path.write_text(f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}\n")
    imported = read_machine(str(root), None, name="x")
    assert imported.notes == (
        "left out clusters of 2 CPUs that share a smaller cache: no guest has them",
    )


@pytest.mark.parametrize("name", ["cpu_capacity", "cpufreq/cpuinfo_max_freq"])
@pytest.mark.parametrize(("values", "noted"), [("2211", True), ("2222", False)])
def test_speeds_that_differ_are_left_out_with_a_note(
    name: str, values: str, noted: bool, tmp_path: Path
) -> None:
    root = tree(tmp_path, {0: "0-3"}, {cpu: (0, str(cpu), "0-3") for cpu in range(4)})
    for cpu, value in enumerate(values):
        path = root / "cpu" / f"cpu{cpu}" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{value}\n")
    (root / "cpu/cpu3" / name).unlink()
    (root / "cpu/cpu3" / name).mkdir()  # a copy that cannot be read
    note = f"left out speeds of CPUs, which differ ({name}): all CPUs of a guest are equal"
    assert read_machine(str(root), None, name="x").notes == ((note,) if noted else ())


def test_uneven_sockets_are_lost_with_a_note_and_threads_kept(tmp_path: Path) -> None:
    cpus = {cpu: (int(cpu > 1), f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}", "0-5") for cpu in range(6)}
    imported = read_machine(str(tree(tmp_path, {0: "0-1", 1: "2-5"}, cpus)), None, name="x")
    assert imported.topology.cpu_shape == CpuShape(3, 1, 1, 2)
    assert "the sockets and the nodes are not of one size" in imported.notes[-1]


def test_a_link_in_a_tree_shows_nothing_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("SECRET_KEY=5\n")
    root = tree(tmp_path, {0: "0-1"}, {cpu: (0, str(cpu), "0-1") for cpu in (0, 1)})
    package = root / "cpu" / "cpu0" / "topology" / "physical_package_id"
    package.unlink()
    package.symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match=r"physical_package_id: not a number$"):
        read_machine(str(root), None, name="x")


def test_odd_files_of_a_tree(tmp_path: Path) -> None:
    """Padding of a page, masks of old kernels, CPU 0 offline."""
    cpus = {cpu: (0, str(cpu), "1-3") for cpu in (1, 2, 3)}
    root = tree(tmp_path, {0: "0-1\n\0\0", 1: "2-3"}, cpus)
    mask = root / "node" / "node1" / "cpulist"
    mask.rename(mask.with_name("cpumap"))
    mask.with_name("cpumap").write_text("00000000,0000000c\n")
    (root / "cpu" / "online").write_text("1-3\n")
    imported = read_machine(str(root), None, name="x")
    assert imported.old_cpus == (1, 2, 3)
    assert [node.cpus for node in imported.topology.nodes] == [(0,), (1, 2)]


HBM = """<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x0000000f" gp_index="1">
  <object type="Package" os_index="0" cpuset="0x0000000f" gp_index="2">
   <object type="NUMANode" os_index="0" cpuset="0x0000000f" local_memory="4294967296"/>
   <object type="NUMANode" os_index="1" cpuset="0x0000000f" local_memory="2147483648"
           subtype="MCDRAM"/>
   <object type="Core" os_index="0" cpuset="0x00000005">
    <object type="PU" os_index="0" cpuset="0x00000001"/>
    <object type="PU" os_index="2" cpuset="0x00000004"/>
   </object>
   <object type="Core" os_index="1" cpuset="0x0000000a">
    <object type="PU" os_index="1" cpuset="0x00000002"/>
    <object type="PU" os_index="3" cpuset="0x00000008"/>
   </object>
  </object>
 </object>
</topology>
"""


def test_a_node_of_memory_alone_has_no_cpus() -> None:
    imported = read_machine("-", HBM.encode(), name="x")
    nodes = [(node.cpus, node.memory_mib) for node in imported.topology.nodes]
    assert nodes == [((0, 1, 2, 3), 4096), ((), 2048)]
    assert imported.old_cpus == (0, 2, 1, 3)
    assert imported.topology.cpu_shape == CpuShape(1, 1, 2, 2)
    assert imported.topology.distances == ((10, 20), (20, 10))
    assert any("no table of distances" in note for note in imported.notes)
