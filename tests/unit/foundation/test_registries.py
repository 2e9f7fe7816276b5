"""Every built-in entry of a registry has a description, and a test in the folder of its package."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from numalab.api import REGISTRIES, Link, MeasureFamily, Shape
from numalab.plugins import Registry

UNIT = Path(__file__).parents[1]
# Names of entries, as CONTRIBUTING.md describes them. Groups of measures have titles.
HYPHENS, UNDERSCORES = r"[a-z0-9]+(-[a-z0-9]+)*", r"[a-z]\w*"
NAMES = {"sources": UNDERSCORES, "measures": r".*"}


def list_entries() -> Iterator[tuple[str, str]]:
    """Yield kind and name of each entry; the name is empty for a kind with a broken module."""
    for kind, registry in REGISTRIES.items():
        try:
            yield from ((kind, name) for name in registry.built_in())
        except ImportError:
            yield kind, ""


ENTRIES = list(list_entries())


def is_tested(kind: str, name: str, tests: dict[str, str]) -> bool:
    """Whether one of the tests, by file name, uses an entry.

    A test imports the function or class of the entry, or quotes the name of the entry or of a
    measure. The output of a format is compared with a golden file, or has a test file of its own.
    """
    registry = REGISTRIES[kind]
    users = {file: text for file, text in tests.items() if registry.module(name) in text}
    if kind == "formats":
        return f"test_{name}.py" in tests or any("golden(" in text for text in users.values())
    patterns = [re.escape(name)]
    if kind == "measures":
        # Places are numbers or places of an f-string: `"idle_node0"`, `f"idle_node{node}"`.
        patterns = [
            re.sub(r"\{\w+\}", r"[\\w{}.]+", family.name)
            for family in registry.built_in()[name].families
        ]
    quoted = any(
        re.search(rf"""["']{pattern}["']""", text)
        for pattern in patterns
        for text in tests.values()
    )
    definition = registry.definition(name).__name__
    return quoted or any(definition in text for text in users.values())


def lacking_description(kind: str, name: str) -> str:
    """Return the name of an entry or a measure that has no description; nothing if it has one."""
    registry = REGISTRIES[kind]
    if kind != "measures":
        return "" if registry.describe(name) else name
    families: tuple[MeasureFamily, ...] = registry.built_in()[name].families
    return next((family.name for family in families if family.definition == family.name), "")


def lacking_test(kind: str, name: str, folder: Path) -> str:
    """Return which test an entry lacks and the file to create; nothing if the entry has one."""
    registry = REGISTRIES[kind]
    *_, stem = registry.module(name).split(".")
    texts = {path.name: path.read_text(encoding="utf-8") for path in folder.rglob("test_*.py")}
    if is_tested(kind, name, texts):
        return ""
    test = "golden test" if kind == "formats" else "test"
    return (
        f"the {registry.kind} {name} in {registry.module(name)} lacks a {test}:"
        f" create {folder.relative_to(UNIT.parents[1])}/test_{stem}.py"
    )


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_an_entry_is_described_and_tested(kind: str, name: str) -> None:
    registry = REGISTRIES[kind]
    if not name:
        with pytest.raises(ImportError) as error:
            registry.built_in()
        pytest.fail(str(error.value), pytrace=False)
    module = registry.module(name)
    pattern = NAMES.get(kind, HYPHENS)
    assert re.fullmatch(pattern, name), f"{registry.kind} {name!r} in {module}: write {pattern}"
    undescribed = lacking_description(kind, name)
    assert not undescribed, f"{registry.kind} {undescribed}: write a docstring in {module}"
    lacking = lacking_test(kind, name, UNIT / module.split(".")[1])
    assert not lacking, lacking


def test_an_entry_without_a_test_is_named_with_the_file_to_create() -> None:
    empty = UNIT / "room"  # does not exist
    assert lacking_test("properties", "storms", empty) == (
        "the property storms in numalab.hunt.properties.numa lacks a test:"
        " create tests/unit/room/test_numa.py"
    )


def test_a_format_without_a_golden_is_named() -> None:
    module = REGISTRIES["formats"].module("markdown")
    assert not is_tested("formats", "markdown", {"test_formats.py": f"from {module} import x"})
    assert is_tested("formats", "markdown", {"test_formats.py": f"from {module} import x\ngolden("})
    assert lacking_test("formats", "markdown", UNIT / "room") == (
        "the format markdown in numalab.report.formats.markdown lacks a golden test:"
        " create tests/unit/room/test_markdown.py"
    )


def test_a_name_that_is_part_of_a_quoted_word_is_no_test() -> None:
    assert not is_tested("shapes", "ring", {"test_shapes.py": 'load("ring-4")'})
    assert is_tested("shapes", "ring", {"test_shapes.py": 'shape("ring")'})


def test_a_shape_does_not_inherit_its_description() -> None:
    registry: Registry[type[Shape]] = Registry("shape")

    class Bare(Shape):
        def links(self, nodes: int) -> tuple[Link, ...]:
            return ()

    registry.add("bare", Bare, Bare)
    assert registry.describe("bare") == ""


def test_a_broken_module_is_named_at_every_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_entries").mkdir()
    (tmp_path / "broken_entries/__init__.py").touch()
    (tmp_path / "broken_entries/bad.py").write_text("import no_such_module")
    monkeypatch.syspath_prepend(tmp_path)
    registry: Registry[None] = Registry("entry", "broken_entries")
    for _ in range(2):
        with pytest.raises(ImportError, match=r"broken_entries/bad.py cannot .* 'no_such_module'"):
            registry.built_in()
