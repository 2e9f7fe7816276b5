"""`numalab image`, without building anything."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from numalab.cli.guest import shell
from numalab.cli.inputs import image
from numalab.errors import UserError
from numalab.image.image_artifact import BuiltImage
from numalab.image.recipe import Recipe

BUILT: list[Recipe] = []


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """What was asked to be built."""
    BUILT.clear()

    def build(recipe: Recipe, *, on_progress: object) -> BuiltImage:
        BUILT.append(recipe)
        return BuiltImage(recipe.name, Path("/x") / recipe.name, "ab", 1 << 20, ("dash=1",))

    monkeypatch.setattr(image, "ensure_image", build)
    return BUILT


def invoke(*words: str) -> str:
    result = CliRunner().invoke(image.app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_one_several_or_all_images_are_built(built: list[Recipe]) -> None:
    assert invoke("build", "base") == "/x/base (1 MiB)\n"
    assert invoke("build", "bench", "base").splitlines() == ["/x/bench (1 MiB)", "/x/base (1 MiB)"]
    built.clear()
    invoke("build", "--all")
    assert [recipe.name for recipe in built] == ["base", "bench", "host", "hpc"]


@pytest.mark.parametrize("words", [[], ["base", "--all"]])
def test_what_to_build_is_said_once(words: list[str]) -> None:
    with pytest.raises(UserError, match="either names or --all"):
        CliRunner().invoke(image.app, ["build", *words], catch_exceptions=False)


def test_a_wrong_name_among_several_builds_nothing(built: list[Recipe]) -> None:
    with pytest.raises(UserError, match="did you mean bench"):
        invoke("build", "base", "bnech")
    assert not built


def test_an_overlay_is_built_in(built: list[Recipe], tmp_path: Path) -> None:
    (tmp_path / "tool").touch()
    invoke("build", "base", "--overlay", str(tmp_path))
    assert built[0].files == (tmp_path,)


def test_what_a_recipe_adds_is_shown() -> None:
    text = invoke("show", "bench")
    assert "extends   base" in text
    assert "post      rm -r /usr/lib/python3*" in text


def test_a_shell_is_that_of_a_small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(shell, "command", lambda *words, **options: called.append((words, options)))
    invoke("shell", "bench", "--topology", "ring-4")
    expected = {"kernel": "debian-6.12", "image": "bench", "overlay": None}
    assert called == [(("ring-4",), expected)]
