"""Trees of sysfs, of new and old kernels, whole and odd."""

from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.topology.importers.imported import Imported
from numalab.topology.importers.sysfs import read_sysfs
from numalab.topology.topology import CpuShape


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def node(number: int, cpus: str, distance: str, kib: int = 1 << 20) -> dict[str, str]:
    at = f"node/node{number}"
    return {
        f"{at}/cpulist": f"{cpus}\n",
        f"{at}/distance": f"{distance}\n",
        f"{at}/meminfo": f"Node {number} MemTotal:       {kib} kB\nNode {number} MemFree: 1 kB\n",
    }


def cpu(number: int, package: int, threads: str, caches: dict[int, str]) -> dict[str, str]:
    at = f"cpu/cpu{number}"
    files = {
        f"{at}/topology/physical_package_id": f"{package}\n",
        f"{at}/topology/thread_siblings_list": f"{threads}\n",
        f"{at}/cache/index0/type": "Instruction\n",
        f"{at}/cache/index0/level": "9\n",
        f"{at}/cache/index0/shared_cpu_list": "0\n",
    }
    for level, shared in caches.items():
        files |= {
            f"{at}/cache/index{level}/type": "Unified\n",
            f"{at}/cache/index{level}/level": f"{level}\n",
            f"{at}/cache/index{level}/shared_cpu_list": f"{shared}\n",
        }
    return files


TWO = node(0, "0-1", "10 20") | node(1, "2-3", "30 10")
FOUR = TWO | {
    name: text
    for number in range(4)
    for name, text in cpu(number, 0, "0-1" if number < 2 else "2-3", {}).items()
}


def read(root: Path) -> Imported:
    return read_sysfs(root, name="x", source="s")


@pytest.mark.parametrize("above", ["", "devices/system", "sys/devices/system"])
def test_a_tree_is_found_wherever_it_was_copied_from(tmp_path: Path, above: str) -> None:
    write(tmp_path / above, TWO)
    topology = read(tmp_path).topology
    assert topology.distances == ((10, 20), (30, 10))
    assert [(node.cpus, node.memory_mib) for node in topology.nodes] == [
        ((0, 1), 1024), ((2, 3), 1024)
    ]  # fmt: skip


def test_the_folder_of_the_nodes_alone_will_do(tmp_path: Path) -> None:
    write(tmp_path, TWO)
    assert read(tmp_path / "node").topology.distances == ((10, 20), (30, 10))


def test_a_mask_is_read_where_there_is_no_list(tmp_path: Path) -> None:
    old = TWO | {"node/node1/cpumap": "00000001,0000000c\n"}
    del old["node/node1/cpulist"]
    assert read(write(tmp_path, old)).old_cpus == (0, 1, 2, 3, 32)


@pytest.mark.parametrize(
    "more",
    [
        {"cpu/online": "0,2-3\n"},
        {"cpu/cpu0/x": "", "cpu/cpu1/online": "0\n", "cpu/cpu2/online": "1\n", "cpu/cpu3/x": ""},
    ],
)
def test_cpus_that_are_offline_are_left_out(tmp_path: Path, more: dict[str, str]) -> None:
    assert read(write(tmp_path, TWO | more)).old_cpus == (0, 2, 3)


def test_columns_of_nodes_that_are_not_there_are_dropped(tmp_path: Path) -> None:
    """Some kernels print a distance for each number up to the last node's."""
    files = node(0, "0", "10 0 20") | node(2, "1", "40 0 10")
    assert read(write(tmp_path, files)).topology.distances == ((10, 20), (40, 10))


def test_one_node_is_10_away_from_itself_whatever_it_says(tmp_path: Path) -> None:
    assert read(write(tmp_path, node(0, "0", "0"))).topology.distances == ((10,),)


def test_the_shape_is_that_of_threads_and_the_last_cache(tmp_path: Path) -> None:
    """One package of two caches of two cores; the caches of instructions do not count."""
    files = node(0, "0-3", "10")
    for number in range(4):
        half = "0-1" if number < 2 else "2-3"
        files |= cpu(number, 0, str(number), {1: str(number), 3: half})
    shape = read(write(tmp_path, files)).topology.cpu_shape
    assert shape is not None
    assert (shape.sockets, shape.dies, shape.cores, shape.threads) == (1, 2, 2, 1)


def test_padding_of_a_page_is_no_text(tmp_path: Path) -> None:
    write(tmp_path, TWO)
    (tmp_path / "node/node0/cpulist").write_bytes(b"0-1\n" + bytes(4092))
    assert read(tmp_path).old_cpus == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"x": ""}, r"no node\* folders here"),
        (TWO | {"node/node1/meminfo": "MemFree: 1 kB\n"}, "node1/meminfo: no line with MemTotal"),
        (TWO | {"node/node1/distance": "10 far\n"}, "node1/distance: not a row of distances"),
        (TWO | {"node/node1/distance": "10 999999\n"}, "node1/distance: not a row of distances"),
        (TWO | {"node/node0/cpulist": "0-\n"}, "node0/cpulist: "),
        (TWO | {"node/node2/x": ""}, "node2/cpulist: cannot read"),
        (TWO | {"node/node02/x": ""}, "node02: a number with zeros"),
        (TWO | {"node/online": "0-2\n"}, "online: nodes 0-2, but there are folders of nodes 0-1"),
        (TWO | {"node/node1/cpulist": "2,2-3\n"}, "node1/cpulist: CPU 2 is listed twice"),
        (TWO | {"node/node1/cpulist": "1-3\n"}, "node1/cpulist: CPU 1 of node 1 is in two nodes"),
        (TWO | {"node/node1/cpulist": "2-٣\n"}, "node1/cpulist: bytes that no kernel prints"),
        (
            TWO | {"node/node1/cpulist": "2-3" + "," * (1 << 16)},
            "node1/cpulist: cannot read: larger than",
        ),
        (TWO | {"node/node1/cpumap": "1c\n"}, "node1/cpulist: not the CPUs of cpumap: 2-4"),
        (TWO | {"node/node1/cpumap": "0_c\n"}, "node1/cpumap: not a cpumask: '0_c'"),
        (TWO | {"node/node1/distance": "30 -10\n"}, "node1/distance: not a row of distances"),
        (TWO | {"node/node1/distance": "30 11\n"}, "node1/distance: node 1 is 11 away"),
        (TWO | {"node/node1/distance": "9 10\n"}, "node1/distance: distance 9 from node 1"),
        (TWO | {"node/node1/distance": "256 10\n"}, "node1/distance: distance 256"),
        (TWO | {"node/node1/distance": "30\n"}, "node1/distance: 1 distance for 2 nodes"),
        (node(0, "0", "10 20"), "node0/distance: 2 distances for 1 node"),
        ({k: v for k, v in TWO.items() if k != "node/node1/distance"}, "node1/distance: cannot"),
        (TWO | {"node/node1/meminfo": "Node 0 MemTotal: 4 kB\n"}, "meminfo: line 1: .* of node 0"),
        (TWO | {"node/node1/meminfo": "Node 1 MemTotal: -4 kB\n"}, "meminfo: line 1: not a size"),
        (TWO | {"node/node1/meminfo": "Node 1 MemTotal: 8 kB\n" * 2}, "meminfo: line 2: MemTotal"),
        (TWO | node(1, "2-3", "30 10", 1 << 40), "node1/meminfo: node 1 has"),
        (
            TWO | {"node/node1/meminfo": "Node 1 MemTotal: 8 kB\nNode 1 MemFree: 9 kB\n"},
            "node1/meminfo: MemTotal is not the sum",
        ),
        (TWO | cpu(0, 0, "0", {}), "node0/cpulist: CPU 1 has no folder"),
        (TWO | {"cpu/online": "0-4\n"}, "cpu: CPU 4 is online, and in no node"),
        (TWO | {"cpu/online": "0,0-3\n"}, "cpu/online: CPU 0 is listed twice"),
        (TWO | {f"cpu/cpu{n}/online": "2\n" for n in range(4)}, "online: not 0 or 1: '2'"),
        (FOUR | cpu(1, 0, "2-3", {}), "cpu1/topology: CPU 1 is not among its own thread"),
        (FOUR | cpu(1, 0, "1-2", {}), "CPUs 1-2 are thread siblings here, and CPUs 0-1 in"),
        (FOUR | cpu(1, 0, "0-1", {3: "0-1"}) | cpu(2, 0, "2-3", {3: "1-2"}), "cache of level 3"),
        (FOUR | {"cpu/cpu1/topology/physical_package_id": "1_0\n"}, "package_id: not a number"),
    ],
)
def test_what_is_wrong_in_a_tree_is_named(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        read(write(tmp_path, files))


def test_unknown_sockets_leave_threads_and_caches(tmp_path: Path) -> None:
    """Arm kernels without a table of sockets print -1."""
    files = dict(TWO)
    for number in range(4):
        half = "0-1" if number < 2 else "2-3"
        files |= cpu(number, -1, half, {3: half})
    imported = read(write(tmp_path, files))
    assert imported.topology.cpu_shape == CpuShape(sockets=2, dies=1, cores=1, threads=2)
    assert imported.notes == ("no sockets in the source: each node becomes a socket",)


def test_latencies_of_memory_are_left_out_with_a_note(tmp_path: Path) -> None:
    note = "left out latencies and bandwidths of memory (HMAT): write them in [[interconnects]]"
    assert note not in read(write(tmp_path, TWO)).notes
    more = {"node/node1/access0/initiators/read_latency": "100\n"}
    assert note in read(write(tmp_path, more)).notes


def test_missing_topology_of_a_cpu_is_reported(tmp_path: Path) -> None:
    files = {key: text for key, text in FOUR.items() if not key.startswith("cpu/cpu3/topology")}
    notes = read(write(tmp_path, files)).notes
    assert notes[0].startswith("no sockets, cores, threads and caches of CPUs 3 in the source")


@pytest.mark.parametrize(
    ("more", "offline"),
    [
        ({"cpu/online": "0,2-3\n"}, "1"),
        ({"cpu/online": "0-3\n", "cpu/present": "0-7\n", "cpu/possible": "0-15\n"}, "4-7"),
        ({"cpu/online": "0-3\n", **{f"cpu/cpu{n}/x": "" for n in range(6)}}, "4-5"),
        ({f"cpu/cpu{n}/online": f"{int(n < 4)}\n" for n in range(5)}, "4"),
    ],
)
def test_offline_cpus_are_reported(tmp_path: Path, more: dict[str, str], offline: str) -> None:
    """A current kernel (6.12) lists only CPUs that are online in the folder of a node."""
    notes = read(write(tmp_path, TWO | more)).notes
    assert notes[0] == f"left out CPUs that are offline: {offline}"


def test_what_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a folder"):
        read(tmp_path / "nothing")
