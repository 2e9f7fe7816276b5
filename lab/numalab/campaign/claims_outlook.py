"""What a study's claims would need to be refuted, and which effects so many seeds can show."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from numalab.results.cell import Cell
from numalab.results.layout import Results
from numalab.results.reader import StoredRun, load_runs
from numalab.statistics.comparison import smallest_effect
from numalab.statistics.summary import deviations
from numalab.study.claims import Claim, claims_about
from numalab.study.plan import Plan


@dataclass(frozen=True)
class ClaimOutlook:
    """A claim of one cell before its runs.

    `smallest` is the smallest true change that `seeds` runs a variant would show, in percent of the
    mean of the first variant, by how far stored runs of the same cell, variants and mode spread;
    None where fewer than two of each are stored, or their mean is 0. `stored` is how many there are
    of the variant that has fewer. `published` is the source's own change in percent.
    """

    cell: Cell
    text: str
    measure: str
    refuted: str
    seeds: int
    smallest: float | None
    stored: int
    published: float | None

    @property
    def too_few(self) -> bool:
        """Whether an effect of the published size would probably not be shown by these seeds."""
        if self.smallest is None or self.published is None:
            return False
        return self.smallest > abs(self.published)


def look_at_claims(plan: Plan, mode: str, folder: Path) -> tuple[ClaimOutlook, ...]:
    """Look at each claim in each cell that it is about.

    `folder` holds results, as `reports` does: those of the study, and of `examples`.
    """
    stored = _stored(plan.name, mode, folder)
    return tuple(
        _outlook(plan, claim, cell, stored)
        for cell in plan.cells
        for claim in claims_about(plan.study.claims, cell, plan.runs_of(cell))
    )


def _stored(name: str, mode: str, folder: Path) -> tuple[StoredRun, ...]:
    """Return the runs in this mode of the newest results that have any."""
    for results in _newest_first(name, folder):
        _, runs = load_runs(results)
        if fitting := tuple(run for run in runs if run.manifest.mode == mode):
            return fitting
    return ()


def _newest_first(name: str, folder: Path) -> Iterator[Results]:
    own = sorted((folder / name).glob("*/plan.json"), reverse=True)
    yield from (Results(path.parent) for path in own)
    if (example := Results(folder / "examples" / name)).plan.exists():
        yield example


def _outlook(plan: Plan, claim: Claim, cell: Cell, stored: Sequence[StoredRun]) -> ClaimOutlook:
    runs = plan.runs_of(cell)
    seeds = len({run.seed for run in runs})
    before, after = (
        [
            value
            for run in stored
            if run.cell == cell and run.manifest.variant == variant
            if (value := run.value(claim.measure)) is not None
        ]
        for variant in (claim.from_variant, claim.to)
    )
    if claim.statistic == "spread":
        before, after = deviations(before), deviations(after)
    about = claims_about(plan.study.claims, cell, runs)
    family = sum(each.variant is None for each in about)
    smallest = smallest_effect(before, after, runs=seeds, family=family)
    mean = sum(before) / len(before) if before else 0
    return ClaimOutlook(
        cell=cell,
        text=claim.text,
        measure=claim.measure,
        refuted=claim.refuted,
        seeds=seeds,
        smallest=100 * smallest / abs(mean) if mean and smallest is not None else None,
        stored=min(len(before), len(after)),
        published=claim.published_change,
    )
