"""Verdicts of numalab against a second program, and against kernels that are compared with
themselves."""

import random
from collections.abc import Iterator
from itertools import islice
from math import sqrt
from pathlib import Path

import pytest

from numalab.places import project_dir
from numalab.report.build.study import gather
from numalab.report.build.verdicts import judge_cells
from numalab.report.claim_outcome import ClaimOutcome
from numalab.results.layout import Results
from numalab.results.plan import Cell
from numalab.results.reader import StoredRun, load_runs, of_variant
from numalab.statistics.shift import reaches
from numalab.study.claims import Claim
from numalab.study.model import load_study
from support import second_opinion

ROOT = project_dir()
STUDIES = sorted(
    path
    for path in (ROOT / "studies").glob("*.toml")
    if (ROOT / "reports/examples" / path.stem / "compact.parquet").exists()
)
SELF_COMPARISONS = 52
# With so many runs on each side the lab counts all splits; else it draws so many, the other program
# twice as many.
MOST_COUNTED, SAMPLED = 10, 100_000


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_second_program_gives_the_same_verdicts(path: Path) -> None:
    example = ROOT / "reports/examples" / path.stem
    opinions = second_opinion.opinions(path, example / "compact.parquet")
    compared = {
        (report.topology.name, report.workload.label, claim.text): claim
        for report in gather(Results(example)).reports
        for claim in report.claims
        if claim.verdict
    }
    assert opinions.keys() == compared.keys()
    for key, claim in compared.items():
        opinion, figures = opinions[key], claim.figures
        assert opinion.verdict == claim.verdict, key
        if figures is None:
            assert opinion.p_value is None
            continue
        error = 0.0
        if len(load_study(path).seeds) > MOST_COUNTED:  # five standard errors of both
            error = 5 * sqrt(1.5 * max(figures.p_value, 1 / SAMPLED) / SAMPLED)
        assert opinion.p_value == pytest.approx(figures.p_value, abs=error), key
        assert opinion.level == pytest.approx(figures.level), key
        if opinion.interval is not None:
            assert opinion.interval == pytest.approx(figures.interval, rel=2e-3, abs=2e-3), key


def test_the_second_program_is_short_and_shares_no_code() -> None:
    lines = Path(second_opinion.__file__).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 200
    assert not [
        line for line in lines if "import" in line and "numalab" in line.split("import")[-1]
    ]
    assert not [line for line in lines if line.startswith(("from numalab", "import numalab"))]


def resampled(runs: list[StoredRun], variant: str, rng: random.Random) -> list[StoredRun]:
    """Draw as many runs of one kernel as there are, with replacement, for a variant."""
    chosen = rng.choices(runs, k=len(runs))
    return [
        StoredRun(run.directory, run.manifest.but(variant=variant), run.measures) for run in chosen
    ]


def self_comparisons() -> Iterator[list[ClaimOutcome]]:
    """Yield the verdicts of studies in which every variant is the same kernel.

    Each compares one kernel of a stored study with itself, by the claims of the study.
    """
    rng = random.Random(20)
    sources = []
    for path in STUDIES:
        study = load_study(path)
        plan, runs = load_runs(Results(ROOT / "reports/examples" / path.stem))
        if len(study.seeds) >= 5 and any(claim.direction for claim in study.claims):
            sources += [(study, plan, runs, kernel) for kernel in study.variants]
    while True:
        for study, plan, runs, kernel in sources:
            cells: dict[Cell, tuple[list[Claim], list[StoredRun]]] = {}
            for cell in plan.cells:
                own = [run for run in of_variant(runs, kernel) if run.cell == cell]
                claims = [
                    claim
                    for claim in study.claims
                    if claim.direction and claim.is_about(cell.topology, cell.label)
                ]
                variants = {name for claim in claims for name in claim.variants}
                if own and claims:
                    sides = [run for name in sorted(variants) for run in resampled(own, name, rng)]
                    cells[cell] = claims, sides
            outcomes = judge_cells(cells, kernel, study.primary_claims or 0)
            yield [outcome for of_cell in outcomes.values() for outcome in of_cell]


def is_false(outcome: ClaimOutcome) -> bool:
    """Return whether a verdict says that a kernel differs from itself."""
    if outcome.figures is None:
        return False
    low, high = outcome.figures.interval
    return not (low or 0) <= 0 <= (high or 0)


def test_a_kernel_rarely_differs_from_itself() -> None:
    """At most 5 % of the studies have a false positive in a family.

    Of 52 studies at this rate, more than five have one in 4.5 % of all cases (binomial).
    """
    wrong = {"primary": 0, "secondary": 0}
    tests = 0
    for outcomes in islice(self_comparisons(), SELF_COMPARISONS):
        tests += sum(outcome.figures is not None for outcome in outcomes)
        for family in wrong:
            wrong[family] += any(
                is_false(outcome)
                for outcome in outcomes
                if outcome.figures is not None and outcome.figures.family == family
            )
    assert tests > 400
    assert max(wrong.values()) <= 5, (wrong, tests)


def test_false_positives_are_those_of_the_test() -> None:
    for outcomes in islice(self_comparisons(), 8):
        for outcome in outcomes:
            figures = outcome.figures
            if figures is not None and not outcome.expected.endswith("no change"):
                assert is_false(outcome) == reaches(figures.p_value, figures.level)
