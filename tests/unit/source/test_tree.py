import os
from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.source.series import Series, load_series
from numalab.source.source_tree import switch_tree


def one_patch(folder: Path, text: str) -> Series:
    folder.mkdir(exist_ok=True)
    (folder / "series").write_text("p.patch\n")
    (folder / "p.patch").write_text(text)
    return load_series(folder)


def change(new: str) -> str:
    return f"--- a/f.c\n+++ b/f.c\n@@ -1 +1 @@\n-old\n+{new}\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree" / "source"
    tree.mkdir(parents=True)
    (tree / "f.c").write_text("old\n")
    (tree / "g.c").write_bytes(b"\xff\xfe old\n")
    (tree / "run.sh").write_text("old\n")
    (tree / "run.sh").chmod(0o755)
    return tree


def test_only_files_that_differ_are_written(tree: Path, tmp_path: Path) -> None:
    a = one_patch(tmp_path / "a", change("a"))
    b = one_patch(tmp_path / "b", change("b"))
    for path in tree.iterdir():
        os.utime(path, (1, 1))
    assert switch_tree(tree, [a]) == ("f.c",)
    assert (tree / "f.c").read_text() == "a\n"
    assert (tree / "g.c").stat().st_mtime == 1
    assert switch_tree(tree, [a]) == ()
    assert switch_tree(tree, [b]) == ("f.c",)
    assert (tree / "f.c").read_text() == "b\n"
    assert switch_tree(tree, []) == ("f.c",)
    assert (tree / "f.c").read_text() == "old\n"
    assert (tree / "f.c").stat().st_mtime != 1  # so that make sees the way back too


def test_added_deleted_and_odd_files_come_and_go(tree: Path, tmp_path: Path) -> None:
    text = (
        b"--- /dev/null\n+++ b/new/n.c\n@@ -0,0 +1 @@\n+new\n"
        b"--- a/run.sh\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n"
        b"--- a/g.c\n+++ b/g.c\n@@ -1 +1,2 @@\n \xff\xfe old\n+b\n"
    )
    one_patch(tmp_path / "a", change("a"))
    (tmp_path / "a" / "p.patch").write_bytes(text)
    series = load_series(tmp_path / "a")
    assert set(switch_tree(tree, [series])) == {"new/n.c", "run.sh", "g.c"}
    assert (tree / "new/n.c").read_text() == "new\n"
    assert not (tree / "run.sh").exists()
    assert (tree / "g.c").read_bytes() == b"\xff\xfe old\nb\n"
    assert switch_tree(tree, [series]) == ()
    assert set(switch_tree(tree, [])) == {"new/n.c", "run.sh", "g.c"}
    assert not (tree / "new/n.c").exists()
    assert (tree / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (tree / "g.c").read_bytes() == b"\xff\xfe old\n"


def test_a_tree_that_was_left_half_switched_is_mended(tree: Path, tmp_path: Path) -> None:
    series = one_patch(tmp_path / "a", change("a") + change("x").replace("f.c", "run.sh"))
    switch_tree(tree, [series])
    (tree / "f.c").write_text("old\n")  # as if the switch had ended between two files
    assert switch_tree(tree, [series]) == ("f.c",)
    assert switch_tree(tree, []) == ("f.c", "run.sh")


def test_a_series_that_does_not_apply_changes_nothing(tree: Path, tmp_path: Path) -> None:
    good = one_patch(tmp_path / "a", change("a"))
    bad = one_patch(tmp_path / "b", change("b").replace("-old", "-other"))
    switch_tree(tree, [good])
    with pytest.raises(UserError, match=r"p\.patch: does not apply"):
        switch_tree(tree, [bad])
    assert (tree / "f.c").read_text() == "a\n"
