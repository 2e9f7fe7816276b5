"""`numalab measures` lists what is defined."""

import json

from numalab.analysis.measures.family import families
from numalab.cli.inputs.measures import command
from support.one_command import invoke


def numalab(*words: str) -> str:
    result = invoke(command, *words)
    assert result.exit_code == 0
    return result.stdout


def test_every_definition_is_listed() -> None:
    listed = numalab()
    assert all(family.name in "".join(listed.split()) for family in families())


def test_json_holds_whole_definitions() -> None:
    document = json.loads(numalab("--json"))
    assert [entry["name"] for entry in document] == [entry.name for entry in families()]
    keys = {"name", "unit", "direction", "kind", "definition", "source"}
    assert all(set(entry) == keys for entry in document)
