import difflib
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.errors import UserError
from numalab.source.patch import HunkFailed, PatchError, apply_patch, parse_patch
from numalab.source.series import apply_series, load_series

LINES = st.lists(st.sampled_from(["a", "b", "", "c d", "-- ", "+x", "--- a/x", "@@ -1 +1 @@"]))


def diff(old: str, new: str, path: str = "f.c", context: int = 3) -> str:
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{path}", f"b/{path}",
        n=context,
    )  # fmt: skip
    text = ""
    for line in lines:
        text += line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
    return text


@given(LINES, LINES, st.booleans(), st.booleans(), st.integers(0, 3))
def test_a_diff_applied_to_the_old_text_gives_the_new_one(
    old: list[str], new: list[str], old_ends: bool, new_ends: bool, context: int
) -> None:
    before = "\n".join(old) + ("\n" if old_ends and old else "")
    after = "\n".join(new) + ("\n" if new_ends and new else "")
    text = diff(before, after, context=context)
    if not text:
        return
    files = parse_patch(f"Subject: x\n\n---\n{text}-- \n2.39.5\n")
    assert apply_patch(files, {"f.c": before}.get) == {"f.c": after}


@given(st.lists(st.sampled_from(["x", "y", "z"]), max_size=5))
def test_a_hunk_is_found_where_lines_were_added_above(above: list[str]) -> None:
    old = "".join(f"{n}\n" for n in range(20))
    new = old.replace("10\n", "ten\n").replace("15\n", "")
    prefix = "".join(f"{line}\n" for line in above)
    moved = apply_patch(parse_patch(diff(old, new)), {"f.c": prefix + old}.get)
    assert moved == {"f.c": prefix + new}


@given(st.text(max_size=300))
def test_any_text_parses_or_is_a_patch_error(text: str) -> None:
    try:
        parse_patch(text)
        parse_patch("--- a/f\n+++ b/f\n@@ -1 +1 @@\n" + text)
    except PatchError as error:
        assert str(error)


def test_what_git_writes_applies(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    old = {"kept.c": "1\n2\n3\n", "gone.c": "x\n", "moved.c": "a\n" * 9, "empty": "", "run": "#!\n"}
    for name, text in old.items():
        (tmp_path / name).write_text(text)
    git("add", "-A")
    git("commit", "-qm", "old")
    (tmp_path / "kept.c").write_text("1\ntwo\n3")
    (tmp_path / "gone.c").unlink()
    (tmp_path / "moved.c").rename(tmp_path / "there.c")
    (tmp_path / "new.c").write_text("new\n")
    (tmp_path / "blank").write_text("")
    (tmp_path / "run").chmod(0o755)
    git("add", "-A")
    git("commit", "-qm", "new")
    files = parse_patch(git("format-patch", "-1", "--stdout", "-M"))
    assert apply_patch(files, old.get) == {
        "kept.c": "1\ntwo\n3", "gone.c": None, "moved.c": None, "there.c": "a\n" * 9,
        "new.c": "new\n", "blank": "", "run": "#!\n",
    }  # fmt: skip


def test_a_failing_hunk_shows_the_files_own_lines() -> None:
    old = "".join(f"{n}\n" for n in range(1, 13))
    files = parse_patch(diff(old, old.replace("6\n", "six\n")))
    other = {"f.c": old.replace("5\n", "five\n")}
    with pytest.raises(HunkFailed) as caught:
        apply_patch(files, other.get)
    assert str(caught.value).splitlines() == [
        "hunk 1 of 1 does not fit f.c",
        "the patch wants:", *(f"    {n}" for n in range(3, 10)),
        "the file has, from line 3 (> differs):",
        "    3", "    4", "  > five", "    6", "    7", "    8", "    9",
    ]  # fmt: skip


def test_a_hunk_that_is_in_already_is_said_to_be() -> None:
    old = "".join(f"{n}\n" for n in range(1, 13))
    new = old.replace("6\n", "six\n")
    with pytest.raises(HunkFailed, match="seems to be applied already"):
        apply_patch(parse_patch(diff(old, new)), {"f.c": new}.get)


def test_lines_that_differ_by_their_ends_alone_are_said_to(tmp_path: Path) -> None:
    old, new = "1\n2\n3\n", "1\ntwo\n3\n"
    of_dos = old.replace("\n", "\r\n")
    with pytest.raises(HunkFailed, match=r"fit f\.c only because lines of the file end in CR LF\n"):
        apply_patch(parse_patch(diff(old, new)), {"f.c": of_dos}.get)
    half = tmp_path / "half.patch"
    half.write_bytes(b"Subject: x\n\n" + diff(old, new).replace("\n", "\r\n").encode())
    with pytest.raises(UserError, match=r"fit f\.c only because its lines end in CR LF\n"):
        apply_series([load_series(half)], {"f.c": old}.get)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no diff"),
        ("just a mail\n", "holds no diff"),
        (
            "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n",
            "the hunk that begins in line 3 is cut short",
        ),
        (
            "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n?two\n",
            "line 5: the hunk that begins in line 3",
        ),
        ("--- a/f\n+++ b/f\n@@ -1 +1,1\n one\n", "line 3: '@@ -1 +1,1' is not a hunk header"),
        ("--- f\n+++ f\n@@ -1 +1 @@\n-a\n+b\n", "line 1: 'f' has no leading a/ or b/"),
        ("--- a/../etc\n+++ b/f\n", "line 1: '../etc' leads out of the source tree"),
        ("--- a//etc/f\n+++ b/f\n", "line 1: '/etc/f' leads out of the source tree"),
        ("diff --git a/f b/f\nGIT binary patch\n", "line 2: binary patches cannot be applied"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\ndiff --cc g\n", "line 6: the combined diff of a"),
        ("--- a/f\n+++ b/f\n@@@ -1,1 -1,1 +1,2 @@@\n++a\n", "line 3: the combined diff of a m"),
        ("diff --git a/f b/g\ncopy from f\ncopy to g\n", "line 2: patches that copy a file"),
        ("diff --git x\n", "line 1: cannot read the names in 'diff --git x'"),
    ],
)
def test_what_is_wrong_in_a_patch_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(PatchError, match=re.escape(message)):
        parse_patch(text)


@pytest.mark.parametrize(
    ("text", "files", "message"),
    [
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", {}, "f does not exist"),
        ("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+b\n", {"f": "x\n"}, "f exists already"),
        ("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", {"f": "a\nb\n"}, "f has lines that"),
    ],
)  # fmt: skip
def test_files_that_are_not_as_the_patch_says(
    text: str, files: dict[str, str], message: str
) -> None:
    with pytest.raises(HunkFailed, match=message):
        apply_patch(parse_patch(text), files.get)
