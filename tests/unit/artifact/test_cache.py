import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from numalab.artifact.cache import (
    HOUR,
    Entry,
    choose_to_prune,
    keep_newest,
    list_cache,
    remove_entry,
)
from numalab.cli.inputs.cache import app
from numalab.errors import UserError
from numalab.files import write_json
from numalab.image.image_artifact import IMAGES

DAY = 24 * HOUR


def entry(name: str, size: int, age: float, in_use: str = "") -> Entry:
    return Entry("kernel", name, Path("/cache") / name, size, 1e9 - age, in_use)


def names(entries: tuple[Entry, ...]) -> list[str]:
    return [item.name for item in entries]


def test_the_longest_unused_goes_first_until_little_enough_is_left() -> None:
    entries = [entry("new", 5, 1), entry("old", 3, 9), entry("older", 4, 99)]
    now = 1e9
    assert names(choose_to_prune(entries, keep=12, unused_for=None, now=now)) == []
    assert names(choose_to_prune(entries, keep=11, unused_for=None, now=now)) == ["older"]
    assert names(choose_to_prune(entries, keep=5, unused_for=None, now=now)) == ["older", "old"]
    assert names(choose_to_prune(entries, keep=None, unused_for=50, now=now)) == ["older"]
    entries[2] = entry("older", 4, -99)  # of a wrong clock
    assert names(choose_to_prune(entries, keep=11, unused_for=None, now=now)) == ["older"]
    assert names(choose_to_prune(entries, keep=None, unused_for=50, now=now)) == ["older"]
    busy = [entry("busy", 50, 999, "in use"), *entries]
    assert names(choose_to_prune(busy, keep=0, unused_for=0, now=now)) == ["older", "old", "new"]


SIZES = st.lists(st.tuples(st.integers(1, 99), st.integers(0, 99), st.sampled_from(["", "in use"])))


@given(SIZES, st.integers(0, 500))
def test_pruning_keeps_what_is_in_use_and_no_more_than_asked(
    sizes: list[tuple[int, int, str]], keep: int
) -> None:
    entries = [entry(str(i), size, age, used) for i, (size, age, used) in enumerate(sizes)]
    gone = choose_to_prune(entries, keep=keep, unused_for=None, now=1e9)
    assert not any(item.in_use for item in gone)
    left = sum(item.size for item in entries) - sum(item.size for item in gone)
    stays = [item for item in entries if item not in gone and not item.in_use]
    assert left <= keep or not stays
    if gone:  # one less would have been too little
        assert left + gone[-1].size > keep


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of one entry of each kind, last used ten days ago; gives its folder."""
    base = tmp_path / "cache"
    monkeypatch.setenv("NUMALAB_CACHE", str(base))
    for name in ("kernels/d1/bzImage", "kernel-trees/t1/source/Makefile", "kernel-trees/t1/lock",
                 "kernel-trees/t1/added.json", "packages/p1/a.deb", "images/i1/root.erofs",
                 "images/packages/x.tar", "boots/b1/console.log", "apt/sid/lists/a",
                 "testbed/kernel-1/vmlinuz", "testbed/python-1.erofs"):  # fmt: skip
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 2\n" * 100)
    (base / "kernel-trees/t1/lock").write_text("")
    write_json(base / "kernels/d1/kernel.json", {"spec_name": "debian-6.1"})
    write_json(base / "images/i1/image.json", {"recipe": "base"})
    age(base)
    return base


def age(folder: Path) -> None:
    then = time.time() - 10 * DAY
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (then, then))


def test_the_cache_is_listed_by_what_it_holds(cache: Path) -> None:
    rows = {(item.kind, item.name, item.in_use) for item in list_cache()}
    assert rows == {
        ("kernel", "debian-6.1", ""), ("tree", "Linux 6.1.2", ""), ("package", "p1", ""),
        ("image", "base", ""), ("packages", "x.tar", ""), ("boot", "b1", ""), ("list", "sid", ""),
        ("test bed", "kernel-1", ""), ("test bed", "python-1.erofs", ""),
    }  # fmt: skip
    assert all(item.size >= 4096 for item in list_cache())
    # Looking is no use.
    assert {item.in_use for item in list_cache()} == {""}
    os.utime(cache / "kernels/d1")
    assert {item.name for item in list_cache() if item.in_use} == {"debian-6.1"}


@pytest.mark.parametrize("is_link", [False, True])
def test_what_is_open_or_locked_is_in_use(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_link: bool
) -> None:
    if is_link:
        (tmp_path / "link").symlink_to(cache)
        cache = tmp_path / "link"
        monkeypatch.setenv("NUMALAB_CACHE", str(cache))
    console, lock = cache / "boots/b1/console.log", cache / "kernel-trees/t1/lock"
    with console.open() as _, lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; print(1, flush=True); sys.stdin.read()",
             f"-kernel={cache}/kernels/d1/bzImage,x"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert child.stdout is not None
        child.stdout.readline()
        used = {item.kind for item in list_cache() if item.in_use}
        tree = next(item for item in list_cache() if item.kind == "tree")
        assert remove_entry(tree) is False
        child.communicate(b"")
    assert used == {"boot", "tree", "kernel"}
    assert (cache / "kernel-trees/t1/source/Makefile").exists()
    assert not any(item.in_use for item in list_cache())


def test_an_entry_of_a_wrong_clock_is_not_in_use(cache: Path) -> None:
    (cache / "kernels/d1/kernel.json").unlink()
    then = time.time() + 2 * DAY
    for path in (cache / "kernels/d1", cache / "kernels/d1/bzImage"):
        os.utime(path, (then, then))
    assert not any(item.in_use for item in list_cache())
    assert "in the future" in CliRunner().invoke(app, ["list"]).stdout
    assert CliRunner().invoke(app, ["prune", "--keep", "0"]).exit_code == 0
    assert list_cache() == ()


@pytest.mark.parametrize(("unused_for", "left"), [(0.0, "45"), (HOUR, "345")])
def test_only_the_newest_are_kept_and_what_was_used_within_the_hour(
    cache: Path, unused_for: float, left: str
) -> None:
    for number in range(6):
        folder = IMAGES.entry(str(number))
        folder.mkdir()
        write_json(folder / "image.json", {"recipe": "mine"})
        then = time.time() - (5 - number) * 0.4 * HOUR
        os.utime(folder, (then, then))
    keep_newest(IMAGES, 2, "mine", unused_for=unused_for)
    folders = {path.name for path in (cache / "images").glob("[!.]*")}
    assert folders == {"i1", "packages", *left}, "other recipes stay"


def test_pruning_removes_entries_and_leaves_the_lock_of_a_tree(cache: Path) -> None:
    result = CliRunner().invoke(app, ["prune", "--older-than", "9", "--dry-run"])
    assert result.exit_code == 0
    assert "would free" in result.stderr
    assert len(list_cache()) == 9
    result = CliRunner().invoke(app, ["prune", "--older-than", "9"])
    assert result.exit_code == 0, result.stderr
    assert list_cache() == ()
    assert [str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file()] == [
        "kernel-trees/t1/lock"
    ]
    assert "nothing to remove" in CliRunner().invoke(app, ["prune", "--keep", "0"]).stdout


def test_the_remains_of_an_interrupted_prune_go_with_the_next(cache: Path) -> None:
    (cache / "kernels/d1").rename(cache / "kernels/.pruned-1-d1")
    assert "remains" in {item.kind for item in list_cache()}
    for item in list_cache():
        assert remove_entry(item)
    assert list_cache() == ()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs --keep SIZE, --older-than DAYS, or both"),
        (["--keep", "lots"], "--keep: not a size: 'lots' (write 512MiB or 2GiB)"),
    ],
)
def test_prune_says_what_it_wants(cache: Path, words: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["prune", *words])
    assert isinstance(result.exception, UserError)
    assert message in str(result.exception)
