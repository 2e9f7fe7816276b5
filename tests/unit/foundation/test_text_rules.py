"""The rules of our text that `make check` enforces."""

from pathlib import Path

import pytest

from text_rules import (
    check_columns,
    check_identifiers,
    check_lengths,
    check_message,
)


@pytest.mark.parametrize(
    "source",
    [
        "found = 1",
        "def told(): pass",
        "class seen: pass",
        "def run(each): pass",
        "[one for one in ()]",
        "import os as given",
        "with a as others: pass",
        "lambda there: 1",
        "a.b, known = 1, 2",
    ],
)
def test_a_filler_is_named(source: str) -> None:
    assert [line for line, _ in check_identifiers(source)] == [1]


def test_nouns_and_attributes_of_libraries_pass() -> None:
    assert not list(check_identifiers("run = match.found\nfor cpu in cpus: print(cpu.each)\n"))
    assert not list(check_identifiers("class Proof:\n    found: int  # key of manifest.json\n"))


def test_only_text_is_wrapped() -> None:
    long = "word " * 30
    page = f"{long}\n| {long} |\n```\n{long}\n```\n- {long}\n[link]({'x' * 120})\n"
    assert [line for line, _ in check_columns(page)] == [1, 6]


@pytest.mark.parametrize(
    ("message", "defects"),
    [
        ("hunt: refuse a seed below 0\n\nA negative seed crashed numpy.", 0),
        ("hunt: refuse a seed below 0", 1),
        ("Refuse a seed below 0\n\nWhy.", 1),
        ("hunt: refuse a seed below 0.\n\nWhy.", 1),
        (f"hunt: {'refuse ' * 12}\n\nWhy.", 1),
        (f"hunt: refuse\n\n{'why ' * 30}", 1),
        (f"hunt: refuse\n\nAs printed:\n    {'output ' * 30}\n", 0),
        (f"hunt: refuse\n\n{'x' * 100}\n", 0),
        ("hunt: refuse\nWhy.", 1),
    ],
)
def test_commit_messages(message: str, defects: int) -> None:
    assert len(list(check_message(message))) == defects


def test_limits_on_lengths(tmp_path: Path) -> None:
    for folder in ("how-to", "reference", "results"):
        (tmp_path / folder).mkdir()
    readme = tmp_path / "README.md"
    readme.write_text("line\n" * 110)
    (tmp_path / "how-to" / "hunt.md").write_text("line\n" * 80)
    (tmp_path / "reference" / "study.md").write_text("word " * 29_920)
    (tmp_path / "results" / "speed.md").write_text("word " * 50_000)
    assert not list(check_lengths(tmp_path, readme))
    readme.write_text("line\n" * 111)
    (tmp_path / "how-to" / "hunt.md").write_text("line\n" * 81)
    assert len(list(check_lengths(tmp_path, readme))) == 3
