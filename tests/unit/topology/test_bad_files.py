"""One malformed file for each rule; the message names file, key, what was found and allowed."""

from pathlib import Path

import pytest

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
    found = text.removeprefix(f"{file}: ") + "\n"
    if request.config.getoption("--regenerate"):
        expected.write_text(found, encoding="utf-8")
    assert found == expected.read_text(encoding="utf-8")


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


def test_an_unknown_name_lists_the_names() -> None:
    with pytest.raises(UserError, match="no topology is called 'rin-4'") as caught:
        load_topology("rin-4")
    assert "ring-4" in caught.value.choices


def test_a_missing_file() -> None:
    with pytest.raises(UserError, match="No such file"):
        load_topology("./nothing.toml")
