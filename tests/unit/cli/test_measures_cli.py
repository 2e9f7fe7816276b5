"""`numalab measures` lists what is defined."""

import json

from numalab.analysis.measures.catalogue import families
from numalab.cli.inputs.measures import command
from support.one_command import invoke


def numalab(*words: str) -> str:
    result = invoke(command, *words)
    assert result.exit_code == 0
    return result.stdout


def test_every_definition_is_listed() -> None:
    listed = numalab()
    assert all(each.name in "".join(listed.split()) for each in families())


def test_json_holds_whole_definitions() -> None:
    document = json.loads(numalab("--json"))
    assert [each["name"] for each in document] == [each.name for each in families()]
    keys = {"name", "unit", "direction", "kind", "definition", "source"}
    assert all(set(each) == keys for each in document)
