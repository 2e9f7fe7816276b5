"""Shapes give the distances they should, drawings say them, and hazards are found."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from numalab.document import check_document
from numalab.topology.distances import diameter, hops
from numalab.topology.export import render_topology_file
from numalab.topology.file_format import TopologyFile
from numalab.topology.file_rules import build_topology
from numalab.topology.load import list_topologies, load_topology
from numalab.topology.predict.firmware import PACKAGE_WARNING
from numalab.topology.predict.groups import Construction
from numalab.topology.predict.hazards import hazards
from numalab.topology.predict.prediction import NOT_SYMMETRIC, predict
from numalab.topology.topology import Topology
from numalab.topology.view.drawing import Flow, bowed_links, clusters, layout, render_svg
from numalab.topology.view.placement import BOX_HEIGHT, BOX_WIDTH
from support.random_machines import random_machine

SVG = "{http://www.w3.org/2000/svg}"


def machine(nodes: int, **keys: Any) -> Topology:
    table = {"summary": "made here", "nodes": nodes, "cpus": 2, "memory_mib": 512, **keys}
    return build_topology("made", check_document(table, TopologyFile, Path("made.toml")))


@pytest.mark.parametrize(
    ("name", "links", "width"),
    [
        ("ring-2", 1, 1),
        ("ring-4", 4, 2),
        ("ring-8", 8, 4),
        ("mesh-4", 4, 2),
        ("mesh-8", 16, 2),
        ("full-8", 28, 1),
        ("line-4", 3, 3),
        ("line-8", 7, 7),
        ("torus-3x3", 18, 2),
        ("hypercube-8", 12, 3),
        ("opteron-8", 18, 2),
    ],
)
def test_links_and_diameter(name: str, links: int, width: int) -> None:
    topology = load_topology(name)
    assert len(topology.links) == links
    assert diameter(hops(len(topology.nodes), topology.links)) == width


def test_a_star() -> None:
    star = machine(4, shape={"kind": "star", "distances": [10, 20, 30]})
    assert star.distances[0] == (10, 20, 20, 20)
    assert star.distances[1] == (20, 10, 30, 30)


def test_a_mesh_of_neighbours() -> None:
    shape = {"kind": "mesh", "rows": 2, "columns": 3, "distances": [10, 20, 30, 40]}
    assert machine(6, shape=shape).distances[0] == (10, 20, 30, 20, 30, 40)


def test_links_with_distances_take_the_shortest_way() -> None:
    linked = machine(4, links=[[0, 1, 12], [1, 2, 16], [0, 2, 40], [0, 3, 246]])
    assert linked.distances[0] == (10, 12, 18, 246)
    assert linked.distances[2][3] == 254


def test_what_is_not_linked_is_unreachable() -> None:
    assert machine(3, links=[[0, 1]], distances=[10, 20]).distances[2] == (255, 255, 10)


def test_a_backplane_of_single_nodes_is_written_with_all_distances() -> None:
    shape = {"kind": "backplane", "groups": 2, "distances": [10, 20, 40]}
    text = render_topology_file(machine(2, shape=shape))
    assert "distances = [10, 20, 40]" in text


@pytest.mark.parametrize("name", list_topologies())
def test_a_machine_without_its_shape_is_written_with_its_distances(
    name: str, tmp_path: Path
) -> None:
    """Results keep links, but no shape; links may not say the distances (`backplane-8`)."""
    stored = replace(load_topology(name), shape=None, drawn_links=load_topology(name).links)
    again = tmp_path / "again.toml"
    again.write_text(render_topology_file(stored))
    assert load_topology(again).distances == stored.distances


def test_sockets_by_default() -> None:
    assert machine(2, matrix=[[10, 20], [20, 10]]).packaging.sockets == 2
    uneven = machine(2, cpus=[1, 2], matrix=[[10, 20], [20, 10]])
    assert uneven.cpu_shape is None
    assert (uneven.packaging.sockets, uneven.packaging.cores) == (3, 1)


def test_a_drawing_names_nodes_and_distances() -> None:
    root = etree.fromstring(render_svg(load_topology("memoryless-4")))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"node 0", "CPUs 4-5", "no memory", "768 MiB"} <= set(texts)
    assert texts.count("20") == 4
    assert "distances: 10 local, 20, 30" in texts


def test_a_drawing_with_many_links_says_their_distance_once() -> None:
    texts = etree.fromstring(render_svg(load_topology("full-8"))).itertext()
    assert "distances: 10 local, 20; links: 20" in list(texts)


def test_flows_are_drawn_and_text_is_escaped() -> None:
    topology = machine(2, summary='<b> & "x"', matrix=[[10, 20], [20, 10]])
    root = etree.fromstring(render_svg(topology, flows=[Flow(0, 1, "<3>"), Flow(1, 1, "own")]))
    assert root.get("aria-label") == 'made: <b> & "x"'
    assert {"<3>", "own"} <= set(root.itertext())
    assert len(root.findall(f".//{SVG}path[@class='flow']")) == 1


def test_layouts_show_the_shape() -> None:
    ring = layout(load_topology("ring-4"))
    assert ring[0][1] == ring[1][1] and ring[1][0] == ring[2][0]
    assert clusters(load_topology("epyc-nps4")) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert len(clusters(load_topology("opteron-8"))) == 1
    for name in ("line-8", "hypercube-8", "backplane-8", "torus-3x3"):
        points = layout(load_topology(name))
        assert len(set(points.values())) == len(points)


def names(topology: Topology, **options: Any) -> set[str]:
    return {hazard.name for hazard in hazards(topology, predict(topology, **options))}


LINE = {"links": [[0, 1], [1, 2]], "distances": [10, 20, 30]}


@pytest.mark.parametrize(
    ("keys", "hazard"),
    [
        ({"matrix": [[10, 20, 255], [20, 10, 20], [255, 20, 10]]}, "unreachable nodes"),
        ({"matrix": [[10, 20, 20], [30, 10, 20], [20, 20, 10]]}, "asymmetric distances"),
        ({"matrix": [[10, 20, 60], [20, 10, 20], [60, 20, 10]]}, "triangle inequality"),
        ({"matrix": [[10, 20, 20], [20, 10, 20], [90, 20, 10]]}, "triangle inequality"),
        ({"cpus": [3, 2, 2], **LINE}, "a socket for each CPU"),
        ({"cpus": [2, 0, 2], **LINE}, "renumbered nodes"),
        ({"cpu": {"sockets": 1}, **LINE}, "nodes in a package"),
        ({"cpu": {"sockets": 1}, **LINE}, "siblings on two nodes"),
        ({"cpu": {"llc": "none"}, **LINE}, "caches not seen"),
        ({"cpus": 4, "cpu": {"dies": 2, "threads": 2}, **LINE}, "caches not seen"),
    ],
)
def test_a_hazard(keys: dict[str, Any], hazard: str) -> None:
    assert hazard in names(machine(3, **keys))


def test_one_way_to_a_node_without_cpus_matters_to_old_kernels_only() -> None:
    topology = machine(3, cpus=[2, 2, 0], matrix=[[10, 20, 30], [20, 10, 30], [40, 40, 10]])
    for kernel in ("6.12", "5.10"):
        prediction = predict(topology, kernel=kernel)
        is_hazard = "asymmetric distances" in names(topology, kernel=kernel)
        assert is_hazard == (NOT_SYMMETRIC in prediction.errors) == (kernel == "5.10")


def test_a_core_alone_in_its_socket_has_the_cache_of_both() -> None:
    assert "caches not seen" not in names(machine(3, cpu={"llc": "none", "threads": 2}, **LINE))


LINE_4 = [[0, 1], [1, 2], [2, 3]]
STAR_4 = [[0, 1, 56], [0, 2, 56], [0, 3, 39]]


@pytest.mark.parametrize(
    ("keys", "outside"),
    [
        ({"links": LINE_4, "distances": [10, 20, 30, 40]}, "4 CPUs"),
        ({"links": LINE_4, "distances": [10, 20, 30, 40], "cpus": [2, 2, 2, 0]}, ""),
        ({"links": LINE_4, "distances": [10, 20, 30, 40], "cpus": [2, 0, 0, 2]}, ""),
        ({"links": STAR_4, "cpus": 4}, "8 CPUs"),
    ],
)
def test_groups_that_left_their_domain_until_5_12(keys: dict[str, Any], outside: str) -> None:
    """Neither hops nor links decide: two hops of different length are three levels."""
    topology = machine(4, **keys)
    for kernel, start in (("6.12", "before 5.13 a sched group reached"), ("5.12", "a sched group")):
        texts = [
            hazard.text
            for hazard in hazards(topology, predict(topology, kernel))
            if hazard.name == "groups out of their domain"
        ]
        assert len(texts) == bool(outside)
        assert all(text.startswith(start) and text.endswith(outside) for text in texts)


def test_the_groups_before_4_13_are_those_of_4_12() -> None:
    """On 6.12, undo-group-construction builds fewer: `find_descended_sibling()` is from 5.13."""
    text = "before 4.13 no load could move directly between nodes 1 and 7, 9 and 15: they"
    topology = load_topology("ft-2500")
    for options in ({}, {"construction": Construction.BEFORE_4_13}, {"kernel": "4.12"}):
        (hazard,) = (
            hazard
            for hazard in hazards(topology, predict(topology, **options))
            if hazard.name == "group construction"
        )
        assert hazard.text.startswith(text)


def test_a_long_list_says_how_many_it_leaves_out() -> None:
    """Nodes 2 to 9 have no CPUs."""
    table = [[10 if a == b else 20 for b in range(10)] for a in range(10)]
    topology = machine(10, cpus=[2, 2, *[0] * 8], matrix=table)
    (text,) = (
        hazard.text
        for hazard in hazards(topology, predict(topology, kernel="5.10"))
        if hazard.name == "CPU-less nodes count"
    )
    assert "(2, 3, 4, 5, 6, 7 and 2 more)" in text


def test_hazards_of_old_kernels() -> None:
    assert "CPU-less nodes count" in names(load_topology("slow-memory-3"), kernel="5.10")
    assert "groups out of their domain" in names(load_topology("line-4"), kernel="5.10")
    assert names(load_topology("ring-4")) == {"group construction"}
    assert names(load_topology("full-8")) == set()


def test_intel_sockets_may_span_nodes_without_a_warning() -> None:
    assert names(load_topology("epyc-nps4"), vendor="intel") == {"nodes in a package"}


def test_a_socket_on_two_nodes_where_each_node_could_have_one() -> None:
    """CPU 3 is in the first socket and on the second node, which 7.0 and later warn about."""
    topology = machine(2, cpus=[3, 5], cpu={"sockets": 2}, matrix=[[10, 20], [20, 10]])
    new = predict(topology, "7.3", vendor="intel")
    assert new.warnings == (PACKAGE_WARNING,)
    assert names(topology, kernel="7.3", vendor="intel") == {"a package on two nodes"}
    assert names(topology, kernel="6.12", vendor="intel") == {"nodes in a package"}
    amd = predict(topology, "7.3").warnings
    assert amd[0] == PACKAGE_WARNING and amd[1].startswith("sched: CPU #3's llc-sibling CPU #0")


def test_no_link_is_drawn_behind_a_third_node(tmp_path: Path) -> None:
    for seed in range(1, 60):
        file = tmp_path / "random.toml"
        file.write_text(random_machine(seed))
        topology = load_topology(str(file))
        places = layout(topology)
        for (a, b), curve in bowed_links(topology).items():
            for node in set(places) - {a, b}:
                x, y = places[node]
                for step in range(1, 40):
                    point = curve.at(step / 40)
                    inside = (
                        abs(point[0] - x) < BOX_WIDTH / 2 and abs(point[1] - y) < BOX_HEIGHT / 2
                    )
                    assert not inside, (seed, a, b, node)
