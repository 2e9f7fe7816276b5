"""The table `[published]`: which figures of a machine somebody measured, and who."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from numalab.cli.inputs.topology import app
from numalab.errors import UserError
from numalab.topology.export import render_topology_file
from numalab.topology.load import (
    check_topology_file,
    list_topologies,
    load_topology,
    load_topology_file,
    published_to_dict,
)
from numalab.topology.topology import describe_figures, hmat_mib_s

MACHINE = """
summary = "Two sockets"
source = "https://example.org/numbers"
nodes = 2
cpus = 2
memory_mib = 512
matrix = [[10, 21], [21, 10]]
"""
TABLE = """
[published]
figures = ["distances", "latency"]
measured_by = "A. Nonymous"
date = "2024-02-29"
"""
MEMORY = "[memory]\nlatency_ns = [[80, 140], [140, 80]]\n"


def machine(folder: Path, text: str) -> Path:
    path = folder / "machine.toml"
    path.write_text(text)
    return path


def test_a_published_machine_names_its_figures(tmp_path: Path) -> None:
    path = machine(tmp_path, MACHINE + TABLE + MEMORY)
    topology = load_topology_file(path)
    assert describe_figures(topology) == "published: distances, latency"
    assert published_to_dict(topology) == {
        "figures": ["distances", "latency"],
        "measured_by": "A. Nonymous",
        "date": "2024-02-29",
        "source": "https://example.org/numbers",
    }
    again = machine(tmp_path, render_topology_file(topology))
    assert load_topology_file(again).published == topology.published


def test_without_the_table_no_figure_is_published() -> None:
    ring = load_topology("ring-4")
    assert (describe_figures(ring), published_to_dict(ring)) == ("not published", None)


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ('"latency"]', '"bandwidth"]', "published.figures[1]", "the file gives no bandwidth"),
        ('"latency"]', '"distances"]', "published.figures", "name each figure once"),
        ('["distances", "latency"]', "[]", "published.figures", "at least 1"),
        ('"latency"]', '"speed"]', "published.figures[1]", "'distances', 'latency' or"),
        ("2024-02-29", "2023-02-29", "published.date", "no such date"),
        ("2024-02-29", "29 February", "published.date", "pattern"),
        ("A. Nonymous", "A\\u001b[31m", "published.measured_by", "without control characters"),
        ('source = "https://example.org/numbers"\n', "", "source", "need a source"),
        (MEMORY, "", "published.figures[1]", "the file gives no latency"),
    ],
)
def test_a_wrong_table_is_refused(
    tmp_path: Path, old: str, new: str, key: str, message: str
) -> None:
    text = MACHINE + TABLE + MEMORY
    assert old in text
    path = machine(tmp_path, text.replace(old, new))
    with pytest.raises(UserError) as caught:
        load_topology_file(path)
    assert caught.value.key == key
    assert message in str(caught.value)
    assert key in {error.key for error in check_topology_file(path)}


@pytest.mark.parametrize("date", ["2019", "2019-01", "2019-01-24"])
def test_a_date_may_be_a_year_or_a_month(tmp_path: Path, date: str) -> None:
    path = machine(tmp_path, (MACHINE + TABLE + MEMORY).replace("2024-02-29", date))
    published = load_topology_file(path).published
    assert published is not None
    assert published.date == date


def test_the_list_and_the_page_of_a_machine_say_what_is_published() -> None:
    runner = CliRunner()
    rows = {row["name"]: row for row in json.loads(runner.invoke(app, ["list", "--json"]).stdout)}
    assert set(rows) == set(list_topologies())
    assert rows["xeon-8269cy"]["published"]["figures"] == ["latency", "bandwidth"]
    assert rows["epyc-nps4"]["published"] is None
    text = runner.invoke(app, ["list"]).stdout
    assert "(published: latency, bandwidth)" in text
    shown = runner.invoke(app, ["show", "xeon-8269cy"]).stdout
    assert "figures: published: latency, bandwidth; measured by plantegg, 2019-01-24" in shown
    document = json.loads(runner.invoke(app, ["show", "ring-4", "--json"]).stdout)
    assert document["published"] is None


@pytest.mark.parametrize(
    ("kib_s", "mib_s"),
    [
        ([5], (1,)),
        ([10_000_000, 20 << 20], (9765, 20480)),
        # 97656 MiB/s have more than 16 bits: both become multiples of 2 MiB/s.
        ([100_000_000, 20_000_000], (97656, 19530)),
        ([65535 << 10, 1 << 10], (65534, 2)),
    ],
)
def test_the_hmat_has_bandwidths_in_16_bits(kib_s: list[int], mib_s: tuple[int, ...]) -> None:
    assert hmat_mib_s(kib_s) == mib_s
