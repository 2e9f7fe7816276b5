"""`numalab measures` lists what is defined."""

import json

import typer
from typer.testing import CliRunner

from numalab.analysis.measures.catalogue import families
from numalab.cli.study.measures import command


def numalab(*words: str) -> str:
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
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
