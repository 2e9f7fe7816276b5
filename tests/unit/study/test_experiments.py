"""Experiments that show why a claim does not come out: each can be run, and has its numbers."""

import csv
from pathlib import Path
from statistics import mean

import pytest

from numalab.study.plan import plan_study

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "studies/experiments").glob("*.toml"))


def test_there_are_experiments() -> None:
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_its_stored_runs_are_those_of_its_plan(path: Path) -> None:
    with (path.with_suffix("") / "measures.csv").open(encoding="utf-8") as file:
        stored = {row["run"] for row in csv.DictReader(file)}
    assert stored == {run.id for run in plan_study(path).runs}


def test_the_page_has_the_means_of_the_cached_warehouses() -> None:
    folder = ROOT / "studies/experiments/group-construction-cached"
    with (folder / "measures.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    page = (ROOT / "docs/studies/group-construction.md").read_text(encoding="utf-8")
    for threads in (1, 8, 32, 48):
        before, after = (
            mean(float(row["throughput"]) for row in rows if f"-{threads}_{variant}_" in row["run"])
            for variant in ("before", "after")
        )
        assert f"| {before:,.0f} | {after:,.0f} |" in page


def test_the_page_has_the_rates_of_long_streams() -> None:
    with (ROOT / "studies/experiments/less-busy-nodes-long/measures.csv").open("r") as file:
        rows = {row["run"]: row["triad_rate"] for row in csv.DictReader(file)}
    page = (ROOT / "docs/studies/less-busy-nodes.md").read_text(encoding="utf-8")
    for cell in ("stream", "stream-half"):
        shown = [
            ", ".join(rows[f"full-4_{cell}_{variant}_{seed}"] for seed in (1, 2, 3))
            for variant in ("with", "off")
        ]
        assert f"| {shown[0]} | {shown[1]} |" in page
