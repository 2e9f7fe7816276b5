"""docs/reference has every key, command and registered name, and nothing out of date."""

import importlib.util
import re
from types import ModuleType

import pytest

from numalab.places import project_dir

PAGES = project_dir() / "docs/reference"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "reference", project_dir() / "docs/site/reference.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_generated_blocks_are_up_to_date(
    reference: ModuleType, request: pytest.FixtureRequest, page: object
) -> None:
    for path, text in reference.stale_pages([page]):
        if not request.config.getoption("--regenerate"):
            pytest.fail(f"{path} is out of date: run python docs/site/reference.py")
        path.write_text(text, encoding="utf-8")


def test_every_block_is_on_a_page(reference: ModuleType) -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES.glob("*.md"))
    assert set(re.findall(r"<!-- generated: (\w+)", text)) == set(reference.BLOCKS)


@pytest.mark.parametrize(
    "name", ["topology", "study", "capture", "workload", "kernels", "emulators", "image"]
)
def test_every_key_that_people_write_is_explained(reference: ModuleType, name: str) -> None:
    items = reference.keys(name).replace("\n  ", " ").splitlines()
    assert len(items) > 2
    assert [item for item in items if re.fullmatch(r"- `\w+` \(.*\)", item)] == []


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"enum": ["a", "b"]}, "`a`, `b`"),
        ({"type": "integer", "minimum": 0, "exclusiveMaximum": 9}, "integer 0..8"),
        ({"type": "integer", "minimum": 1}, "integer >= 1"),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 9}, "number > 0 and <= 9"),
        ({"type": "array", "items": {"type": "string"}}, "list of string"),
        ({"anyOf": [{"$ref": "#/$defs/Claim"}, {"type": "null"}]}, "Claim"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "table of number"),
        ({}, "any value"),
    ],
)
def test_the_words_for_a_value(
    reference: ModuleType, schema: dict[str, object], words: str
) -> None:
    assert reference.kind(schema) == words


def test_an_unknown_block_is_an_error(reference: ModuleType) -> None:
    with pytest.raises(KeyError, match="no_such_block"):
        reference.render_page("<!-- generated: no_such_block -->\n<!-- end -->")
