"""One malformed file for each rule; the message names file, key, what was found and allowed."""

from pathlib import Path

import pytest

from numalab.api import SHAPES
from numalab.errors import UserError
from numalab.topology.load import check_topology_file, load_topology, load_topology_file

BAD = Path(__file__).parents[2] / "data" / "topology" / "bad"
FILES = sorted(path.stem for path in BAD.glob("*.toml"))


@pytest.mark.parametrize("name", FILES)
def test_the_message(request: pytest.FixtureRequest, name: str) -> None:
    file, expected = BAD / f"{name}.toml", BAD / f"{name}.expected"
    with pytest.raises(UserError) as caught:
        load_topology_file(file)
    text = str(caught.value)
    assert text.startswith(f"{file}: ")
    # Every shape is a choice, also those that are added later.
    message = text.removeprefix(f"{file}: ").replace(", ".join(SHAPES.all()), "SHAPES") + "\n"
    if request.config.getoption("--regenerate"):
        expected.write_text(message, encoding="utf-8")
    assert message == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FILES)
def test_check_finds_it_too(name: str) -> None:
    file = BAD / f"{name}.toml"
    with pytest.raises(UserError) as caught:
        load_topology_file(file)
    assert str(caught.value) in [str(error) for error in check_topology_file(file)]


def test_every_file_has_a_message_and_every_message_a_file() -> None:
    assert {path.stem for path in BAD.glob("*.expected")} == set(FILES)
    assert len(FILES) >= 40


def test_check_gives_all_findings_at_once(tmp_path: Path) -> None:
    file = tmp_path / "many.toml"
    file.write_text(
        'summary = "x"\nnodes = 4\ncpus = [2, 2]\nmemory_mib = 0\n'
        "interconnects = [{ initiator = 0, target = 9, latency_ns = 1 }]\n"
        '[shape]\nkind = "ring"\ndistances = [10, 20]\n'
    )
    keys = [error.key for error in check_topology_file(file)]
    assert keys == ["memory_mib", "cpus", "shape.distances", "interconnects[0].target"]


ALL_WRONG = """
summary = ""
nodes = 4
cpus = ["0-1", "1-2", "4", "9-5x"]
memory_mib = [0, 0, 0]
color = "red"
links = [[0, 9], [1, 1], [0, 1], [1, 0], [2, 3, 10]]
distances = [11, 10, 5]
interconnects = [
    { initiator = 0, target = 9 },
    { initiator = 9, target = 3, latency_ns = 1 },
    { initiator = 1, target = 2, latency_ns = 1 },
    { initiator = 2, target = 1, latency_ns = 1 },
    { initiator = 1, target = 2, latency_ns = 1 },
]
[cpu]
threads = 0
"""


def test_check_gives_every_broken_rule_of_every_part(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(ALL_WRONG)
    assert [error.key for error in check_topology_file(file)] == [
        "color", "summary", "cpu.threads", "distances[2]",
        "memory_mib", "cpus[3]",
        "interconnects[0].target", "interconnects[0]", "interconnects[1].initiator",
        "interconnects[3]", "interconnects[4]", "interconnects[4]",
    ]  # fmt: skip
    # With the values that could not be read corrected, the rules about them follow.
    file.write_text(
        ALL_WRONG.replace('"9-5x"', '"9"').replace('= ""', '= "x"').replace("color", "source")
        .replace("10, 5]", "10, 10]").replace("threads = 0", "threads = 3")
    )  # fmt: skip
    assert [(error.key, str(error).rpartition(": ")[2]) for error in check_topology_file(file)] == [
        ("memory_mib", "3 values for 4 nodes; give one for each, or one number"),
        ("cpus", "CPU 1 is in two nodes; CPUs are numbered from 0 without gaps"),
        ("cpus", "CPU 4 comes after a gap; CPUs are numbered from 0 without gaps"),
        ("cpus", "CPU 9 comes after a gap; CPUs are numbered from 0 without gaps"),
        ("links[0]", "there is no node 9; nodes are 0 to 3"),
        ("links[1]", "node 1 is linked to itself"),
        ("links[3]", "nodes 0 and 1 are linked twice"),
        ("links[4]", "has a distance, and the key distances; give one distance for each link, "
                     "or by hop"),
        ("links[4]", "the distance of a link is above 10, found 10"),
        ("interconnects[0].target", "there is no node 9"),
        ("interconnects[0]", "give latency_ns, bandwidth_kib_s or both"),
        ("interconnects[1].initiator", "there is no node 9"),
        ("interconnects[3]", "the way from node 1 to node 2 is given already, and libvirt takes a "
                             "pair of nodes in one direction only"),
        ("interconnects[4]", "node 1 to 2 is given twice"),
        ("interconnects[4]", "the way from node 2 to node 1 is given already, and libvirt takes a "
                             "pair of nodes in one direction only"),
    ]  # fmt: skip


def test_a_cache_that_cannot_be_hides_no_rule_of_the_others(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    start = 'summary = "x"\nnodes = 2\ncpus = 2\nmemory_mib = 512\nmatrix = [[10,20],[20,10]]\n'
    file.write_text(f"{start}[memory]\nl1_kib = 128\nllc_kib = 333\nl2_kib = 77\nl2_ns = 200\n")
    errors = [
        (error.key, error.message.partition(" KiB")[0]) for error in check_topology_file(file)
    ]
    assert errors[:3] == [
        ("memory.llc_kib", "333"),
        ("memory.l2_kib", "77"),
        ("memory.l2_kib", "a second-level cache of 77"),
    ]
    assert [key for key, _ in errors[3:]] == ["memory.l2_ns"]


def test_check_gives_all_rules_of_a_matrix_a_shape_and_the_memory(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    start = 'summary = "x"\nnodes = 2\ncpus = 2\nmemory_mib = 64\n'
    memory = "[memory]\nl1_kib = 256\nllc_kib = 64\nl2_kib = 16\nl2_ns = 30\nllc_ns = 20\n"
    file.write_text(f"{start}matrix = [[11, 10], [20, 12, 10], [10]]\n{memory}")
    expected_memory = ["memory.l1_kib", "memory.l2_kib", "memory.l2_ns"]
    assert [error.key for error in check_topology_file(file)] == [
        "matrix", "matrix[0][0]", "matrix[0][1]", "matrix[1]", "matrix[1][1]", "matrix[1][2]",
        "matrix[2]", "matrix[2][0]", *expected_memory,
    ]  # fmt: skip
    file.write_text(f"{start}{memory}[shape]\nkind = 'ring'\nhops = 2\nkidn = 1\n")
    assert [error.key for error in check_topology_file(file)] == [
        "shape.hops", "shape.kidn", "shape.distances", *expected_memory
    ]  # fmt: skip
    file.write_text(f"{start}{memory}[shape]\nkind = 'ring'\ndistances = [11, 10, 10]\n")
    assert [error.key for error in check_topology_file(file)] == [
        "shape.distances", "shape.distances[0]", "shape.distances[1]", "shape.distances[1]",
        "shape.distances[2]", *expected_memory,
    ]  # fmt: skip


def test_check_names_a_file_whose_name_is_no_topologys(tmp_path: Path) -> None:
    file = tmp_path / "a\x1bb.toml"
    file.write_text("")
    assert "control characters" in str(check_topology_file(file)[0])


def test_an_unknown_name_lists_the_names() -> None:
    with pytest.raises(UserError, match="no topology is called 'rin-4'") as caught:
        load_topology("rin-4")
    assert "ring-4" in caught.value.choices


def test_a_missing_file() -> None:
    with pytest.raises(UserError, match="No such file"):
        load_topology("./nothing.toml")
