import json
import os
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.errors import BuildError, UserError
from numalab.image import image_artifact as build
from numalab.image.image_artifact import built_image, ensure_image, make_erofs, packages_digest
from numalab.image.recipe import Recipe, load_recipe, with_overlay

STATUS = "Package: dash\nStatus: install ok installed\nVersion: 0.5\n\n"


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """A project with one recipe, two guest files and a program, and an empty cache."""
    home = tmp_path / "home"
    for folder in ("topologies", "kernel-configs", "images/guest", "images/src"):
        (home / folder).mkdir(parents=True)
    (home / "images/tiny.toml").write_text(
        'summary = "tiny"\nsuite = "bookworm"\npackages = ["dash"]\n', encoding="utf-8"
    )
    init = home / "images/guest/init"
    init.write_text("#!/bin/sh\n", encoding="utf-8")
    init.chmod(0o755)
    (home / "images/guest/fstab").write_text("", encoding="utf-8")
    (home / "images/src/hog.c").write_text("int main(void) { return 3; }\n", encoding="utf-8")
    monkeypatch.setenv("NUMALAB_HOME", str(home))
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "pack_packages", fake_packages)
    return load_recipe("tiny")


CALLS: list[str] = []


def fake_packages(recipe: Recipe, target: Path, log: Path, on_progress: object) -> None:
    """Write what stands for a Debian tree: dpkg's status, a program, a file of this host."""
    CALLS.append(recipe.name)
    tree = target.parent / "tree"
    for name, text in {
        "var/lib/dpkg/status": STATUS,
        "usr/bin/dash": "dash",
        "etc/resolv.conf": "nameserver",
        "etc/apt/sources.list": "mirror",
    }.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text, encoding="utf-8")
    with tarfile.open(target, "w") as archive:
        archive.add(tree, ".")


def test_an_image_has_the_packages_and_the_guests_files(recipe: Recipe) -> None:
    built = ensure_image(recipe)
    assert built.packages == ("dash=0.5",)
    assert built.size == built.path.stat().st_size
    assert built.size % (2 << 20) == 0
    data = built.path.read_bytes()
    assert b"nameserver" not in data
    assert b"sources.list" not in data
    for name in (b"init", b"fstab", b"hog", b"dash", b"job", b"127.0.0.1 localhost guest\n"):
        assert name in data


def test_the_second_time_nothing_is_built(recipe: Recipe) -> None:
    CALLS.clear()
    assert built_image(recipe) is None
    first = ensure_image(recipe)
    before = first.path.stat()
    assert ensure_image(recipe) == first == built_image(recipe)
    assert first.path.stat().st_ino == before.st_ino
    assert CALLS == ["tiny"]


def test_a_changed_script_repacks_without_fetching_packages(recipe: Recipe) -> None:
    CALLS.clear()
    first = ensure_image(recipe)
    script = recipe.file.parent / "guest" / "init"
    script.write_text("#!/bin/sh\n# changed\n", encoding="utf-8")
    assert built_image(recipe) is None
    second = ensure_image(recipe)
    assert second.digest != first.digest
    assert b"# changed" in second.path.read_bytes()
    assert CALLS == ["tiny"]


def test_a_changed_mode_is_a_change(recipe: Recipe) -> None:
    first = ensure_image(recipe)
    (recipe.file.parent / "guest" / "fstab").chmod(0o755)
    assert ensure_image(recipe).digest != first.digest


def test_a_changed_program_is_a_change(recipe: Recipe) -> None:
    first = ensure_image(recipe)
    (recipe.file.parent / "src" / "hog.c").write_text("int main(void) { return 4; }\n")
    assert ensure_image(recipe).digest != first.digest


def test_what_changes_the_packages_changes_the_first_digest(recipe: Recipe) -> None:
    variants = [
        replace(recipe, suite="trixie"),
        replace(recipe, variant="apt"),
        replace(recipe, packages=("dash", "numactl")),
        replace(recipe, exclude=("/usr/share/doc/*",)),
        replace(recipe, post=("/usr/share/doc/*",)),
    ]
    assert len({packages_digest(r) for r in [recipe, *variants]}) == 6
    assert packages_digest(replace(recipe, summary="other")) == packages_digest(recipe)


def test_a_changed_header_is_a_change(recipe: Recipe) -> None:
    header = recipe.file.parent / "src" / "hog.h"
    header.write_text("#define STATUS 3\n", encoding="utf-8")
    (recipe.file.parent / "src" / "hog.c").write_text(
        '#include "hog.h"\nint main(void) { return STATUS; }\n', encoding="utf-8"
    )
    first = ensure_image(recipe)
    header.write_text("#define STATUS 4\n", encoding="utf-8")
    assert ensure_image(recipe).digest != first.digest


def test_files_of_the_user_s_own_are_in_the_image(recipe: Recipe, tmp_path: Path) -> None:
    CALLS.clear()
    plain = ensure_image(recipe)
    own = tmp_path / "own"
    (own / "usr/bin").mkdir(parents=True)
    tool = own / "usr/bin/my-tool"
    tool.write_text("what my tool does", encoding="utf-8")
    first = ensure_image(with_overlay(recipe, own))
    assert b"what my tool does" in first.path.read_bytes()
    tool.chmod(0o755)
    second = ensure_image(with_overlay(recipe, own))
    assert len({plain.digest, first.digest, second.digest}) == 3
    assert CALLS == ["tiny"], "the packages are not fetched again"
    assert built_image(recipe) == plain


def test_two_builds_are_the_same_bytes(recipe: Recipe, tmp_path: Path) -> None:
    first = ensure_image(recipe)
    kept = tmp_path / "first.erofs"
    shutil.copy(first.path, kept)
    shutil.rmtree(first.path.parent)
    second = ensure_image(recipe)
    assert second.digest == first.digest
    assert second.path.read_bytes() == kept.read_bytes()


def test_the_umask_of_who_builds_does_not_matter(recipe: Recipe) -> None:
    first = ensure_image(recipe)
    data = first.path.read_bytes()
    (first.path.parent / "image.json").unlink()
    before = os.umask(0o077)
    try:
        second = ensure_image(recipe)
    finally:
        os.umask(before)
    assert second.digest == first.digest
    assert second.path.read_bytes() == data


def test_the_order_in_which_files_were_made_does_not_matter(tmp_path: Path) -> None:
    names = [f"file{number}" for number in range(50)]
    images = []
    for index, order in enumerate((names, names[::-1])):
        tree = tmp_path / str(index)
        tree.mkdir()
        for name in order:
            (tree / name).write_text(name * 300, encoding="utf-8")
        image = tmp_path / f"{index}.erofs"
        make_erofs(tree, image, "ab" * 32)
        images.append(image.read_bytes())
    assert images[0] == images[1]


def test_a_build_that_was_interrupted_is_built_again(recipe: Recipe) -> None:
    first = ensure_image(recipe)
    (first.path.parent / "image.json").unlink()
    first.path.write_bytes(b"half")
    assert built_image(recipe) is None
    assert ensure_image(recipe).size == first.size


def test_an_image_over_its_limit_is_an_error_and_not_kept(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = replace(recipe, limit_mib=1)
    with pytest.raises(UserError, match=r"the image has 2 MiB, more than 1 \(/usr/lib ") as caught:
        ensure_image(tiny)
    assert (caught.value.file, caught.value.key) == (recipe.file, "limit_mib")
    assert built_image(tiny) is None


def test_a_program_that_does_not_compile_shows_the_compilers_words(recipe: Recipe) -> None:
    source = recipe.file.parent / "src" / "hog.c"
    source.write_text("int main(void) { retrun 3; }\n", encoding="utf-8")
    with pytest.raises(BuildError, match=r"cannot compile .*hog\.c\n(.*\n)*.*retrun"):
        ensure_image(recipe)
    assert built_image(recipe) is None


def test_a_warning_in_a_program_is_an_error(recipe: Recipe) -> None:
    (recipe.file.parent / "src" / "hog.c").write_text("int main(int a) { return 3; }\n")
    with pytest.raises(BuildError, match="unused parameter"):
        ensure_image(recipe)


def test_a_failing_package_step_leaves_nothing(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(recipe: Recipe, target: Path, log: Path, on_progress: object) -> None:
        target.write_bytes(b"half")
        raise UserError("bookworm has no package 'dash'", file=recipe.file, key="packages")

    monkeypatch.setattr(build, "pack_packages", fail)
    with pytest.raises(UserError):
        ensure_image(recipe)
    assert built_image(recipe) is None
    assert not list((recipe.file.parents[2] / "cache").rglob("*.tar"))


def test_an_image_that_was_built_elsewhere_is_named_by_its_folder(
    recipe: Recipe, tmp_path: Path
) -> None:
    built = ensure_image(recipe)
    folder = tmp_path / "brought"
    built.path.parent.rename(folder)
    recipe_of_folder = load_recipe(str(folder))
    assert recipe_of_folder.name == recipe.name
    assert recipe_of_folder.packages == tuple(name.partition("=")[0] for name in built.packages)
    image = built_image(recipe_of_folder)
    assert image == ensure_image(recipe_of_folder)
    assert image is not None and image.path == folder / "root.erofs"
    assert image.packages == built.packages
    assert image.digest == built.digest
    # What an older numalab wrote holds only the image's UUID.
    record = {"recipe": recipe.name, "packages": built.packages}
    (folder / "image.json").write_text(json.dumps(record), encoding="utf-8")
    older = ensure_image(recipe_of_folder)
    assert older.digest == built.digest[:32]


def test_a_folder_that_holds_no_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no image in this folder"):
        load_recipe(str(tmp_path))
    (tmp_path / "image.json").write_text('{"recipe": "../x", "packages": []}', encoding="utf-8")
    with pytest.raises(UserError, match="recipe"):
        load_recipe(str(tmp_path))
    (tmp_path / "image.json").write_text('{"recipe": "x", "packages": []}', encoding="utf-8")
    with pytest.raises(UserError, match="cannot read"):
        ensure_image(load_recipe(str(tmp_path)))
    (tmp_path / "root.erofs").write_bytes(bytes(2 << 20))
    with pytest.raises(UserError, match="is no erofs image"):
        ensure_image(load_recipe(str(tmp_path)))


def test_a_name_of_any_bytes_is_part_of_an_image(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "overlay").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "overlay") + b"/bad\xff")).touch()
    assert ensure_image(with_overlay(recipe, tmp_path / "overlay")).path.is_file()


@pytest.mark.parametrize("size", [0, 4096, 65536])
def test_an_image_that_was_cut_is_built_again(recipe: Recipe, tmp_path: Path, size: int) -> None:
    (tmp_path / "overlay").mkdir()
    (tmp_path / "overlay/file").write_bytes(bytes(range(256)) * 4096)
    whole = with_overlay(recipe, tmp_path / "overlay")
    image = ensure_image(whole)
    data = image.path.read_bytes()
    image.path.chmod(0o600)
    os.truncate(image.path, size)
    assert built_image(whole) is None
    assert ensure_image(whole).path.read_bytes() == data


@pytest.mark.parametrize("just_used", [False, True])
def test_images_of_a_recipe_that_were_used_longest_ago_go(
    recipe: Recipe, tmp_path: Path, *, just_used: bool
) -> None:
    """A study has read the paths of those that were used within the hour, and boots them later."""
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    paths = [ensure_image(recipe).path]
    for number in range(7):
        (overlay / "file").write_text(str(number), encoding="utf-8")
        paths.append(ensure_image(with_overlay(recipe, overlay)).path)
        if not just_used:
            os.utime(paths[-1].parent, (number, number))
    stay = [True] * 8 if just_used else [True, False, False, *[True] * 5]
    assert [path.exists() for path in paths] == stay
