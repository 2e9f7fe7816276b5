"""The prediction against real boots: what guests of 4.12 to 7.3 reported, recorded as text."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.cpulist import format_cpulist
from numalab.errors import UserError
from numalab.topology.differences import compare_guest, format_differences
from numalab.topology.guest_view import GuestView, parse_guest_view
from numalab.topology.load import list_topologies, load_topology
from numalab.topology.predict.firmware import as_guest_numbers, describe_numbers, node_numbers
from numalab.topology.predict.groups import Construction
from numalab.topology.predict.hazards import hazards
from numalab.topology.predict.prediction import Prediction, predict
from numalab.topology.predict.rules import rules_for
from numalab.topology.topology import CpuShape, Node, Topology, memory_first, renumbered

BOOTS = Path(__file__).parents[2] / "data" / "topology" / "boots"
RECORDED = sorted(path.name for path in BOOTS.glob("*.txt"))


def recorded(name: str) -> tuple[Topology, GuestView]:
    """Read a boot: the machine that was started, and what its guest left."""
    machine = re.sub(r"\.(4\.12|5\.10|6\.1|6\.12|7\.3|undo|amd|zen|intel)\.txt$", "", name)
    own = BOOTS / f"{machine}.toml"
    topology = load_topology(own if own.exists() else machine)
    nodes, domains, dmesg = re.split(r"^# \w+\n", (BOOTS / name).read_text(), flags=re.M)[1:]
    files = dict(line.split(":", 1) for line in nodes.splitlines())
    return topology, parse_guest_view(files, domains, dmesg)


def predicted(name: str, topology: Topology, guest: GuestView) -> Prediction:
    assert guest.kernel is not None
    assert guest.vendor is not None
    old = name.endswith(".undo.txt")
    construction = Construction.BEFORE_4_13 if old else Construction.NOW
    return predict(topology, guest.kernel, vendor=guest.vendor, construction=construction)


@pytest.mark.parametrize("name", RECORDED)
def test_a_real_boot_agrees(name: str) -> None:
    topology, guest = recorded(name)
    assert guest.kernel is not None and guest.kernel.startswith(
        ("4.12", "5.10", "6.1", "6.12", "7.3")
    )
    assert guest.domain_files
    differences = compare_guest(topology, predicted(name, topology, guest), guest)
    assert not differences, format_differences(differences)


def test_4_12_has_the_old_groups_and_prints_no_masks() -> None:
    ring, guest = recorded("ring-4.4.12.txt")
    prediction = predict(ring, "4.12")
    assert prediction.construction is Construction.BEFORE_4_13
    assert prediction.levels.distances == (10, 20, 30)
    assert [domain.name for domain in prediction.cpus[0].domains] == ["MC", "NUMA", "NUMA"]
    groups = [
        {nodes_of(ring, group.span) for group in guest.sched_log.cpus[cpu].domains[-1].groups}
        for cpu in (0, 2, 4, 6)
    ]
    assert groups == [{(0, 1, 3), (1, 2, 3)}] * 4
    assert guest.sched_log.cpus[0].domains[1].groups[1].capacity == 2048


def test_before_5_12_a_distance_that_node_0_lacks_makes_no_level() -> None:
    """Node 0 has 10 and 30; nodes 1 and 2 have 20 as well, which is smaller than 30."""
    late, guest = recorded("late.4.12.txt")
    old = predict(late, "4.12")
    assert old.levels.distances == (10, 30, 40)
    assert old.errors[0] == guest.sched_log.errors[0] == "ERROR: Node-0 not representative"
    assert predict(late, "5.12").levels.distances == (10, 20, 30, 40)


def test_before_5_10_a_numa_domain_as_wide_as_its_child_stays() -> None:
    """Node 1 has no neighbour at distance 20, so that its first NUMA domain is its node again."""
    lonely, guest = recorded("lonely.4.12.txt")
    booted = [(domain.name, domain.span) for domain in guest.sched_log.cpus[2].domains]
    assert booted == [("MC", (2, 3)), ("NUMA", (2, 3)), ("NUMA", tuple(range(8)))]
    new = predict(lonely, "5.10").cpus[2].domains
    assert [domain.name for domain in new] == ["MC", "NUMA"]


def test_every_shipped_machine_was_booted() -> None:
    booted = {name.removesuffix(".6.12.txt") for name in RECORDED if name.endswith(".6.12.txt")}
    assert booted >= set(list_topologies())


def test_one_way_farther_than_the_other() -> None:
    """The kernel attaches no domain to CPU 1, whose only group would be its own."""
    topology, guest = recorded("asymmetric.amd.txt")
    assert guest.sched_log.cpus[1].domains == ()
    assert guest.sched_log.errors == ("ERROR: Node-distance not symmetric",)
    dangers = {hazard.name for hazard in hazards(topology, predict(topology))}
    assert dangers == {"asymmetric distances", "no sched domain"}


def test_the_old_construction_does_not_agree_with_the_new_kernel() -> None:
    topology, guest = recorded("ring-4.6.12.txt")
    old = predict(topology, guest.kernel or "", construction=Construction.BEFORE_4_13)
    subjects = {difference.subject for difference in compare_guest(topology, old, guest)}
    assert "CPU 2, domain 2 (NUMA 0-7), groups" in subjects


def nodes_of(topology: Topology, cpus: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(topology.node_of_cpu(cpu) for cpu in cpus))


@pytest.mark.parametrize(
    ("construction", "expected"),
    [
        (Construction.NOW, [{(0, 1, 3), (1, 2, 3)}, {(0, 1, 2), (0, 2, 3)}] * 2),
        (Construction.POST_2017, [{(0, 1, 3), (1, 2, 3)}, {(0, 1, 2), (0, 2, 3)}] * 2),
        (Construction.BEFORE_4_13, [{(0, 1, 3), (1, 2, 3)}] * 4),
    ],
)
def test_the_groups_of_the_2017_patch(
    construction: Construction, expected: list[set[tuple[int, ...]]]
) -> None:
    ring = load_topology("ring-4")
    prediction = predict(ring, construction=construction)
    groups = [
        {nodes_of(ring, group.span) for group in prediction.cpus[2 * node].domains[-1].groups}
        for node in range(4)
    ]
    assert groups == expected
    for cpu in prediction.cpus:
        assert cpu.cpu in cpu.domains[-1].groups[0].span


def test_line_4_follows_the_kernels_own_comment() -> None:
    line = load_topology("line-4")
    prediction = predict(line)
    groups = [
        [nodes_of(line, group.span) for group in prediction.cpus[cpu].domains[2].groups]
        for cpu in (0, 2, 4, 6)
    ]
    assert groups[1] == [(0, 1, 2), (2, 3)]
    assert groups[2] == [(1, 2, 3), (0, 1)]
    # Nodes 0 and 3 cannot use their neighbours' spans, which are wider than their own domain.
    assert all(set(group) <= {0, 1, 2} for group in groups[0])
    assert all(set(group) <= {1, 2, 3} for group in groups[3])


def test_before_5_13_groups_reach_out_of_their_domain() -> None:
    line = load_topology("line-4")
    domain = predict(line, "5.10").cpus[0].domains[2]
    assert any(not set(group.span) <= set(domain.span) for group in domain.groups)
    domain = predict(line, "6.1").cpus[0].domains[2]
    assert all(set(group.span) <= set(domain.span) for group in domain.groups)


def test_names_and_flags_change_with_the_version() -> None:
    uneven = load_topology(BOOTS / "uneven.toml")
    assert predict(uneven, "6.1").cpus[0].domains[0].name == "DIE"
    assert predict(uneven, "6.12").cpus[0].domains[0].name == "PKG"
    ring = load_topology("ring-4")
    assert "SD_SHARE_PKG_RESOURCES" in predict(ring, "6.1").cpus[0].domains[0].flags
    assert "SD_SHARE_LLC" in predict(ring, "7.0").cpus[0].domains[0].flags
    assert "SD_OVERLAP" in predict(ring, "7.0").cpus[0].domains[1].flags
    assert "SD_OVERLAP" not in predict(ring, "7.3.4").cpus[0].domains[1].flags


def test_nodes_without_cpus_made_levels_before_5_18() -> None:
    machine = load_topology("slow-memory-3")
    assert predict(machine, "5.10").levels.distances == (10, 20, 30, 40)
    assert predict(machine, "6.12").levels.distances == (10, 20)
    assert predict(machine, "5.10").numa_type != predict(machine, "6.12").numa_type


def test_versions() -> None:
    assert rules_for("6.12.117-numalab").series == "6.12"
    assert rules_for("7.1-rc2").series == "7.1"
    assert rules_for("6.6.1").package_level == "DIE"
    assert (rules_for("6.8").package_level, rules_for("6.8").llc_flag[9:]) == (
        "PKG",
        "PKG_RESOURCES",
    )
    assert rules_for("6.12").amd_threads and rules_for("6.12.48-x").amd_threads
    assert not rules_for("6.12.47").amd_threads
    assert rules_for("5.15.167.4-microsoft").series == "5.15"
    for wrong in ("4.3", "six", "", "6", "6.x", "6.12.x", "6.12.", "٦.١٢", "-6.12"):
        with pytest.raises(UserError):
            rules_for(wrong)


@pytest.mark.parametrize(
    ("version", "named", "series"),
    [
        ("6.12", "6.12.48 or later", "6.12"),
        ("6.12.40", "6.12.40", "6.12"),
        ("6.12.117-numalab", "6.12.117", "6.12"),
        ("6.11.3", "6.11.3", "6.11"),
        ("7.3.4", "7.3.4", "7.3"),
        ("7.4-rc1", "7.4", "7.3"),
        ("8.0", "8.0", "7.3"),
        ("8.0.5", "8.0.5", "7.3"),
        ("6.20", "6.20", "6.19"),
        ("5.99.1", "5.99.1", "5.19"),
    ],
)
def test_an_unknown_version_has_the_rules_of_the_newest_known_one(
    version: str, named: str, series: str
) -> None:
    rules = rules_for(version)
    assert (rules.version, rules.series) == (named, series)
    assert bool(rules.remark) == (not version.startswith(series))
    if rules.remark:
        assert rules.remark == (
            f"Linux {named} is not known to numalab, the newest known version is 7.3: predicted "
            f"with the rules of {series}"
        )
        assert replace(rules, version="", remark="") == replace(
            rules_for(series), version="", remark=""
        )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ring-2", "direct"),
        ("full-8", "direct"),
        ("ring-4", "glueless mesh"),
        ("mesh-8", "glueless mesh"),
        ("opteron-8", "glueless mesh"),
        ("backplane-8", "backplane"),
        ("epyc-nps4", "backplane"),
    ],
)
def test_numa_type(name: str, expected: str) -> None:
    assert predict(load_topology(name)).numa_type == expected


@pytest.mark.parametrize(
    ("kernel", "full", "ring"),
    [
        ("4.14", "direct", "glueless mesh"),
        ("4.15", "backplane", "glueless mesh"),
        ("4.18", "backplane", "glueless mesh"),
        ("4.19", "direct", "glueless mesh"),
    ],
)
def test_numa_type_where_the_local_distance_counts(kernel: str, full: str, ring: str) -> None:
    types = [predict(load_topology(name), kernel).numa_type for name in ("full-4", "ring-4")]
    assert types == [full, ring]
    local = replace(
        load_topology("ring-2"), nodes=(Node(0, (0, 1, 2, 3), 512),), distances=((10,),)
    )
    assert predict(replace(local, cpu_shape=CpuShape(1, 1, 4, 1)), kernel).numa_type == "direct"


@pytest.mark.parametrize(
    ("kernel", "names", "groups"),
    [
        ("4.14", ["NUMA"], ["0-3", "4-7", "8-11", "12-15"]),
        ("4.15", ["NODE", "NUMA"], ["0-7", "8-15"]),
    ],
)
def test_nodes_of_several_dies_are_a_level_since_4_15(
    kernel: str, names: list[str], groups: list[str]
) -> None:
    nodes = (Node(0, tuple(range(8)), 512), Node(1, tuple(range(8, 16)), 512))
    dies = Topology("d", "", "", nodes, ((10, 20), (20, 10)), CpuShape(1, 4, 4, 1))
    domains = predict(dies, kernel, vendor="intel").cpus[0].domains
    assert [domain.name for domain in domains[1:]] == names
    assert [format_cpulist(group.span) for group in domains[-1].groups] == groups


def test_the_kernel_numbers_nodes_with_cpus_first() -> None:
    assert node_numbers(load_topology(BOOTS / "cpuless1.toml")) == (0, 3, 1, 2)
    assert node_numbers(load_topology(BOOTS / "swap.toml")) == (2, 0, 1, 3)


MOVED = """
summary = "the first node has no memory, the second no CPUs"
nodes = 3
cpus = ["0,2", "", "1,3"]
memory_mib = [0, 512, 768]
links = [[0, 1, 16], [1, 2, 22]]
[cpu]
sockets = 4
[memory]
latency_ns = [[90, 150, 270], [151, 91, 200], [271, 201, 92]]
bandwidth_mb_s = [1000, 2000, 3000]
"""


def test_a_machine_with_the_numbers_of_its_guest_is_the_same_machine(tmp_path: Path) -> None:
    (tmp_path / "moved.toml").write_text(MOVED)
    moved = load_topology(tmp_path / "moved.toml")
    guest = as_guest_numbers(moved)
    assert [(node.id, node.cpus, node.memory_mib) for node in guest.nodes] == [
        (0, (0, 2), 0), (1, (1, 3), 768), (2, (), 512)
    ]  # fmt: skip
    assert guest.distances == ((10, 28, 16), (28, 10, 22), (16, 22, 10))
    assert guest.links == ((0, 2), (1, 2))
    assert guest.memory.latency_ns == ((90, 270, 150), (271, 92, 201), (151, 200, 91))
    assert guest.memory.bandwidth_mb_s == (1000, 3000, 2000)
    assert as_guest_numbers(guest) is guest
    assert describe_numbers(moved).endswith(": 1 becomes 2, 2 becomes 1")
    assert describe_numbers(guest) == ""
    # QEMU's first node is one with memory; its blocks have its numbers.
    in_qemu = renumbered(moved, memory_first(moved))
    assert as_guest_numbers(in_qemu) == guest
    assert node_numbers(in_qemu) == (2, 0, 1)


@pytest.mark.parametrize(
    ("kernel", "names"),
    [("6.1", ["MC", "NUMA"]), ("6.12.40", ["MC", "NUMA"]), ("6.12.48", ["SMT", "MC", "NUMA"])],
)
def test_zen_hosts_give_their_guests_no_topoext(kernel: str, names: list[str]) -> None:
    """Without it each thread was a core until 6.12.48, on Zen as on older AMD CPUs."""
    nodes = (Node(0, (0, 1, 2, 3), 512), Node(1, (4, 5, 6, 7), 512))
    threads = Topology("t", "", "", nodes, ((10, 20), (20, 10)), CpuShape(2, 1, 2, 2))
    for vendor in ("amd", "zen"):
        domains = predict(threads, kernel, vendor=vendor).cpus[0].domains
        assert [domain.name for domain in domains] == names


@pytest.mark.parametrize("kernel", ["5.10", "6.1", "6.12.40"])
def test_old_kernels_see_dies_of_one_thread_as_qemu_counts_them(kernel: str) -> None:
    """Before QEMU 8.2 leaf 0x80000008 has the threads of a die, since then those of a socket."""
    nodes = (Node(0, (0, 1), 512), Node(1, (2, 3), 512))
    dies = Topology("d", "", "", nodes, ((10, 20), (20, 10)), CpuShape(2, 2, 1, 1))
    names = {
        qemu: [domain.name for domain in predict(dies, kernel, qemu=qemu).cpus[0].domains]
        for qemu in ((), (10, 0), (8, 2), (8, 1), (7, 2))
    }
    package = rules_for(kernel).package_level
    assert names[7, 2] == names[8, 1] == [package, "NUMA"]
    assert names[8, 2] == names[10, 0] == names[()] == ["MC", "NUMA"]


def test_the_sibling_warning_is_of_the_pair_that_comes_up_first(tmp_path: Path) -> None:
    """Since 6.5 the first threads of all cores come up first (seen: 6.12.117, five nodes)."""
    file = tmp_path / "wide.toml"
    file.write_text(
        'summary = "x"\nnodes = 6\ncpus = 2\nmemory_mib = 512\n[cpu]\nsockets = 1\nthreads = 4\n'
        '[shape]\nkind = "full"\ndistances = [10, 20]\n'
    )
    wide = load_topology(file)
    (warning,) = predict(wide, "6.12").machine.warnings
    assert warning.startswith(
        "sched: CPU #4's llc-sibling CPU #0 is not on the same node! [node: 2 "
    )
    (warning,) = predict(wide, "6.1", vendor="intel").machine.warnings
    assert warning.startswith(
        "sched: CPU #2's smt-sibling CPU #0 is not on the same node! [node: 1 "
    )


def test_the_allowed_imbalance() -> None:
    # One cache in a node of two CPUs: 12.5 % rounds up to one task, and wider domains allow more.
    ring = predict(load_topology("ring-4"))
    assert ring.imb_numa_nr[0] == (0, 1, 1)
    assert predict(load_topology("ring-4"), "5.10").imb_numa_nr[0] == ()
