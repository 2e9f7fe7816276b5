"""What every built-in entry of a registry has: a description, and a test."""

from pathlib import Path

import pytest

from numalab.api import REGISTRIES

TESTS = Path(__file__).parents[2]
ENTRIES = [(kind, name) for kind, registry in REGISTRIES.items() for name in registry.built_in()]
TEXT = "\n".join(
    path.read_text(encoding="utf-8")
    for path in (TESTS / "unit").rglob("*.py")
    if path != Path(__file__)
)


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_an_entry_is_described_and_tested(kind: str, name: str) -> None:
    registry = REGISTRIES[kind]
    module = registry.module(name)
    lacking = f"{registry.kind} {name} in {module}"
    if kind != "measures":  # families have definitions of their own
        assert registry.describe(name), f"{lacking} lacks a docstring: write its first line there"
    room = module.split(".")[1]
    stem = module.rpartition(".")[2]
    words = [module, f"{name!r}", f'"{name}"']
    if kind == "measures":
        words += [family.name.partition("{")[0] for family in registry.built_in()[name].families]
    assert any(word in TEXT for word in words), (
        f"{lacking} lacks a test: create tests/unit/{room}/test_{stem}.py"
    )
