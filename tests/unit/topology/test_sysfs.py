"""Trees of sysfs, of new and old kernels, whole and odd."""

from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.topology.importers.common import Imported
from numalab.topology.importers.sysfs import read_sysfs


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


def read(root: Path) -> Imported:
    return read_sysfs(root, name="x", source="s")


@pytest.mark.parametrize("above", ["", "devices/system", "sys/devices/system"])
def test_a_tree_is_found_wherever_it_was_copied_from(tmp_path: Path, above: str) -> None:
    write(tmp_path / above, TWO)
    found = read(tmp_path).topology
    assert found.distances == ((10, 20), (30, 10))
    assert [(each.cpus, each.memory_mib) for each in found.nodes] == [
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
    ],
)
def test_what_is_wrong_in_a_tree_is_named(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        read(write(tmp_path, files))


def test_what_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a folder"):
        read(tmp_path / "nothing")
