"""Each way in which a guest can differ is found, and shows both sides."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from numalab.topology.differences import (
    Difference,
    MachinePart,
    compare_guest,
    compare_topologies,
    format_differences,
)
from numalab.topology.guest_view import DomainFiles, GuestNode, GuestView, parse_guest_view
from numalab.topology.load import load_topology
from numalab.topology.predict.firmware import PACKAGE_WARNING
from numalab.topology.predict.prediction import predict
from numalab.topology.sched_domains import CpuDomains, SchedLog, parse_domains, render_domains

DATA = Path(__file__).parents[2] / "data" / "topology"
RING = load_topology("ring-4")
PREDICTION = predict(RING)


def guest(**changes: Any) -> GuestView:
    """Make a guest that is just as predicted, but for `changes`."""
    machine = PREDICTION.machine
    view = GuestView(
        nodes=tuple(
            GuestNode(node.id, node.cpus, machine.distances[node.id], 740) for node in RING.nodes
        ),
        sched_log=SchedLog(PREDICTION.cpus, ()),
        domain_files={
            (cpu.cpu, domain.level): DomainFiles(domain.name, domain.flags)
            for cpu in PREDICTION.cpus
            for domain in cpu.domains
        },
        kernel="6.12",
        vendor="amd",
    )
    return dataclasses.replace(view, **changes)


def differences(view: GuestView) -> list[Difference]:
    return list(compare_guest(RING, PREDICTION, view))


def changed_node(**changes: Any) -> GuestView:
    nodes = list(guest().nodes)
    nodes[2] = dataclasses.replace(nodes[2], **changes)
    return guest(nodes=tuple(nodes))


def test_what_agrees_has_no_difference() -> None:
    assert differences(guest()) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cpus": (4,)}, ("node 2, CPUs", "4-5", "4")),
        ({"cpus": None}, ("node 2, CPUs", "4-5", "unreadable")),
        ({"distances": (30, 20, 10, 25)}, ("node 2, distances", "30 20 10 20", "30 20 10 25")),
        ({"memory_mib": 500}, ("node 2, memory", "768 MiB, less what firmware keeps", "500 MiB")),
        ({"memory_mib": 769}, ("node 2, memory", "768 MiB, less what firmware keeps", "769 MiB")),
        ({"given_mib": 765}, ("node 2, memory", "768 MiB, less what firmware keeps", "765 MiB")),
        ({"id": 7}, ("nodes", "0-3", "0-1,3,7")),
    ],
)
def test_a_node(changes: dict[str, Any], expected: tuple[str, str, str]) -> None:
    assert differences(changed_node(**changes))[0] == Difference(*expected)


def test_a_kernel_that_keeps_much_of_a_node_is_no_difference() -> None:
    """One node holds the kernel's image and the 64 MiB of the SWIOTLB."""
    assert differences(changed_node(given_mib=767, memory_mib=660)) == []


def test_warnings_are_compared() -> None:
    line = "WARNING: CPU: 0 PID: 1 at kernel/sched/topology.c:935 build_balance_mask+0x1/0x2"
    sibling = "sched: CPU #2's llc-sibling CPU #0 is not on the same node! [node: 1 != 0]. Ignoring"
    for text in (line, f"{sibling} dependency."):
        (difference,) = differences(guest(warnings=parse_guest_view({}, "", text).warnings))
        assert (difference.subject, difference.actual) == ("kernel log", text)


@pytest.mark.parametrize("file", ["", "arch/x86/kernel/smpboot.c:718 "])
def test_the_warning_of_a_package_on_two_nodes_is_compared(file: str) -> None:
    line = f"WARNING: {file}at set_cpu_sibling_map+0x393/0x6bd, CPU#1: swapper/1/0"
    (difference,) = differences(guest(warnings=parse_guest_view({}, "", line).warnings))
    assert difference.actual == PACKAGE_WARNING
    old = "WARNING: CPU: 1 PID: 0 at arch/x86/kernel/smpboot.c:421 set_cpu_sibling_map+0x1/0x2"
    assert parse_guest_view({}, "", old).warnings == ()


def test_groups_in_another_order() -> None:
    cpus = list(PREDICTION.cpus)
    top = cpus[3].domains[1]
    swapped = dataclasses.replace(top, groups=(top.groups[0], *reversed(top.groups[1:])))
    domains = (cpus[3].domains[0], swapped, cpus[3].domains[2])
    cpus[3] = dataclasses.replace(cpus[3], domains=domains)
    what = "CPU 3, domain 1 (NUMA 0-5), groups"
    assert differences(guest(sched_log=SchedLog(tuple(cpus), ()))) == [
        Difference(what, "2-3, 4-5, 0-1", "2-3, 0-1, 4-5", MachinePart.DOMAINS)
    ]


def test_a_lost_domain() -> None:
    cpus = list(PREDICTION.cpus)
    cpus[0] = dataclasses.replace(cpus[0], domains=cpus[0].domains[:2])
    result = differences(guest(sched_log=SchedLog(tuple(cpus), ())))
    assert result[0].subject == "CPU 0, sched domains"
    assert (result[0].expected, result[0].actual) == (
        "MC 0-1, NUMA 0-3,6-7, NUMA 0-7",
        "MC 0-1, NUMA 0-3,6-7",
    )


def test_a_lost_cpu_and_an_empty_log() -> None:
    result = differences(guest(sched_log=SchedLog(PREDICTION.cpus[:-1], ())))
    assert [difference.subject for difference in result] == ["CPU 7, sched domains"]
    result = differences(guest(sched_log=SchedLog((), ())))
    assert result[0].actual == "no sched_verbose lines in the log"


def test_flags_and_errors() -> None:
    files = dict(guest().domain_files)
    files[1, 0] = DomainFiles("MC", ("SD_SHARE_LLC",))
    result = differences(
        guest(domain_files=files, sched_log=SchedLog(PREDICTION.cpus, ("ERROR: x",)))
    )
    assert [difference.subject for difference in result] == [
        "CPU 1, domain 0 (MC 0-1), flags",
        "sched_verbose",
    ]
    assert result[1] == Difference(
        "sched_verbose", "no such error", "ERROR: x", MachinePart.DOMAINS
    )


def test_the_domains_of_a_run_have_the_flags_of_debugfs() -> None:
    bare = tuple(
        CpuDomains(cpu.cpu, tuple(dataclasses.replace(domain, flags=()) for domain in cpu.domains))
        for cpu in PREDICTION.cpus
    )
    log = SchedLog(bare, ())
    flagged = guest(sched_log=log).sched_domains
    assert flagged.cpus == PREDICTION.cpus
    assert parse_domains(render_domains(flagged).encode()) == flagged
    without = guest(sched_log=log, domain_files={}).sched_domains
    assert without == log == parse_domains(render_domains(without).encode())
    assert "flags" not in render_domains(without)
    many = DomainFiles("MC", ("SD_" + "X" * 4000,) * 400)
    (domain, *_) = guest(sched_log=log, domain_files={(0, 0): many}).sched_domains.cpus[0].domains
    assert (len(domain.flags), len(domain.flags[0])) == (32, 64)


def test_both_sides_are_shown_and_long_lists_cut() -> None:
    text = format_differences(tuple(Difference("a", "b", "c") for _ in range(30)))
    assert text.startswith("a\n  expected: b\n  found:    c\n")
    assert text.endswith("and 10 more")


def test_hostile_files_are_bounded() -> None:
    view = parse_guest_view(
        {
            "node0/cpulist": "0-99999999",
            "node0/distance": "10 " * 70000,
            "node99999/cpulist": "0",
            "../../etc/passwd": "x",
            "node1/meminfo": "MemTotal: many kB",
        },
        "cpu0/domain0/name:" + "x" * 100000 + "\nnot a line",
        "",
    )
    assert [node.id for node in view.nodes] == [0, 1]
    assert view.nodes[0].cpus is None
    assert view.nodes[1].memory_mib is None
    assert len(view.domain_files[0, 0].name) == 32


def test_two_machines_differ() -> None:
    assert compare_topologies(RING, RING) == ()
    result = compare_topologies(RING, load_topology("mesh-4"))
    assert result[0] == Difference("distance, node 0 to node 2", "30", "20")
    subjects = {
        difference.subject
        for difference in compare_topologies(RING, load_topology("slow-memory-3"))
    }
    assert {"node 3", "node 2, CPUs", "node 1, memory", "packaging"} <= subjects
    assert "access, node 0 to node 0" in subjects


def test_links_that_the_distances_do_not_imply_differ() -> None:
    drawn = load_topology("backplane-8")
    table = dataclasses.replace(drawn, shape=None, drawn_links=())
    missing = sorted({*table.links} - {*drawn.links})
    shown = ", ".join(f"{a}-{b}" for a, b in missing)
    subject = "links, where they differ"
    assert compare_topologies(drawn, table) == (Difference(subject, "none", shown),)
    assert compare_topologies(table, drawn) == (Difference(subject, shown, "none"),)
