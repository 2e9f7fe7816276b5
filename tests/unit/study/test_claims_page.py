"""docs/results/claims.md says what the stored results say, and leaves no study of a post out."""

import re

import pytest

from numalab.places import project_dir
from support.claims_page import PAGE, render, studies_of

OF_NO_POST = {
    "group-construction-counted",
    "memory-tiers",
    "published-machines",
    "sched-ext",
    "sched-ext-crates",
    "what-balancing-gains",
    "what-distance-costs",
}


def test_the_page_is_what_the_stored_results_say(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text(encoding="utf-8")
    rendered = render(page)
    if request.config.getoption("--regenerate"):
        PAGE.write_text(rendered, encoding="utf-8")
    assert rendered == PAGE.read_text(encoding="utf-8")


def test_it_has_every_study_of_a_post() -> None:
    names = {path.stem for path in (project_dir() / "studies").glob("*.toml")} - OF_NO_POST
    assert sorted(studies_of(PAGE.read_text(encoding="utf-8"))) == sorted(names)


def test_every_row_has_a_verdict_and_every_number_a_result() -> None:
    tables = PAGE.read_text(encoding="utf-8").partition("\n## ")[2]
    rows = re.findall(r"^\| (?!claim|---)(.*) \|$", tables, re.MULTILINE)
    cells = [[cell.strip() for cell in row.split(" | ")] for row in rows]
    measured = [row for row in cells if len(row) == 6 and row[2]]
    assert len(measured) > 40
    assert all(re.search(r"\]\(../../(reports|studies)/", row[5]) for row in measured)
    assert all(row[-1] for row in cells)
