"""What keeps the house easy to carry on: small modules, small rooms, names given once."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from numalab import places

PACKAGE = Path(places.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
FOLDERS = sorted({path.parent for path in MODULES})
MOST_LINES = 400
MOST_MODULES = 15
LONG = 100  # lines, from which on a module has a test that imports it
TESTS = Path(__file__).parents[1]
ROOT = PACKAGE.parents[1]
C_FILES = sorted(
    path for folder in ("images", "lab", "workloads") for path in (ROOT / folder).rglob("*.[ch]")
)


@pytest.mark.parametrize("path", MODULES + C_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_read_at_one_sitting(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_folder_is_seen_at_a_glance(folder: Path) -> None:
    assert sum(path.parent == folder for path in MODULES) <= MOST_MODULES


def test_no_two_classes_have_one_name() -> None:
    places_of = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places_of[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: where for name, where in places_of.items() if len(where) > 1} == {}


def imported_by_tests() -> set[str]:
    modules: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                modules |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return modules


def test_a_long_module_has_a_test() -> None:
    long = {
        ".".join(("numalab", *path.relative_to(PACKAGE).with_suffix("").parts))
        for path in MODULES
        if len(path.read_text(encoding="utf-8").splitlines()) > LONG
    }
    assert long - imported_by_tests() == set()


def patched_names(path: Path) -> list[str]:
    """Return the names that a test module patches with `setattr`, each with its line."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="setattr"), args=[*_, ast.Constant(str(name)), _]
            ):
                names.append(f"{path.name}:{node.lineno} {name}")
    return names


def test_no_test_patches_a_private_name() -> None:
    patched = [name for path in TESTS.parent.rglob("*.py") for name in patched_names(path)]
    assert patched
    assert [name for name in patched if re.search(r"[ .]_[^.]*$", name)] == []
