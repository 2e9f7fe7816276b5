"""The pictures of the shipped topologies and the JSON Schema are up to date."""

from pathlib import Path

import pytest

from numalab.topology.file_format import render_schema
from numalab.topology.load import list_topologies, load_topology
from numalab.topology.view.drawing import is_wide, render_svg

DOCS = Path(__file__).parents[3] / "docs"
PICTURES = "img/topologies"


def expect(request: pytest.FixtureRequest, path: Path, text: str) -> None:
    if request.config.getoption("--regenerate"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path} is missing; run pytest {Path(__file__).parent} --regenerate"
    assert path.read_text(encoding="utf-8") == text, (
        f"{path} is out of date; run python docs/site/reference.py,"
        f" or pytest {Path(__file__).parent} --regenerate for a picture"
    )


@pytest.mark.parametrize("name", list_topologies())
def test_every_picture_is_up_to_date(request: pytest.FixtureRequest, name: str) -> None:
    expect(request, DOCS / PICTURES / f"{name}.svg", render_svg(load_topology(name)))


def test_no_picture_is_left_over() -> None:
    assert {path.stem for path in (DOCS / PICTURES).glob("*.svg")} == set(list_topologies())


def test_the_schema_is_up_to_date(request: pytest.FixtureRequest) -> None:
    expect(request, DOCS / "topology.schema.json", render_schema())


def test_machines_in_a_row_are_drawn_wide() -> None:
    wide = {name for name in list_topologies() if is_wide(load_topology(name))}
    assert wide == {"kunpeng-920", "line-4", "pairs-4", "xeon-8269cy-snc", "xeon-max-9462"}
