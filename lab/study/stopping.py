"""Adds repetitions until a measure is decided, by a rule that is written into the report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.analysis.statistics import FEWEST, LEVEL, compare_samples
from lab.store import Results
from lab.study.plan import Cell, Plan, PlannedRun
from lab.study.stored import StoredRun, load_runs

PRECISION = 5.0  # percent of the mean before


@dataclass(frozen=True)
class StoppingRule:
    """When repetitions end: the measure is decided, or each variant has `most` runs.

    There is a look after each repetition from the third on. Looking often finds a difference by
    chance more often, so each look has its share of the level (Bonferroni's inequality).
    """

    measure: str
    most: int

    @property
    def looks(self) -> int:
        """How often the rule looks at most."""
        return max(1, self.most - FEWEST + 1)

    def __str__(self) -> str:
        """Write the rule for the report."""
        return (
            f"repetitions were added until {self.measure} showed a difference (p < {LEVEL:g} /"
            f" {self.looks}, for {self.looks} looks at most), or its 95 % interval was narrower"
            f" than +-{PRECISION:g} % of the mean before, or each variant had {self.most} runs"
        )

    def decided(self, before: Sequence[float | None], after: Sequence[float | None]) -> str:
        """Say why no more runs of these two variants are needed; empty where they are."""
        known = [[value for value in side if value is not None] for side in (before, after)]
        if min(map(len, known)) < FEWEST:
            # What cannot be measured does not become so by repeating it.
            lacks = [
                side for side, values in zip((before, after), known, strict=True) if not values
            ]
            tried = any(len(side) >= FEWEST for side in lacks)
            return "it could not be measured" if tried else ""
        found = compare_samples(before, after, direction="none", family=self.looks)
        if found.shown:
            return "a difference was shown"
        if found.interval is None:  # every run gave the same value
            return "all runs gave the same value"
        low, high = (found.percent(end) for end in found.interval)
        if low is not None and high is not None and high - low <= 2 * PRECISION:
            return "its interval is narrow"
        return ""


@dataclass(frozen=True)
class Look:
    """What a look at the results of a study says: the runs to add, and why others were not."""

    more: tuple[PlannedRun, ...]
    reasons: Mapping[Cell, str]


def look(plan: Plan, results: Results, rule: StoppingRule) -> Look:
    """Look at what has been measured: each cell that is not decided gets a repetition more.

    Raises UserError when no run has finished, or for damaged results.
    """
    _, runs = load_runs(results)
    more: list[PlannedRun] = []
    reasons: dict[Cell, str] = {}
    for cell in plan.cells:
        reason = _reason(plan, cell, [run for run in runs if run.cell == cell], rule)
        if reason:
            reasons[cell] = reason
        else:
            more += _repetition(plan, cell)
    return Look(tuple(more), reasons)


def _variants(plan: Plan, cell: Cell) -> list[str]:
    return list(dict.fromkeys(run.variant for run in plan.runs if run.cell == cell))


def _reason(plan: Plan, cell: Cell, runs: Sequence[StoredRun], rule: StoppingRule) -> str:
    names = _variants(plan, cell)
    planned = max(
        sum(run.cell == cell and run.variant == name for run in plan.runs) for name in names
    )
    sides = [
        [run.value(rule.measure) for run in runs if run.manifest["variant"] == name]
        for name in names
    ]
    if len(names) < 2:
        return "there is one variant"
    reasons = [rule.decided(sides[0], side) for side in sides[1:]]
    if all(reasons):
        return "; ".join(dict.fromkeys(reasons))
    if planned >= rule.most:
        return f"there are {planned} runs of each variant"
    return ""


def _repetition(plan: Plan, cell: Cell) -> list[PlannedRun]:
    """Return a run of each variant with a seed that the plan does not have."""
    seed = max(run.seed for run in plan.runs if run.cell == cell) + 1
    return [
        PlannedRun(f"{cell.name}_{name}_{seed}", cell.topology, cell.label, name, seed)
        for name in _variants(plan, cell)
    ]
