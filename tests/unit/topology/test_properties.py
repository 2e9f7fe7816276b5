"""What holds for any machine, and that no input ends in a traceback."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from numalab.document import check_document
from numalab.errors import UserError
from numalab.places import shipped_dir
from numalab.topology.export import (
    render_cpu_xml,
    render_dot,
    render_numactl,
    render_qemu,
    render_topology_file,
)
from numalab.topology.file_format import TopologyFile
from numalab.topology.file_rules import broken_rules, build_topology
from numalab.topology.guest_view import parse_guest_view
from numalab.topology.importers.any_format import read_machine
from numalab.topology.importers.numactl import parse_numactl
from numalab.topology.limits import RuleBroken
from numalab.topology.load import (
    check_topology_file,
    list_topologies,
    load_topology_file,
)
from numalab.topology.predict.firmware import Vendor, node_numbers
from numalab.topology.predict.groups import Construction
from numalab.topology.predict.hazards import hazards
from numalab.topology.predict.prediction import predict
from numalab.topology.predict.rules import SERIES
from numalab.topology.sched_domains import parse_sched_verbose
from numalab.topology.topology import Topology
from numalab.topology.view.drawing import render_svg
from numalab.topology.view.terminal import render_terminal

RNG = Path("/usr/share/libvirt/schemas/domain.rng")
DOMAIN = (
    "<domain type='qemu'><name>x</name><memory>1</memory><vcpu>1</vcpu>"
    "<os><type arch='x86_64'>hvm</type></os>{cpu}</domain>"
)

texts = st.text(min_size=1, max_size=30).filter(str.isprintable)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the plain values of a topology file; most are valid."""
    nodes = draw(st.integers(1, 9))
    counts = draw(st.lists(st.integers(0, 4), min_size=nodes, max_size=nodes))
    table: dict[str, Any] = {
        "summary": draw(texts),
        "source": draw(st.just("") | texts),
        "nodes": nodes,
        "memory_mib": draw(
            st.integers(1, 4096) | st.lists(st.integers(0, 4096), min_size=nodes, max_size=nodes)
        ),
        "cpus": draw(st.just(counts) | st.integers(1, 6) | st.just(_shuffled(draw, counts))),
    }
    if draw(st.booleans()):
        table["cpu"] = {
            "threads": draw(st.sampled_from([1, 2])),
            "dies": draw(st.sampled_from([1, 1, 2])),
            "llc": draw(st.sampled_from(["die", "none"])),
        }
        if draw(st.booleans()):
            table["cpu"]["sockets"] = draw(st.sampled_from([1, 2, nodes]))
    table |= draw(st.one_of(shapes(nodes), links(nodes), matrices(nodes)))
    return table


def _shuffled(draw: st.DrawFn, counts: list[int]) -> list[str]:
    cpus = iter(draw(st.permutations(range(sum(counts)))))
    return [",".join(str(next(cpus)) for _ in range(count)) for count in counts]


def shapes(nodes: int) -> st.SearchStrategy[dict[str, Any]]:
    kinds: list[dict[str, Any]] = [
        {"kind": kind} for kind in ("ring", "full", "line", "star", "hypercube", "backplane")
    ]
    for rows in (rows for rows in range(1, nodes + 1) if nodes % rows == 0):
        grid = {"rows": rows, "columns": nodes // rows}
        kinds += [{"kind": "torus", **grid}, {"kind": "mesh", **grid}]
        kinds.append({"kind": "mesh", "wiring": "rows-and-columns", **grid})

    def with_distances(shape: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
        steps = st.lists(st.integers(1, 25), min_size=9, max_size=9)
        return steps.map(lambda drawn: {"shape": shape | {"distances": _fitting(shape, drawn)}})

    def _fitting(shape: dict[str, Any], steps: list[int]) -> list[int]:
        every = [10 + sum(steps[:hop]) for hop in range(9)]
        for width in range(9):
            trial = {"summary": "x", "nodes": nodes, "cpus": 1, "memory_mib": 1}
            table = trial | {"shape": shape | {"distances": every[: width + 1]}}
            try:
                build_topology("x", check_document(table, TopologyFile, Path("x")))
            except RuleBroken:
                continue
            return every[: width + 1]
        return every

    return st.sampled_from(kinds).flatmap(with_distances)


def links(nodes: int) -> st.SearchStrategy[dict[str, Any]]:
    pairs = [(a, b) for b in range(nodes) for a in range(b)]
    if not pairs:
        return st.just({"links": [], "distances": [10]})
    chosen = st.lists(st.sampled_from(pairs), min_size=1, unique=True)
    weight = st.integers(11, 254)
    return chosen.flatmap(
        lambda pairs: st.tuples(*(weight for _ in pairs)).map(
            lambda weights: {
                "links": [[a, b, value] for (a, b), value in zip(pairs, weights, strict=True)]
            }
        )
    )


def matrices(nodes: int) -> st.SearchStrategy[dict[str, Any]]:
    values = st.lists(
        st.sampled_from([11, 12, 16, 20, 22, 30, 31, 40, 254, 255]),
        min_size=nodes * nodes,
        max_size=nodes * nodes,
    )
    return values.map(
        lambda values: {
            "matrix": [
                [10 if a == b else values[a * nodes + b] for b in range(nodes)]
                for a in range(nodes)
            ]
        }
    )


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    """Draw a valid topology."""
    table = draw(tables())
    document = check_document(table, TopologyFile, Path("drawn"))
    if broken_rules(document):
        table |= {"cpus": draw(st.integers(1, 4)), "memory_mib": 64}
        table.pop("cpu", None)
        if broken_rules(check_document(table, TopologyFile, Path("drawn"))):
            table.pop("shape", None)
            table.pop("links", None)
            table |= draw(matrices(table["nodes"]))
        document = check_document(table, TopologyFile, Path("drawn"))
    return build_topology("drawn", document)


def parsed(text: str) -> Topology:
    document = check_document(tomllib.loads(text), TopologyFile, Path("drawn"))
    return build_topology("drawn", document)


@given(machines())
def test_written_files_read_back(topology: Topology) -> None:
    assert parsed(render_topology_file(topology)) == topology


@given(machines())
def test_what_numactl_prints_reads_back(topology: Topology) -> None:
    imported = parse_numactl(render_numactl(topology), name="drawn", source="", file="x")
    parsed, old, nodes = imported.topology, imported.old_cpus, imported.old_nodes
    table = topology.distances
    assert parsed.distances == tuple(tuple(table[a][b] for b in nodes) for a in nodes)
    assert sorted(old) == list(range(topology.cpu_count))
    assert node_numbers(parsed) == tuple(range(len(nodes)))
    for node, number in zip(parsed.nodes, nodes, strict=True):
        drawn = topology.nodes[number]
        assert node.memory_mib == drawn.memory_mib
        assert sorted(old[cpu] for cpu in node.cpus) == sorted(drawn.cpus)


@pytest.fixture(scope="module")
def schema() -> etree.RelaxNG:
    assert RNG.exists(), "apt-get install libvirt-daemon"
    return etree.RelaxNG(etree.parse(str(RNG)))


@settings(max_examples=60)
@given(topology=machines())
def test_libvirts_schema_accepts_the_xml(schema: etree.RelaxNG, topology: Topology) -> None:
    document = etree.fromstring(DOMAIN.format(cpu=render_cpu_xml(topology)))
    assert schema.validate(document), schema.error_log


@given(
    machines(),
    st.sampled_from(SERIES),
    st.sampled_from(Construction),
    st.sampled_from(["amd", "zen", "intel"]),
)
def test_every_prediction_is_whole(
    topology: Topology, series: str, construction: Construction, vendor: Vendor
) -> None:
    prediction = predict(topology, series, construction=construction, vendor=vendor)
    everyone = set(range(topology.cpu_count))
    new_enough = series not in ("4.12", "5.10") and construction is Construction.NOW
    for domains in prediction.cpus:
        below: set[int] = {domains.cpu}
        for level, domain in enumerate(domains.domains):
            span = set(domain.span)
            assert domain.level == level
            if prediction.rules.flag_masks or not level:
                assert below < span, "domains grow strictly"
            assert below <= span
            below = span
            covered = set().union(*(group.span for group in domain.groups))
            if not prediction.errors and not prediction.warnings:
                assert covered == span or not new_enough, "groups cover their domain"
                assert domains.cpu in domain.groups[0].span, "the local group comes first"
        # One way farther than the other may leave a CPU with one group, and so without a domain.
        if len(everyone) > 1 and _symmetric(topology):
            assert below == everyone, "the last domain spans all CPUs"


def _symmetric(topology: Topology) -> bool:
    return topology.distances == tuple(zip(*topology.distances, strict=True))


@given(machines())
def test_every_machine_can_be_shown(topology: Topology) -> None:
    etree.fromstring(render_svg(topology))
    assert topology.name in render_terminal(topology)
    assert render_qemu(topology).startswith("qemu-system-x86_64")
    assert render_dot(topology).startswith("graph")
    for hazard in hazards(topology, predict(topology)):
        assert hazard.text


@settings(max_examples=300)
@given(st.binary(max_size=300), st.sampled_from(list_topologies()), st.integers(0, 400))
def test_a_damaged_file_gives_user_errors(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, name: str, place: int
) -> None:
    whole = (shipped_dir() / "topologies" / f"{name}.toml").read_bytes()
    file = tmp_path_factory.getbasetemp() / "damaged.toml"
    file.write_bytes(whole[:place] + noise + whole[place + len(noise) // 2 :])
    errors = check_topology_file(file)
    try:
        load_topology_file(file)
    except UserError:
        assert errors
    else:
        assert not errors


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-300, 300) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
KEYS = sorted(TopologyFile.model_fields)


@settings(max_examples=300)
@given(tables(), st.sampled_from(KEYS), json_values)
def test_a_wrong_value_gives_a_user_error(table: dict[str, Any], key: str, value: Any) -> None:
    try:
        document = check_document(table | {key: value}, TopologyFile, Path("x"))
    except UserError as error:
        assert str(error).startswith("x: ")
        return
    if not broken_rules(document):
        predict(build_topology("x", document))


@settings(max_examples=300)
@given(st.binary(max_size=400))
def test_noise_is_never_imported(noise: bytes) -> None:
    with pytest.raises(UserError):
        read_machine("-", noise, name="x")


SEED = (Path(__file__).parents[2] / "data" / "topology" / "numactl-4.txt").read_text()


@settings(max_examples=300)
@given(st.integers(0, len(SEED)), st.text(max_size=20), st.integers(0, 30))
def test_damaged_numactl_output(place: int, noise: str, cut: int) -> None:
    damaged = SEED[:place] + noise + SEED[place + cut :]
    try:
        parsed = read_machine("-", damaged.encode("utf-8", "replace"), name="x").topology
    except UserError:
        return
    predict(parsed)


@given(st.text(max_size=500))
def test_any_log_can_be_read(text: str) -> None:
    parse_sched_verbose("CPU0 attaching sched-domain(s):\n domain-0: " + text)
    parse_guest_view({"node0/cpulist": text, "node0/distance": text}, text, text)
