"""The host as hardware: read from its files, recorded, read back, and refused when it is wrong."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.testing

from numalab.cli.guest.host import app
from numalab.errors import HostError, UserError
from numalab.host.facts import (
    disturbances,
    host_to_dict,
    parse_chosen,
    parse_meminfo,
    parse_steal,
    parse_switch,
)
from numalab.host.read import available_mib, read_host, read_host_file, total_mib
from support.host_tree import SERVERS, Server, write_tree

HOSTS = Path(__file__).parents[2] / "data/machine/hosts"
SMALL = Server(((10, 20), (20, 10)), 2, 2, 2, 2, 4096, ids=(0, 8))


@pytest.mark.parametrize("name", SERVERS)
def test_a_recording_is_what_the_reader_makes_of_the_server(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    host = read_host(write_tree(SERVERS[name], tmp_path))
    path = HOSTS / f"{name}.json"
    if request.config.getoption("--regenerate"):
        path.write_text(json.dumps(host_to_dict(host), indent=1) + "\n", encoding="utf-8")
    assert read_host_file(path) == host


def test_nodes_cpus_and_caches_are_read(tmp_path: Path) -> None:
    host = read_host(write_tree(SMALL, tmp_path))
    assert [node.id for node in host.nodes] == [0, 8]
    assert [node.cpus for node in host.nodes] == [(0, 1, 4, 5), (2, 3, 6, 7)]
    assert [(node.memory_mib, node.free_mib) for node in host.nodes] == [(4096, 3072)] * 2
    assert host.distances == ((10, 20), (20, 10))
    cpu = host.cpu_of[6]
    assert (cpu.socket, cpu.siblings, cpu.llc) == (1, (2, 6), (2, 3, 6, 7))
    assert host.node_of_cpu[6] == 1
    assert (host.boost, host.numa_balancing, host.ksm) == (False, False, False)
    assert host.transparent_hugepages == "madvise"
    assert (host.nohz_full, host.steal_percent, host.load) == ((), 0.0, 0.08)


def test_a_cpu_that_is_offline_is_nowhere(tmp_path: Path) -> None:
    write_tree(SMALL, tmp_path)
    (tmp_path / "sys/devices/system/cpu/online").write_text("0-6\n")
    host = read_host(tmp_path)
    assert host.cpu_ids == tuple(range(7))
    assert host.nodes[1].cpus == (2, 3, 6)
    assert host.cpu_of[3].siblings == (3,)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("node/node8/cpulist", "2,6-7", "no node has CPU 3, which is online"),
        ("cpu/online", "", "no CPU is online"),
        ("node/node8/distance", "20 10 30", "the distances are no square table"),
    ],
)
def test_a_host_that_contradicts_itself_is_a_host_error(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    write_tree(SMALL, tmp_path)
    (tmp_path / "sys/devices/system" / name).write_text(f"{text}\n")
    with pytest.raises(HostError, match=message):
        read_host(tmp_path)


def test_distances_may_have_a_column_for_each_number_up_to_the_last(tmp_path: Path) -> None:
    write_tree(SMALL, tmp_path)
    host = read_host(tmp_path)
    for node, row in ((0, "10 0 0 0 0 0 0 0 20"), (8, "20 0 0 0 0 0 0 0 10")):
        (tmp_path / f"sys/devices/system/node/node{node}/distance").write_text(f"{row}\n")
    assert read_host(tmp_path) == host


def test_a_kernel_without_numa_is_one_node(tmp_path: Path) -> None:
    for name, text in {
        "sys/devices/system/cpu/online": "0-1",
        "proc/meminfo": "MemTotal: 2097152 kB\nMemFree: 1048576 kB\n",
        "proc/loadavg": "1.5 0 0 1/2 3",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    host = read_host(tmp_path)
    assert [(node.id, node.cpus, node.memory_mib) for node in host.nodes] == [(0, (0, 1), 2048)]
    assert host.distances == ((10,),)
    assert host.steal_percent is None and host.boost is None


def test_this_host_can_be_read() -> None:
    assert set(read_host().cpu_ids) >= os.sched_getaffinity(0)


def test_no_host_is_a_host_error(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="cpu/online"):
        read_host(tmp_path)


def test_what_disturbs_timing_is_named(tmp_path: Path) -> None:
    files = {
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave\n",
        "sys/devices/system/cpu/intel_pstate/no_turbo": "0\n",
        "sys/kernel/mm/ksm/run": "1\n",
        "proc/sys/kernel/numa_balancing": "1\n",
        "proc/loadavg": "3.20 0 0 1/2 3\n",
        "proc/stat": "cpu  50 0 0 48 0 0 0 2 0 0\n",
    }
    server = Server(((10,),), 1, 2, 2, 2, 4096, files=files)
    host = read_host(write_tree(server, tmp_path))
    words = "\n".join(map(str, disturbances(host, (1,))))
    for part in (
        "powersave",
        "boost",
        "NUMA balancing",
        "KSM",
        "2.0 %",
        "load of 3.2",
        "3 are not",
    ):
        assert part in words
    assert "powersave" not in "\n".join(map(str, disturbances(host, (0,))))


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_chosen, "always [madvise] never\n", "madvise"),
        (parse_chosen, "", ""),
        (parse_switch, "2\n", True),
        (parse_switch, "0\n", False),
        (parse_switch, "on\n", None),
        (parse_steal, "cpu 1 2\n", None),
        (parse_steal, "cpu  75 0 0 0 0 0 0 25 9 9\ncpu0 1\n", 25.0),
        (parse_meminfo, "Node 0 MemTotal: 4096 kB\nNode 0 MemFree: 1024 kB\n", (4, 1)),
    ],
)
def test_single_files(parse: Callable[[str], object], text: str, value: object) -> None:
    assert parse(text) == value


def recording() -> dict[str, Any]:
    value: dict[str, Any] = json.loads((HOSTS / "two-node.json").read_text())
    return value


def set_at(value: Any, key: str, new: object) -> None:
    *parents, last = key.split(".")
    for part in parents:
        value = value[int(part)] if part.isdecimal() else value[part]
    value[int(last) if last.isdecimal() else last] = new


@pytest.mark.parametrize(
    ("key", "new", "message"),
    [
        ("nodes", [], "nodes: "),
        ("nodes.0.id", 1, "two nodes have the same id"),
        ("nodes.0.cpus", "0-3", "cpus: CPUs 4-31,64-95 are in no node"),
        ("nodes.0.cpus", "0-31,64-95,500", "nodes[0].cpus: CPU 500 is not in cpus"),
        ("nodes.1.cpus", "0,32-63,96-127", "nodes[1].cpus: CPU 0 is in nodes[0] as well"),
        ("cpus.1.id", 0, "cpus: two CPUs have the same id"),
        ("nodes.0.cpus", "3-0", "nodes[0].cpus: range '3-0' is backwards"),
        ("nodes.0.memory_mib", -1, "nodes[0].memory_mib: "),
        ("distances", [[10]], "no table of 2 x 2"),
        ("distances.0.1", 300, "distances[0][1]: "),
        ("cpus.0.llc", "5", "CPU 0 is not among its own"),
        ("cpus.0.siblings", "0,900", "siblings or llc that are not in cpus"),
        ("cpus.0.llc", "0-2048", "cpus[0].llc: needs at most 2048 values, found 2049"),
        ("distances", [[10] * 2000], "distances[0]: needs at most 1024 values, found 2000"),
        ("load", [1] * 1_200_000, "values, and at most 1200000 are read"),
        ("load", dict.fromkeys(map(str, range(100_000)), 1), "keys, and at most 100000 are read"),
        ("load", "much", "load: "),
        ("governer", "x", "governer: unknown key"),
    ],
)
def test_a_wrong_recording_is_refused(key: str, new: object, message: str, tmp_path: Path) -> None:
    value = recording()
    set_at(value, key, new)
    path = tmp_path / "host.json"
    path.write_text(json.dumps(value))
    with pytest.raises(UserError) as caught:
        read_host_file(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"{", "not JSON"), (b"[]", "no JSON object"), (b"\xff\xfe", "not JSON"), (b"{}", "missing")],
)
def test_a_file_that_is_no_recording(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_bytes(data)
    with pytest.raises(UserError, match=message):
        read_host_file(path)
    with pytest.raises(UserError, match="cannot read"):
        read_host_file(tmp_path / "none.json")


def test_the_command_shows_and_records_a_host(tmp_path: Path) -> None:
    run = typer.testing.CliRunner().invoke
    words = ["show", "--host", str(HOSTS / "four-node.json")]
    shown = run(app, words).stdout
    for part in ("4-15,20-31", "128 in 64 cores and 2 sockets", "performance", "0/0 of 1 GiB"):
        assert part in shown
    again = tmp_path / "again.json"
    again.write_text(run(app, [*words, "--json"]).stdout)
    assert read_host_file(again) == read_host_file(HOSTS / "four-node.json")
    assert run(app, ["show"]).exit_code == 0


def test_available_memory_is_read(tmp_path: Path) -> None:
    path = tmp_path / "proc/meminfo"
    path.parent.mkdir()
    path.write_text("MemTotal: 8388608 kB\nMemAvailable:    4194304 kB\n")
    assert (available_mib(tmp_path), total_mib(tmp_path)) == (4096, 8192)
    path.write_text("MemTotal: 8388608 kB\n")
    with pytest.raises(HostError, match="MemAvailable"):
        available_mib(tmp_path)
    assert 0 < available_mib() <= total_mib()
