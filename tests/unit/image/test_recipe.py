from collections.abc import Callable
from pathlib import Path

import pytest

from lab.errors import UserError
from lab.image.recipe import list_recipes, load_recipe

GOOD = """
summary = "tiny"
suite = "bookworm"
packages = ["numactl", "dash"]
"""

Written = Callable[[str], Path]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    for folder in ("topologies", "kernel-configs", "images"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("NUMALAB_HOME", str(tmp_path))

    def write(text: str) -> Path:
        path = tmp_path / "images" / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_base_has_what_the_studies_need() -> None:
    base = load_recipe("base")
    assert "base" in list_recipes()
    assert {"trace-cmd", "linux-perf", "numactl", "util-linux", "procps"} <= set(base.packages)
    assert {"rt-tests", "stress-ng", "busybox-static", "mount"} <= set(base.packages)
    assert base.limit_mib <= 200


def test_the_order_of_packages_does_not_matter(written: Written) -> None:
    written(GOOD)
    assert load_recipe("mine").packages == ("dash", "numactl")


def test_an_unknown_image_names_those_there_are(written: Written) -> None:
    written(GOOD)
    with pytest.raises(UserError, match=r"no image 'bsae' \(valid: mine\)"):
        load_recipe("bsae")


@pytest.mark.parametrize("name", ["../mine", "/etc/passwd", "", "mine.toml"])
def test_a_name_is_not_a_path(written: Written, name: str) -> None:
    written(GOOD)
    with pytest.raises(UserError, match="no image"):
        load_recipe(name)


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ("packages", "package", "package", "unknown key; did you mean packages?"),
        ('suite = "bookworm"', "", "suite", "missing"),
        ("bookworm", "bookwrom", "suite", "'bookworm' or 'trixie'"),
        ('"dash"', '"Dash"', "packages", "'Dash' is not a Debian package name"),
        ('"dash"', '"dash --force"', "packages", "not a Debian package name"),
        ('"dash"', '"--hook=x"', "packages", "not a Debian package name"),
        ('"dash"', '"numactl"', "packages", "'numactl' is named twice"),
        ('["numactl", "dash"]', "[]", "packages", "at least 1 item"),
        ('["numactl", "dash"]', '"dash"', "packages", "found 'dash'"),
        ("tiny", 'tiny"\nexclude = ["etc/*"]\n#', "exclude", "not an absolute path"),
        ("tiny", 'tiny"\nlimit_mib = 1\n#', "limit_mib", "greater than or equal to 16"),
        ("tiny", 'tiny"\nvariant = "minimal"\n#', "variant", "'essential'"),
    ],
)
def test_a_wrong_recipe_is_explained(
    written: Written, old: str, new: str, key: str, message: str
) -> None:
    path = written(GOOD.replace(old, new))
    with pytest.raises(UserError) as caught:
        load_recipe("mine")
    assert (caught.value.file, caught.value.key) == (path, key)
    assert message in str(caught.value)


def test_what_is_not_toml_is_explained(written: Written) -> None:
    path = written("packages = [")
    with pytest.raises(UserError, match="not TOML") as caught:
        load_recipe("mine")
    assert caught.value.file == path
