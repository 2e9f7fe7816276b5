"""The tests and fuzz targets that the threat model names exist."""

import re

from fuzz.runner import modules
from numalab.places import BELIEVED, shipped_dir

PAGE = (shipped_dir() / "docs/explanation/security.md").read_text(encoding="utf-8")


def test_every_test_that_the_page_names_is_there() -> None:
    paths = re.findall(r"`(tests/[a-z0-9_/]+\.py)`", PAGE)
    assert len(paths) > 15
    assert [path for path in paths if not (shipped_dir() / path).is_file()] == []


def test_every_fuzz_target_is_named() -> None:
    """All but those for files that people write themselves."""
    named = {name for name in modules() if f"`{name}`" in PAGE}
    assert set(modules()) - named == {"documents", "kills"}


def test_every_folder_that_an_archive_must_not_hold_is_named() -> None:
    assert [name for name in BELIEVED if f"`{name}`" not in PAGE] == []
