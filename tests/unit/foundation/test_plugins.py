"""A plug-in of the lab folder is imported once, and what is wrong with one is said in one line."""

import sys
from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.places import lab_folders, project_dir, shipped_dir, skipped_inputs
from numalab.plugins import Registry, load_plugins, require_plugins
from numalab.report.formats.format import FORMATS


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_plugins: None) -> Path:
    """Make a lab folder with an empty folder of plug-ins, and stand in it."""
    for name in ("topologies", "kernel-configs", "plugins"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("NUMALAB_HOME", str(tmp_path))
    return tmp_path / "plugins"


def test_a_plugin_is_imported_once(lab: Path) -> None:
    counter = lab / "counter.txt"
    (lab / "one.py").write_text(f"open({str(counter)!r}, 'a').write('x')\n")
    load_plugins()
    Registry[int]("number").all()
    assert counter.read_text() == "x"


def test_a_plugin_may_have_dataclasses_and_read_a_registry(lab: Path) -> None:
    (lab / "data.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from numalab.plugins import Registry\n"
        "@dataclass\nclass Pair:\n    a: int\n"
        "assert Registry('thing').all() == {}\n"
    )
    load_plugins()
    (name,) = (
        name for name in sys.modules if name.startswith("numalab_plugins_") and "data" in name
    )
    assert sys.modules[name].Pair(1).a == 1


@pytest.mark.parametrize(
    "text", ["this is no Python", "import no_such_module", "1 / 0", "raise SystemExit"]
)
def test_a_broken_plugin_is_named(lab: Path, text: str) -> None:
    (lab / "broken.py").write_text(text + "\n")
    (lab / "other.py").write_text("")
    things = Registry[int]("thing")
    for _ in range(2):
        assert things.all() == {}
        (error,) = skipped_inputs()
        assert str(error).startswith(f"{lab / 'broken.py'}: this plug-in cannot be imported")
        with pytest.raises(UserError, match=r"no thing is called 'x'.*broken\.py"):
            things.find("x")
        with pytest.raises(UserError, match="this plug-in cannot be imported"):
            require_plugins()


def test_a_broken_plugin_adds_nothing(lab: Path) -> None:
    text = (
        "from numalab.api import FORMATS\n"
        "def half(study): ...\n"
        "FORMATS.add('half', half, half)\n"
        "1 / 0\n"
    )
    (lab / "half.py").write_text(text)
    assert "half" not in FORMATS.all()
    (lab / "half.py").write_text(text.replace("1 / 0", ""))
    assert "half" in FORMATS.all()


@pytest.mark.parametrize("where", [".", "runs/one/out"])
def test_results_of_a_stranger_bring_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """One who stands in a folder of results asks of them: what lies there is not a lab's."""
    (tmp_path / "plan.json").write_text("{}")
    (tmp_path / where / "plugins").mkdir(parents=True)
    (tmp_path / where / "plugins" / "evil.py").write_text("raise SystemExit('it ran')\n")
    (tmp_path / where / "studies").mkdir()
    monkeypatch.chdir(tmp_path / where)
    load_plugins()
    assert Path.cwd() not in lab_folders()
    assert project_dir() == shipped_dir()


def test_a_name_is_given_once_and_a_wrong_one_lists_the_others() -> None:
    numbers = Registry[int]("number")
    numbers.add("one", 1, int)
    assert numbers.find("one") == 1
    with pytest.raises(UserError, match="there is a number called 'one' already"):
        numbers.add("one", 2, int)
    with pytest.raises(UserError, match="no number is called 'two'") as caught:
        numbers.find("two")
    assert caught.value.choices == ("one",)
