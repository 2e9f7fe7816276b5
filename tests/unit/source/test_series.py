import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.errors import UserError
from numalab.source.mail_text import parse_subject
from numalab.source.series import apply_series, load_series, parse_series

NAMES = st.from_regex(r"[a-z0-9]{1,8}(/[a-z0-9-]{1,8})?\.patch", fullmatch=True)


@given(st.lists(NAMES, unique=True), st.sampled_from(["", " -p1", "  # why", "\t-p1 # why"]))
def test_names_come_out_in_order(names: list[str], behind: str) -> None:
    text = "# a comment\n\n" + "".join(f"{name}{behind}\n" for name in names)
    assert parse_series(text) == tuple(names)


@given(st.text(max_size=200))
def test_any_text_parses_or_is_a_user_error(text: str) -> None:
    try:
        parse_series(text)
    except UserError as error:
        assert str(error).startswith("series:")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.patch -p0\n", "series:1: cannot apply with -p0 (valid: -p1)"),
        ("a.patch\n../b.patch\n", "series:2: '../b.patch' leads out of the series"),
        ("/b.patch\n", "series:1: '/b.patch' leads out of the series"),
        ("a.patch\n#\na.patch\n", "series:3: 'a.patch' is listed twice"),
    ],
)
def test_what_is_wrong_in_a_series_file_is_named(text: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        parse_series(text)


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("Subject: [PATCH v2 1/3] a: b\n\n---\n", "a: b"),
        ("From: x\nSubject: [RFC] [PATCH] a:\n b\n\nSubject: no\n", "a: b"),
        ("no header\n--- a/f\nSubject: no\n", ""),
    ],
)
def test_subject(text: str, subject: str) -> None:
    assert parse_subject(text) == subject


def test_patches_of_a_series_build_on_each_other(tmp_path: Path) -> None:
    (tmp_path / "series").write_text("1.patch\n2.patch\n")
    (tmp_path / "1.patch").write_text("Subject: one\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n")
    (tmp_path / "2.patch").write_text("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-b\n+c\n")
    series = load_series(tmp_path)
    assert series.info.patches == ("one", "2")
    assert apply_series([series], {"f": "a\n"}.get) == {"f": "c\n"}
    with pytest.raises(UserError) as caught:
        apply_series([series], {"f": "b\n"}.get)
    assert str(caught.value).startswith(f"{tmp_path / '1.patch'}: does not apply: hunk 1 of 1")
    before = series.info.digest
    (tmp_path / "2.patch").write_text("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-b\n+d\n")
    assert load_series(tmp_path).info.digest != before


def test_a_name_without_its_first_folders_is_explained(tmp_path: Path) -> None:
    (tmp_path / "1.patch").write_text(
        "--- kernel/sched/x.c\n+++ kernel/sched/x.c\n@@ -1 +1 @@\n-a\n+b\n"
    )
    series = load_series(tmp_path / "1.patch")
    with pytest.raises(UserError, match=r"sched/x\.c does not exist, but kernel/sched/x\.c does: "):
        apply_series([series], {"kernel/sched/x.c": "a\n"}.get)
    with pytest.raises(UserError, match=r"sched/x\.c does not exist$"):
        apply_series([series], {"x.c": "a\n"}.get)


def test_series_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no file called series, "):
        load_series(tmp_path)
    (tmp_path / "series").write_text("# nothing yet\n")
    with pytest.raises(UserError, match="series: lists no patch"):
        load_series(tmp_path)
    (tmp_path / "series").write_text("gone.patch\n")
    with pytest.raises(UserError, match=r"series: gone\.patch is listed but missing"):
        load_series(tmp_path)
    (tmp_path / "gone.patch").write_text("words\n")
    with pytest.raises(UserError, match=r"gone\.patch: holds no diff"):
        load_series(tmp_path)


def test_a_patch_whose_lines_end_in_cr_lf_is_read_as_if_in_lf(tmp_path: Path) -> None:
    """As from a browser or a mail program; a patch that adds one such line keeps it."""
    text = "Subject: [PATCH] x\n\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
    file = tmp_path / "x.patch"
    file.write_bytes(text.replace("\n", "\r\n").encode())
    assert apply_series([load_series(file)], {"f": "one\ntwo\n"}.get)["f"] == "one\nthree\n"
    file.write_bytes(text.replace("+three\n", "+three\r\n").encode())
    assert apply_series([load_series(file)], {"f": "one\ntwo\n"}.get)["f"] == "one\nthree\r\n"
