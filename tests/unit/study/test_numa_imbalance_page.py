"""docs/results/numa-imbalance.md has what changed with the emulator, as far as it was run again."""

import csv
from collections.abc import Iterator

from numalab.places import project_dir
from numalab.results.layout import Results
from numalab.results.reader import load_runs

GUESTS = project_dir() / "tests/data/timed"


def seed_1_of_both_emulators() -> Iterator[tuple[str, str, list[str]]]:
    """Yield workload, measure, and values before and after, of the stored study and of today's."""
    with (GUESTS / "numa-imbalance-seed-1.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    today = {(row["workload"], row["measure"], row["variant"]): float(row["value"]) for row in rows}
    _, runs = load_runs(Results(project_dir() / "reports/examples/numa-imbalance"))
    stored = {(run.cell.label, run.manifest.variant): run for run in runs if run.manifest.seed == 1}
    for workload, measure in dict.fromkeys((row["workload"], row["measure"]) for row in rows):
        values = []
        for variant in ("before", "after"):
            value = stored[workload, variant].value(measure)
            assert value is not None
            values.append(value)
        values += [today[workload, measure, variant] for variant in ("before", "after")]
        yield workload, measure, [f"{value:.4g}" for value in values]


def test_the_page_has_seed_1_of_numa_imbalance_with_both_emulators() -> None:
    page = (project_dir() / "docs/results/numa-imbalance.md").read_text(encoding="utf-8")
    rows = list(seed_1_of_both_emulators())
    assert len(rows) == 26
    for workload, measure, values in rows:
        assert f"| {workload}, `{measure}` | {' | '.join(values)} |" in page
