import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lab.cli.kernel import app
from lab.errors import UserError
from lab.kernel import source


def numalab(*words: str) -> Result:
    result = CliRunner().invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_build_list_show_and_config(project: Path) -> None:
    before = json.loads(numalab("list", "--json").stdout)
    assert [(one["name"], one["built"]) for one in before] == [("plain", None), ("changed", None)]

    result = numalab("build", "--all", "--json")
    built = json.loads(result.stdout)
    assert [one["spec_name"] for one in built] == ["plain", "changed"]
    assert Path(built[1]["bzimage"]).is_file()
    assert "changed: built in " in result.stderr

    listed = numalab("list").stdout
    assert "9.9.1" in listed
    assert built[0]["config_hash"][:12] in listed

    shown = json.loads(numalab("show", "changed", "--json").stdout)
    assert shown["series"][0]["patches"] == ["sched: change line ten"]
    assert shown["fragments"] == {"guest": "What the guest needs."}
    assert shown["built"]["digest"] == built[1]["digest"]
    text = numalab("show", "changed").stdout
    assert "             sched: change line ten\n" in text
    assert f"  digest     {built[1]['digest']}\n" in text

    assert numalab("config", "plain").stdout == "CONFIG_SMP=y  guest.config:4  More than one CPU.\n"
    [option] = json.loads(numalab("config", "plain", "--json").stdout)
    assert (option["name"], option["value"], option["fragment"]) == ("CONFIG_SMP", "y", "guest")
    assert "CONFIG_EXPERT=y" in numalab("config", "plain", "--full").stdout


def test_a_missing_source_does_not_hide_the_list(project: Path) -> None:
    (source.PACKAGES / "linux-source-9.9.tar.xz").unlink()
    assert [line.split()[:2] for line in numalab("list").stdout.splitlines()[1:]] == [
        ["plain", "no"],
        ["changed", "no"],
    ]


def test_build_wants_names_or_all(project: Path) -> None:
    for words in ([], ["plain", "--all"]):
        with pytest.raises(UserError, match=r"or say --all \(valid: plain, changed\)"):
            numalab("build", *words)
    with pytest.raises(UserError, match="plain is not built; run: numalab kernel build plain"):
        numalab("config", "plain", "--full")
    with pytest.raises(UserError, match="no kernel is called 'x'"):
        numalab("show", "x")
