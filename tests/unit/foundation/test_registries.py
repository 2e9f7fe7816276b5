"""Every built-in entry of a registry has a description, and a test in the folder of its package."""

from pathlib import Path

import pytest

from numalab.api import REGISTRIES

UNIT = Path(__file__).parents[1]
ENTRIES = [(kind, name) for kind, registry in REGISTRIES.items() for name in registry.built_in()]


def is_tested(kind: str, name: str, tests: dict[str, str]) -> bool:
    """Whether one of the tests, by file name, uses an entry.

    A test uses the module of the entry, or quotes the name of the entry or of a measure. The output
    of a format is compared with a golden file, or has a test file of its own.
    """
    registry = REGISTRIES[kind]
    users = {file: text for file, text in tests.items() if registry.module(name) in text}
    if kind == "formats":
        return f"test_{name}.py" in tests or any("golden(" in text for text in users.values())
    names = [name]
    if kind == "measures":
        names = [family.name.partition("{")[0] for family in registry.built_in()[name].families]
    quoted = any(f'"{word}' in text for word in names for text in tests.values())
    definition = registry.definition(name).__name__
    return quoted or any(definition in text for text in users.values())


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
    module = registry.module(name)
    if kind != "measures":  # families have definitions of their own
        assert registry.describe(name), f"{registry.kind} {name}: write a docstring in {module}"
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
