"""The generated reference has every key of every file, and nothing that its page could not show."""

import importlib.util
from types import ModuleType

import pytest

from numalab.places import project_dir


@pytest.fixture(scope="module")
def stage() -> ModuleType:
    path = project_dir() / "docs" / "site" / "stage.py"
    spec = importlib.util.spec_from_file_location("stage", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_key_of_every_file_is_in_the_reference(stage: ModuleType) -> None:
    text: str = stage.files()
    for title, model in stage.MODELS.items():
        section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
        for name, field in model.model_fields.items():
            assert f"| `{field.alias or name}` |" in section, (title, name)


def test_its_tables_have_three_columns(stage: ModuleType) -> None:
    rows = [line for line in stage.files().splitlines() if line.startswith("|")]
    assert len(rows) > 100
    assert {line.replace("\\|", "").count("|") for line in rows} == {4}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"enum": ["a", "b"]}, "`a`, `b`"),
        ({"type": "integer", "minimum": 0, "exclusiveMaximum": 9}, "integer >= 0 and < 9"),
        ({"type": "array", "items": {"type": "string"}}, "list of string"),
        ({"anyOf": [{"$ref": "#/$defs/Claim"}, {"type": "null"}]}, "Claim or nothing"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "table of number"),
        ({}, "any value"),
    ],
)
def test_what_a_value_may_be(stage: ModuleType, schema: dict[str, object], words: str) -> None:
    assert stage.kind(schema) == words
