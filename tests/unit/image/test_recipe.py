from collections.abc import Callable
from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.image.recipe import declared_in, list_recipes, load_recipe, with_overlay

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
    with pytest.raises(UserError, match=r"no image 'mien'; did you mean mine\? \(valid: mine\)"):
        load_recipe("mien")


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
        ('["numactl", "dash"]', "[]", "packages", "needs at least 1 value, found 0"),
        ('["numactl", "dash"]', '"dash"', "packages", "found 'dash'"),
        ("tiny", 'tiny"\nexclude = ["etc/*"]\n#', "exclude", "not an absolute path"),
        ("tiny", 'tiny"\nlimit_mib = 1\n#', "limit_mib", "greater than or equal to 16"),
        ("tiny", 'tiny"\nvariant = "minimal"\n#', "variant", "'essential'"),
        ("tiny", 'tiny"\nextends = "bsae"\n#', "extends", "no image 'bsae' (valid: mine)"),
        ("tiny", 'tiny"\nextends = "mine"\n#', "extends", "extends itself: mine -> mine"),
        ("tiny", 'tiny"\nfiles = "missing"\n#', "files", "no such folder"),
        ("tiny", 'tiny"\nfiles = "../x"\n#', "files", "should match pattern"),
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


MORE = """
summary = "more"
extends = "mine"
packages = ["iperf3"]
exclude = ["/usr/lib/x"]
post = ["rm /usr/bin/y"]
files = "more-files"
limit_mib = 300
"""


def write_more(folder: Path, old: str = "", new: str = "") -> Path:
    (folder / "more-files").mkdir()
    (folder / "more-files" / "tool").write_text("tool", encoding="utf-8")
    path = folder / "more.toml"
    path.write_text(MORE.replace(old, new), encoding="utf-8")
    return path


def test_a_recipe_adds_to_the_one_it_extends(written: Written) -> None:
    mine = written(GOOD + 'post = ["true"]\nexclude = ["/usr/share/doc/*"]\nvariant = "apt"\n')
    more = write_more(mine.parent)
    recipe = load_recipe("more")
    assert (recipe.summary, recipe.extends, recipe.suite) == ("more", "mine", "bookworm")
    assert recipe.packages == ("dash", "iperf3", "numactl")
    assert recipe.exclude == ("/usr/share/doc/*", "/usr/lib/x")
    assert recipe.post == ("true", "rm /usr/bin/y")
    assert recipe.files == (mine.parent / "more-files",)
    assert (recipe.limit_mib, recipe.variant) == (300, "apt")
    assert declared_in(recipe, "iperf3") == more
    assert declared_in(recipe, "dash") == mine


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ('"iperf3"', '"dash"', "packages", "mine, which this extends, has dash already"),
        ('"more"', '"more"\nsuite = "trixie"', "suite", "is made from bookworm"),
    ],
)
def test_what_contradicts_the_extended_recipe_is_explained(
    written: Written, old: str, new: str, key: str, message: str
) -> None:
    path = write_more(written(GOOD).parent, old, new)
    with pytest.raises(UserError) as caught:
        load_recipe("more")
    assert (caught.value.file, caught.value.key) == (path, key)
    assert message in str(caught.value)


def test_recipes_may_not_extend_each_other(written: Written) -> None:
    mine = written(GOOD.replace('suite = "bookworm"', 'extends = "more"'))
    write_more(mine.parent)
    with pytest.raises(UserError, match="extends itself: more -> mine -> more"):
        load_recipe("more")


def test_an_overlay_goes_on_top_of_the_recipe_s_own_files(written: Written, tmp_path: Path) -> None:
    write_more(written(GOOD).parent)
    recipe = load_recipe("more")
    own = tmp_path / "own"
    with pytest.raises(UserError, match="no such folder"):
        with_overlay(recipe, own)
    own.mkdir()
    with pytest.raises(UserError, match="an empty folder"):
        with_overlay(recipe, own)
    (own / "x").touch()
    assert with_overlay(recipe, own).files == (*recipe.files, own)


def test_the_recipes_of_the_project_extend_base() -> None:
    base = load_recipe("base")
    for name in list_recipes():
        recipe = load_recipe(name)
        assert set(base.packages) <= set(recipe.packages)
        assert recipe.limit_mib <= 500
    assert {"xfsprogs", "iperf3", "sockperf", "dbench"} <= set(load_recipe("bench").packages)
