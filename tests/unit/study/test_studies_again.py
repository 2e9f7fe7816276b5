"""The pages of studies that were run again say what changed, as their stored runs do."""

import csv
from collections.abc import Iterator
from statistics import mean

import pytest

from numalab.places import project_dir
from numalab.results.layout import Results
from numalab.results.reader import load_runs

BEFORE = project_dir() / "tests/data/timed"
VARIANTS = ("before", "after")


def rows_of(study: str) -> Iterator[str]:
    """Yield a row for each measure of a claim: means of 23 November, and of the stored runs."""
    with (BEFORE / f"{study}-23-november.csv").open(encoding="utf-8") as file:
        earlier = {(r["workload"], r["measure"], r["variant"]): r for r in csv.DictReader(file)}
    _, runs = load_runs(Results(project_dir() / "reports/examples" / study))
    for workload, measure in dict.fromkeys((key[0], key[1]) for key in earlier):
        then = [earlier.get((workload, measure, variant)) for variant in VARIANTS]
        cells = [f"{float(row['mean']):.4g}" if row else "" for row in then]
        for variant in VARIANTS:
            values = [
                value
                for run in runs
                if (run.cell.label, run.manifest.variant) == (workload, variant)
                and (value := run.value(measure)) is not None
            ]
            cells.append(f"{mean(values):.4g}" if values else "")
        yield f"| {workload}, `{measure}` | {' | '.join(cells)} |"


@pytest.mark.parametrize(("study", "measures"), [("numa-fixes-2018", 52), ("numa-imbalance", 35)])
def test_a_page_has_the_means_of_both_times(study: str, measures: int) -> None:
    page = (project_dir() / f"docs/results/{study}.md").read_text(encoding="utf-8")
    rows = list(rows_of(study))
    assert len(rows) == measures
    for row in rows:
        assert row in page
