"""The lines that patches change, by their numbers in the old and in the new files."""

import difflib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.errors import UserError
from numalab.source.changes import Change, ChangedLine, FileChange, line_changes
from numalab.source.plain_files import SourceFile
from numalab.source.series import Series, load_series

LINES = st.lists(st.sampled_from(["a", "b", "c", "", "}", "\udcff", "\t x"]), max_size=30)


def series(folder: Path, *texts: str) -> Series:
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        data = text.encode("utf-8", "surrogateescape")
        (folder / f"{number}.patch").write_bytes(data)
    return load_series(folder)


def diff(old: list[str], new: list[str]) -> str:
    lines = difflib.unified_diff(
        [f"{line}\n" for line in old], [f"{line}\n" for line in new], "a/d/f.c", "b/d/f.c"
    )
    return "".join(lines)


def text_of(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def rebuilt(change: FileChange) -> list[str]:
    """Return the new lines: the old ones with every change made from its numbers alone."""
    lines, old_at = [], 1
    old = change.before.split("\n")[:-1]
    for part in change.changes:
        lines += old[old_at - 1 : part.old_start - 1]
        assert len(lines) + 1 == part.new_start
        for line in part.removed:
            assert old[line.number - 1] == line.text
        assert [line.number for line in part.removed] == [
            *range(part.old_start, part.old_start + len(part.removed))
        ]
        for line in part.added:
            assert line.number == len(lines) + 1
            lines.append(line.text)
        old_at = part.old_start + len(part.removed)
    return lines + old[old_at - 1 :]


@given(LINES, LINES, LINES)
def test_numbers_rebuild_the_new_file(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[str],
    second: list[str],
    third: list[str],
) -> None:
    first, second, third = (["start", *lines, "end"] for lines in (first, second, third))
    patches = [text for text in (diff(first, second), diff(second, third)) if text]
    if not patches:
        return
    applied = series(tmp_path_factory.mktemp("s"), *patches)
    changes = line_changes([applied], {"d/f.c": SourceFile(text_of(first))}.get)
    if first == third:
        assert changes == ()
        return
    [change] = changes
    assert (change.old, change.new) == ("d/f.c", "d/f.c")
    assert (change.before, change.after) == (text_of(first), text_of(third))
    assert rebuilt(change) == third


def test_offsets_renames_new_and_deleted_files(tmp_path: Path) -> None:
    base = [f"line {number}" for number in range(1, 21)]
    elsewhere = diff(base, [*base[:9], "new", *base[10:]]).replace(
        "@@ -7,7 +7,7 @@", "@@ -2,7 +2,7 @@"
    )
    rename = "diff --git a/old.c b/new.c\nrename from old.c\nrename to new.c\n"
    added = "--- /dev/null\n+++ b/added.c\n@@ -0,0 +1,2 @@\n+one\n+two\n"
    removed = "--- a/gone.c\n+++ /dev/null\n@@ -1 +0,0 @@\n-only\n"
    files = {
        "d/f.c": SourceFile(text_of(["above", *base])),
        "old.c": SourceFile("kept\n" * 5),
        "gone.c": SourceFile("only\n"),
    }
    applied = series(tmp_path / "s", elsewhere, rename, added + removed)
    by_name = {change.new or change.old: change for change in line_changes([applied], files.get)}
    assert by_name["d/f.c"].changes == (
        Change(11, 11, (ChangedLine(11, "line 10"),), (ChangedLine(11, "new"),)),
    )
    assert (by_name["new.c"].old, by_name["new.c"].changes) == ("old.c", ())
    assert by_name["added.c"].old is None
    assert by_name["added.c"].changes == (
        Change(1, 1, (), (ChangedLine(1, "one"), ChangedLine(2, "two"))),
    )
    assert by_name["gone.c"].new is None
    assert by_name["gone.c"].changes == (Change(1, 1, (ChangedLine(1, "only"),), ()),)


def test_attributes_of_a_patch_do_not_hide_its_lines(tmp_path: Path) -> None:
    attributes = "--- /dev/null\n+++ b/.gitattributes\n@@ -0,0 +1 @@\n+*.c -diff binary\n"
    applied = series(tmp_path / "s", attributes, diff(["a"], ["b"]))
    changes = line_changes([applied], {"d/f.c": SourceFile("a\n")}.get)
    assert [change.new for change in changes] == [".gitattributes", "d/f.c"]
    assert changes[1].changes[0].added == (ChangedLine(1, "b"),)


def test_a_patch_that_does_not_apply_is_an_error(tmp_path: Path) -> None:
    applied = series(tmp_path / "s", diff(["a"], ["b"]))
    with pytest.raises(UserError, match=r"does not apply: hunk 1 of 1 does not fit d/f\.c"):
        line_changes([applied], {"d/f.c": SourceFile("c\n")}.get)
