"""Series of strangers: nothing outside the source tree is written, read or waited for."""

import gzip
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numalab.errors import HostError, UserError
from numalab.source.series import MAX_LINES, MAX_PATCHES, Series, load_series
from numalab.source.source_tree import switch_tree

SECRET = "nobody may read this\n"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with the tree of a source in it, and beside that what no patch may reach."""
    with tempfile.TemporaryDirectory() as scratch:
        yield make_place(Path(scratch))


def make_place(folder: Path) -> Path:
    tree = folder / "cache" / "source"
    (tree / "d" / "e").mkdir(parents=True)
    (folder / "outside").mkdir()
    (folder / "outside" / "f").write_text(SECRET)
    (tree / "f").write_text("old\n")
    (tree / "d" / "f").write_text("old\n")
    (tree / "d" / "e" / "g").write_text("old\n")
    (tree / "run").write_text("old\n")
    (tree / "run").chmod(0o755)
    (tree / "link").symlink_to("../../outside")
    (tree / "file-link").symlink_to("../../outside/f")
    os.mkfifo(tree / "fifo")
    return folder


def contents(folder: Path) -> dict[str, tuple[str, bool]]:
    """Return what lies below a folder, and whether it is executable; no link is followed."""
    facts = {}
    for path in folder.rglob("*"):
        mode = path.lstat().st_mode
        name = str(path.relative_to(folder))
        if stat.S_ISLNK(mode):
            facts[name] = (f"-> {path.readlink()}", False)
        elif stat.S_ISREG(mode):
            text = path.read_bytes().decode("utf-8", "surrogateescape")
            facts[name] = (text, bool(mode & 0o100))
        elif not stat.S_ISDIR(mode):
            facts[name] = ("a FIFO", False)
    return facts


def new_file(name: str, text: str, mode: str = "100644") -> str:
    return (
        f"diff --git a/{name} b/{name}\nnew file mode {mode}\n--- /dev/null\n+++ b/{name}\n"
        f"@@ -0,0 +1 @@\n+{text}\n"
    )


def new_link(name: str, target: str) -> str:
    return new_file(name, target, "120000") + "\\ No newline at end of file\n"


def change(name: str, old: str = "old", new: str = "new") -> str:
    return f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-{old}\n+{new}\n"


def series_of(folder: Path, *patches: str) -> Series:
    shutil.rmtree(folder / "patches", ignore_errors=True)
    (folder / "patches").mkdir()
    for number, text in enumerate(patches):
        data = text.encode("utf-8", "surrogateescape")
        (folder / "patches" / f"{number:04}.patch").write_bytes(data)
    return load_series(folder / "patches")


@pytest.mark.parametrize(
    ("patches", "message"),
    [
        ([new_link("new", "../../outside"), change("new/f", SECRET.strip())], "0000.patch: line 2"),
        ([new_link("new", "../../outside/f")], "new is a symbolic link: only files can change"),
        ([new_file("new", "x", "160000")], "new is a submodule"),
        ([new_file("new", "x", "020644")], "new is a file of mode 020644"),
        (["diff --git a/f b/f\nold mode 100644\nnew mode 120000\n"], "f is a symbolic link"),
        (["diff --git a/f b/f\nindex 12..34 120000\n" + change("f")], "f is a symbolic link"),
        ([change("link/f", SECRET.strip())], "in the source link is a symbolic link"),
        ([new_file("link/new", "x")], "in the source link is a symbolic link"),
        ([change("file-link", SECRET.strip())], "in the source file-link is a symbolic link"),
        (["diff --git a/file-link b/x\nrename from file-link\nrename to x\n"], "a symbolic link"),
        ([new_file("file-link", "x")], "in the source file-link is a symbolic link"),
        ([change("fifo")], "in the source fifo is a FIFO"),
        ([new_file("d", "x")], "in the source d is a folder"),
        ([new_file("build-0123456789ab/x", "x")], "in a folder of a build"),
        ([new_file(".git/config", "x")], "'.git/config' is no name of a source file"),
        ([new_file("d/.GIT/config", "x")], "'d/.GIT/config' is no name of a source file"),
        ([new_file("d/./x", "x")], "'d/./x' is no name of a source file"),
        ([new_file("d//x", "x")], "'d//x' is no name of a source file"),
        ([new_file("../x", "x")], "'../x' leads out of the source tree"),
        ([new_file("/etc/x", "x")], "'/etc/x' leads out of the source tree"),
        ([change('"a/\\056\\056/x"').replace('a/"', '"')], "'../x' leads out of the source tree"),
        ([new_file("a\x1b[31m", "x")], r"the name 'a\x1b[31m' is no printable UTF-8"),
        ([new_file("a\udcff", "x")], r"the name 'a\udcff' is no printable UTF-8"),
        ([new_file("x" * 300, "x")], "is too long"),
        (["diff --git a/f b/x\ncopy from f\ncopy to x\n"], "patches that copy a file"),
    ],
)
def test_a_patch_reaches_nothing_but_files_of_the_tree(
    place: Path, patches: list[str], message: str
) -> None:
    before, tree = contents(place / "outside"), contents(place / "cache" / "source")
    with pytest.raises(UserError) as caught:
        switch_tree(place / "cache" / "source", [series_of(place, *patches)])
    assert message in str(caught.value)
    assert ".patch: " in str(caught.value)
    assert contents(place / "outside") == before
    assert contents(place / "cache" / "source") == tree


def test_a_link_that_only_git_sees_is_refused(place: Path) -> None:
    """What git makes of a patch is looked at, whatever numalab's own parser reads in it."""
    series = series_of(place, new_file("x", "../../outside/f"))
    [patch] = series.patches
    for text in (new_link("x", "../../outside/f"), new_file("y", "y")):
        odd = Series("odd", (type(patch)(patch.path, "", "", text, patch.files),))
        with pytest.raises(UserError, match=r"0000\.patch: git changes '[xy]' in another way"):
            switch_tree(place / "cache" / "source", [odd])
    assert SECRET not in str(contents(place / "cache" / "source"))


def test_modes_and_quoted_names_survive(place: Path) -> None:
    tree = place / "cache" / "source"
    before = contents(tree)
    quoted = new_file("X", "x").replace("a/X", '"a/\\303\\274 \\"x\\""')
    series = series_of(
        place,
        new_file("tool", "x", "100755") + "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n",
        change("run") + "diff --git a/d/f b/d/f\nold mode 100644\nnew mode 100755\n",
        quoted.replace("b/X", '"b/\\303\\274 \\"x\\""') + new_file("x b/x", "two"),
    )
    assert "tool" in switch_tree(tree, [series])
    assert switch_tree(tree, [series]) == ()
    after = contents(tree)
    assert {name for name, (_, executable) in after.items() if executable} == {
        "tool", "f", "run", "d/f",
    }  # fmt: skip
    assert after['\u00fc "x"'][0] == "x\n"
    assert after["x b/x"][0] == "two\n"
    assert (tree / "tool").stat().st_mode & 0o777 == 0o777 & ~umask()
    switch_tree(tree, [])
    assert contents(tree) == before


def umask() -> int:
    mask = os.umask(0o22)
    os.umask(mask)
    return mask


def test_a_file_becomes_a_folder_and_a_file_again(place: Path) -> None:
    tree = place / "cache" / "source"
    before = contents(tree)
    delete = "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n"
    forth = delete + new_file("f/deep/x", "x")
    back = forth.replace("--- a/f\n", "--- a/f/deep/x\n").replace("-old", "-x").split("diff")[0]
    switch_tree(tree, [series_of(place, forth)])
    assert contents(tree)["f/deep/x"] == ("x\n", False)
    switch_tree(tree, [series_of(place, new_file("n/x", "x"))])
    switch_tree(tree, [series_of(place, new_file("n", "x"))])
    assert contents(tree) == before | {"n": ("x\n", False)}
    switch_tree(tree, [series_of(place, forth, back + new_file("f", "again"))])
    assert contents(tree) == before | {"f": ("again\n", False)}
    switch_tree(tree, [])
    assert contents(tree) == before
    assert not (tree / "n").exists()


@pytest.mark.parametrize("planted", ["f", "d", "d/f", "new", "n"])
@pytest.mark.parametrize("back", [False, True])
def test_links_that_were_planted_in_a_tree_are_not_followed(
    place: Path, planted: str, back: bool
) -> None:
    tree, beside = place / "cache" / "source", contents(place / "outside")
    series = series_of(
        place, change("f") + change("d/f") + new_file("new", "x") + new_file("n/x", "x")
    )
    switch_tree(tree, [series])
    if (tree / planted).is_dir():
        shutil.rmtree(tree / planted)
        (tree / planted).symlink_to("../../outside")
    else:
        (tree / planted).unlink()
        (tree / planted).symlink_to("../../outside/f")
    wanted = [] if back else [series]
    with suppress(HostError):
        switch_tree(tree, wanted)
        assert not (tree / planted).is_symlink()
    assert contents(place / "outside") == beside
    assert SECRET not in str(contents(tree))


@pytest.mark.parametrize("folder", ["originals", ".source.writing", ".originals.writing"])
def test_links_that_were_planted_beside_a_tree_are_not_followed(place: Path, folder: str) -> None:
    tree, beside = place / "cache" / "source", contents(place / "outside")
    target = "outside" if folder == "originals" else "outside/f"
    (place / "cache" / folder).symlink_to(place / target)
    with suppress(HostError):
        switch_tree(tree, [series_of(place, change("f"))])
    assert contents(place / "outside") == beside


def patch_texts() -> st.SearchStrategy[list[str]]:
    names = st.sampled_from(
        [
            "f",
            "d",
            "d/f",
            "d/e/g",
            "run",
            "link",
            "link/f",
            "file-link",
            "fifo",
            "n",
            "n/x",
            "../outside/f",
            "/etc/x",
            ".git/x",
        ]
    )
    texts = st.sampled_from(["old", "new", SECRET.strip(), "../outside", "../../outside/f"])
    modes = st.sampled_from(["100644", "100644", "100755", "120000", "160000"])
    rename = "diff --git a/{0} b/{1}\nsimilarity index 100%\nrename from {0}\nrename to {1}\n"
    delete = (
        "diff --git a/{0} b/{0}\ndeleted file mode {2}\n"
        "--- a/{0}\n+++ /dev/null\n@@ -1 +0,0 @@\n-{1}\n"
    )
    mode = "diff --git a/{0} b/{0}\nold mode {1}\nnew mode {2}\n"
    part = st.one_of(
        st.builds(new_file, names, texts, modes),
        st.builds(new_link, names, texts),
        st.builds(change, names, texts, texts),
        st.builds(rename.format, names, names),
        st.builds(delete.format, names, texts, modes),
        st.builds(mode.format, names, modes, modes),
    )
    return st.lists(st.lists(part, min_size=1, max_size=2).map("".join), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(st.lists(patch_texts(), min_size=1, max_size=3))
def test_no_sequence_of_patches_leaves_the_tree(rounds: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        place = make_place(Path(scratch))
        tree = place / "cache" / "source"
        before, outside = contents(tree), contents(place / "outside")
        for patches in rounds:
            with suppress(UserError):
                switch_tree(tree, [series_of(place, *patches)])
            secret = [patch for patch in patches if f"+{SECRET}" in patch]
            assert secret or SECRET not in str(contents(tree))
            assert contents(place / "outside") == outside
            assert {path.name for path in place.iterdir()} == {"cache", "outside", "patches"}
        switch_tree(tree, [])
        assert contents(tree) == before


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=s", "-c", "user.email=s@x", "-c", "core.quotePath=true"]
    return subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


LINES = st.lists(st.sampled_from(["a", "b", "c", "\u00fc"]), max_size=8)
STEP = st.tuples(
    st.sampled_from(["write", "write", "delete", "rename", "mode", "link"]),
    st.sampled_from(["f", "d/f", "d/e/g", "run", "n", "n/x", "\u00fc x", "x b/x"]),
    LINES.map(lambda lines: "".join(f"{line}\n" for line in lines)),
    st.sampled_from(["moved", "d/moved", "f", "outside"]),
)


def take(tree: Path, kind: str, name: str, text: str, other: str) -> None:
    """Change a work tree in one way, if that is possible."""
    path = tree / name
    plain = path.is_file() and not path.is_symlink()
    with suppress(OSError):  # a file where a folder has to be, or the other way round
        if kind in ("write", "link") and not path.is_symlink():
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == "write":
                path.write_text(text)
            else:
                path.unlink(missing_ok=True)
                path.symlink_to(f"../../{other}")
        elif kind == "delete":
            path.unlink()
            path.parent.rmdir()
        elif kind == "rename" and plain:
            path.rename(tree / other)
        elif kind == "mode" and plain:
            path.chmod(path.stat().st_mode ^ 0o111)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(STEP, min_size=1, max_size=3), min_size=1, max_size=4), st.booleans())
def test_a_series_makes_of_the_tree_what_git_am_makes(
    commits: list[list[tuple[str, str, str, str]]], renames: bool
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        place = make_place(Path(scratch))
        tree = place / "cache" / "source"
        (tree / "fifo").unlink()
        repository = place / "repository"
        shutil.copytree(tree, repository, symlinks=True)
        git(repository, "init", "--quiet")
        git(repository, "add", "--all")
        git(repository, "commit", "--quiet", "-m", "base")
        git(repository, "tag", "base")
        for number, steps in enumerate(commits):
            for step in steps:
                take(repository, *step)
            git(repository, "add", "--all")
            git(repository, "commit", "--quiet", "--allow-empty", "-m", f"step {number}")
        (place / "patches").mkdir()
        words = ["-M" if renames else "--no-renames", "-o", str(place / "patches")]
        git(repository, "format-patch", "--quiet", *words, "base..")
        if not (files := sorted((place / "patches").iterdir())):
            return
        before, outside = contents(tree), contents(place / "outside")
        links = "120000" in git(repository, "log", "--raw", "--format=", "base..")
        try:
            switch_tree(tree, [load_series(place / "patches")])
        except UserError as error:
            assert links or "is a folder" in str(error) or "no diff" in str(error), error
            assert contents(tree) == before
        else:
            assert not links
            git(repository, "checkout", "--quiet", "base")
            git(repository, "am", "--quiet", *map(str, files))
            shutil.rmtree(repository / ".git")
            assert contents(tree) == contents(repository)
        switch_tree(tree, [])
        assert contents(tree) == before
        assert contents(place / "outside") == outside


def odd_file(path: Path, kind: str) -> None:
    if kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    else:
        path.symlink_to(kind)


@pytest.mark.parametrize(
    "kind", ["a FIFO", "a folder", "/dev/zero", "/proc/kmsg", "../outside/f", "nothing", "x.patch"]
)
@pytest.mark.parametrize("name", ["series", "x.patch", "cover.diff", "listed"])
@pytest.mark.timeout(60)
def test_odd_files_in_a_series_are_one_message(place: Path, kind: str, name: str) -> None:
    folder = place / "patches"
    folder.mkdir()
    if name == "listed":
        (folder / "series").write_text("listed\n")
    odd_file(folder / name, kind)
    with pytest.raises(UserError) as caught:
        load_series(folder)
    assert str(caught.value).startswith(str(folder))
    assert SECRET.strip() not in str(caught.value)


@pytest.mark.timeout(60)
def test_an_odd_file_is_no_series(place: Path) -> None:
    os.mkfifo(place / "fifo")
    with pytest.raises(UserError, match="fifo: cannot read: not a file"):
        load_series(place / "fifo")
    with pytest.raises(UserError, match="holds no diff"):
        load_series(Path("/proc/kmsg"))


def test_a_link_within_a_series_is_followed(place: Path) -> None:
    series_of(place, change("f"))
    (place / "patches" / "0001.patch").symlink_to("0000.patch")
    (place / "patches" / "series").write_text("0001.patch\n")
    assert load_series(place / "patches").info.patches == ("0001",)


MAIL = "From 0000 Mon Sep 17 00:00:00 2001\nSubject: x\n\n" + change("f")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MAIL * (MAX_PATCHES + 1), "10001 messages (at most 10000)"),
        ("".join(new_file(f"n{i}", "x") for i in range(20_001)), "more than 20000 files"),
        (change("f") + "\n" * MAX_LINES, f"more than {MAX_LINES} lines in one series"),
        ("--- a/f\n+++ b/f\n" + "@@ -1,3 +1,3 @@\n x\n-y\n+z\n x\n" * 100_000, "does not apply"),
        ("--- a/f\n+++ b/f\n" + "@@ -0,0 +0,0 @@\n" * 100_000, "has other lines than its header"),
        ("From x " + "00:00:00 0000" * 100_000, "holds no diff"),
        (f"{MAIL.replace(': x', ': ' + '[PATCH' * 100_000)}", "the file has"),
        ('diff --git "a/' + '" "b/' * 100_000, "cannot read the name"),
        ("diff --git a/" + " b/" * 100_000, "cannot read the names"),
        (new_file("x/" * 100 + "y", "x"), "is too long"),
        (MAIL.replace("-old", "-x"), "the file has, from line 1 (> differs):\n  > old"),
    ],
    ids=range(11),
)
def test_large_series_are_refused_soon(place: Path, text: str, message: str) -> None:
    file = place / "large.mbox.gz"
    file.write_bytes(gzip.compress(text.replace("-old", "-y").encode()))
    with pytest.raises(UserError) as caught:
        switch_tree(place / "cache" / "source", [load_series(file)])
    assert message in str(caught.value)
    assert len(str(caught.value)) < 10_000


def test_a_file_below_a_file_is_the_patchs_fault(place: Path) -> None:
    tree = place / "cache" / "source"
    before = contents(tree)
    with pytest.raises(UserError, match=r"does not apply: in the source d/f is a file"):
        switch_tree(tree, [series_of(place, new_file("d/f/x", "x"))])
    assert contents(tree) == before


def test_hunks_that_are_searched_for_take_bounded_time(place: Path) -> None:
    """The first one fits nowhere; to look for it and the next ones takes hours, not seconds."""
    tree = place / "cache" / "source"
    (tree / "f").write_text("a\n" * 100_000)
    lines = "".join(" a\n" * 20_000 + " b\n" + f"+{number}\n" for number in range(1))
    text = f"--- a/f\n+++ b/f\n@@ -1,20001 +1,20002 @@\n{lines}"
    with pytest.raises(UserError, match="its hunks are too many, too large and too far"):
        switch_tree(tree, [series_of(place, text)])


def test_many_patches_are_applied_by_few_processes(place: Path) -> None:
    patches = [change("f", "old", "0")]
    patches += [change("f", str(number), str(number + 1)) for number in range(100)]
    tree = place / "cache" / "source"
    assert switch_tree(tree, [series_of(place, *patches)]) == ("f",)
    assert (tree / "f").read_text() == "100\n"
    patches[77] = change("f", "x", "y")
    with pytest.raises(UserError, match=r"0077\.patch: does not apply: hunk 1 of 1"):
        switch_tree(tree, [series_of(place, *patches)])
