"""The machine as scx_rusty prints it, beside the prediction."""

from numalab.scheduler.topology_view import (
    TopologyView,
    parse_view,
    predicted_view,
    view_differences,
    without_cpus,
)
from numalab.study.model import find_study, load_study
from numalab.topology.file_rules import build_topology
from numalab.topology.load import load_topology

# As scx_rusty 1.1.4 prints it in a guest with the topology ring-2.
LOG = """\
00:00:04 \x1b[0m \x1b[34m[INFO]  \x1b[0mNODE[00] mask= 3
00:00:04 \x1b[0m \x1b[34m[INFO]  \x1b[0m DOM[00] mask= 3
00:00:04 \x1b[0m \x1b[34m[INFO]  \x1b[0mNODE[01] mask= c
00:00:04 \x1b[0m \x1b[34m[INFO]  \x1b[0m DOM[01] mask= c
"""


def test_the_view_of_a_ring_is_as_predicted() -> None:
    view = parse_view(LOG)
    assert view == TopologyView(((0, 1), (2, 3)), ((0, 1), (2, 3)))
    assert view_differences(predicted_view(load_topology("ring-2")), view) == ()


def test_a_node_without_cpus_is_left_out() -> None:
    assert len(predicted_view(load_topology("slow-memory-3")).nodes) == 2


def test_two_caches_in_a_node_are_two() -> None:
    study = load_study(find_study("sched-ext"))
    predicted = predicted_view(build_topology("two-llcs", study.machines["two-llcs"]))
    assert predicted == TopologyView(((0, 1, 2, 3),), ((0, 1), (2, 3)))
    view = TopologyView(((0, 1, 2, 3),), ((0, 1, 2, 3),))
    assert view_differences(predicted, view) == ("last-level caches: [0-3], predicted [0-1] [2-3]",)


def test_the_caches_are_those_that_the_guest_has_by_its_vendor() -> None:
    machine = load_study(find_study("sched-ext")).machines["two-llcs"]
    dies = machine.model_copy(
        update={"cpu": machine.cpu.model_copy(update={"sockets": 1, "dies": 2})}
    )
    topology = build_topology("dies", dies)
    assert predicted_view(topology).caches == ((0, 1, 2, 3),)
    assert predicted_view(topology, vendor="intel").caches == ((0, 1), (2, 3))


def test_a_scheduler_that_prints_no_machine_has_no_view() -> None:
    assert parse_view("local=1 global=2\nNODE[00] mask= 3\n") is None
    assert parse_view("NODE[0] mask= " + "f" * 9000) is None


def test_cpus_that_are_offline_leave_the_view_and_what_then_is_empty() -> None:
    view = TopologyView(((0, 1, 2, 3), (4, 5)), ((0, 1), (2, 3), (4, 5)))
    left = without_cpus(view, (1, 4, 5))
    assert left == TopologyView(((0, 2, 3),), ((0,), (2, 3)))
    assert without_cpus(view, ()) == view
    assert view_differences(view, left) == (
        "nodes: [0,2-3], predicted [0-3] [4-5]",
        "last-level caches: [0] [2-3], predicted [0-1] [2-3] [4-5]",
    )
